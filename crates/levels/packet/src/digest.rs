//! Identification of flows in all tables: a 64-bit digest of the flow key with a secret, and the
//! hash from digests to the POG's cells.

use equipoise_pog::{FiveTupleV4, FiveTupleV6, Key, KeyHash, Seed, SipHash13};

use crate::abi::DIGEST_HASH_ID;

/// A flow, for any kind of key: SipHash-1-3 of the key with the fleet's secret seed and its
/// service's salt.
///
/// Among ten million flows, two have the same digest with probability 3e-6. They then share a
/// backend, which is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub u64);

impl Key for Digest {
    const FIXED_LEN: Option<usize> = Some(8);

    #[inline(always)]
    fn byte_len(&self) -> usize {
        8
    }

    #[inline(always)]
    fn word(&self, _index: usize) -> u64 {
        self.0
    }
}

/// The key of a flow, in network order; the program hashes the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyBytes {
    /// 13 bytes: source, destination, ports, protocol.
    V4(FiveTupleV4),
    /// 37 bytes: the same.
    V6(FiveTupleV6),
    /// 4 bytes.
    SourceV4([u8; 4]),
    /// 16 bytes.
    SourceV6([u8; 16]),
    /// 6 bytes.
    Mac([u8; 6]),
}

/// The first address of a prefix, as in packets.
pub(crate) fn first_of_prefix(address: &[u8; 16], bits: u8) -> [u8; 16] {
    let after = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
    (u128::from_be_bytes(*address) & !after).to_be_bytes()
}

impl KeyBytes {
    /// Returns the digest with a service's seed: the fleet's seed, its first word xored with the
    /// service's salt.
    pub fn digest(&self, seed: Seed, salt: u64) -> Digest {
        let hash = SipHash13::with_seed(Seed { k0: seed.k0 ^ salt, k1: seed.k1 });
        Digest(match self {
            KeyBytes::V4(key) => hash.hash(key),
            KeyBytes::V6(key) => hash.hash(key),
            KeyBytes::SourceV4(key) => hash.hash(key),
            KeyBytes::SourceV6(key) => hash.hash(key),
            KeyBytes::Mac(key) => hash.hash(key),
        })
    }
}

/// Hash from a digest to its cells: two multiplications, which a BPF program can also do.
///
/// The digest is already pseudorandom without the secret, so this hash only has to give other cells
/// with another seed.
///
/// # Source
/// The multiply and xor-shift rounds of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), the first
/// multiplier keyed.
#[derive(Clone, Copy, Debug)]
pub struct DigestHash {
    seed: Seed,
}

impl KeyHash for DigestHash {
    const ID: u32 = DIGEST_HASH_ID;

    fn with_seed(seed: Seed) -> DigestHash {
        DigestHash { seed }
    }

    fn seed(&self) -> Seed {
        self.seed
    }

    #[inline(always)]
    fn hash<K: Key + ?Sized>(&self, key: &K) -> u64 {
        let mut hash = (key.word(0) ^ self.seed.k0).wrapping_mul(self.seed.k1 | 1);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash ^ hash >> 31
    }
}
