use std::sync::Arc;

use rand::{Rng, RngExt};

use super::roster::Roster;
use super::{Ask, Scheduler};

/// Each candidate in turn, whatever its weight. O(1).
///
/// # Source
/// LVS `rr` (Linux `net/netfilter/ipvs/ip_vs_rr.c`): the next destination after the last one whose weight
/// is above zero. Deviates: a thread starts at a random candidate, not at the first, because every thread
/// has a rotation of its own. A retry takes no turn and goes to a random other: a turn for it would hand
/// the failing backend a larger part of the first attempts.
pub(super) struct RoundRobin {
    roster: Arc<Roster>,
    next: usize,
}

impl RoundRobin {
    pub(super) fn new(roster: Arc<Roster>, rng: &mut dyn Rng) -> RoundRobin {
        let next = roster.random_start(rng);
        RoundRobin { roster, next }
    }
}

impl Scheduler for RoundRobin {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        let position = match self.roster.avoidable(ask.avoid) {
            Some(avoided) => {
                let other = ask.rng.random_range(0..self.roster.len() - 1);
                if other < avoided { other } else { other + 1 }
            }
            None => {
                let position = self.next;
                self.next = self.roster.after(position);
                position
            }
        };
        self.roster.entries().get(position).map(|entry| entry.slot)
    }
}
