use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters of a controller.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    plans: AtomicU64,
    planning_us: AtomicU64,
    planning_us_max: AtomicU64,
    unplanned: AtomicU64,
    writes: AtomicU64,
    store_failures: AtomicU64,
    fenced_off: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Number of plans.
    pub plans: u64,
    /// Total time of planning.
    pub planning: Duration,
    /// Longest time of one plan.
    pub planning_max: Duration,
    /// Periods without a plan because the inputs were contradictory.
    pub unplanned: u64,
    /// Plans that the store accepted.
    pub writes: u64,
    /// Requests to the store that failed.
    pub store_failures: u64,
    /// Writes that the store refused because there was another leader.
    pub fenced_off: u64,
}

impl Counts {
    pub(crate) fn planned(&self, took: Duration) {
        let took_us = took.as_micros() as u64;
        self.plans.fetch_add(1, Relaxed);
        self.planning_us.fetch_add(took_us, Relaxed);
        self.planning_us_max.fetch_max(took_us, Relaxed);
    }

    pub(crate) fn not_planned(&self) {
        self.unplanned.fetch_add(1, Relaxed);
    }

    pub(crate) fn wrote(&self) {
        self.writes.fetch_add(1, Relaxed);
    }

    pub(crate) fn store_failed(&self) {
        self.store_failures.fetch_add(1, Relaxed);
    }

    pub(crate) fn fenced_off(&self) {
        self.fenced_off.fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> Counted {
        let duration = |us: &AtomicU64| Duration::from_micros(us.load(Relaxed));
        Counted {
            plans: self.plans.load(Relaxed),
            planning: duration(&self.planning_us),
            planning_max: duration(&self.planning_us_max),
            unplanned: self.unplanned.load(Relaxed),
            writes: self.writes.load(Relaxed),
            store_failures: self.store_failures.load(Relaxed),
            fenced_off: self.fenced_off.load(Relaxed),
        }
    }
}
