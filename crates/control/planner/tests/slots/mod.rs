//! Simulated backends of slots with one queue before them, request by request: the session level as
//! the planner sees it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use equipoise_core::concurrency::{Learner, Load, Outcome, Sample};
use equipoise_planner::elastic::{BackendSample, PoolSample};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Nanoseconds since the start.
type At = u64;

const SECOND: f64 = 1e9;
/// Longest wait in the queue.
const WAIT: At = 1_000_000_000;
/// Number of samples of the queue in a period.
const GLANCES: u64 = 10;
/// Steps of the learners between two samples.
const STEPS: u64 = 20;

pub(crate) struct Slots {
    rng: StdRng,
    service: At,
    now: At,
    backends: BTreeMap<String, Backend>,
    arrivals: VecDeque<At>,
    /// Arrival times of waiting requests, first come first served.
    queue: VecDeque<At>,
    /// Ends of service, and the backend of each.
    ends: BinaryHeap<Reverse<(At, String)>>,
    /// Number of clients that send the next request after each response.
    clients: usize,
    /// Limits are learnt, so a backend may have more requests in flight than slots.
    pub(crate) are_learned: bool,
    pub(crate) served: u64,
    pub(crate) refused: u64,
}

#[derive(Default)]
struct Backend {
    size: Option<String>,
    slots: usize,
    limit: usize,
    /// Start times of requests in flight, first come first served.
    in_flight: VecDeque<At>,
    learner: Option<Learner>,
    /// Responses in this period.
    answered: u32,
    busy_time: At,
}

impl Slots {
    pub(crate) fn new(service_s: f64) -> Slots {
        Slots {
            rng: StdRng::seed_from_u64(47),
            service: (service_s * SECOND) as At,
            now: 0,
            backends: BTreeMap::new(),
            arrivals: VecDeque::new(),
            queue: VecDeque::new(),
            ends: BinaryHeap::new(),
            clients: 0,
            are_learned: false,
            served: 0,
            refused: 0,
        }
    }

    /// Sets the backends by name, size and slots. A removed one finishes its requests.
    pub(crate) fn follow(&mut self, wanted: &[(String, Option<String>, usize)]) {
        self.backends.retain(|name, _| wanted.iter().any(|(wanted, ..)| wanted == name));
        for (name, size, slots) in wanted {
            let one = self.backends.entry(name.clone()).or_default();
            (one.size, one.slots) = (size.clone(), *slots);
            if self.are_learned {
                let wait = Duration::from_nanos(WAIT);
                one.limit = one.learner.get_or_insert_with(|| Learner::new(wait)).limit() as usize;
            } else {
                one.limit = *slots;
            }
        }
    }

    /// Random arrivals at this rate for a period.
    pub(crate) fn ask_at(&mut self, rate: f64, period: Duration) {
        self.clients = 0;
        let (mut at, end) = (self.now, self.now + period.as_nanos() as At);
        let rng = &mut self.rng;
        let next = std::iter::from_fn(|| {
            let part: f64 = rng.random();
            at += (-(1.0 - part).ln() / rate * SECOND) as At;
            Some(at).filter(|at| *at < end)
        });
        if rate > 0.0 {
            self.arrivals.extend(next);
        }
    }

    /// Sets the number of clients that send the next request after each response.
    pub(crate) fn ask_again(&mut self, clients: usize) {
        let new = clients.saturating_sub(self.clients);
        self.arrivals.extend(std::iter::repeat_n(self.now, new));
        self.clients = clients;
    }

