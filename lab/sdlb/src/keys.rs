//! The keys of the experiments: random, and the same for the same seed.

use std::fmt::Debug;
use std::hash::Hash;

use equipoise_pog::{FiveTupleV4, Key, KeyHash, OpenFlowMatch, Seed, SipHash13};

/// A kind of key, made from the number of a key.
pub(crate) trait Kind: Key + Eq + Hash + Clone + Debug {
    /// Distinct numbers make distinct keys.
    fn make(random: &Random, number: u64) -> Self;
}

/// A random function of a number.
#[derive(Clone, Copy)]
pub(crate) struct Random(SipHash13);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(SipHash13::with_seed(Seed { k0: seed, k1: 0 }))
    }

    pub(crate) fn at(&self, number: u64) -> u64 {
        self.0.hash(&number)
    }

    pub(crate) fn below(&self, number: u64, end: u64) -> u64 {
        ((u128::from(self.at(number)) * u128::from(end)) >> 64) as u64
    }
}

/// A 64-bit digest: a bijection of the number (xor-shift multiply, as SplitMix64), so that none
/// comes twice.
impl Kind for u64 {
    fn make(random: &Random, number: u64) -> u64 {
        let mut mixed = number ^ random.at(u64::MAX);
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9_u64), (27, 0x94d0_49bb_1331_11eb)] {
            mixed = (mixed ^ (mixed >> shift)).wrapping_mul(factor);
        }
        mixed ^ (mixed >> 31)
    }
}

/// A five-tuple: the low 48 bits of the number are in it, the rest is random.
impl Kind for FiveTupleV4 {
    fn make(random: &Random, number: u64) -> FiveTupleV4 {
        let mixed = u64::make(random, number);
        let protocol = if mixed >> 63 == 0 { 6 } else { 17 };
        // Address and port of the client are a bijection of 48 bits; a VIP has one address and few
        // ports.
        let client = number.wrapping_mul(0x9e37_79b9_7f4b) & ((1 << 48) - 1);
        let source = ((((client >> 16) as u32) ^ (random.at(1) as u32)).into(), client as u16);
        FiveTupleV4::new(source, ([192, 0, 2, 10].into(), 443), protocol)
    }
}

/// A match of 356 bits, the first 64 of them a bijection of the number.
impl Kind for OpenFlowMatch {
    fn make(random: &Random, number: u64) -> OpenFlowMatch {
        let mut bits = [0; 45];
        let first = u64::make(random, number);
        for (at, word) in bits.chunks_mut(8).enumerate() {
            let random = if at == 0 { first } else { random.at(first ^ at as u64) };
            word.copy_from_slice(&random.to_le_bytes()[..word.len()]);
        }
        bits[44] &= 0x0f;
        OpenFlowMatch::new(bits).expect("the four bits beyond are cleared")
    }
}

/// Numbers of keys that are never in the set begin here.
const FOREIGN: u64 = 1 << 40;

/// The keys of the set.
pub(crate) fn set<K: Kind>(random: &Random, keys: usize) -> Vec<K> {
    (0..keys as u64).map(|number| K::make(random, number)).collect()
}

/// `count` keys to look up, of which `share` are random keys of a set of `keys`, and the rest
/// foreign to it.
pub(crate) fn queries<K: Kind>(random: &Random, keys: usize, share: f64, count: usize) -> Vec<K> {
    let stateful = (share * u64::MAX as f64) as u64;
    let query = |at: u64| match random.at(at) < stateful {
        true => random.below(at ^ 1 << 62, keys as u64),
        false => FOREIGN + at,
    };
    (0..count as u64).map(|at| K::make(random, query(at))).collect()
}
