//! Rounds of AES as a keyed hash.

use super::sip::last_word;
use super::{KeyHash, Seed, SipHash13};
use crate::key::Key;

/// Number of rounds for each 16 bytes of a key.
const ROUNDS: usize = 4;

/// Four rounds of AES per 16 bytes, with secret round keys: a keyed hash that resists chosen keys,
/// in a fraction of SipHash's time.
///
/// Whoever chooses keys but sees no hashes can use only differences between keys. Over four rounds
/// with independent round keys no difference of two keys leads to any given difference of states
/// with a probability above 2^-113. So such keys collide no more often than random ones. It is no
/// message authentication code: whoever sees hashes may learn from them.
///
/// A processor without instructions of AES computes the same values by tables; take [`SipHash13`]
/// there.
///
/// # Source
/// Daemen and Rijmen, "The Pelican MAC Function", 2005: four rounds of AES for each block. The
/// bound: Keliher and Sui, "Exact maximum expected differential and linear probability for
/// two-round AES", 2007 (53/2^34 for two rounds, whose fourth power bounds four).
#[derive(Clone, Copy, Debug)]
pub struct AesHash {
    seed: Seed,
    /// The first is added to the key, each of the others in its round.
    keys: [[u64; 2]; ROUNDS + 1],
    /// Whether the processor has instructions of AES.
    has_instructions: bool,
}

impl KeyHash for AesHash {
    const ID: u32 = 3;

    fn with_seed(seed: Seed) -> AesHash {
        let sip = SipHash13::with_seed(seed);
        let word = |number: usize| sip.hash(&(number as u64));
        let keys = std::array::from_fn(|round| [word(2 * round), word(2 * round + 1)]);
        AesHash { seed, keys, has_instructions: has_instructions() }
    }

    fn seed(&self) -> Seed {
        self.seed
    }

    #[inline(always)]
    fn hash<K: Key + ?Sized>(&self, key: &K) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if self.has_instructions {
            // SAFETY: the processor has the instructions.
            return unsafe { instructions::hash(&self.keys, key) };
        }
        portable::hash(&self.keys, key)
    }
}

/// Whether the processor has instructions of AES that this module uses.
fn has_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    let found = is_x86_feature_detected!("aes");
    #[cfg(not(target_arch = "x86_64"))]
    let found = false;
    found
}

/// A key as blocks of 16 bytes: its bytes, zeros, and its length in the last byte of a word.
#[inline(always)]
fn blocks<K: Key + ?Sized>(key: &K) -> impl Iterator<Item = [u64; 2]> + '_ {
    let len = key.byte_len();
    let word = move |index: usize| match index.cmp(&(len / 8)) {
        std::cmp::Ordering::Less => key.word(index),
        std::cmp::Ordering::Equal => last_word(key, len),
        std::cmp::Ordering::Greater => 0,
    };
    (0..=len / 16).map(move |block| [word(2 * block), word(2 * block + 1)])
}

#[cfg(target_arch = "x86_64")]
mod instructions {
    use std::arch::asm;
    use std::arch::x86_64::{__m128i, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_xor_si128};

    use super::{Key, ROUNDS, blocks};

    /// # Safety
    /// The processor has AES-NI.
    #[inline(always)]
    pub(super) unsafe fn hash<K: Key + ?Sized>(keys: &[[u64; 2]; ROUNDS + 1], key: &K) -> u64 {
        let mut state = wide(keys[0]);
        for block in blocks(key) {
            // SAFETY: SSE2 is a part of x86-64.
            state = unsafe { _mm_xor_si128(state, wide(block)) };
            for key in &keys[1..] {
                // SAFETY: the caller's.
                state = unsafe { round(state, wide(*key)) };
            }
        }
        // SAFETY: SSE2 is a part of x86-64.
        unsafe { _mm_cvtsi128_si64(state) as u64 }
    }

    #[inline(always)]
    fn wide([low, high]: [u64; 2]) -> __m128i {
        // SAFETY: SSE2 is a part of x86-64.
        unsafe { _mm_set_epi64x(high as i64, low as i64) }
    }

