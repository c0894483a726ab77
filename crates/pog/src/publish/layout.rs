//! What lies where in the shared memory. Fixed: a BPF program and other processes read it.
//!
//! `Header` at 0, then from [`Header::first_copy`] on two copies of [`Header::copy_bytes`] each: a `CopyHeader`, the
//! host table (`entries_max` of 2 bytes), array A (`cells_max` cells), array B (`cells_max` cells), and `extra_bytes` of
//! what else its publisher wants to change in the same instant, each beginning at a multiple of 64. All in the byte
//! order of the machine.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use super::epoch::EpochWord;
use crate::cell::Cell;
use crate::sizes::Sizes;
use crate::sync::Shareable;

/// First bytes of the memory: a POG, in this layout.
pub const MAGIC: [u8; 8] = *b"eqpPOG01";

/// Everything begins at multiples of a cache line.
const LINE_BYTES: usize = 64;

/// What does not change while the memory is in use, and the epoch.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`]; written last when the memory is set up.
    pub magic: AtomicU64,
    /// Bytes of a cell: 1, 2 or 4.
    pub cell_bytes: u32,
    /// [`KeyHash::ID`](crate::KeyHash::ID) of the hash.
    pub hash_id: u32,
    /// Bits of tau in a cell; the bits above are the fingerprint's. As many as a cell has: plain form.
    pub tau_bits: u32,
    /// Room in each array.
    pub cells_max: u32,
    /// Room in the host table; 0: there is none.
    pub entries_max: u32,
    padding: u32,
    /// Offset of copy 0 from the beginning.
    pub first_copy: u64,
    /// Offset of copy 1 from copy 0.
    pub copy_bytes: u64,
    /// Room for the publisher's own tables in a copy; a multiple of 8.
    pub extra_bytes: u32,
    padding_to_epoch: [u32; 3],
    /// Alone on its line: the word that every reader reads.
    pub epoch: EpochWord,
}

/// The beginning of a copy.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CopyHeader {
    /// The hash's seed.
    pub k0: AtomicU64,
    /// The seed's second word.
    pub k1: AtomicU64,
    /// |A|
    pub a: AtomicU32,
    /// |B|
    pub b: AtomicU32,
    /// Entries of the host table: 0 or a power of two.
    pub entries: AtomicU32,
    padding: u32,
    /// The generation of the image.
    pub generation: AtomicU64,
}

// SAFETY: integers that are set up before the magic number is, and atomics.
unsafe impl Shareable for Header {}
// SAFETY: atomics.
unsafe impl Shareable for CopyHeader {}

const _: () = {
    assert!(size_of::<Header>() == 128);
    assert!(offset_of!(Header, magic) == 0);
    assert!(offset_of!(Header, cell_bytes) == 8);
    assert!(offset_of!(Header, hash_id) == 12);
    assert!(offset_of!(Header, tau_bits) == 16);
    assert!(offset_of!(Header, cells_max) == 20);
    assert!(offset_of!(Header, entries_max) == 24);
    assert!(offset_of!(Header, first_copy) == 32);
    assert!(offset_of!(Header, copy_bytes) == 40);
    assert!(offset_of!(Header, extra_bytes) == 48);
    assert!(offset_of!(Header, epoch) == 64);
    assert!(size_of::<CopyHeader>() == 64);
    assert!(offset_of!(CopyHeader, k0) == 0);
    assert!(offset_of!(CopyHeader, k1) == 8);
    assert!(offset_of!(CopyHeader, a) == 16);
    assert!(offset_of!(CopyHeader, b) == 20);
    assert!(offset_of!(CopyHeader, entries) == 24);
    assert!(offset_of!(CopyHeader, generation) == 32);
};

/// How much the shared memory has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedSizes {
    pub(super) cells_max: u32,
    pub(super) entries_max: u32,
    pub(super) extra_bytes: u32,
}

impl SharedSizes {
    /// Room for `keys_max` keys at any density that a controller uses, and a host table of `2^table_bits` entries if
    /// one is published with the cells.
    ///
    /// # Panics
    /// If `keys_max` is more than [`KEYS_MAX`](crate::KEYS_MAX), or `table_bits` more than
    /// [`TABLE_BITS_MAX`](crate::TABLE_BITS_MAX).
    pub fn new(keys_max: usize, table_bits: Option<u32>) -> SharedSizes {
        assert!(keys_max <= crate::KEYS_MAX, "{keys_max} keys are more than one POG holds");
        assert!(
            table_bits.is_none_or(|bits| bits <= crate::TABLE_BITS_MAX),
            "a table of {table_bits:?} bits"
        );
        // The upper bound of the sizes is four cells a key; while keys become fewer the arrays follow.
        let cells_max = Sizes::most(keys_max).a();
        SharedSizes {
            cells_max,
            entries_max: table_bits.map_or(0, |bits| 1 << bits),
            extra_bytes: 0,
        }
    }

    /// With room for `bytes` (rounded up to a multiple of 64) of the publisher's own tables in each copy, which
    /// [`Publisher::publish_with`](super::Publisher::publish_with) makes visible in the same instant as the cells.
    pub fn with_extra(self, bytes: u32) -> SharedSizes {
        SharedSizes { extra_bytes: bytes.next_multiple_of(LINE_BYTES as u32), ..self }
    }

    /// Room for cells in each of the two arrays.
    pub fn cells_max(&self) -> u32 {
        self.cells_max
    }

    /// Bytes of memory needed, for cells `C`.
    pub fn bytes<C: Cell>(&self) -> usize {
        size_of::<Header>() + 2 * self.copy_bytes::<C>()
    }

    /// Bytes of one of the two copies; the first begins behind the header, the second behind the first.
    pub fn copy_bytes<C: Cell>(&self) -> usize {
        self.extra_offset::<C>() + self.extra_bytes as usize
    }

    fn array_bytes<C: Cell>(&self) -> usize {
        (self.cells_max as usize * size_of::<C>()).next_multiple_of(LINE_BYTES)
    }

    /// Of the host table in a copy.
    pub(super) fn entries_offset(&self) -> usize {
        size_of::<CopyHeader>()
    }

    /// Offset of array A in a copy.
    pub fn a_offset(&self) -> usize {
        let entries = self.entries_max as usize * size_of::<AtomicU16>();
        (self.entries_offset() + entries).next_multiple_of(LINE_BYTES)
    }

    /// Offset of array B in a copy.
    pub fn b_offset<C: Cell>(&self) -> usize {
        self.a_offset() + self.array_bytes::<C>()
    }

    /// Offset of the publisher's own tables in a copy.
    pub fn extra_offset<C: Cell>(&self) -> usize {
        self.b_offset::<C>() + self.array_bytes::<C>()
    }
}
