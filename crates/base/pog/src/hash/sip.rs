//! SipHash-1-3.

use super::{KeyHash, LANES, Seed, lanes};
use crate::key::Key;

/// SipHash with one round per word and three at the end: a keyed hash that resists chosen keys.
///
/// # Source
/// Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. Rust's hash tables and Linux's
/// `hsiphash` on 64-bit machines use the same 1-3 rounds.
#[derive(Clone, Copy, Debug)]
pub struct SipHash13 {
    seed: Seed,
}

/// Initial state, xored with the seed: "somepseudorandomlygeneratedbytes".
pub(super) const START: [u64; 4] =
    [0x736f_6d65_7073_6575, 0x646f_7261_6e64_6f6d, 0x6c79_6765_6e65_7261, 0x7465_6462_7974_6573];

/// Returns the last word of a message: the remaining bytes below the length.
#[inline(always)]
pub(super) fn last_word<K: Key + ?Sized>(key: &K, len: usize) -> u64 {
    let tail = if len.is_multiple_of(8) { 0 } else { key.word(len / 8) };
    tail | (len as u64) << 56
}

#[inline(always)]
pub(super) fn start(seed: Seed) -> [u64; 4] {
    [START[0] ^ seed.k0, START[1] ^ seed.k1, START[2] ^ seed.k0, START[3] ^ seed.k1]
}

impl KeyHash for SipHash13 {
    const ID: u32 = 1;

    fn with_seed(seed: Seed) -> SipHash13 {
        SipHash13 { seed }
    }

    fn seed(&self) -> Seed {
        self.seed
    }

    #[inline(always)]
    fn hash<K: Key + ?Sized>(&self, key: &K) -> u64 {
        let len = key.byte_len();
        let mut v = start(self.seed);
        for index in 0..len / 8 {
            absorb(&mut v, key.word(index));
        }
        absorb(&mut v, last_word(key, len));
        v[2] ^= 0xff;
        round(&mut v);
        round(&mut v);
        round(&mut v);
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }

    #[inline(always)]
    fn hash_lanes<K: Key>(&self, keys: &[K; LANES]) -> [u64; LANES] {
        match K::FIXED_LEN {
            Some(_) => lanes::sip13(self.seed, keys),
            None => std::array::from_fn(|lane| self.hash(&keys[lane])),
        }
    }
}

#[inline(always)]
fn absorb(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    v[0] ^= word;
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}
