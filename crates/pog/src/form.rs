//! What the two cells of a key, xored, say: tau, or tau under a fingerprint of the key.

use std::fmt::Debug;

use crate::cell::Cell;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Plain {}
    impl Sealed for super::Fingerprint {}
}

/// The form of a POG: [`Plain`] or [`Fingerprint`].
pub trait Form: sealed::Sealed + Copy + PartialEq + Debug + Send + Sync + 'static {
    /// What is xored to the cells of a key with this hash to give its value.
    fn salt<C: Cell>(&self, hash: u64) -> C;

    /// Bits of a value.
    fn tau_bits<C: Cell>(&self) -> u32;

    /// Whether a deleted key must be made to differ from a pinned one.
    const FORGETS: bool;
}

/// Cells give tau: for a key of the set what was set, for any other an arbitrary but fixed value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plain;

impl Form for Plain {
    const FORGETS: bool = false;

    #[inline(always)]
    fn salt<C: Cell>(&self, _hash: u64) -> C {
        C::default()
    }

    fn tau_bits<C: Cell>(&self) -> u32 {
        C::BITS
    }
}

/// Cells give a fingerprint above tau: a key whose fingerprint does not match is not in the set.
///
/// A key outside the set matches falsely with probability `2^-(l - tau_bits)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    tau_bits: u32,
}

impl Fingerprint {
    /// `None` unless both tau and the fingerprint have at least one bit of a cell `C`.
    pub fn new<C: Cell>(tau_bits: u32) -> Option<Fingerprint> {
        (1..C::BITS).contains(&tau_bits).then_some(Fingerprint { tau_bits })
    }

    /// Whether `value`, a pair of cells xored with the salt, is that of a key in the set.
    #[inline(always)]
    pub(crate) fn matches<C: Cell>(&self, value: C) -> bool {
        value.widen() >> self.tau_bits == 0
    }
}

impl Form for Fingerprint {
    const FORGETS: bool = true;

    /// With it, the value of a key in the set is just tau, under a fingerprint of zeros.
    ///
    /// The indices come from the high bits of the hash's halves, the salt from the lower ones mixed. It covers tau too:
    /// of a key whose two cells are joined by keys of the set already, the cells say what these keys' taus and salts are,
    /// xored. Of taus alone, where few of the possible ones are in use, that is a tau in use more often than not, and
    /// such a key, once it matches falsely, can be added under another seed only.
    #[inline(always)]
    fn salt<C: Cell>(&self, hash: u64) -> C {
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        C::truncate(mixed)
    }

    fn tau_bits<C: Cell>(&self) -> u32 {
        self.tau_bits
    }
}
