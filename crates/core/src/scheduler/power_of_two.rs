use std::sync::Arc;

use super::roster::{Entry, Roster};
use super::{Ask, FAILURE_AS_IN_FLIGHT, Loads, Scheduler};

/// The less loaded of two different random candidates. O(log n).
///
/// The two are drawn in proportion to weight; load is what is in flight per weight, a recent failure
/// counting as [`FAILURE_AS_IN_FLIGHT`] in flight, so that a backend that fails at once, and hence is
/// always idle, attracts nothing. Of equals the first drawn is taken: an idle pool is shared by weight.
///
/// # Source
/// Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12(10), 2001. Deviates:
/// weights, failures, and the two always differ (drawing with replacement would compare a candidate with
/// itself, every second time in a pool of two).
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
        let avoided = self.roster.avoidable(ask.avoid);
        let (first, second) = self.roster.draw_two(ask.rng, avoided)?;
        let first = &self.roster.entries()[first];
        let Some(second) = second.map(|position| &self.roster.entries()[position]) else {
            return Some(first.slot);
        };
        let first_scaled = load(first, ask.loads) * u128::from(second.weight);
        let second_scaled = load(second, ask.loads) * u128::from(first.weight);
        Some(if second_scaled < first_scaled { second.slot } else { first.slot })
    }
}

fn load(entry: &Entry, loads: &dyn Loads) -> u128 {
    let failures = u128::from(loads.recent_failures(entry.slot));
    u128::from(loads.in_flight(entry.slot)) + failures * u128::from(FAILURE_AS_IN_FLIGHT)
}
