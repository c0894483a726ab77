use std::sync::Arc;

use rand::{Rng, RngExt};

use super::roster::Roster;
use super::{Ask, Scheduler};

/// Each candidate in turn, independent of weight. O(1).
///
/// # Source
/// LVS `rr` (Linux `net/netfilter/ipvs/ip_vs_rr.c`): the next destination with weight above zero
/// after the last one. Deviates: a thread starts at a random candidate, because every thread has
/// its own rotation. A retry takes no turn and goes to a random other candidate; a turn for it
/// would give the failing backend more of the first attempts. A full candidate's turn goes to the
/// next.
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
        let avoided = self.roster.avoidable(ask.avoid);
        let start = match avoided {
            Some(avoided) => {
                let other = ask.rng.random_range(0..self.roster.len() - 1);
                if other < avoided { other } else { other + 1 }
            }
            None => self.next,
        };
        let (position, entry) = self
            .roster
            .rotated(start)
            .find(|(at, entry)| Some(*at) != avoided && !ask.loads.is_full(entry.slot))?;
        if avoided.is_none() {
            self.next = self.roster.after(position);
        }
        Some(entry.slot)
    }
}
