//! Hashing in blocks, a step ahead of the accesses to memory.

use crate::hash::{KeyHash, LANES};
use crate::key::Key;

/// Keys of a block: enough accesses in flight to hide the memory, few enough to stay in the first cache.
pub(crate) const BLOCK: usize = 32;

const _: () = assert!(BLOCK.is_multiple_of(LANES));

/// Hashes `keys`, at most [`BLOCK`], into the front of `hashes`.
#[inline(always)]
pub(crate) fn hash_block<H: KeyHash, K: Key>(hash: &H, keys: &[K], hashes: &mut [u64; BLOCK]) {
    let (lanes, rest) = keys.as_chunks::<LANES>();
    for (keys, hashes) in lanes.iter().zip(hashes.as_chunks_mut::<LANES>().0) {
        *hashes = hash.hash_lanes(keys);
    }
    let done = lanes.len() * LANES;
    for (key, hashed) in rest.iter().zip(&mut hashes[done..]) {
        *hashed = hash.hash(key);
    }
}

/// Hashes all of `keys` in blocks, each one block ahead of its use: `fetch` is called with a key's hash first, and
/// `each` with its position and hash a block later.
///
/// `each` returns whether to go on.
#[inline(always)]
pub(crate) fn ahead<H: KeyHash, K: Key>(
    hash: &H,
    keys: &[K],
    mut fetch: impl FnMut(u64),
    mut each: impl FnMut(usize, u64) -> bool,
) -> bool {
    let mut next = [0; BLOCK];
    let mut now;
    let mut blocks = keys.chunks(BLOCK);
    let Some(mut block) = blocks.next() else { return true };
    hash_block(hash, block, &mut next);
    next[..block.len()].iter().for_each(|&hash| fetch(hash));
    let mut position = 0;
    loop {
        now = next;
        let following = blocks.next();
        if let Some(following) = following {
            hash_block(hash, following, &mut next);
            next[..following.len()].iter().for_each(|&hash| fetch(hash));
        }
        for &hash in &now[..block.len()] {
            if !each(position, hash) {
                return false;
            }
            position += 1;
        }
        match following {
            Some(following) => block = following,
            None => return true,
        }
    }
}
