//! Hashing in blocks, a step ahead of the accesses to memory.

use crate::hash::{KeyHash, LANES};
use crate::key::Key;
use crate::memory;
use crate::sizes::Sizes;

/// Keys of a block: enough accesses in flight to hide the memory, few enough to stay in the first cache.
pub(crate) const BLOCK: usize = 32;

/// How many blocks before they are hashed keys are fetched. They are read in order, but the random accesses to cells
/// crowd out what the processor fetches ahead by itself, and vectors of keys that are waited for hold up all that
/// follows. Where neither keys nor cells stay in a near cache, this makes a batch up to 2.4 times as fast.
const KEYS_AHEAD: usize = 1;

const _: () = assert!(BLOCK.is_multiple_of(LANES));

/// The hashes and the cells of up to [`BLOCK`] keys.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) hashes: [u64; BLOCK],
    pub(crate) a: [u32; BLOCK],
    pub(crate) b: [u32; BLOCK],
}

impl Block {
    pub(crate) fn new() -> Block {
        Block { hashes: [0; BLOCK], a: [0; BLOCK], b: [0; BLOCK] }
    }

    /// Hashes `keys`, at most [`BLOCK`]; what is left of the block holds nothing useful.
    #[inline(always)]
    pub(crate) fn fill<H: KeyHash, K: Key>(&mut self, hash: &H, sizes: Sizes, keys: &[K]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the machine has AVX-512F, which is all that the function asks for.
            return unsafe { self.fill_wide(hash, sizes, keys) };
        }
        self.fill_with(hash, sizes, keys);
    }

    /// The same, compiled for wide vectors.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn fill_wide<H: KeyHash, K: Key>(&mut self, hash: &H, sizes: Sizes, keys: &[K]) {
        self.fill_with(hash, sizes, keys);
    }

    #[inline(always)]
    fn fill_with<H: KeyHash, K: Key>(&mut self, hash: &H, sizes: Sizes, keys: &[K]) {
        let (lanes, rest) = keys.as_chunks::<LANES>();
        for (keys, hashes) in lanes.iter().zip(self.hashes.as_chunks_mut::<LANES>().0) {
            *hashes = hash.hash_lanes(keys);
        }
        for (key, hashed) in rest.iter().zip(&mut self.hashes[lanes.len() * LANES..]) {
            *hashed = hash.hash(key);
        }
        for at in 0..BLOCK {
            (self.a[at], self.b[at]) = sizes.cells_of(self.hashes[at]);
        }
    }
}

/// Hashes all of `keys` in blocks, each one block ahead of its use: `fetch` is called with a block first, and `each`
/// with its first position, its length and the block again when the next one has been fetched.
///
/// `each` returns whether to go on.
#[inline(always)]
pub(crate) fn ahead<H: KeyHash, K: Key>(
    hash: &H,
    sizes: Sizes,
    keys: &[K],
    mut fetch: impl FnMut(&Block),
    mut each: impl FnMut(usize, usize, &Block) -> bool,
) {
    let mut blocks = [Block::new(), Block::new()];
    let [now, next] = &mut blocks;
    let (mut now, mut next) = (now, next);
    let mut position = 0;
    let mut waiting = 0;
    let mut coming = keys.chunks(BLOCK).skip(KEYS_AHEAD);
    for keys in keys.chunks(BLOCK) {
        if let Some(coming) = coming.next() {
            memory::prefetch_all(coming);
        }
        next.fill(hash, sizes, keys);
        fetch(next);
        if waiting > 0 {
            if !each(position, waiting, now) {
                return;
            }
            position += waiting;
        }
        std::mem::swap(&mut now, &mut next);
        waiting = keys.len();
    }
    if waiting > 0 {
        each(position, waiting, now);
    }
}
