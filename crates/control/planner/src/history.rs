use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::load::{
    ClassRates, Measurement, MeasurementRefused, NodeLoad, Occupancy, Refusals, Reported, Smoothing,
};
use serde::{Deserialize, Serialize};

use crate::demand::{PoolHistory, PoolSample};

/// A machine's report, as received from the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Its resources.
    pub load: Reported,
    /// Its requests by class; zeros if it does not dispatch.
    #[serde(default)]
    pub classes: ClassRates,
    /// Use of its application's concurrency limit; `None` without a dispatch level or a limit.
    #[serde(default)]
    pub occupancy: Option<Occupancy>,
}

/// Reports of machines and pools, as a few numbers each.
///
/// All times are durations since one instant of the caller's choice, on a monotonic clock (such as
/// the controller's start).
#[derive(Clone, Debug)]
pub struct History {
    smoothing: Smoothing,
    began: Duration,
    machines: BTreeMap<String, Machine>,
    pools: BTreeMap<String, PoolHistory>,
    refusals: Refusals,
}

#[derive(Clone, Debug, Default)]
struct Machine {
    load: Option<NodeLoad>,
    beat: Option<Duration>,
    sightings: BTreeMap<String, Sighting>,
}

/// Result of one observer's check of a machine.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    at: Duration,
    is_reachable: bool,
}

impl History {
    /// An empty history that begins at `began`. No machine is late before that.
    pub fn new(smoothing: Smoothing, began: Duration) -> History {
        let (machines, pools) = (BTreeMap::new(), BTreeMap::new());
        History { smoothing, began, machines, pools, refusals: Refusals::default() }
    }

    /// Takes a report that arrived at `at`. A refused report still counts as a sign of life.
    ///
    /// # Errors
    /// [`MeasurementRefused`]: no part of the report is used, and it is counted in
    /// [`Self::refusals`].
    pub fn record(
        &mut self,
        machine: &str,
        at: Duration,
        report: &Report,
    ) -> Result<(), MeasurementRefused> {
        let one = entry(&mut self.machines, machine);
        one.beat = one.beat.max(Some(at));
        let measured = Measurement::checked(&report.load)
            .inspect_err(|refused| self.refusals.count(refused))?;
        let classes = &report.classes;
        match &mut one.load {
            Some(load) if at <= load.at() => return Ok(()),
            Some(load) => load.observe(at, &measured, classes),
            none => *none = Some(NodeLoad::new(self.smoothing, at, &measured, classes)),
        }
        if let Some(load) = &mut one.load {
            load.observe_occupancy(report.occupancy, classes);
        }
        Ok(())
    }

    /// Takes a sign of life without other content.
    pub fn record_beat(&mut self, machine: &str, at: Duration) {
        let one = entry(&mut self.machines, machine);
        one.beat = one.beat.max(Some(at));
    }

    /// Takes the result of a check of `subject` by `observer` at `at`: whether it answered.
    pub fn record_sighting(
        &mut self,
        observer: &str,
        subject: &str,
        at: Duration,
        is_reachable: bool,
    ) {
        if observer != subject {
            let sighting = Sighting { at, is_reachable };
            entry(&mut self.machines, subject).sightings.insert(observer.to_string(), sighting);
        }
    }

    /// Takes the combined observations of all balancers of a pool's backends in the period that
    /// ended at `at`.
    pub fn record_pool(&mut self, pool: &str, at: Duration, sample: &PoolSample) {
        entry(&mut self.pools, pool).observe(&self.smoothing, at, sample);
    }

    /// Notes that a balancer is missing from the pool's latest sample: there may be more demand
    /// than it shows.
    pub fn doubt_pool(&mut self, pool: &str) {
        if let Some(history) = self.pools.get_mut(pool) {
            history.doubt();
        }
    }

    /// Forgets a pool without reports.
    pub fn forget_pool(&mut self, pool: &str) {
        self.pools.remove(pool);
    }

