use std::sync::Arc;

use super::roster::Roster;
use super::{Ask, Scheduler};

/// A random candidate in proportion to weight. O(log n), without state, so threads need not agree.
///
/// # Source
/// Inversion by binary search over running sums (Devroye, "Non-Uniform Random Variate Generation",
/// 1986, III.2). An alias table would be O(1), ten steps fewer at 1000 backends, but could not
/// leave out the candidate to avoid without a second draw.
pub(super) struct WeightedRandom {
    roster: Arc<Roster>,
}

impl WeightedRandom {
    pub(super) fn new(roster: Arc<Roster>) -> WeightedRandom {
        WeightedRandom { roster }
    }
}

impl Scheduler for WeightedRandom {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        let avoided = self.roster.avoidable(ask.avoid);
        let position = self.roster.draw(ask.rng, avoided.as_slice())?;
        let slot = self.roster.entries()[position].slot;
        if ask.loads.is_full(slot) { self.roster.draw_free(ask, avoided) } else { Some(slot) }
    }
}
