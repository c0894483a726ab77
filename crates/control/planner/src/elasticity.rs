//! Settings of a pool that grows and shrinks.

mod schedule;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use schedule::ScheduledMin;

/// Settings of a pool that grows and shrinks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Elasticity {
    /// Least number of backends.
    pub min: u32,
    /// Hours with a higher least number.
    pub schedule: Vec<ScheduledMin>,
    /// Greatest number of backends; one more for a moment while a faster one replaces another.
    pub max: u32,
    /// Utilisation of its backends that must not be exceeded.
    pub target: Target,
    /// Time from one step out to the next, unless a queue stands.
    pub out_cool_down: Duration,
    /// Time for which a smaller pool must have been enough before backends leave, and least time
    /// from any step to a step in.
    pub in_cool_down: Duration,
    /// Age at which a serving backend is no longer new. The pool does not shrink while one is new.
    pub warm_up: Duration,
    /// Greatest factor by which one step out multiplies the pool's capacity, above 1.
    pub growth_max: f64,
    /// Greatest part of the backends that leave in one step, above 0, up to 1; one may always
    /// leave.
    pub scale_in_rate: f64,
    /// The available sizes of backends; empty if all are alike.
    pub sizes: BTreeMap<String, Size>,
    /// Whether the planner decides.
    pub mode: Mode,
}

/// The utilisation of a pool's backends that must not be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Requests in flight and queued, as a part of the concurrency limits, above 0, up to 1.
    InUse(f64),
    /// Requests in flight and queued for each backend of speed 1.
    Concurrency(f64),
    /// Requests a second for each backend of speed 1.
    Requests(f64),
}

/// A kind of backend.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Its concurrency limit relative to the others', until its limit is known.
    pub speed: f64,
    /// Its price, in any unit common to the sizes.
    pub price: f64,
}

/// The decision mode of a pool's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The planner decides.
    #[default]
    Auto,
    /// An operator fixed the number of backends, independent of the load.
    Pinned(u32),
    /// The planner only reports what it would do.
    Paused,
}

/// Invalid elasticity settings.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ElasticityRefused {
    /// Contradictory bounds.
    #[error("elastic.min is {min} and elastic.max is {max}; accepted: min <= max, and max above 0")]
    Bounds {
        /// The least number.
        min: u32,
        /// The greatest number.
        max: u32,
    },
    /// A scheduled minimum above the greatest number of backends.
    #[error("elastic.schedule has min = {min}; accepted: at most elastic.max, which is {max}")]
    Schedule {
        /// The scheduled minimum.
        min: u32,
        /// The greatest number.
        max: u32,
    },
    /// A number outside its range.
    #[error("elastic.{option} is {value}; accepted: {accepted}")]
    Value {
        /// The option's name.
        option: &'static str,
        /// The value.
        value: f64,
        /// The accepted values.
        accepted: &'static str,
    },
    /// A size with a price or speed that is not positive.
    #[error("elastic.sizes.{size} has speed {speed} and price {price}; accepted: numbers above 0")]
    Size {
        /// The size's name.
        size: String,
        /// Its speed.
        speed: f64,
        /// Its price.
        price: f64,
    },
}

impl Default for Target {
    fn default() -> Self {
        Target::InUse(0.8)
    }
}

impl Target {
    /// The part of the backends' capacity that must not be exceeded.
    pub(crate) fn share(self) -> f64 {
        match self {
            Target::InUse(share) => share,
            Target::Concurrency(_) | Target::Requests(_) => 1.0,
        }
    }

    /// Capacity of a backend of speed 1, if the target states it.
    pub(crate) fn stated(self) -> Option<f64> {
        match self {
            Target::InUse(_) => None,
            Target::Concurrency(count) | Target::Requests(count) => Some(count),
        }
    }

    /// The capacity, in words.
    pub(crate) fn capacity_in_words(self) -> String {
        match self {
            Target::InUse(_) => "the backends' limits".to_string(),
            Target::Concurrency(count) => format!("{count} requests in flight for each backend"),
            Target::Requests(rate) => format!("{rate} requests a second for each backend"),
        }
    }
}

