//! Atomics of the publication protocol, which loom replaces in its tests, and the marker of types
//! for shared memory.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Type that may be in shared memory.
///
/// # Safety
/// Every bit pattern must be valid, and data that changes while it is shared must be atomic.
pub unsafe trait Shareable {}

// SAFETY: an atomic.
unsafe impl Shareable for std::sync::atomic::AtomicU8 {}
// SAFETY: an atomic.
unsafe impl Shareable for std::sync::atomic::AtomicU16 {}
// SAFETY: an atomic.
unsafe impl Shareable for std::sync::atomic::AtomicU32 {}
// SAFETY: an atomic.
unsafe impl Shareable for std::sync::atomic::AtomicU64 {}
