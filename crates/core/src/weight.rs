use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The capacity share that an operator gives a backend, `0..=1000`; 0 takes no new work.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "u16", into = "u16")]
pub struct Weight(#[schemars(range(min = 0, max = 1000))] u16);

/// A weight outside `0..=1000`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("weight {0} is not in 0..=1000")]
pub struct WeightOutOfRange(pub u16);

impl Weight {
    /// The weight of a backend that names none.
    pub const DEFAULT: Weight = Weight(1);
    /// The largest weight.
    pub const MAX: u16 = 1000;

    /// # Errors
    /// [`WeightOutOfRange`] above [`Weight::MAX`].
    pub const fn new(value: u16) -> Result<Weight, WeightOutOfRange> {
        if value > Weight::MAX { Err(WeightOutOfRange(value)) } else { Ok(Weight(value)) }
    }

    /// The number itself.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Weight::DEFAULT
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u16> for Weight {
    type Error = WeightOutOfRange;
    fn try_from(value: u16) -> Result<Self, Self::Error> {
        Weight::new(value)
    }
}

impl From<Weight> for u16 {
    fn from(weight: Weight) -> u16 {
        weight.0
    }
}
