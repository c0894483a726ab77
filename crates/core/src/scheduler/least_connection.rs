use std::sync::Arc;

use rand::Rng;

use super::roster::Roster;
use super::{Ask, Scheduler};

/// The candidate with the fewest in flight, whatever its weight. O(n); O(1) while the next one is idle.
///
/// # Source
/// LVS `lc` (Linux `net/netfilter/ipvs/ip_vs_lc.c`): the least overhead among those of weight above zero.
/// Deviates: LVS's overhead is `active * 256 + inactive`; a proxy knows one count, what is in flight. LVS
/// takes the first of equals, so with little load the first backend does all the work; here the search
/// begins after the last pick, so equals take turns.
pub(super) struct LeastConnection {
    roster: Arc<Roster>,
    next: usize,
}

impl LeastConnection {
    pub(super) fn new(roster: Arc<Roster>, rng: &mut dyn Rng) -> LeastConnection {
        let next = roster.random_start(rng);
        LeastConnection { roster, next }
    }
}

impl Scheduler for LeastConnection {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        let avoided = self.roster.avoidable(ask.avoid);
        let mut least: Option<(usize, u32)> = None;
        for (position, entry) in self.roster.rotated(self.next) {
            if Some(position) == avoided {
                continue;
            }
            let load = ask.loads.in_flight(entry.slot);
            if least.is_none_or(|(_, lowest)| load < lowest) {
                least = Some((position, load));
            }
            if load == 0 {
                break;
            }
        }
        let (position, _) = least?;
        self.next = self.roster.after(position);
        Some(self.roster.entries()[position].slot)
    }
}