impl Default for Elasticity {
    fn default() -> Self {
        Elasticity {
            min: 1,
            schedule: Vec::new(),
            max: 1,
            target: Target::default(),
            out_cool_down: Duration::from_secs(15),
            in_cool_down: Duration::from_secs(120),
            warm_up: Duration::from_secs(10),
            growth_max: 2.0,
            scale_in_rate: 0.25,
            sizes: BTreeMap::new(),
            mode: Mode::Auto,
        }
    }
}

impl Elasticity {
    /// The settings at a moment (time since the UNIX epoch): `min` is the largest minimum of the
    /// hours that include it.
    #[must_use]
    pub fn at(&self, moment: Duration) -> Elasticity {
        let scheduled = self.schedule.iter().filter(|hours| hours.includes(moment));
        let min = scheduled.map(|hours| hours.min).fold(self.min, u32::max);
        Elasticity { min, schedule: Vec::new(), ..self.clone() }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// [`ElasticityRefused`] names the first option that is wrong.
    pub fn check(&self) -> Result<(), ElasticityRefused> {
        use ElasticityRefused as Refused;
        let (min, max) = (self.min, self.max);
        if min > max || max == 0 {
            return Err(Refused::Bounds { min, max });
        }
        if let Some(hours) = self.schedule.iter().find(|hours| hours.min > max) {
            return Err(Refused::Schedule { min: hours.min, max });
        }
        let fine = |value: f64| value > 0.0 && value.is_finite();
        let (option, value, accepted) = match self.target {
            Target::InUse(share) => ("target", share, "a number above 0, up to 1"),
            Target::Concurrency(count) => ("target-concurrency", count, "a number above 0"),
            Target::Requests(rate) => ("target-requests", rate, "a number above 0"),
        };
        if !fine(value) || (option == "target" && value > 1.0) {
            return Err(Refused::Value { option, value, accepted });
        }
        let (option, value) = ("scale-in-rate", self.scale_in_rate);
        if !(fine(value) && value <= 1.0) {
            return Err(Refused::Value { option, value, accepted: "a number above 0, up to 1" });
        }
        if !(self.growth_max > 1.0 && self.growth_max.is_finite()) {
            let (option, value) = ("growth-max", self.growth_max);
            return Err(Refused::Value { option, value, accepted: "a number above 1" });
        }
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

    fn always(min: u32) -> ScheduledMin {
        ScheduledMin { days: [true; 7], from: 0, to: 0, zone: jiff::tz::TimeZone::UTC, min }
    }

    #[test]
    fn the_largest_active_minimum_applies_and_never_lowers_the_base() {
        let never = ScheduledMin { days: [false; 7], ..always(9) };
        let with = |schedule| Elasticity { min: 2, max: 9, schedule, ..Elasticity::default() };
        let min = |schedule| with(schedule).at(Duration::from_secs(1)).min;
        assert_eq!(min(vec![]), 2);
        assert_eq!(min(vec![always(1), never]), 2);
        assert_eq!(min(vec![always(3), always(5), always(4)]), 5);
    }

    #[test]
    fn invalid_elasticity_is_refused_with_the_option_and_its_value() {
        let with = |change: fn(&mut Elasticity)| {
            let mut elastic = Elasticity::default();
            change(&mut elastic);
            elastic.check().unwrap_err().to_string()
        };
        let rows = [
            (with(|e| e.min = 2), "min is 2 and elastic.max is 1"),
            (with(|e| (e.min, e.max) = (0, 0)), "max above 0"),
            (
                with(|e| e.schedule = vec![always(2)]),
                "schedule has min = 2; accepted: at most elastic.max, which is 1",
            ),
            (with(|e| e.target = Target::InUse(1.1)), "target is 1.1"),
            (with(|e| e.target = Target::InUse(f64::NAN)), "target is NaN"),
            (with(|e| e.target = Target::Requests(0.0)), "target-requests is 0"),
            (with(|e| e.scale_in_rate = 0.0), "scale-in-rate is 0"),
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
