//! Assigns items to slices by their ids. All clients of a stream must use the same function.

use thiserror::Error;

use crate::ids::{SliceId, mixed};

/// Maps item ids to slices. There is at least one slice.
///
/// # Source
/// DPSLB: the assignment function (modulo in its evaluation). The mixing of `Hash` is the finalizer
/// of `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014); the reduction is Lemire's multiply-shift.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assignment {
    /// `id % slices`: for consecutive ids.
    Modulo(u32),
    /// By a hash: for ids with a pattern.
    Hash(u32),
    /// By range: neighbouring ids are in one slice.
    Range(Bounds),
}

/// The first id of each slice but the first, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds(Vec<u64>);

/// Bounds that do not ascend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("bound {at} is {value}: each bound must be larger than the one before, the first than 0")]
pub struct BoundsInvalid {
    /// Index of the bound, from 0.
    pub at: usize,
    /// Its value.
    pub value: u64,
}

impl Assignment {
    /// Slices by range: `bounds` are the first ids of slice 1, slice 2 and so on.
    ///
    /// # Errors
    /// [`BoundsInvalid`] if they do not ascend, or the first is 0.
    pub fn range(bounds: Vec<u64>) -> Result<Self, BoundsInvalid> {
        let mut before = 0;
        for (at, value) in bounds.iter().copied().enumerate() {
            if value <= before {
                return Err(BoundsInvalid { at, value });
            }
            before = value;
        }
        Ok(Self::Range(Bounds(bounds)))
    }

    /// The slice of item `id`: less than [`Assignment::slices`].
    pub fn slice(&self, id: u64) -> SliceId {
        SliceId(match self {
            Self::Modulo(slices) => (id % u64::from((*slices).max(1))) as u32,
            Self::Hash(slices) => {
                ((u128::from(mix(id)) * u128::from((*slices).max(1))) >> 64) as u32
            }
            Self::Range(Bounds(bounds)) => bounds.partition_point(|first| *first <= id) as u32,
        })
    }

    /// The number of slices.
    pub fn slices(&self) -> usize {
        match self {
            Self::Modulo(slices) | Self::Hash(slices) => (*slices).max(1) as usize,
            Self::Range(Bounds(bounds)) => bounds.len() + 1,
        }
    }
}

fn mix(id: u64) -> u64 {
    mixed(id.wrapping_add(0x9e37_79b9_7f4a_7c15))
}
