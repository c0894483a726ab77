//! A seeded discrete-event simulation: open-loop clients, one queue per balancer, one backend.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use equipoise_core::concurrency::{Load, Outcome, Sample};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::backend::{Backend, Station, exponential};
use super::queue::{Discipline, Queue};

/// A time in seconds, with an order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct At(pub f64);

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &At) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &At) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// An algorithm that sets a limit.
pub(crate) trait Limiter {
    fn limit(&self) -> u32;
    /// Takes finished requests, and how many were in flight when each started.
    fn finished(&mut self, samples: &[Sample], in_flight: &[u32]);
    fn step(&mut self, load: Load);
    fn describe(&self) -> String {
        String::new()
    }
}

/// Settings of a simulation.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) backend: Backend,
    /// Requests a second by time (seconds).
    pub(crate) offered: fn(f64) -> f64,
    /// Multiplies `offered`.
    pub(crate) factor: f64,
    pub(crate) seconds: f64,
    pub(crate) discipline: Discipline,
    /// Longest wait in the queue, in seconds.
    pub(crate) wait: f64,
    pub(crate) queue_length: usize,
    /// Clock of each balancer against the truth, in seconds.
    pub(crate) skews: Vec<f64>,
    /// Seconds between two steps of the learner.
    pub(crate) period: f64,
    pub(crate) seed: u64,
    pub(crate) trace: bool,
}

impl Setting {
    /// A load of `times` the backend's capacity before one balancer.
    pub(crate) fn new(backend: &Backend, times: f64, seed: u64) -> Setting {
        Setting {
            backend: *backend,
            offered: |_| 1.0,
            factor: times * backend.capacity,
            seconds: 40.0,
            discipline: Discipline::LateLifo,
            wait: 0.3,
            queue_length: usize::MAX,
            skews: vec![0.0],
            period: 0.005,
            seed,
            trace: false,
        }
    }
}

/// Results. Indices are seconds from the start.
#[derive(Default)]
pub(crate) struct Outcomes {
    pub(crate) offered: Vec<u32>,
    pub(crate) good: Vec<u32>,
    pub(crate) refused: Vec<u32>,
    /// Failed by the backend.
    pub(crate) failed: Vec<u32>,
    /// Time of each answer and the time from arrival to it, in seconds.
    pub(crate) latencies: Vec<(f32, f32)>,
    /// Sum of all balancers' limits at each step.
    pub(crate) limits: Vec<f32>,
    /// Requests that each balancer's clients got answered.
    pub(crate) answered: Vec<u32>,
    /// Sum over time of those in flight at the backend, by second.
    pub(crate) in_flight: Vec<f64>,
}

impl Outcomes {
    fn sum(of: &[u32], from: f64, to: f64) -> f64 {
        of[from as usize..(to as usize).min(of.len())].iter().map(|&n| f64::from(n)).sum()
    }

    /// Good answers a second in a span of seconds.
    pub(crate) fn goodput(&self, from: f64, to: f64) -> f64 {
        Outcomes::sum(&self.good, from, to) / (to - from)
    }

    /// Refused share of what was offered.
    pub(crate) fn refused(&self, from: f64, to: f64) -> f64 {
        Outcomes::sum(&self.refused, from, to) / Outcomes::sum(&self.offered, from, to).max(1.0)
    }

    /// Failed share of what was offered.
    pub(crate) fn failed(&self, from: f64, to: f64) -> f64 {
        Outcomes::sum(&self.failed, from, to) / Outcomes::sum(&self.offered, from, to).max(1.0)
    }

    /// A quantile of the times of answers, in seconds.
    pub(crate) fn latency(&self, quantile: f64, from: f64, to: f64) -> f64 {
        let within = |&&(at, _): &&(f32, f32)| (from..to).contains(&f64::from(at));
        let mut times: Vec<f32> = self.latencies.iter().filter(within).map(|&(_, t)| t).collect();
        times.sort_by(f32::total_cmp);
        if times.is_empty() {
            return f64::INFINITY;
        }
        f64::from(times[((times.len() - 1) as f64 * quantile) as usize])
    }

