use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A backend's share of new work, set by the operator, `0..=1000`; with 0 it receives none.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "u16", into = "u16")]
// The schema is that of `u16`; a range on the field would be lost.
#[schemars(extend("maximum" = Weight::MAX))]
pub struct Weight(u16);

/// A weight outside `0..=1000`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("weight {0} is not in 0..=1000")]
pub struct WeightOutOfRange(pub u16);

impl Weight {
    /// The weight of a backend without a configured weight.
    pub const DEFAULT: Weight = Weight(1);
    /// The largest weight.
    pub const MAX: u16 = 1000;

    /// A weight.
    ///
    /// # Errors
    /// [`WeightOutOfRange`] above [`Weight::MAX`].
    pub const fn new(value: u16) -> Result<Weight, WeightOutOfRange> {
        if value > Weight::MAX { Err(WeightOutOfRange(value)) } else { Ok(Weight(value)) }
    }

    /// The value.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_0_to_1000() {
        for value in [0, 1, 999, 1000] {
            assert_eq!(Weight::new(value).map(Weight::get), Ok(value));
            assert_eq!(Weight::try_from(value).map(u16::from), Ok(value));
        }
        for value in [1001, u16::MAX] {
            assert_eq!(Weight::new(value), Err(WeightOutOfRange(value)));
            assert!(serde_json::from_value::<Weight>(value.into()).is_err());
        }
    }

    #[test]
    fn the_default_weight_is_one() {
        assert_eq!(Weight::default().get(), 1);
    }

    #[test]
    fn a_weight_is_serialized_and_displayed_as_a_number() {
        let weight = Weight::new(70).unwrap();
        assert_eq!(serde_json::to_value(weight).unwrap(), 70);
        assert_eq!(serde_json::from_value::<Weight>(70.into()).unwrap(), weight);
        assert_eq!(weight.to_string(), "70");
    }

    #[test]
    fn the_error_names_the_value_and_the_accepted_range() {
        let error = Weight::new(1001).unwrap_err().to_string();
        assert!(error.contains("1001") && error.contains("0..=1000"), "{error}");
    }

    #[test]
    fn the_schema_contains_the_accepted_range() {
        let schema = serde_json::to_value(schemars::schema_for!(Weight)).unwrap();
        assert_eq!(schema["type"], "integer");
        assert_eq!((&schema["minimum"], &schema["maximum"]), (&0.into(), &1000.into()));
    }
}
