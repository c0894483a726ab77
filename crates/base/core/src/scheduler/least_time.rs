use std::sync::Arc;

use super::roster::{Entry, Roster};
use super::{Ask, Loads, Scheduler};

/// The better of two different random candidates by cost, which is the expected response time:
/// `response_us * (in_flight + 1 + failures) / weight`. O(log n). If both have a concurrency limit,
/// it replaces the weight.
///
/// Two choices, not the least of all: the lowest response time is as old as a response takes, so a
/// search of all would send every thread's burst to one backend, and it would decay 1000 averages
/// per pick. The two are drawn in proportion to weight, and a recent failure counts as
/// [`FAILURE_AS_IN_FLIGHT`](super::FAILURE_AS_IN_FLIGHT) in flight, as in [`super::power_of_two`].
///
/// A candidate without a sample is tried at once, one request at a time. Until it responds, and
/// while its failures are recent, it has the other's response time. The response time decays while
/// no request is sent, so one slow response does not exclude a backend for ever.
///
/// # Source
/// Finagle `PeakEwma` (`finagle-core`, package `loadbalancer`); linkerd2-proxy `linkerd/pool/p2c`.
/// Deviates: weights, failures as load, and no default response time for candidates without a
/// sample.
pub(super) struct LeastTime {
    roster: Arc<Roster>,
}

/// Least estimate, so that the number in flight still distinguishes decayed estimates.
const RESPONSE_US_MIN: f64 = 1.0;

impl LeastTime {
    pub(super) fn new(roster: Arc<Roster>) -> LeastTime {
        LeastTime { roster }
    }
}

impl Scheduler for LeastTime {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        self.roster.better_of_two(ask, |second, first, loads| {
            let (second_capacity, first_capacity) = second.capacities(first, loads);
            let first = Seen::of(first, first_capacity, loads);
            Seen::of(second, second_capacity, loads).is_better_than(&first)
        })
    }
}

/// The load and response time of a candidate.
struct Seen {
    response_us: Option<f64>,
    /// Requests in flight, this one included, and failures, per weight or limit.
    queue: f64,
    is_untried: bool,
}

impl Seen {
    fn of(entry: &Entry, capacity: u32, loads: &dyn Loads) -> Seen {
        let response_us = loads.response_us(entry.slot);
        let load = entry.load(loads);
        Seen {
            response_us,
            queue: (load + 1) as f64 / f64::from(capacity),
            is_untried: response_us.is_none() && load == 0,
        }
    }

    fn is_better_than(&self, other: &Seen) -> bool {
        if self.is_untried != other.is_untried {
            return self.is_untried;
        }
        self.cost(other) < other.cost(self)
    }

    fn cost(&self, other: &Seen) -> f64 {
        let response_us = self.response_us.or(other.response_us).unwrap_or(RESPONSE_US_MIN);
        response_us.max(RESPONSE_US_MIN) * self.queue
    }
}
