//! Hashes keys in blocks, one block ahead of the memory accesses.

use crate::hash::{KeyHash, LANES};
use crate::key::Key;
use crate::memory;
use crate::sizes::Sizes;

/// Number of keys in a block: enough concurrent accesses to hide memory latency, and few enough to
/// stay in the L1 cache.
pub(crate) const BLOCK: usize = 32;

/// Number of blocks by which keys are prefetched before hashing. Keys are read sequentially, but
/// the random accesses to cells displace the hardware's prefetches, and loads of key vectors that
/// miss stall all later instructions. If neither keys nor cells fit into a near cache, this makes a
/// batch up to 2.4 times as fast.
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

    /// Hashes at most [`BLOCK`] `keys`. The rest of the block is unspecified.
    #[inline(always)]
    pub(crate) fn fill<H: KeyHash, K: Key>(&mut self, hash: &H, sizes: Sizes, keys: &[K]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has AVX-512F, the only feature that the function requires.
            return unsafe { self.fill_wide(hash, sizes, keys) };
        }
        self.fill_with(hash, sizes, keys);
    }

    /// Like [`Block::fill_with`], compiled for wide vectors.
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

/// Hashes all `keys` in blocks, one block ahead of their use. Calls `fetch` with each block, and
/// after fetching the next block calls `each` with the block's first position, its length and the
/// block.
///
/// `each` returns whether to continue.
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
