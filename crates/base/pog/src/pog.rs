//! The data plane: two arrays of cells and a hash.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::block::{self, Block};
use crate::cell::Cell;
use crate::delta::{Delta, Scope};
use crate::error::ApplyError;
use crate::form::{Fingerprint, Form, Plain};
use crate::hash::{KeyHash, Seed, SipHash13};
use crate::key::Key;
use crate::memory;
use crate::sizes::Sizes;

/// Minimum size of arrays with prefetching, bytes. In smaller arrays, the accesses of a block are
/// independent, and out-of-order execution overlaps them just as well. Measured on a Zen 4 with 1
/// MiB and 32 MiB of cache, ns per key without and with: 0.2 M keys (1 MB) 3.0 and 4.1, 1 M (5.6
/// MB) 3.5 and 5.2, 3 M (17 MB) 6.0 and 6.0, 5 M (28 MB) 10.7 and 7.7, 10 M (56 MB) 14.8 and 13.6.
/// On a Cascade Lake with 1 MiB and a contended L3 cache: 0.2 M 7.1 and 8.7, 0.6 M (3.4 MB) 8.8 and
/// 10.6, 2 M (11 MB) 17.7 and 18.1, 10 M 27.8 and 28.0.
const FETCH_BYTES_MIN: usize = 16 << 20;

/// The data plane of Othello hashing: `tau(k) = A[ha(k)] xor B[hb(k)]`, without stored keys.
///
/// A lookup costs one hash and two accesses, has no data-dependent branch, and does not allocate.
/// The deltas of a [`PogController`](crate::PogController) keep copies up to date.
///
/// # Source
/// Yu, Belazzougui, Qian, Zhang, "Memory-efficient and ultra-fast network lookup and forwarding
/// using Othello hashing", 2018; as the data plane of SDLB: Yu, Li, Qian, MECOMM 2017. Deviates:
/// see [`Sizes`].
#[derive(Debug)]
pub struct Pog<C: Cell = u16, H: KeyHash = SipHash13, F: Form = Plain> {
    pub(crate) hash: H,
    pub(crate) form: F,
    pub(crate) sizes: Sizes,
    /// A followed by B: `sizes.cells()` cells.
    pub(crate) cells: Vec<C>,
    pub(crate) generation: u64,
    /// Distinguishes images of different controllers, which may have equal generations.
    pub(crate) lineage: u64,
}

pub(crate) fn new_lineage() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<C: Cell, H: KeyHash, F: Form> Clone for Pog<C, H, F> {
    fn clone(&self) -> Self {
        let mut cells = memory::reserved(self.cells.len());
        cells.extend_from_slice(&self.cells);
        Pog { cells, ..*self }
    }

    fn clone_from(&mut self, source: &Self) {
        let mut cells = std::mem::take(&mut self.cells);
        if cells.capacity() < source.cells.len() {
            *self = source.clone();
            return;
        }
        cells.clear();
        cells.extend_from_slice(&source.cells);
        *self = Pog { cells, ..*source };
    }
}

impl<C: Cell, H: KeyHash> Pog<C, H, Plain> {
    /// Returns the tau of `key`: the assigned value for a key of the set, an arbitrary but fixed
    /// value for any other.
    #[inline(always)]
    pub fn tau<K: Key + ?Sized>(&self, key: &K) -> C {
        self.value(self.hash.hash(key))
    }

    /// Writes the tau of each key to `taus`. Faster than single lookups: several keys are hashed at
    /// once, and their cells are fetched while others are hashed.
    ///
    /// # Panics
    /// If the slices have different lengths.
    pub fn tau_batch<K: Key>(&self, keys: &[K], taus: &mut [C]) {
        assert_eq!(keys.len(), taus.len(), "one tau a key");
        self.values(keys, |position, value| taus[position] = value);
    }
}

impl<C: Cell, H: KeyHash> Pog<C, H, Fingerprint> {
    /// Returns the tau of `key` if it is pinned (in the set), `None` if it is unknown.
    ///
    /// An unknown key is mistaken for a pinned one with probability `2^-(fingerprint bits)`;
    /// [`PogController::false_matches`](crate::PogController::false_matches) finds such keys.
    #[inline(always)]
    pub fn pinned<K: Key + ?Sized>(&self, key: &K) -> Option<C> {
        let value = self.value(self.hash.hash(key));
        self.form.matches(value).then_some(value)
    }