    /// Answers a second in a span, of those that came within `deadline` seconds from arrival.
    pub(crate) fn answers_within(&self, deadline: f64, from: f64, to: f64) -> f64 {
        let counts = |&&(at, took): &&(f32, f32)| {
            (from..to).contains(&f64::from(at)) && f64::from(took) < deadline
        };
        self.latencies.iter().filter(counts).count() as f64 / (to - from)
    }

    /// Mean of the limit over the last half.
    pub(crate) fn limit(&self) -> f64 {
        let last = &self.limits[self.limits.len() / 2..];
        last.iter().map(|&l| f64::from(l)).sum::<f64>() / last.len() as f64
    }
}

#[derive(Clone, Copy)]
struct Request {
    arrived: f64,
    started: f64,
    in_flight: u32,
    balancer: usize,
    work: f64,
    latency: f64,
    failed: bool,
}

struct Balancer {
    queue: Queue,
    in_flight: u32,
    samples: Vec<Sample>,
    at_start: Vec<u32>,
    skew: f64,
}

struct World<'a> {
    setting: &'a Setting,
    rng: StdRng,
    now: f64,
    requests: Vec<Request>,
    free: Vec<usize>,
    station: Station,
    delayed: BinaryHeap<Reverse<(At, usize)>>,
    balancers: Vec<Balancer>,
    out: Outcomes,
}

/// Simulates, with one limiter for each balancer.
pub(crate) fn simulate(setting: &Setting, limiters: &mut [Box<dyn Limiter>]) -> Outcomes {
    let mut world = World::new(setting);
    let mut arrival = world.next_arrival();
    let mut tick = 0.0;
    loop {
        let served = world.station.next();
        let delayed = world.delayed.peek().map_or(f64::INFINITY, |Reverse((At(at), _))| *at);
        let next = arrival.min(tick).min(served).min(delayed);
        if next >= setting.seconds {
            return world.out;
        }
        world.pass(next);
        if next == served {
            let id = world.station.finish();
            let latency = world.requests[id].latency;
            if latency > 0.0 {
                world.delayed.push(Reverse((At(next + latency), id)));
            } else {
                world.finish(id, limiters);
            }
        } else if next == delayed {
            if let Some(Reverse((_, id))) = world.delayed.pop() {
                world.finish(id, limiters);
            }
        } else if next == arrival {
            world.arrive(limiters);
            arrival = world.next_arrival();
        } else {
            world.tick(limiters);
            tick += setting.period;
        }
    }
}

