//! The keyed hash: one 64-bit value per key, the source of indices and salts.

mod aes;
mod lanes;
mod sip;
#[cfg(test)]
mod tests;

use crate::key::Key;
pub use aes::AesHash;
pub use sip::SipHash13;

/// Number of keys that [`KeyHash::hash_lanes`] hashes at once.
pub const LANES: usize = 8;

/// The secret of a hash. A cycle in the graph leads to a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Seed {
    /// First word (SipHash: k0).
    pub k0: u64,
    /// Second word (SipHash: k1).
    pub k1: u64,
}

/// A keyed 64-bit hash. Every program that reads the same tables must compute the same values.
///
/// All 64 bits must be pseudorandom for a random seed, because the indices use the high bits of
/// each half. With an unkeyed or weak hash, an attacker that chooses the keys can prevent a table
/// from being built ([`BuildError::NoSeed`](crate::BuildError::NoSeed)).
pub trait KeyHash: Copy + Send + Sync + 'static {
    /// Identifies the hash in shared memory, so that a reader with another hash is rejected.
    const ID: u32;

    /// Makes the hash with `seed`.
    fn with_seed(seed: Seed) -> Self;

    /// Returns the seed.
    fn seed(&self) -> Seed;

    /// Hashes one key.
    fn hash<K: Key + ?Sized>(&self, key: &K) -> u64;

    /// Hashes several keys. Implementations override it if they have a faster way.
    #[inline(always)]
    fn hash_lanes<K: Key>(&self, keys: &[K; LANES]) -> [u64; LANES] {
        std::array::from_fn(|lane| self.hash(&keys[lane]))
    }
}

/// The folded multiplication of wyhash (Wang Yi, 2019).
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Generator of seeds and random cells: SipHash-1-3 of a counter with a secret.
#[derive(Clone, Debug)]
pub(crate) struct Randomness {
    secret: SipHash13,
    drawn: u64,
}

impl Randomness {
    /// Seeds it from the operating system.
    pub(crate) fn from_system() -> Result<Randomness, getrandom::Error> {
        Ok(Randomness::from_seed(Seed { k0: getrandom::u64()?, k1: getrandom::u64()? }))
    }

    /// Seeds it deterministically.
    pub(crate) fn from_seed(seed: Seed) -> Randomness {
        Randomness { secret: SipHash13::with_seed(seed), drawn: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.drawn += 1;
        self.secret.hash(&self.drawn)
    }

    pub(crate) fn next_seed(&mut self) -> Seed {
        Seed { k0: self.next(), k1: self.next() }
    }
}

/// A random function of an index, for the value of a component's root. Every use draws a new
/// `secret`.
#[inline(always)]
pub(crate) fn random_at(secret: Seed, index: u32) -> u64 {
    fold(u64::from(index) ^ secret.k0, 0x9e37_79b9_7f4a_7c15 ^ secret.k1)
}
