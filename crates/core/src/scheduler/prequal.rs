use std::sync::Arc;

use rand::RngExt;

use super::roster::{Entry, Roster};
use super::{Ask, Loads, Scheduler};

/// The fastest of several candidates of which none is loaded much more than the others.
///
/// A candidate is *hot* if its load (in flight and failures, per weight, or per concurrency limit
/// where all have one) is above the 0.84 quantile of those drawn. Of the others the one with the lowest response time at its present number in
/// flight ([`Loads::response_us_now`]) is picked. All candidates are drawn from pools of up to
/// [`PROBES`], that many random ones from larger pools. O(1).
///
/// In flight shows load at once, and a response time shows what other programs take from a backend.
/// A candidate without a response time is tried at once, one request at a time.
///
/// # Source
/// Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI 2024: the
/// hot-cold lexicographic rule, its pool of 16 probes and its quantile. Deviates: a probe is a read
/// of this process's own counters at the time of the pick, so that no probe is kept, used again or
/// too old; weights; failures as load.
pub(super) struct Prequal {
    roster: Arc<Roster>,
}

/// Candidates of which one is picked.
const PROBES: usize = 16;
/// Quantile of the load above which a candidate is hot.
const HOT: f64 = 0.84;

#[derive(Clone, Copy)]
struct Probe {
    slot: usize,
    /// In flight and failures, per weight or limit.
    load: f64,
    /// Microseconds. Zero for a candidate that is to be tried, endless for one that is being tried.
    response_us: f64,
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
        let mut probes = [Probe { slot: 0, load: 0.0, response_us: 0.0 }; PROBES];
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
        // A backend that fails at once answers fast, and has little in flight.
        let failing = (load + 1) as f64 / (f64::from(loads.in_flight(entry.slot)) + 1.0);
        let known = loads.response_us_now(entry.slot).filter(|us| us.is_finite());
        let response_us = match known {
            None if load == 0 => 0.0,
            None => f64::INFINITY,
            Some(us) => us.max(1.0) * failing,
        };
        Probe { slot: entry.slot, load: load as f64 / f64::from(capacity.max(1)), response_us }
    }
}

/// The fastest of those that are not hot.
fn pick(probes: &[Probe]) -> Option<usize> {
    let mut loads = [0.0; PROBES];
    let loads = &mut loads[..probes.len()];
    for (load, probe) in loads.iter_mut().zip(probes) {
        *load = probe.load;
    }
    loads.sort_unstable_by(f64::total_cmp);
    let hottest = *loads.get((loads.len() as f64 * HOT).ceil().max(1.0) as usize - 1)?;
    let cold = probes.iter().filter(|probe| probe.load <= hottest);
    let faster = |a: &&Probe, b: &&Probe| {
        a.response_us.total_cmp(&b.response_us).then(a.load.total_cmp(&b.load))
    };
    cold.min_by(faster).map(|probe| probe.slot)
}