    /// Writes the result of [`Self::pinned`] for each key to `taus`.
    ///
    /// # Panics
    /// If the slices have different lengths.
    pub fn pinned_batch<K: Key>(&self, keys: &[K], taus: &mut [Option<C>]) {
        assert_eq!(keys.len(), taus.len(), "one answer a key");
        self.values(keys, |position, value| {
            taus[position] = self.form.matches(value).then_some(value);
        });
    }
}

impl<C: Cell, H: KeyHash, F: Form> Pog<C, H, F> {
    pub(crate) fn new(hash: H, form: F, sizes: Sizes) -> Pog<C, H, F> {
        let cells = memory::filled(sizes.cells(), C::default());
        Pog { hash, form, sizes, cells, generation: 0, lineage: new_lineage() }
    }

    /// Makes a data plane from the parts that another program sent: seed, form, sizes, and A
    /// followed by B.
    ///
    /// # Errors
    /// [`ApplyError::Length`] if the number of cells differs from the sizes.
    pub fn from_parts(
        seed: Seed,
        form: F,
        sizes: Sizes,
        cells: Vec<C>,
        generation: u64,
    ) -> Result<Pog<C, H, F>, ApplyError> {
        if cells.len() != sizes.cells() {
            return Err(ApplyError::Length { given: cells.len(), wanted: sizes.cells() });
        }
        let (hash, lineage) = (H::with_seed(seed), new_lineage());
        Ok(Pog { hash, form, sizes, cells, generation, lineage })
    }

    /// Returns the xor of the cells and the salt of a key with this hash.
    #[inline(always)]
    pub(crate) fn value(&self, hash: u64) -> C {
        let (a, b) = self.sizes.cells_of(hash);
        self.cell(a) ^ self.cell(b) ^ self.form.salt(hash)
    }

    /// `index` must come from [`Sizes::cells_of`] of this POG's own sizes.
    #[inline(always)]
    fn cell(&self, index: u32) -> C {
        debug_assert!((index as usize) < self.cells.len());
        // SAFETY: `cells_of` scales a 32-bit number by an array's length, so the result is less
        // than that length. `cells` has both arrays: each constructor and each change of size
        // ensures that.
        unsafe { *self.cells.get_unchecked(index as usize) }
    }

    /// Calls `each` with the position and the value of every key. Fetches one block of keys ahead.
    #[inline(always)]
    pub(crate) fn values<K: Key>(&self, keys: &[K], mut each: impl FnMut(usize, C)) {
        let fetch_pays = self.cells.len() * size_of::<C>() > FETCH_BYTES_MIN;
        let fetch = |block: &Block| {
            if fetch_pays {
                for (&a, &b) in block.a.iter().zip(&block.b) {
                    memory::prefetch(&self.cells, a as usize);
                    memory::prefetch(&self.cells, b as usize);
                }
            }
        };
        block::ahead(&self.hash, self.sizes, keys, fetch, |position, len, block| {
            for at in 0..len {
                let cells = self.cell(block.a[at]) ^ self.cell(block.b[at]);
                each(position + at, cells ^ self.form.salt(block.hashes[at]));
            }
            true
        });
    }

    /// Applies a delta to this copy.
    ///
    /// # Errors
    /// [`ApplyError::Generation`] if the delta does not apply to this copy's generation,
    /// [`ApplyError::Whole`] if it changes more than cells: then clone the controller's image.
    /// Nothing has changed.
    pub fn apply(&mut self, delta: &Delta<C>) -> Result<(), ApplyError> {
        if delta.scope == Scope::Whole {
            return Err(ApplyError::Whole { generation: delta.generation });
        }
        if delta.generation_before != self.generation {
            return Err(ApplyError::Generation {
                copy: self.generation,
                delta: delta.generation_before,
            });
        }
        let cells = self.cells.len();
        if let Some(write) = delta.writes.iter().find(|write| write.index as usize >= cells) {
            return Err(ApplyError::Index { index: write.index, cells });
        }
        for write in &delta.writes {
            self.cells[write.index as usize] = write.cell;
        }
        self.generation = delta.generation;
        Ok(())
    }

    /// Returns the hash and its seed.
    pub fn hash(&self) -> &H {
        &self.hash
    }

    /// Returns the form.
    pub fn form(&self) -> F {
        self.form
    }

    /// Returns the lengths of the arrays.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Returns A followed by B.
    pub fn cells(&self) -> &[C] {
        &self.cells
    }

    /// Returns the number of changes so far.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the size of the arrays, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.cells.len() * size_of::<C>()
    }
}
