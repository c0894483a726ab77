use std::sync::Arc;

use rand::Rng;

use super::roster::Roster;
use super::{Ask, Scheduler};

/// The candidate with the fewest requests in flight per weight. O(n); O(1) while the next one is
/// idle. Full candidates are skipped. The others are compared by weight alone, as the operator
/// configured.
///
/// # Source
/// LVS `wlc` (Linux `net/netfilter/ipvs/ip_vs_wlc.c`): the least overhead divided by weight,
/// compared by `overhead_a * weight_b < overhead_b * weight_a`. Deviates as
/// [`super::least_connection`]: the number in flight replaces `active * 256 + inactive`, and equals
/// take turns. As in LVS, idle candidates are equal whatever their weights.
pub(super) struct WeightedLeastConnection {
    roster: Arc<Roster>,
    next: usize,
}

impl WeightedLeastConnection {
    pub(super) fn new(roster: Arc<Roster>, rng: &mut dyn Rng) -> WeightedLeastConnection {
        let next = roster.random_start(rng);
        WeightedLeastConnection { roster, next }
    }
}

impl Scheduler for WeightedLeastConnection {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        let avoided = self.roster.avoidable(ask.avoid);
        let mut least: Option<(usize, u64, u64)> = None;
        for (position, entry) in self.roster.rotated(self.next) {
            if Some(position) == avoided {
                continue;
            }
            let load = u64::from(ask.loads.in_flight(entry.slot));
            let weight = u64::from(entry.weight);
            let is_less = least.is_none_or(|(_, least_load, least_weight)| {
                load * least_weight < least_load * weight
            });
            if is_less && !ask.loads.is_full(entry.slot) {
                least = Some((position, load, weight));
                if load == 0 {
                    break;
                }
            }
        }
        let (position, ..) = least?;
        self.next = self.roster.after(position);
        Some(self.roster.entries()[position].slot)
    }
}
