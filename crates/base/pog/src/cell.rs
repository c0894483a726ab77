//! Cells of the two arrays: 8, 16 or 32 bits (the paper's `l`).

use std::fmt::{Debug, LowerHex};
use std::hash::Hash;
use std::ops::{BitXor, BitXorAssign};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed};

use crate::sync::Shareable;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
}

/// Type of a POG's cells and of its values (tau): `u8`, `u16` or `u32`.
pub trait Cell:
    sealed::Sealed
    + Copy
    + Eq
    + Ord
    + Hash
    + Default
    + Debug
    + LowerHex
    + BitXor<Output = Self>
    + BitXorAssign
    + Send
    + Sync
    + 'static
{
    /// Number of bits of a cell: the paper's `l`.
    const BITS: u32;

    /// Atomic type of a cell in memory that threads or processes share.
    type Atomic: Shareable + Send + Sync;

    /// Returns the low [`Self::BITS`] bits.
    fn truncate(bits: u64) -> Self;

    /// Returns the cell as a number.
    fn widen(self) -> u64;

    /// Reads a shared cell (relaxed).
    fn load(shared: &Self::Atomic) -> Self;

    /// Writes a shared cell (relaxed).
    fn store(self, shared: &Self::Atomic);
}

macro_rules! cell {
    ($word:ty, $atomic:ty) => {
        impl Cell for $word {
            const BITS: u32 = <$word>::BITS;
            type Atomic = $atomic;

            #[inline(always)]
            fn truncate(bits: u64) -> Self {
                bits as $word
            }

            #[inline(always)]
            fn widen(self) -> u64 {
                u64::from(self)
            }

            #[inline(always)]
            fn load(shared: &$atomic) -> Self {
                shared.load(Relaxed)
            }

            #[inline(always)]
            fn store(self, shared: &$atomic) {
                shared.store(self, Relaxed);
            }
        }
    };
}

cell!(u8, AtomicU8);
cell!(u16, AtomicU16);
cell!(u32, AtomicU32);
