//! Meaning of the xor of a key's two cells: tau, or tau below a fingerprint of the key.

use std::fmt::Debug;

use crate::cell::Cell;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Plain {}
    impl Sealed for super::Fingerprint {}
}

/// The form of a POG: [`Plain`] or [`Fingerprint`].
pub trait Form: sealed::Sealed + Copy + PartialEq + Debug + Send + Sync + 'static {
    /// Returns the salt, which is xored to the cells of a key with this hash to get its value.
    fn salt<C: Cell>(&self, hash: u64) -> C;

    /// Number of bits of a value.
    fn tau_bits<C: Cell>(&self) -> u32;

    /// Whether the cells of a deleted key must be changed so that it no longer matches.
    const FORGETS: bool;
}

/// Cells give tau: the assigned value for a key of the set, an arbitrary but fixed value for any
/// other.
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

/// Cells give a fingerprint above tau: a key with a different fingerprint is not in the set.
///
/// A key outside the set matches falsely with probability `2^-(l - tau_bits)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    tau_bits: u32,
}

impl Fingerprint {
    /// Makes the form. `None` unless both tau and the fingerprint have at least one bit of a cell
    /// `C`.
    pub fn new<C: Cell>(tau_bits: u32) -> Option<Fingerprint> {
        (1..C::BITS).contains(&tau_bits).then_some(Fingerprint { tau_bits })
    }

    /// Whether `value`, the xor of both cells and the salt, is that of a key in the set.
    #[inline(always)]
    pub(crate) fn matches<C: Cell>(&self, value: C) -> bool {
        value.widen() >> self.tau_bits == 0
    }
}

impl Form for Fingerprint {
    const FORGETS: bool = true;

    /// With the salt, the value of a key in the set is tau below a fingerprint of zeros.
    ///
    /// The indices use the high bits of the hash's halves; the salt mixes the lower bits. It also
    /// covers tau. Consider a key with two cells that keys of the set already join: the cells
    /// determine the xor of these keys' taus and salts. Without salt over tau, and with few taus in
    /// use, that xor is often a tau in use. Such a key, once it matches falsely, can only be added
    /// with another seed.
    #[inline(always)]
    fn salt<C: Cell>(&self, hash: u64) -> C {
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        C::truncate(mixed)
    }

    fn tau_bits<C: Cell>(&self) -> u32 {
        self.tau_bits
    }
}
