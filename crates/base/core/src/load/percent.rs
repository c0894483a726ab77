use std::fmt;

use serde::{Deserialize, Serialize};

/// A part of a capacity in per cent: finite, `0..=100`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Percent(f64);

/// A number that is not a per cent of a capacity.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("{0} is not in 0..=100 per cent")]
pub struct PercentOutOfRange(pub f64);

impl Percent {
    /// Nothing is used.
    pub const ZERO: Percent = Percent(0.0);
    /// All is used.
    pub const FULL: Percent = Percent(100.0);

    /// A value in per cent.
    ///
    /// # Errors
    /// [`PercentOutOfRange`] outside `0..=100`, and for NaN.
    pub fn new(value: f64) -> Result<Percent, PercentOutOfRange> {
        if (0.0..=100.0).contains(&value) {
            Ok(Percent(value))
        } else {
            Err(PercentOutOfRange(value))
        }
    }

    /// The nearest valid per cent; zero for NaN.
    pub fn nearest(value: f64) -> Percent {
        if value.is_nan() { Percent::ZERO } else { Percent(value.clamp(0.0, 100.0)) }
    }

    /// The value.
    pub const fn get(self) -> f64 {
        self.0
    }

    /// The free part of the capacity.
    pub fn headroom(self) -> Percent {
        Percent(100.0 - self.0)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0)
    }
}

impl TryFrom<f64> for Percent {
    type Error = PercentOutOfRange;
    fn try_from(value: f64) -> Result<Self, Self::Error> {
        Percent::new(value)
    }
}

impl From<Percent> for f64 {
    fn from(percent: Percent) -> f64 {
        percent.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_per_cent_is_0_to_100_and_a_number() {
        for value in [0.0, 0.1, 100.0] {
            assert_eq!(Percent::new(value).map(Percent::get), Ok(value));
        }
        for value in [-0.1, 100.1, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Percent::new(value), Err(PercentOutOfRange(value)));
            assert!((0.0..=100.0).contains(&Percent::nearest(value).get()));
        }
        assert!(Percent::new(f64::NAN).is_err());
        assert_eq!(Percent::nearest(f64::NAN), Percent::ZERO);
    }

    #[test]
    fn headroom_is_100_minus_the_value() {
        assert_eq!(Percent::new(30.0).unwrap().headroom(), Percent::new(70.0).unwrap());
        assert_eq!(Percent::FULL.headroom(), Percent::ZERO);
    }
}
