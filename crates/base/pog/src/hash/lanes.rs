//! SipHash-1-3 of several keys of equal length at once, in vector registers if the CPU has them.

use super::sip::{last_word, start};
use super::{LANES, Seed};
use crate::key::Key;

/// One word of every lane.
type Words = [u64; LANES];

#[inline(always)]
pub(super) fn sip13<K: Key>(seed: Seed, keys: &[K; LANES]) -> Words {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU has AVX-512F, the only feature that the function requires.
        return unsafe { wide::sip13(seed, keys) };
    }
    portable(seed, keys)
}

/// The same operations on arrays, which the compiler vectorizes for the target.
#[inline(always)]
pub(super) fn portable<K: Key>(seed: Seed, keys: &[K; LANES]) -> Words {
    let len = keys[0].byte_len();
    let mut v = start(seed).map(|word| [word; LANES]);
    for index in 0..len / 8 {
        absorb(&mut v, std::array::from_fn(|lane| keys[lane].word(index)));
    }
    absorb(&mut v, std::array::from_fn(|lane| last_word(&keys[lane], len)));
    v[2] = v[2].map(|word| word ^ 0xff);
    round(&mut v);
    round(&mut v);
    round(&mut v);
    std::array::from_fn(|lane| v[0][lane] ^ v[1][lane] ^ v[2][lane] ^ v[3][lane])
}

#[inline(always)]
fn absorb(v: &mut [Words; 4], words: Words) {
    for lane in 0..LANES {
        v[3][lane] ^= words[lane];
    }
    round(v);
    for lane in 0..LANES {
        v[0][lane] ^= words[lane];
    }
}

#[inline(always)]
fn round([v0, v1, v2, v3]: &mut [Words; 4]) {
    for (((a, b), c), d) in v0.iter_mut().zip(v1).zip(v2).zip(v3) {
        *a = a.wrapping_add(*b);
        *c = c.wrapping_add(*d);
        *b = b.rotate_left(13) ^ *a;
        *d = d.rotate_left(16) ^ *c;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*b);
        *a = a.wrapping_add(*d);
        *b = b.rotate_left(17) ^ *c;
        *d = d.rotate_left(21) ^ *a;
        *c = c.rotate_left(32);
    }
}

/// AVX-512: a register has one word of every lane, and rotates in one instruction.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_loadu_si512, _mm512_rol_epi64, _mm512_set1_epi64,
        _mm512_storeu_si512, _mm512_xor_si512,
    };

    use super::{LANES, Seed, Words, last_word, start};
    use crate::key::Key;

    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(super) fn sip13<K: Key>(seed: Seed, keys: &[K; LANES]) -> Words {
        let len = keys[0].byte_len();
        let mut v = start(seed).map(|word| _mm512_set1_epi64(word as i64));
        for index in 0..len / 8 {
            absorb(&mut v, gather(std::array::from_fn(|lane| keys[lane].word(index))));
        }
        absorb(&mut v, gather(std::array::from_fn(|lane| last_word(&keys[lane], len))));
        v[2] = _mm512_xor_si512(v[2], _mm512_set1_epi64(0xff));
        round(&mut v);
        round(&mut v);
        round(&mut v);
        let hash = _mm512_xor_si512(_mm512_xor_si512(v[0], v[1]), _mm512_xor_si512(v[2], v[3]));
        let mut hashes = [0; LANES];
        // SAFETY: `hashes` has the 64 bytes that are written; the store needs no alignment.
        unsafe { _mm512_storeu_si512(hashes.as_mut_ptr().cast(), hash) };
        hashes
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn gather(words: Words) -> __m512i {
        // SAFETY: `words` has the 64 bytes that are read; the load needs no alignment.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn absorb(v: &mut [__m512i; 4], words: __m512i) {
        v[3] = _mm512_xor_si512(v[3], words);
        round(v);
        v[0] = _mm512_xor_si512(v[0], words);
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn round(v: &mut [__m512i; 4]) {
        v[0] = _mm512_add_epi64(v[0], v[1]);
        v[2] = _mm512_add_epi64(v[2], v[3]);
        v[1] = _mm512_xor_si512(_mm512_rol_epi64::<13>(v[1]), v[0]);
        v[3] = _mm512_xor_si512(_mm512_rol_epi64::<16>(v[3]), v[2]);
        v[0] = _mm512_rol_epi64::<32>(v[0]);
        v[2] = _mm512_add_epi64(v[2], v[1]);
        v[0] = _mm512_add_epi64(v[0], v[3]);
        v[1] = _mm512_xor_si512(_mm512_rol_epi64::<17>(v[1]), v[2]);
        v[3] = _mm512_xor_si512(_mm512_rol_epi64::<21>(v[3]), v[0]);
        v[2] = _mm512_rol_epi64::<32>(v[2]);
    }
}
