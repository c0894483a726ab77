//! The tail of each scheduler while other programs take up to 80 % of single backends, as in
//! Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI 2024.
//!
//! Before eight backends of four cores stands one balancer. A request uses a core of those that the
//! other programs leave. `cargo test --release -p equipoise-core --test concurrency tails --
//! --ignored --nocapture` prints p50, p99 and p99.9 in milliseconds at 0.75, 0.9 and 1.1 of the
//! capacity.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use equipoise_core::scheduler::prepare;
use equipoise_core::{Ask, Candidate, Loads, ResponseByLoad, Scheduler, SchedulerKind};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::backend::exponential;
use super::simulator::At;

const CORES: f64 = 4.0;
/// Seconds of work of a request, on average.
const WORK: f64 = 0.01;
/// Shares that other programs take. Two random backends change places every two seconds or so.
const TAKEN: [f64; 8] = [0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8];
/// Decay of the peak-EWMA response time, in seconds, as the session level has it.
const DECAY: f64 = 10.0;

struct Backend {
    taken: f64,
    received: f64,
    /// Due by `received`, and the time of arrival.
    requests: BinaryHeap<Reverse<(At, At)>>,
    peak_us: Option<f64>,
    peak_at: f64,
    by_load: ResponseByLoad,
    answered: f64,
    busy: f64,
}

impl Backend {
    fn new(taken: f64) -> Backend {
        Backend {
            taken,
            received: 0.0,
            requests: BinaryHeap::new(),
            peak_us: None,
            peak_at: 0.0,
            by_load: ResponseByLoad::default(),
            answered: 0.0,
            busy: 0.0,
        }
    }

    /// Seconds of work that each request receives a second.
    fn speed(&self) -> f64 {
        let n = self.requests.len() as f64;
        let free = CORES * (1.0 - self.taken);
        if n == 0.0 { 0.0 } else { n.min(free) / n }
    }

    fn next(&self) -> f64 {
        let due = self.requests.peek().map(|Reverse((At(due), _))| due - self.received);
        due.map_or(f64::INFINITY, |work| work.max(0.0) / self.speed())
    }

    fn pass(&mut self, seconds: f64) {
        let own = (self.requests.len() as f64 / CORES).min(1.0 - self.taken);
        self.busy += seconds * (self.taken + own);
        self.received += self.speed() * seconds;
    }

    fn answered(&mut self, took: f64, now: f64) {
        let in_flight = self.requests.len() as u32 + 1;
        let took_us = 1e6 * took;
        self.by_load.observe(took_us, in_flight, (1e6 * now) as u64);
        let keep = (-(now - self.peak_at) / DECAY).exp();
        let peak = self.peak_us.map_or(0.0, |peak| peak * keep);
        let mean = peak * keep + took_us * (1.0 - keep);
        self.peak_us = Some(if took_us < peak { mean } else { took_us });
        self.peak_at = now;
        self.answered += 1.0;
    }
}

struct Seen<'a>(&'a [Backend], f64);

impl Loads for Seen<'_> {
    fn in_flight(&self, slot: usize) -> u32 {
        self.0[slot].requests.len() as u32
    }

    fn recent_failures(&self, _: usize) -> u32 {
        0
    }

    fn response_us(&self, slot: usize) -> Option<f64> {
        let keep = (-(self.1 - self.0[slot].peak_at) / DECAY).exp();
        self.0[slot].peak_us.map(|peak| peak * keep)
    }

    fn response_us_now(&self, slot: usize) -> Option<f64> {
        self.0[slot].by_load.expected_us(self.in_flight(slot), (1e6 * self.1) as u64)
    }
}

/// What picks: a scheduler, or turns by weights that follow answers over CPU use.
#[derive(Clone, Copy)]
enum Policy {
    Kind(SchedulerKind),
    TurnsByCpu,
}

fn scheduler(policy: Policy, weights: &[f64], rng: &mut StdRng) -> Box<dyn Scheduler> {
    let kind = match policy {
        Policy::Kind(kind) => kind,
        Policy::TurnsByCpu => SchedulerKind::WeightedRoundRobin,
    };
    let candidate = |(identity, &weight): (u64, &f64)| Candidate {
        identity,
        weight: (100.0 * weight).clamp(1.0, 1e6) as u32,
    };
    let candidates: Vec<_> = (0..).zip(weights).map(candidate).collect();
    prepare(kind, &candidates, 1).instance(rng)
}

