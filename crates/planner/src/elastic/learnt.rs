//! What a pool has shown, as its plans keep it: the next planner begins from it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::PoolHistory;
use super::probe::Probe;

/// What the planner remembers of a pool's speed from one plan to the next, whoever makes it.
///
/// A few numbers for each size: the measurements themselves are of one process alone ([`PoolHistory`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Learnt {
    /// What is known, by size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Known>,
    /// The probe that is being prepared, or under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
}

/// What backends of one size have shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Which; `None` if the pool's backends are all alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The shortest response time, in seconds: T_min.
    pub response_s: f64,
    /// The least requests in flight at which they were seen.
    pub from: f64,
    /// The most.
    pub upto: f64,
    /// The top of their speed, if it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<Top>,
    /// How long ago measurements last showed the shortest response time.
    pub age: Duration,
}

/// The top of a backend's speed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Top {
    /// Requests per second.
    pub speed: f64,
    /// Requests in flight from which more of them only wait.
    pub in_flight: f64,
    /// How long ago measurements last showed it.
    pub age: Duration,
}

/// What measurements have not shown again for so long is forgotten: the application may be another by now.
pub const KNOWN_MAX: Duration = Duration::from_secs(24 * 3600);
/// A speed this many times the top is above it: the top was none.
const OUTDONE: f64 = 1.05;
/// Seen at up to this many times the least requests in flight, it was seen at the same.
const AS_FEW: f64 = 1.5;

impl Learnt {
    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty() && self.probe.is_none()
    }

    /// Whether a backend was added to see what it shows, and that is not known yet.
    pub fn is_probing(&self) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.after.is_some())
    }

    /// What is known of a size.
    pub fn of(&self, size: Option<&str>) -> Option<&Known> {
        self.known.iter().find(|known| known.size.as_deref() == size)
    }

    /// Takes in what has been measured, after `passed`.
    pub(crate) fn refresh(&mut self, past: Option<&PoolHistory>, passed: Duration) {
        for known in &mut self.known {
            known.age = known.age.saturating_add(passed);
            known.top = known.top.map(|top| Top { age: top.age.saturating_add(passed), ..top });
            known.top = known.top.filter(|top| top.age <= KNOWN_MAX);
        }
        self.known.retain(|known| known.age <= KNOWN_MAX);
        for measured in past.into_iter().flat_map(PoolHistory::measured) {
            match self.known.iter_mut().find(|known| known.size == measured.size) {
                Some(known) => known.take_in(measured),
                None => self.known.push(measured),
            }
        }
    }

    /// Takes what a probe has shown for what is known.
    pub(crate) fn settle(&mut self, shown: Known) {
        self.known.retain(|known| known.size != shown.size);
        self.known.push(shown);
    }
}

impl Known {
    /// What measurements that are not [blind](super::SpeedProfile::is_blind) show replaces what is remembered, but for
    /// calmer times than they know of, and for a top that they have not seen.
    fn take_in(&mut self, measured: Known) {
        let top = measured.top.or(self.top);
        if measured.from <= AS_FEW * self.from {
            *self = Known { top, ..measured };
            return;
        }
        self.response_s = self.response_s.min(measured.response_s);
        self.upto = self.upto.max(measured.upto);
        self.top = top;
    }
}

impl Top {
    /// Whether a speed above it was measured.
    pub(crate) fn is_outdone(&self, speed: f64) -> bool {
        speed > OUTDONE * self.speed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(response_s: f64, from: f64, upto: f64) -> Known {
        Known { size: None, response_s, from, upto, top: None, age: Duration::ZERO }
    }

    #[test]
    fn what_is_not_shown_again_is_forgotten_after_a_day() {
        let mut learnt = Learnt { known: vec![known(0.1, 12.0, 24.0)], probe: None };
        learnt.refresh(None, KNOWN_MAX);
        assert_eq!(learnt.of(None).map(|known| known.age), Some(KNOWN_MAX));
        learnt.refresh(None, Duration::from_secs(1));
        assert!(learnt.is_empty());
    }

    #[test]
    fn calm_times_are_remembered_beside_what_is_measured_under_load() {
        let mut learnt = known(0.01, 1.0, 4.0);
        learnt.age = Duration::from_secs(60);
        let top = Some(Top { speed: 100.0, in_flight: 2.0, age: Duration::ZERO });
        learnt.take_in(Known { top, ..known(0.2, 12.0, 24.0) });
        let expected = Known { top, age: Duration::from_secs(60), ..known(0.01, 1.0, 24.0) };
        assert_eq!(learnt, expected);
        // A slower version, seen at as few.
        learnt.take_in(known(0.05, 1.0, 8.0));
        assert_eq!(learnt, Known { top, ..known(0.05, 1.0, 8.0) });
    }
}
