//! What can go wrong. After an error, nothing has changed.

use thiserror::Error;

/// A data plane could not be brought further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// The change touched seed, sizes or all cells.
    #[error(
        "the change to generation {generation} is of the whole image: clone the controller's image instead"
    )]
    Whole {
        /// The generation that the change leads to.
        generation: u64,
    },
    /// Deltas were lost or came out of order.
    #[error(
        "the delta leads on from generation {delta} and this copy is at {copy}: apply the deltas between in order, \
         or clone the controller's image"
    )]
    Generation {
        /// Where the copy is.
        copy: u64,
        /// Where the delta begins.
        delta: u64,
    },
    /// The delta is of another image.
    #[error("the delta writes cell {index} and this copy has {cells}: it is of another POG")]
    Index {
        /// The cell written.
        index: u32,
        /// The cells there are.
        cells: usize,
    },
    /// The parts do not belong together.
    #[error("{given} cells were given where the sizes say {wanted}")]
    Length {
        /// The cells there are.
        given: usize,
        /// The cells that the sizes say.
        wanted: usize,
    },
}

/// A POG could not be built or re-built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// A key stands twice in the input.
    #[error("the keys at positions {first} and {second} are equal: give each key once")]
    Duplicate {
        /// Position of the first.
        first: usize,
        /// Position of the second.
        second: usize,
    },
    /// A value does not fit.
    #[error("the value {value:#x} at position {position} has more than the {tau_bits} bits of tau")]
    Value {
        /// Position in the input.
        position: usize,
        /// The value.
        value: u64,
        /// Bits that fit.
        tau_bits: u32,
    },
    /// Too many keys.
    #[error("{keys} keys are more than one POG holds, {most}: split the set")]
    TooMany {
        /// How many were given.
        keys: usize,
        /// How many fit.
        most: usize,
    },
    /// No seed gave an acyclic graph.
    #[error(
        "{attempts} seeds gave no acyclic graph for {keys} distinct keys: the hash maps different keys to the same \
         value under every seed; use SipHash13"
    )]
    NoSeed {
        /// Seeds tried.
        attempts: u32,
        /// Keys of the set.
        keys: usize,
    },
    /// The system gave no random numbers for the seeds.
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
    /// Insert: the key is there already.
    #[error("the key is in the set already, with tau {tau:#x}: use alter to change it")]
    Duplicate {
        /// Its tau.
        tau: u64,
    },
    /// Delete, alter: the key is not there.
    #[error("the key is not in the set: insert it first")]
    Unknown,
    /// The value does not fit.
    #[error("the value {value:#x} has more than the {tau_bits} bits of tau")]
    Value {
        /// The value.
        value: u64,
        /// Bits that fit.
        tau_bits: u32,
    },
    /// The table is full.
    #[error(
        "the set has {keys} keys, the most that it may hold: delete some, or raise PogBuilder::keys_max"
    )]
    Full {
        /// Keys of the set.
        keys: usize,
    },
    /// A new seed was needed and none was found.
    #[error("the change needs a rebuild, which fails")]
    Rebuild(
        #[from]
        #[source]
        BuildError,
    ),
}
