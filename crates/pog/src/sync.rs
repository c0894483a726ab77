//! What threads and processes share: the atomics of the publication protocol, so that loom can try their orders, and
//! what may lie in shared memory.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What may lie in shared memory.
///
/// # Safety
/// Every bit pattern is a value, and whatever changes while it is shared is an atomic.
pub unsafe trait Shareable {}

// SAFETY: an atomic.
unsafe impl Shareable for std::sync::atomic::AtomicU8 {}
// SAFETY: an atomic.
unsafe impl Shareable for std::sync::atomic::AtomicU16 {}
// SAFETY: an atomic.
unsafe impl Shareable for std::sync::atomic::AtomicU32 {}
// SAFETY: an atomic.
unsafe impl Shareable for std::sync::atomic::AtomicU64 {}
