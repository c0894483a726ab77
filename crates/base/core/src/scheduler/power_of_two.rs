use std::sync::Arc;

use super::roster::Roster;
use super::{Ask, Scheduler};

/// The less loaded of two different random candidates. O(log n).
///
/// The two are drawn in proportion to weight. Load is the number in flight per weight, and a recent
/// failure counts as [`FAILURE_AS_IN_FLIGHT`](super::FAILURE_AS_IN_FLIGHT) in flight, so that a
/// backend that fails at once, and is therefore always idle, attracts nothing. If both are equal,
/// the first drawn is taken, so an idle pool is shared by weight. If both have a concurrency limit,
/// load is per limit, because the limit is the measured capacity and the weight an estimate.
///
/// # Source
/// Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12(10), 2001.
/// Deviates: weights, failures, and the two always differ (drawing with replacement would compare a
/// candidate with itself every second time in a pool of two).
pub(super) struct PowerOfTwo {
    roster: Arc<Roster>,
}

impl PowerOfTwo {
    pub(super) fn new(roster: Arc<Roster>) -> PowerOfTwo {
        PowerOfTwo { roster }
    }
}

impl Scheduler for PowerOfTwo {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        self.roster.better_of_two(ask, |second, first, loads| {
            let (second_capacity, first_capacity) = second.capacities(first, loads);
            let first_scaled = u128::from(first.load(loads)) * u128::from(second_capacity);
            let second_scaled = u128::from(second.load(loads)) * u128::from(first_capacity);
            second_scaled < first_scaled
        })
    }
}
