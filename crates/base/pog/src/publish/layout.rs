//! Layout of the shared memory. It is fixed, because BPF programs and other processes read it.
//!
//! `Header` is at 0. Two copies of [`Header::copy_bytes`] each follow from [`Header::first_copy`]:
//! a `CopyHeader`, the host table (`entries_max` of 2 bytes), array A (`cells_max` cells), array B
//! (`cells_max` cells), and `extra_bytes` of tables that the publisher changes at the same time.
//! Each part begins at a multiple of 64. The byte order is that of the machine.
//! order of the machine.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use super::epoch::EpochWord;
use crate::cell::Cell;
use crate::sizes::Sizes;
use crate::sync::Shareable;

/// First bytes of the memory: identifies a POG with this layout.
pub const MAGIC: [u8; 8] = *b"eqpPOG01";

/// Alignment of all parts: a cache line.
const LINE_BYTES: usize = 64;

/// The epoch, and fields that are constant while the memory is in use.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`]; written last during set-up.
    pub magic: AtomicU64,
    /// Size of a cell: 1, 2 or 4 bytes.
    pub cell_bytes: u32,
    /// [`KeyHash::ID`](crate::KeyHash::ID) of the hash.
    pub hash_id: u32,
    /// Bits of tau in a cell; the bits above are the fingerprint. Equal to the bits of a cell in
    /// the plain form.
    pub tau_bits: u32,
    /// Capacity of each array, in cells.
    pub cells_max: u32,
    /// Capacity of the host table, in entries; 0: there is none.
    pub entries_max: u32,
    padding: u32,
    /// Offset of copy 0 from the start.
    pub first_copy: u64,
    /// Offset of copy 1 from copy 0.
    pub copy_bytes: u64,
    /// Size of the publisher's own tables in a copy, bytes; a multiple of 8.
    pub extra_bytes: u32,
    padding_to_epoch: [u32; 3],
    /// Current epoch. It has its own cache line, because every reader reads it.
    pub epoch: EpochWord,
}

/// Start of a copy.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CopyHeader {
    /// First word of the hash's seed.
    pub k0: AtomicU64,
    /// Second word of the hash's seed.
    pub k1: AtomicU64,
    /// |A|
    pub a: AtomicU32,
    /// |B|
    pub b: AtomicU32,
    /// Number of entries of the host table: 0 or a power of two.
    pub entries: AtomicU32,
    padding: u32,
    /// Generation of the image.
    pub generation: AtomicU64,
}

// SAFETY: atomics, and integers that are written before the magic number.
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

/// Capacities of the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedSizes {
    pub(super) cells_max: u32,
    pub(super) entries_max: u32,
    pub(super) extra_bytes: u32,
}

impl SharedSizes {
    /// Capacity for every image of a controller with this `keys_max`
    /// ([`PogBuilder::keys_max`](crate::PogBuilder::keys_max)), and for a host table of
    /// `2^table_bits` entries if one is published with the cells.
    ///
    /// # Panics
    /// If `keys_max` exceeds [`KEYS_MAX`](crate::KEYS_MAX), or `table_bits` exceeds
    /// [`TABLE_BITS_MAX`](crate::TABLE_BITS_MAX).
    pub fn new(keys_max: usize, table_bits: Option<u32>) -> SharedSizes {
        assert!(keys_max <= crate::KEYS_MAX, "{keys_max} keys are more than one POG holds");
        assert!(
            table_bits.is_none_or(|bits| bits <= crate::TABLE_BITS_MAX),
            "a table of {table_bits:?} bits"
        );
        let cells_max = Sizes::most(keys_max).a();
        SharedSizes {
            cells_max,
            entries_max: table_bits.map_or(0, |bits| 1 << bits),
            extra_bytes: 0,
        }
    }

    /// Adds space for `bytes` (rounded up to a multiple of 64) of the publisher's own tables in
    /// each copy. [`Publisher::publish_with`](super::Publisher::publish_with) makes them visible
    /// together with the cells.
    pub fn with_extra(self, bytes: u32) -> SharedSizes {
        SharedSizes { extra_bytes: bytes.next_multiple_of(LINE_BYTES as u32), ..self }
    }

    /// Returns the capacity of each of the two arrays, in cells.
    pub fn cells_max(&self) -> u32 {
        self.cells_max
    }

    /// Returns the required size of the memory for cells `C`, bytes.
    pub fn bytes<C: Cell>(&self) -> usize {
        size_of::<Header>() + 2 * self.copy_bytes::<C>()
    }

    /// Returns the size of one of the two copies, bytes. The first follows the header, the second
    /// follows the first.
    pub fn copy_bytes<C: Cell>(&self) -> usize {
        self.extra_offset::<C>() + self.extra_bytes as usize
    }

    fn array_bytes<C: Cell>(&self) -> usize {
        (self.cells_max as usize * size_of::<C>()).next_multiple_of(LINE_BYTES)
    }

    /// Offset of the host table in a copy.
    pub(super) fn entries_offset(&self) -> usize {
        size_of::<CopyHeader>()
    }

    /// Returns the offset of array A in a copy.
    pub fn a_offset(&self) -> usize {
        let entries = self.entries_max as usize * size_of::<AtomicU16>();
        (self.entries_offset() + entries).next_multiple_of(LINE_BYTES)
    }

    /// Returns the offset of array B in a copy.
    pub fn b_offset<C: Cell>(&self) -> usize {
        self.a_offset() + self.array_bytes::<C>()
    }

    /// Returns the offset of the publisher's own tables in a copy.
    pub fn extra_offset<C: Cell>(&self) -> usize {
        self.b_offset::<C>() + self.array_bytes::<C>()
    }
}