impl<'a> World<'a> {
    fn new(setting: &'a Setting) -> World<'a> {
        let balancer = |&skew: &f64| Balancer {
            queue: Queue::new(setting.discipline, setting.wait, setting.queue_length),
            in_flight: 0,
            samples: Vec::new(),
            at_start: Vec::new(),
            skew,
        };
        let seconds = setting.seconds.ceil() as usize;
        World {
            setting,
            rng: StdRng::seed_from_u64(setting.seed),
            now: 0.0,
            requests: Vec::new(),
            free: Vec::new(),
            station: Station::new(&setting.backend),
            delayed: BinaryHeap::new(),
            balancers: setting.skews.iter().map(balancer).collect(),
            out: Outcomes {
                offered: vec![0; seconds],
                good: vec![0; seconds],
                refused: vec![0; seconds],
                failed: vec![0; seconds],
                answered: vec![0; setting.skews.len()],
                in_flight: vec![0.0; seconds],
                ..Outcomes::default()
            },
        }
    }

    fn pass(&mut self, now: f64) {
        let all: u32 = self.balancers.iter().map(|one| one.in_flight).sum();
        self.out.in_flight[self.now as usize] += f64::from(all) * (now - self.now);
        self.station.advance(now);
        self.now = now;
    }

    fn next_arrival(&mut self) -> f64 {
        let rate = self.setting.factor * (self.setting.offered)(self.now);
        self.now + exponential(&mut self.rng, 1.0 / rate.max(1e-9))
    }

    fn arrive(&mut self, limiters: &[Box<dyn Limiter>]) {
        let index = self.rng.random_range(0..self.balancers.len());
        let job = (self.setting.backend.draw)(&mut self.rng, self.now);
        let request = Request {
            arrived: self.now,
            started: 0.0,
            in_flight: 0,
            balancer: index,
            work: job.work,
            latency: job.latency,
            failed: false,
        };
        let id = self.free.pop().unwrap_or(self.requests.len());
        if id == self.requests.len() {
            self.requests.push(request);
        }
        self.requests[id] = request;
        self.out.offered[self.now as usize] += 1;
        if let Some(left) = self.balancers[index].queue.push(self.now, id) {
            self.refuse(left);
        }
        self.dispatch(index, limiters);
    }

    fn refuse(&mut self, id: usize) {
        self.out.refused[self.now as usize] += 1;
        self.free.push(id);
    }

    fn dispatch(&mut self, index: usize, limiters: &[Box<dyn Limiter>]) {
        while let Some(id) = self.balancers[index].queue.expire(self.now) {
            self.refuse(id);
        }
        let limit = limiters[index].limit().max(1);
        while self.balancers[index].in_flight < limit {
            let balancer = &mut self.balancers[index];
            let Some(id) = balancer.queue.pop(self.now) else { return };
            balancer.in_flight += 1;
            self.requests[id].started = self.now;
            self.requests[id].in_flight = balancer.in_flight;
            if self.station.len() >= self.setting.backend.refuses_above {
                self.requests[id].failed = true;
                self.delayed.push(Reverse((At(self.now + 0.001), id)));
                continue;
            }
            let work = self.requests[id].work * (self.setting.backend.slowdown)(self.now);
            self.station.start(id, work);
        }
    }

    fn finish(&mut self, id: usize, limiters: &[Box<dyn Limiter>]) {
        let request = self.requests[id];
        self.free.push(id);
        let balancer = &mut self.balancers[request.balancer];
        balancer.in_flight -= 1;
        balancer.at_start.push(request.in_flight);
        balancer.samples.push(Sample {
            finished: Duration::from_secs_f64(self.now + balancer.skew),
            service_time: Duration::from_secs_f64(self.now - request.started),
            outcome: if request.failed { Outcome::Failed } else { Outcome::Answered },
        });
        if request.failed {
            self.out.failed[self.now as usize] += 1;
            self.dispatch(request.balancer, limiters);
            return;
        }
        let took = self.now - request.arrived;
        self.out.latencies.push((self.now as f32, took as f32));
        if took < self.setting.backend.deadline {
            self.out.good[self.now as usize] += 1;
            self.out.answered[request.balancer] += 1;
        }
        self.dispatch(request.balancer, limiters);
    }

    fn tick(&mut self, limiters: &mut [Box<dyn Limiter>]) {
        let mut sum = 0;
        for (balancer, limiter) in self.balancers.iter_mut().zip(limiters.iter_mut()) {
            limiter.finished(&balancer.samples, &balancer.at_start);
            balancer.samples.clear();
            balancer.at_start.clear();
            let oldest = balancer.queue.oldest().map_or(0.0, |at| self.now - at);
            limiter.step(Load {
                now: Duration::from_secs_f64(self.now + balancer.skew),
                in_flight: balancer.in_flight,
                waiting: balancer.queue.len() as u32,
                oldest_wait: Duration::from_secs_f64(oldest),
            });
            sum += limiter.limit();
            let shown = (self.now / self.setting.period) as u64;
            if self.setting.trace && shown.is_multiple_of(20) {
                let (n, waiting) = (balancer.in_flight, balancer.queue.len());
                println!("{:8.3} n {n:4} q {waiting:4} {}", self.now, limiter.describe());
            }
        }
        self.out.limits.push(sum as f32);
        for index in 0..self.balancers.len() {
            self.dispatch(index, limiters);
        }
    }
}