    /// Runs for a period.
    pub(crate) fn run(&mut self, period: Duration) -> PoolSample {
        let (begin, end) = (self.now, self.now + period.as_nanos() as At);
        let (queued, refused) = (self.queue.len(), self.refused);
        self.backends.values_mut().for_each(|it| (it.answered, it.busy_time) = (0, 0));
        let (mut waiting, mut is_standing) = (0, true);
        for glance in 1..=GLANCES {
            for step in 1..=STEPS {
                let steps = (glance - 1) * STEPS + step;
                self.run_until(begin + (end - begin) * steps / (GLANCES * STEPS));
                self.learn();
            }
            waiting += self.queue.len();
            is_standing &= glance <= GLANCES / 2 || !self.queue.is_empty();
        }
        let seconds = period.as_secs_f64();
        let sample = |(name, it): (&String, &Backend)| {
            let mean = Duration::from_nanos(it.busy_time) / it.answered.max(1);
            let one = BackendSample {
                in_flight: it.busy_time as f64 / SECOND / seconds,
                response: (it.answered > 0).then_some(mean),
                limit: Some(it.knee().unwrap_or(it.limit as f64)),
                is_guess: it.learner.is_some() && it.knee().is_none(),
                size: it.size.clone(),
                ..BackendSample::default()
            };
            (name.clone(), one)
        };
        let left = self.queue.len() as f64 - queued as f64 + (self.refused - refused) as f64;
        PoolSample {
            backends: self.backends.iter().map(sample).collect(),
            queued: waiting as f64 / GLANCES as f64,
            is_standing,
            excess: left / seconds,
        }
    }

    /// Adjusts the learnt limits, as the session level does every few milliseconds.
    fn learn(&mut self) {
        let (now, count) = (self.now, self.backends.len());
        let oldest = self.queue.front().map_or(0, |since| now - since);
        for one in self.backends.values_mut() {
            let Some(learner) = &mut one.learner else { continue };
            let in_flight = one.in_flight.len();
            let waiting = if in_flight >= one.limit { self.queue.len().div_ceil(count) } else { 0 };
            learner.step(Load {
                now: Duration::from_nanos(now),
                in_flight: in_flight as u32,
                waiting: waiting as u32,
                oldest_wait: Duration::from_nanos(oldest),
            });
            one.limit = learner.limit() as usize;
        }
    }

    fn run_until(&mut self, end: At) {
        loop {
            self.begin();
            let arrival = self.arrivals.front().copied().unwrap_or(At::MAX);
            let done = self.ends.peek().map_or(At::MAX, |Reverse((at, _))| *at);
            let late = self.queue.front().map_or(At::MAX, |since| since + WAIT);
            let next = arrival.min(done).min(late);
            if next >= end {
                self.now = end;
                return;
            }
            self.now = next;
            if next == done {
                self.done();
            } else if next == arrival {
                self.arrivals.pop_front();
                self.queue.push_back(next);
            } else {
                self.queue.pop_front();
                self.refused += 1;
                self.again();
            }
        }
    }

    /// Starts waiting requests while a slot is free, at the backend with the fewest slots in use.
    fn begin(&mut self) {
        while !self.queue.is_empty() {
            let free = self.backends.iter_mut().filter(|(_, it)| it.in_flight.len() < it.limit);
            let least = |a: &Backend, b: &Backend| {
                (a.in_flight.len() * b.limit).cmp(&(b.in_flight.len() * a.limit))
            };
            let Some((name, one)) = free.min_by(|a, b| least(a.1, b.1)) else { return };
            one.in_flight.push_back(self.now);
            if one.in_flight.len() <= one.slots {
                self.ends.push(Reverse((self.now + self.service, name.clone())));
            }
            self.queue.pop_front();
        }
    }

    fn done(&mut self) {
        let Some(Reverse((_, name))) = self.ends.pop() else { return };
        self.served += 1;
        if let Some(one) = self.backends.get_mut(&name)
            && let Some(since) = one.in_flight.pop_front()
        {
            one.answered += 1;
            one.busy_time += self.now - since;
            if one.in_flight.len() >= one.slots {
                self.ends.push(Reverse((self.now + self.service, name)));
            }
            if let Some(learner) = &mut one.learner {
                learner.observe(&[Sample {
                    finished: Duration::from_nanos(self.now),
                    service_time: Duration::from_nanos(self.now - since),
                    outcome: Outcome::Answered,
                }]);
            }
        }
        self.again();
    }

    fn again(&mut self) {
        let there = self.ends.len() + self.queue.len() + self.arrivals.len();
        if there < self.clients {
            self.arrivals.push_back(self.now);
        }
    }
}

impl Backend {
    fn knee(&self) -> Option<f64> {
        self.learner.as_ref()?.report().knee
    }
}
