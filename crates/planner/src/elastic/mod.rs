//! Pools that grow and shrink: L3B's Resource Management Module.
//!
//! ```text
//! PoolSample (in flight, response time) --speed.rs--> best speed shown --demand.rs--> part of it in use
//!     --decide.rs--> Scaling, with its reason --(a driver, not here)--> backends come and go
//! ```
//!
//! Where measurements alone cannot say what is in use, one backend is added to find out (probe.rs); what was found out
//! is kept in the plan (learnt.rs).
//!
//! # Source
//! L3B (Ristov, Cvetkov, Gusev 2016) names the RMM and leaves it as future work; its measures are used: speed
//! `V = N/T`, the N at which V tops out, and efficiency as speed for what it costs.

mod decide;
mod demand;
mod learnt;
mod probe;
mod sizes;
mod speed;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use decide::decide;
pub use decide::{Scaling, ScalingPlan};
pub use demand::{BackendSample, PoolHistory, PoolSample};
pub use learnt::{KNOWN_MAX, Known, Learnt, Top};
pub use probe::{Looks, Probe};
pub use speed::{AGE_MAX, Best, SpeedProfile};

/// How a pool grows and shrinks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Elasticity {
    /// Backends at least.
    pub min: u32,
    /// Backends at most; one more for a moment when one is replaced by a faster one.
    pub max: u32,
    /// Part of the speed that backends have shown which is to be free, 0..1.
    pub headroom: f64,
    /// From a step out to the next.
    pub out_cool_down: Duration,
    /// How long a smaller pool must have been enough before one backend leaves; and from any step to a step in.
    pub in_cool_down: Duration,
    /// How long a new backend takes until it shows its speed: till then it counts as coming.
    pub warm_up: Duration,
    /// The most by which one step out multiplies the pool's speed, above 1.
    pub growth_max: f64,
    /// What backends can be had; empty if all are alike.
    pub sizes: BTreeMap<String, Size>,
    /// Whether the planner decides.
    pub mode: Mode,
}

/// A kind of backend.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// How fast it is beside the others, until it has shown so.
    pub speed: f64,
    /// What it costs, in any unit common to the sizes.
    pub price: f64,
}

/// Who decides on a pool's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The planner.
    #[default]
    Auto,
    /// An operator: so many backends, whatever the load.
    Pinned(u32),
    /// Nobody: the planner says what it would do, and does nothing.
    Paused,
}

/// Elasticity that contradicts itself.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ElasticityRefused {
    /// The bounds.
    #[error("elastic.min is {min} and elastic.max is {max}; accepted: min <= max, and max above 0")]
    Bounds {
        /// At least.
        min: u32,
        /// At most.
        max: u32,
    },
    /// A number outside its range.
    #[error("elastic.{option} is {value}; accepted: {accepted}")]
    Value {
        /// Its name.
        option: &'static str,
        /// What it is.
        value: f64,
        /// What it may be.
        accepted: &'static str,
    },
    /// A size that costs or does nothing.
    #[error("elastic.sizes.{size} has speed {speed} and price {price}; accepted: numbers above 0")]
    Size {
        /// Its name.
        size: String,
        /// Its speed.
        speed: f64,
        /// Its price.
        price: f64,
    },
}

impl Default for Elasticity {
    fn default() -> Self {
        Elasticity {
            min: 1,
            max: 1,
            headroom: 0.3,
            out_cool_down: Duration::from_secs(15),
            in_cool_down: Duration::from_secs(120),
            warm_up: Duration::from_secs(10),
            growth_max: 2.0,
            sizes: BTreeMap::new(),
            mode: Mode::Auto,
        }
    }
}

impl Elasticity {
    /// Whether it can be followed.
    ///
    /// # Errors
    /// [`ElasticityRefused`] names the first option that is wrong.
    pub fn check(&self) -> Result<(), ElasticityRefused> {
        use ElasticityRefused as Refused;
        let (min, max) = (self.min, self.max);
        if min > max || max == 0 {
            return Err(Refused::Bounds { min, max });
        }
        if !(0.0..1.0).contains(&self.headroom) {
            let (option, value) = ("headroom", self.headroom);
            return Err(Refused::Value { option, value, accepted: "0 or more, below 1" });
        }
        if !(self.growth_max > 1.0 && self.growth_max.is_finite()) {
            let (option, value) = ("growth-max", self.growth_max);
            return Err(Refused::Value { option, value, accepted: "a number above 1" });
        }
        let fine = |value: f64| value > 0.0 && value.is_finite();
        match self.sizes.iter().find(|(_, size)| !(fine(size.speed) && fine(size.price))) {
            Some((name, &Size { speed, price })) => {
                Err(Refused::Size { size: name.clone(), speed, price })
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elasticity_that_contradicts_itself_says_how() {
        let with = |change: fn(&mut Elasticity)| {
            let mut elastic = Elasticity::default();
            change(&mut elastic);
            elastic.check().unwrap_err().to_string()
        };
        let rows = [
            (with(|e| e.min = 2), "min is 2 and elastic.max is 1"),
            (with(|e| (e.min, e.max) = (0, 0)), "max above 0"),
            (with(|e| e.headroom = 1.0), "headroom is 1"),
            (with(|e| e.headroom = f64::NAN), "headroom is NaN"),
            (with(|e| e.growth_max = 1.0), "growth-max is 1"),
            (
                with(|e| {
                    e.sizes.insert("small".to_string(), Size { speed: 0.0, price: 1.0 });
                }),
                "sizes.small has speed 0",
            ),
        ];
        for (found, expected) in rows {
            assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        }
        assert_eq!(Elasticity::default().check(), Ok(()));
    }
}