/// Times from arrival to answer, sorted, without the first five seconds.
fn times(policy: Policy, load: f64, seed: u64, seconds: f64) -> Vec<f64> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut backends: Vec<Backend> = TAKEN.map(Backend::new).into();
    let free: f64 = TAKEN.iter().map(|taken| CORES * (1.0 - taken)).sum();
    let gap = WORK / free / load;
    let mut weights = vec![1.0; backends.len()];
    let mut picks = scheduler(policy, &weights, &mut rng);
    let (mut now, mut arrival, mut change, mut tick) = (0.0, 0.0, 1.0, 1.0);
    let mut times = Vec::new();
    while now < seconds {
        let first = (0..backends.len())
            .min_by(|&a, &b| backends[a].next().total_cmp(&backends[b].next()))
            .expect("backends");
        let served = now + backends[first].next();
        let next = served.min(arrival).min(change).min(tick);
        for backend in &mut backends {
            backend.pass(next - now);
        }
        now = next;
        if now == served {
            let Reverse((_, At(arrived))) = backends[first].requests.pop().expect("a request");
            backends[first].answered(now - arrived, now);
            if now > 5.0 {
                times.push(now - arrived);
            }
        } else if now == arrival {
            let (flow_hash, source_hash) = (rng.random(), rng.random());
            let loads = Seen(&backends, now);
            let mut ask = Ask { flow_hash, source_hash, avoid: None, loads: &loads, rng: &mut rng };
            let slot = picks.pick(&mut ask).expect("a backend");
            let due = backends[slot].received + exponential(&mut rng, WORK);
            backends[slot].requests.push(Reverse((At(due), At(now))));
            arrival = now + exponential(&mut rng, gap);
        } else if now == change {
            let (one, other) = (rng.random_range(0..8), rng.random_range(0..8));
            let taken = backends[one].taken;
            backends[one].taken = backends[other].taken;
            backends[other].taken = taken;
            change = now + exponential(&mut rng, 2.0);
        } else {
            tick += 1.0;
            for (weight, backend) in weights.iter_mut().zip(&mut backends) {
                let measured = (backend.answered + 1.0) / 100.0 / (backend.busy + 0.01);
                *weight += 0.5 * (measured - *weight);
                (backend.answered, backend.busy) = (0.0, 0.0);
            }
            if matches!(policy, Policy::TurnsByCpu) {
                picks = scheduler(policy, &weights, &mut rng);
            }
        }
    }
    times.sort_by(f64::total_cmp);
    times
}

/// Milliseconds of a quantile, the mean over seeds.
fn quantile(policy: Policy, load: f64, quantile: f64, seeds: u64, seconds: f64) -> f64 {
    let one = |seed| {
        let times = times(policy, load, seed, seconds);
        1e3 * times[(quantile * (times.len() - 1) as f64) as usize]
    };
    (1..=seeds).map(one).sum::<f64>() / seeds as f64
}

#[test]
#[ignore = "prints a table"]
fn tails() {
    let kinds = SchedulerKind::ALL.into_iter().map(|kind| (kind.name(), Policy::Kind(kind)));
    for (name, policy) in kinds.chain([("turns by CPU", Policy::TurnsByCpu)]) {
        let cell = |load: f64| {
            let at = |q| quantile(policy, load, q, 3, 65.0);
            format!("{:7.1} {:7.1} {:7.1}", at(0.5), at(0.99), at(0.999))
        };
        let row = [0.75, 0.9, 1.1].map(cell);
        println!("{name:26} {}", row.join(" | "));
    }
}

#[test]
fn prequal_keeps_the_tail_short_while_others_take_cpu() {
    let tail = |kind| quantile(Policy::Kind(kind), 0.9, 0.99, 2, 25.0);
    let (least, prequal) = (tail(SchedulerKind::LeastConnection), tail(SchedulerKind::Prequal));
    println!("p99: least-connection {least:.1} ms, prequal {prequal:.1} ms");
    assert!(prequal <= 0.8 * least, "{prequal:.1} ms, least-connection {least:.1} ms");
}
