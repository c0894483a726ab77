//! Errors. A failed operation changes nothing.

use thiserror::Error;

/// A delta could not be applied to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// The change concerns seed, sizes or all cells.
    #[error(
        "the change to generation {generation} is of the whole image: clone the controller's image instead"
    )]
    Whole {
        /// Generation after the change.
        generation: u64,
    },
    /// Deltas were lost or reordered.
    #[error(
        "the delta leads on from generation {delta} and this copy is at {copy}: apply the deltas between in order, \
         or clone the controller's image"
    )]
    Generation {
        /// Generation of the copy.
        copy: u64,
        /// Generation that the delta applies to.
        delta: u64,
    },
    /// The delta belongs to another image.
    #[error("the delta writes cell {index} and this copy has {cells}: it is of another POG")]
    Index {
        /// Index of the cell to write.
        index: u32,
        /// Number of cells of the copy.
        cells: usize,
    },
    /// Cells and sizes are inconsistent.
    #[error("{given} cells were given where the sizes say {wanted}")]
    Length {
        /// Number of cells given.
        given: usize,
        /// Number of cells according to the sizes.
        wanted: usize,
    },
}

/// A POG could not be built or rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// The input has a key twice.
    #[error("the keys at positions {first} and {second} are equal: give each key once")]
    Duplicate {
        /// Position of the first occurrence.
        first: usize,
        /// Position of the second occurrence.
        second: usize,
    },
    /// A value does not fit.
    #[error("the value {value:#x} at position {position} has more than the {tau_bits} bits of tau")]
    Value {
        /// Position in the input.
        position: usize,
        /// The value.
        value: u64,
        /// Number of bits that fit.
        tau_bits: u32,
    },
    /// There are too many keys.
    #[error("{keys} keys are more than one POG holds, {most}: split the set")]
    TooMany {
        /// Number of keys given.
        keys: usize,
        /// Maximum number of keys.
        most: usize,
    },
    /// No seed gave an acyclic graph.
    #[error(
        "{attempts} seeds gave no acyclic graph for {keys} distinct keys: the hash maps different keys to the same \
         value under every seed; use SipHash13"
    )]
    NoSeed {
        /// Number of seeds tried.
        attempts: u32,
        /// Number of keys in the set.
        keys: usize,
    },
    /// The system returned no random numbers for the seeds.
    #[error("the system gives no random numbers: use PogBuilder::random_seed")]
    Randomness(
        #[from]
        #[source]
        getrandom::Error,
    ),
}

/// A key could not be inserted, deleted or altered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UpdateError {
    /// Insert: the key is already in the set.
    #[error("the key is in the set already, with tau {tau:#x}: use alter to change it")]
    Duplicate {
        /// Tau of the key.
        tau: u64,
    },
    /// Delete, alter: the key is not in the set.
    #[error("the key is not in the set: insert it first")]
    Unknown,
    /// The value does not fit.
    #[error("the value {value:#x} has more than the {tau_bits} bits of tau")]
    Value {
        /// The value.
        value: u64,
        /// Number of bits that fit.
        tau_bits: u32,
    },
    /// The set has its maximum size.
    #[error(
        "the set has {keys} keys, the most that it may hold: delete some, or raise PogBuilder::keys_max"
    )]
    Full {
        /// Number of keys in the set.
        keys: usize,
    },
    /// The change required a new seed, and none was found.
    #[error("the change needs a rebuild, which fails")]
    Rebuild(
        #[from]
        #[source]
        BuildError,
    ),
}
