use std::sync::Arc;

use rand::Rng;

use super::roster::Roster;
use super::{Ask, Loads, Scheduler};

/// The candidate with the fewest requests in flight, independent of weight. O(n); O(1) while the
/// next one is idle.
///
/// Full candidates are skipped. If two candidates both have a concurrency limit, they are compared
/// by requests in flight over the limit, so that a larger backend does not count as busier.
///
/// # Source
/// LVS `lc` (Linux `net/netfilter/ipvs/ip_vs_lc.c`): the least overhead among those with weight
/// above zero. Deviates: LVS's overhead is `active * 256 + inactive`; a proxy has one count, the
/// number in flight. LVS takes the first of equals, so with little load the first backend does all
/// the work. Here the search begins after the last pick, so equals take turns.
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
        let mut least: Option<(usize, Load)> = None;
        for (position, entry) in self.roster.rotated(self.next) {
            if Some(position) == avoided {
                continue;
            }
            let load = Load::of(entry.slot, ask.loads);
            if least.as_ref().is_none_or(|(_, least)| load.is_less_than(least))
                && !ask.loads.is_full(entry.slot)
            {
                let is_idle = load.in_flight == 0;
                least = Some((position, load));
                if is_idle {
                    break;
                }
            }
        }
        let (position, _) = least?;
        self.next = self.roster.after(position);
        Some(self.roster.entries()[position].slot)
    }
}

/// The number in flight and the limit of a candidate.
struct Load {
    in_flight: u32,
    limit: Option<u32>,
}

impl Load {
    fn of(slot: usize, loads: &dyn Loads) -> Load {
        Load { in_flight: loads.in_flight(slot), limit: loads.limit(slot) }
    }

    fn is_less_than(&self, other: &Load) -> bool {
        let (own, others) = (u64::from(self.in_flight), u64::from(other.in_flight));
        match (self.limit, other.limit) {
            (Some(limit), Some(others_limit)) => {
                own * u64::from(others_limit) < others * u64::from(limit)
            }
            _ => own < others,
        }
    }
}
