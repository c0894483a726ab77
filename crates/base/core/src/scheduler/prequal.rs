use std::sync::Arc;

use rand::{Rng, RngExt};

use super::roster::{Entry, Roster};
use super::{Ask, Loads, Scheduler};

/// Of the less loaded candidates, the one that should respond first.
///
/// A candidate is *hot* if its load (requests in flight and failures, per weight, or per
/// concurrency limit if all have one) is above the median. Of the others, the one with the lowest
/// cost is picked. The cost is the number in flight with this request, plus failures, per weight or
/// limit, times the slowness. Slowness is the service time ([`Loads::service_us`]) over [`ALIKE`]
/// times the least one, to the power of 0.75, and at least 1. So candidates that are about as fast
/// as the fastest are picked as by `least-connection`, and in turns while they are idle.
///
/// The number in flight shows load at once. The service time shows how much of a backend other
/// programs use. A candidate without a service time is tried at once, one request at a time. If
/// none has one (TCP, UDP), the least loaded is picked. In pools of up to [`PROBES`] all candidates
/// are compared, in larger pools that many random ones. O(1).
///
/// # Source
/// Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI 2024: the
/// hot-cold lexicographic rule and its pool of 16 probes. Deviates:
/// - A probe reads this process's own counters at the time of the pick, so probes are neither
///   stored nor reused, and never too old.
/// - The paper's servers state their latency at about their present number in flight. Here the
///   service time is multiplied by the number in flight, because it can be learned with few
///   responses.
/// - Hot is above the median, not above the 0.84 quantile. A wrong estimate then costs less, and
///   the tail of the simulation `antagonists` is as short.
/// - Weights, failures as load, and service times that count as equal.
pub(super) struct Prequal {
    roster: Arc<Roster>,
    next: usize,
}

/// Number of candidates that are compared.
const PROBES: usize = 16;
/// Candidates are equally fast if their service time is at most this multiple of the least one.
/// Estimates of equal backends differ by less.
const ALIKE: f64 = 1.25;

#[derive(Clone, Copy, Default)]
struct Probe {
    position: usize,
    /// In flight and failures, per weight or limit.
    load: f64,
    /// `load` with one request more.
    next_load: f64,
    service: Service,
}

#[derive(Clone, Copy, Default)]
enum Service {
    /// It should be tried.
    #[default]
    Untried,
    /// Requests that try it have no response yet.
    Tried,
    Us(f64),
}

impl Prequal {
    pub(super) fn new(roster: Arc<Roster>, rng: &mut dyn Rng) -> Prequal {
        let next = roster.random_start(rng);
        Prequal { roster, next }
    }
}

impl Scheduler for Prequal {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        let avoided = self.roster.avoidable(ask.avoid);
        let entries = self.roster.entries();
        let mut drawn = [0; PROBES];
        let mut count = 0;
        for at in 0..entries.len().min(2 * PROBES) {
            if count == PROBES {
                break;
            }
            let position = match entries.len() <= PROBES {
                true => (self.next + at) % entries.len(),
                false => ask.rng.random_range(0..entries.len()),
            };
            let is_full = ask.loads.is_full(entries[position].slot);
            if Some(position) != avoided && !is_full {
                drawn[count] = position;
                count += 1;
            }
        }
        let drawn = &drawn[..count];
        let limit = |position: &usize| ask.loads.limit(entries[*position].slot);
        let all_have_limits = drawn.iter().all(|position| limit(position).is_some());
        let mut probes = [Probe::default(); PROBES];
        for (probe, position) in probes.iter_mut().zip(drawn) {
            let limit = limit(position).filter(|_| all_have_limits);
            let capacity = limit.unwrap_or(entries[*position].weight);
            *probe = Probe::of(*position, &entries[*position], capacity, ask.loads);
        }
        match pick(&probes[..count]) {
            Some(position) => {
                self.next = self.roster.after(position);
                Some(entries[position].slot)
            }
            None => self.roster.draw_free(ask, avoided),
        }
    }
}

impl Probe {
    fn of(position: usize, entry: &Entry, capacity: u32, loads: &dyn Loads) -> Probe {
        let load = entry.load(loads);
        let capacity = f64::from(capacity.max(1));
        let service = match loads.service_us(entry.slot).filter(|us| us.is_finite()) {
            None if load == 0 => Service::Untried,
            None => Service::Tried,
            Some(us) => Service::Us(us),
        };
        let next_load = (load + 1) as f64 / capacity;
        Probe { position, load: load as f64 / capacity, next_load, service }
    }

    fn cost(&self, alike_us: f64) -> f64 {
        match self.service {
            Service::Untried => 0.0,
            Service::Tried => f64::INFINITY,
            Service::Us(us) if us <= alike_us => self.next_load,
            Service::Us(us) => self.next_load * tempered(us / alike_us),
        }
    }
}

/// `slowness ^ 0.75`. The service time is an estimate from the past. In the simulation the tail is
/// shortest at about this exponent, also with the true service time.
fn tempered(slowness: f64) -> f64 {
    let root = slowness.sqrt();
    root * root.sqrt()
}

/// The position of the cheapest candidate that is not hot.
fn pick(probes: &[Probe]) -> Option<usize> {
    let mut loads = [0.0; PROBES];
    let loads = &mut loads[..probes.len()];
    let mut least_us = f64::INFINITY;
    for (load, probe) in loads.iter_mut().zip(probes) {
        *load = probe.load;
        if let Service::Us(us) = probe.service {
            least_us = least_us.min(us);
        }
    }
    loads.sort_unstable_by(f64::total_cmp);
    let median = *loads.get(loads.len() / 2)?;
    let cold = probes.iter().filter(|probe| probe.load <= median);
    let cost = |probe: &Probe| probe.cost(ALIKE * least_us);
    let cheaper =
        |a: &&Probe, b: &&Probe| cost(a).total_cmp(&cost(b)).then(a.load.total_cmp(&b.load));
    cold.min_by(cheaper).map(|probe| probe.position)
}
