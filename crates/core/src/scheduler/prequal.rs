use std::sync::Arc;

use rand::RngExt;

use super::roster::{Entry, Roster};
use super::{Ask, Loads, Scheduler};

/// Of the less loaded candidates the one that should respond first.
///
/// A candidate is *hot* if its load (in flight and failures, per weight, or per concurrency limit
/// where all have one) is above the median. Of the others the one with the lowest cost is picked:
/// `(load + 1) * service_us ^ 0.75`, with the service time of [`Loads::service_us`]. All candidates
/// are drawn from pools of up to [`PROBES`], that many random ones from larger pools. O(1).
///
/// In flight shows load at once. The service time shows how much of a backend other programs take.
/// A candidate without a service time is tried at once, one request at a time; if none has one (TCP,
/// UDP), the least loaded is picked.
///
/// # Source
/// Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI 2024: the
/// hot-cold lexicographic rule and its pool of 16 probes. Deviates:
/// - A probe is a read of this process's own counters at the time of the pick, so that no probe is
///   kept, used again or too old.
/// - The paper's servers state their latency at about their present number in flight. Here the
///   service time is multiplied by the number in flight, because it can be learned with few
///   responses.
/// - Hot is above the median, not above the 0.84 quantile. A wrong estimate then costs less, and the
///   tail of the simulation `antagonists` is as short.
/// - Weights, and failures as load.
pub(super) struct Prequal {
    roster: Arc<Roster>,
}

/// Candidates of which one is picked.
const PROBES: usize = 16;

#[derive(Clone, Copy)]
struct Probe {
    slot: usize,
    /// In flight and failures, per weight or limit.
    load: f64,
    /// Zero for a candidate that is to be tried, endless for one that is being tried.
    cost: f64,
}

impl Prequal {
    pub(super) fn new(roster: Arc<Roster>) -> Prequal {
        Prequal { roster }
    }
}

impl Scheduler for Prequal {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        let avoided = self.roster.avoidable(ask.avoid);
        let entries = self.roster.entries();
        if entries.is_empty() {
            return None;
        }
        let mut drawn = [0; PROBES];
        let mut count = 0;
        // From a random place, so that threads do not choose alike among equals.
        let start = self.roster.random_start(ask.rng);
        for at in 0..entries.len().min(2 * PROBES) {
            let position = match entries.len() <= PROBES {
                true => (start + at) % entries.len(),
                false => ask.rng.random_range(0..entries.len()),
            };
            let is_full = ask.loads.is_full(entries[position].slot);
            if Some(position) != avoided && !is_full && count < PROBES {
                drawn[count] = position;
                count += 1;
            }
        }
        let drawn = &drawn[..count];
        let limit = |position: &usize| ask.loads.limit(entries[*position].slot);
        let all_have_limits = drawn.iter().all(|position| limit(position).is_some());
        let mut probes = [Probe { slot: 0, load: 0.0, cost: 0.0 }; PROBES];
        for (probe, position) in probes.iter_mut().zip(drawn) {
            let entry = &entries[*position];
            let limit = limit(position).filter(|_| all_have_limits);
            *probe = Probe::of(entry, limit.unwrap_or(entry.weight), ask.loads);
        }
        match pick(&probes[..count]) {
            Some(slot) => Some(slot),
            None => self.roster.draw_free(ask, avoided),
        }
    }
}

impl Probe {
    fn of(entry: &Entry, capacity: u32, loads: &dyn Loads) -> Probe {
        let load = entry.load(loads);
        let known = loads.service_us(entry.slot).filter(|us| us.is_finite());
        let cost = match known {
            None if load == 0 => 0.0,
            None => f64::INFINITY,
            Some(us) => (load + 1) as f64 * tempered(us.max(0.0)),
        };
        Probe { slot: entry.slot, load: load as f64 / f64::from(capacity.max(1)), cost }
    }
}

/// `us ^ 0.75`. The service time is an estimate of the past: with the true one, too, the tail of the
/// simulation is the shortest at about this exponent.
fn tempered(us: f64) -> f64 {
    let root = us.sqrt();
    root * root.sqrt()
}

/// The cheapest of those that are not hot.
fn pick(probes: &[Probe]) -> Option<usize> {
    let mut loads = [0.0; PROBES];
    let loads = &mut loads[..probes.len()];
    for (load, probe) in loads.iter_mut().zip(probes) {
        *load = probe.load;
    }
    loads.sort_unstable_by(f64::total_cmp);
    let median = *loads.get(loads.len() / 2)?;
    let cold = probes.iter().filter(|probe| probe.load <= median);
    let cheaper =
        |a: &&Probe, b: &&Probe| a.cost.total_cmp(&b.cost).then(a.load.total_cmp(&b.load));
    cold.min_by(cheaper).map(|probe| probe.slot)
}