    /// The instruction's intrinsic is a call where the program is not compiled for AES-NI.
    ///
    /// # Safety
    /// The processor has AES-NI.
    #[inline(always)]
    unsafe fn round(mut state: __m128i, key: __m128i) -> __m128i {
        // SAFETY: the caller's; it reads and writes registers alone.
        unsafe {
            asm!("aesenc {0}, {1}", inout(xmm_reg) state, in(xmm_reg) key,
                options(pure, nomem, nostack, preserves_flags));
        }
        state
    }
}

pub(super) mod portable {
    use super::{Key, ROUNDS, blocks};
    use crate::aes::{S_BOX, double};

    pub(crate) fn hash<K: Key + ?Sized>(keys: &[[u64; 2]; ROUNDS + 1], key: &K) -> u64 {
        let mut state = keys[0];
        for block in blocks(key) {
            state = [state[0] ^ block[0], state[1] ^ block[1]];
            for key in &keys[1..] {
                let [low, high] = round(state);
                state = [low ^ key[0], high ^ key[1]];
            }
        }
        state[0]
    }

    /// A round of AES without its key: bytes are replaced, moved, and mixed by column.
    fn round(state: [u64; 2]) -> [u64; 2] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&state[0].to_le_bytes());
        bytes[8..].copy_from_slice(&state[1].to_le_bytes());
        let mut mixed = [0; 16];
        for column in 0..4 {
            // Row r of this column comes from the column r further.
            let taken: [u8; 4] =
                std::array::from_fn(|row| S_BOX[bytes[4 * ((column + row) % 4) + row] as usize]);
            for row in 0..4 {
                let [a, b, c, d] = std::array::from_fn(|step| taken[(row + step) % 4]);
                mixed[4 * column + row] = double(a) ^ double(b) ^ b ^ c ^ d;
            }
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| mixed[at + byte]));
        [word(0), word(8)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed { k0: 1, k1: 2 };

    fn both<K: Key + ?Sized>(key: &K) -> u64 {
        let hash = AesHash::with_seed(SEED);
        let value = hash.hash(key);
        assert_eq!(value, portable::hash(&hash.keys, key));
        value
    }

    /// `aes::hazmat` has the rounds of the standard.
    #[test]
    fn the_hash_equals_four_rounds_of_aes() {
        let hash = AesHash::with_seed(SEED);
        let bytes = |words: [u64; 2]| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&words[0].to_le_bytes());
            bytes[8..].copy_from_slice(&words[1].to_le_bytes());
            aes::Block::from(bytes)
        };
        let message = 0x0123_4567_89ab_cdef_u64;
        let first = [hash.keys[0][0] ^ message, hash.keys[0][1] ^ 8 << 56];
        let mut state = bytes(first);
        for key in &hash.keys[1..] {
            aes::hazmat::cipher_round(&mut state, &bytes(*key));
        }
        let expected = u64::from_le_bytes(state[..8].try_into().unwrap());
        assert_eq!(both(&message), expected);
    }

    #[test]
    fn aes_instructions_and_tables_agree_and_hashes_of_keys_differ() {
        let zeros = [0; 100];
        let mut seen = std::collections::HashSet::new();
        for len in 0..zeros.len() {
            assert!(seen.insert(both(&zeros[..len])), "{len} bytes");
            for at in 0..len {
                let mut key = zeros;
                key[at] = 0x80;
                assert!(seen.insert(both(&key[..len])), "{len} bytes, byte {at}");
            }
        }
        assert!(seen.insert(AesHash::with_seed(Seed { k0: 1, k1: 3 }).hash(&zeros[..])));
    }

    /// Every bit of a key changes every bit of the hash in about half of all cases.
    #[test]
    fn each_key_bit_changes_each_hash_bit_half_of_the_time() {
        let hash = AesHash::with_seed(SEED);
        for bit in 0..104 {
            let mut changes = [0_u32; 64];
            for key in 0..4096_u128 {
                let mut bytes = [0; 13];
                bytes.copy_from_slice(&(key.wrapping_mul(0x9e37_79b9)).to_le_bytes()[..13]);
                let before = hash.hash(&bytes);
                bytes[bit / 8] ^= 1 << (bit % 8);
                let changed = before ^ hash.hash(&bytes);
                for (at, count) in changes.iter_mut().enumerate() {
                    *count += (changed >> at & 1) as u32;
                }
            }
            // Six standard deviations of 32.
            assert!(
                changes.iter().all(|count| count.abs_diff(2048) < 192),
                "bit {bit}: {changes:?}"
            );
        }
    }
}