    /// Forgets machines for which `keep` is false, because members of the cluster come and go.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.machines.retain(|machine, _| keep(machine));
    }

    /// A machine's load; `None` before its first credible report.
    pub fn load(&self, machine: &str) -> Option<&NodeLoad> {
        self.machines.get(machine)?.load.as_ref()
    }

    /// A pool's past.
    pub fn pool(&self, pool: &str) -> Option<&PoolHistory> {
        self.pools.get(pool)
    }

    /// Reports that were refused.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Reports that a machine has missed by `now`, in periods. For one that never reported, since
    /// the history began.
    pub fn missed_beats(&self, machine: &str, now: Duration) -> f64 {
        let beat = self.machines.get(machine).and_then(|one| one.beat).unwrap_or(self.began);
        let silent = now.saturating_sub(beat).as_secs_f64() / self.smoothing.period.as_secs_f64();
        // The report of the running period is not due yet.
        (silent - 1.0).max(0.0)
    }

    /// True if most observers of the last `fresh` could not reach the machine; `false` without
    /// observers. Only observers for which `counts` is true are used, because a late one may itself
    /// be cut off.
    pub fn is_unreachable(
        &self,
        machine: &str,
        now: Duration,
        fresh: Duration,
        counts: impl Fn(&str) -> bool,
    ) -> bool {
        let Some(one) = self.machines.get(machine) else { return false };
        let seen = |(observer, it): &(&String, &Sighting)| {
            now.saturating_sub(it.at) <= fresh && counts(observer)
        };
        let (mut yes, mut no) = (0, 0);
        for (_, sighting) in one.sightings.iter().filter(seen) {
            if sighting.is_reachable { yes += 1 } else { no += 1 }
        }
        no > yes
    }
}

/// The entry of this name, created if it is missing. The name is copied only then.
fn entry<'a, T: Default>(of: &'a mut BTreeMap<String, T>, name: &str) -> &'a mut T {
    if !of.contains_key(name) {
        of.insert(name.to_string(), T::default());
    }
    of.get_mut(name).expect("it was there, or has just been put there")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(at: u64) -> Duration {
        Duration::from_secs(at)
    }

    fn history() -> History {
        History::new(Smoothing::default(), second(100))
    }

    #[test]
    fn a_refused_report_is_counted_and_still_a_heartbeat() {
        let mut history = history();
        let load = Reported { cpu: f64::NAN, ..Reported::default() };
        let report = Report { load, ..Report::default() };
        assert!(history.record("a", second(105), &report).is_err());
        assert_eq!(history.refusals().total(), 1);
        assert!(history.load("a").is_none());
        assert_eq!(history.missed_beats("a", second(106)), 0.0);
    }

    #[test]
    fn beats_are_missed_from_the_second_silent_period_on() {
        let mut history = history();
        history.record("a", second(110), &Report::default()).unwrap();
        for (now, missed) in [(110, 0.0), (111, 0.0), (112, 1.0), (115, 4.0)] {
            assert_eq!(history.missed_beats("a", second(now)), missed, "{now}");
        }
        assert_eq!(history.missed_beats("never", second(103)), 2.0);
    }

    #[test]
    fn a_majority_of_fresh_observers_decides_that_a_node_is_unreachable() {
        let mut history = history();
        let ask = |history: &History, now| {
            history.is_unreachable("x", second(now), second(5), |who| who != "late")
        };
        assert!(!ask(&history, 100), "nobody looked");
        history.record_sighting("x", "x", second(100), false);
        history.record_sighting("late", "x", second(100), false);
        assert!(!ask(&history, 100), "oneself and the late do not count");
        history.record_sighting("a", "x", second(100), false);
        assert!(ask(&history, 100));
        history.record_sighting("b", "x", second(101), true);
        assert!(!ask(&history, 101), "one against one");
        history.record_sighting("c", "x", second(101), false);
        assert!(ask(&history, 101));
        assert!(!ask(&history, 120), "too long ago");
    }
}
