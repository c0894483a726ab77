//! The tail of each scheduler while other programs take up to 80 % of single backends, as in
//! Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI 2024.
//!
//! Eight backends receive Poisson arrivals of 10 ms of work, exponentially spread. Two random
//! backends change places every two seconds or so, so that the capacity of all together is
//! constant: if it were not, the tail at 0.9 of its mean would be that of the times when no
//! scheduler can help. One balancer or several of one pool; a balancer knows its own requests
//! alone.
//!
//! `cargo test --release -p equipoise-core --test concurrency tails -- --ignored --nocapture`
//! prints p50, p99 and p99.9 in milliseconds at 0.75, 0.9 and 1.1 of the capacity.

mod backend;

use backend::{Backend, Request, Shape};
use equipoise_core::scheduler::prepare;
use equipoise_core::{Ask, Candidate, Loads, Scheduler, SchedulerKind, ServiceTime};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::backend::exponential;

/// Seconds of work of a request, on average.
const WORK: f64 = 0.01;
/// Shares that other programs take of each backend.
const TAKEN: [f64; 8] = [0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8];
/// Mean time between changes, in seconds.
const CHANGE: f64 = 2.0;
/// Decay of the peak-EWMA response time, in seconds, as the session level has it.
const DECAY: f64 = 10.0;
/// Seconds that are not measured.
const WARM_UP: f64 = 3.0;
const SEEDS: u64 = 10;

/// The rule that picks a backend.
#[derive(Clone, Copy)]
enum Policy {
    Kind(SchedulerKind),
    /// Turns by weights that follow responses over CPU use.
    TurnsByCpu,
    /// Knows every backend's present capacity and all its requests. The rule is that of `prequal`,
    /// so that the difference is what the estimate costs.
    Oracle,
}

#[derive(Clone, Copy)]
struct Scenario {
    shape: Shape,
    taken: [f64; 8],
    balancers: usize,
    /// Part of the capacity.
    load: f64,
    seconds: f64,
}

/// A balancer's view of a backend.
#[derive(Default)]
struct Known {
    in_flight: u32,
    peak_us: Option<f64>,
    peak_at: f64,
    service_time: ServiceTime,
}

impl Known {
    fn answered(&mut self, took: f64, now: f64) {
        let took_us = 1e6 * took;
        self.service_time.observe(took_us, self.in_flight, (1e6 * now) as u64);
        self.in_flight -= 1;
        let keep = (-(now - self.peak_at) / DECAY).exp();
        let peak = self.peak_us.map_or(0.0, |peak| peak * keep);
        let mean = peak * keep + took_us * (1.0 - keep);
        self.peak_us = Some(if took_us < peak { mean } else { took_us });
        self.peak_at = now;
    }
}

/// A balancer's view of all backends, and the time.
struct Seen<'a>(&'a [Known], f64);

impl Loads for Seen<'_> {
    fn in_flight(&self, slot: usize) -> u32 {
        self.0[slot].in_flight
    }

    fn recent_failures(&self, _: usize) -> u32 {
        0
    }

    fn response_us(&self, slot: usize) -> Option<f64> {
        let keep = (-(self.1 - self.0[slot].peak_at) / DECAY).exp();
        self.0[slot].peak_us.map(|peak| peak * keep)
    }

    fn service_us(&self, slot: usize) -> Option<f64> {
        self.0[slot].service_time.estimate_us((1e6 * self.1) as u64)
    }
}

struct Balancer {
    scheduler: Box<dyn Scheduler>,
    known: Vec<Known>,
}

impl Balancer {
    fn new(policy: Policy, rng: &mut StdRng) -> Balancer {
        let known = TAKEN.map(|_| Known::default()).into();
        Balancer { scheduler: scheduler(policy, &[1.0; 8], rng), known }
    }

    fn pick(&mut self, policy: Policy, backends: &[Backend], now: f64, rng: &mut StdRng) -> usize {
        let slot = if let Policy::Oracle = policy {
            let cost = |slot: &usize| {
                let backend = &backends[*slot];
                (backend.in_flight() + 1) as f64 / backend.free().powf(0.75)
            };
            (0..backends.len()).min_by(|one, other| cost(one).total_cmp(&cost(other)))
        } else {
            let (flow_hash, source_hash) = (rng.random(), rng.random());
            let loads = Seen(&self.known, now);
            self.scheduler.pick(&mut Ask {
                flow_hash,
                source_hash,
                avoid: None,
                loads: &loads,
                rng,
            })
        };
        let slot = slot.expect("a backend");
        self.known[slot].in_flight += 1;
        slot
    }
}

fn scheduler(policy: Policy, weights: &[f64], rng: &mut StdRng) -> Box<dyn Scheduler> {
    let kind = match policy {
        Policy::Kind(kind) => kind,
        Policy::TurnsByCpu | Policy::Oracle => SchedulerKind::WeightedRoundRobin,
    };
    let candidate = |(identity, &weight): (u64, &f64)| Candidate {
        identity,
        weight: (100.0 * weight).clamp(1.0, 1e6) as u32,
    };
    let candidates: Vec<_> = (0..).zip(weights).map(candidate).collect();
    prepare(kind, &candidates, 1).instance(rng)
}

/// Seconds from arrival to response, sorted.
fn times(policy: Policy, scenario: Scenario, seed: u64) -> Vec<f64> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut backends = scenario.taken.map(|taken| Backend::new(scenario.shape, taken));
    let capacity: f64 = backends.iter().map(Backend::free).sum();
    let gap = WORK / capacity / scenario.load;
    let mut balancers: Vec<_> =
        (0..scenario.balancers).map(|_| Balancer::new(policy, &mut rng)).collect();
    let (mut weights, mut responses) = ([1.0; 8], [0.0; 8]);
    let (mut now, mut arrival, mut change, mut tick) = (0.0, 0.0, 1.0, 1.0);
    let mut times = Vec::new();
    while now < scenario.seconds {
        let first = (0..backends.len())
            .min_by(|&one, &other| backends[one].next().total_cmp(&backends[other].next()))
            .expect("backends");
        let served = now + backends[first].next();
        let next = served.min(arrival).min(change).min(tick);
        for backend in &mut backends {
            backend.pass(next - now);
        }
        now = next;
        if now == served {
            let request = backends[first].finish();
            let took = now - request.arrived;
            balancers[request.balancer].known[first].answered(took, now);
            responses[first] += 1.0;
            if now > WARM_UP {
                times.push(took);
            }
        } else if now == arrival {
            let balancer = rng.random_range(0..balancers.len());
            let slot = balancers[balancer].pick(policy, &backends, now, &mut rng);
            let work = exponential(&mut rng, WORK);
            backends[slot].begin(Request { work, arrived: now, balancer });
            arrival = now + exponential(&mut rng, gap);
        } else if now == change {
            let (one, other) = (rng.random_range(0..8), rng.random_range(0..8));
            let taken = backends[one].taken;
            backends[one].taken = backends[other].taken;
            backends[other].taken = taken;
            change = now + exponential(&mut rng, CHANGE);
        } else {
            tick += 1.0;
            for ((weight, backend), responses) in
                weights.iter_mut().zip(&mut backends).zip(&mut responses)
            {
                let measured = (*responses + 1.0) / 100.0 / (backend.busy + 0.01);
                *weight += 0.5 * (measured - *weight);
                (*responses, backend.busy) = (0.0, 0.0);
            }
            if matches!(policy, Policy::TurnsByCpu) {
                for balancer in &mut balancers {
                    balancer.scheduler = scheduler(policy, &weights, &mut rng);
                }
            }
        }
    }
    times.sort_by(f64::total_cmp);
    times
}

/// Milliseconds of each quantile, means of [`SEEDS`] runs.
fn quantiles<const N: usize>(policy: Policy, scenario: Scenario, quantiles: [f64; N]) -> [f64; N] {
    let mut sums = [0.0; N];
    for seed in 1..=SEEDS {
        let times = times(policy, scenario, seed);
        for (sum, quantile) in sums.iter_mut().zip(quantiles) {
            *sum += times[(quantile * (times.len() - 1) as f64) as usize];
        }
    }
    sums.map(|sum| 1e3 * sum / SEEDS as f64)
}

/// `prequal`'s p99 over that of `least-connection`, at 0.9 of the capacity.
fn prequal_over_least(shape: Shape, taken: [f64; 8], balancers: usize) -> f64 {
    let scenario = Scenario { shape, taken, balancers, load: 0.9, seconds: 18.0 };
    let p99 = |kind| quantiles(Policy::Kind(kind), scenario, [0.99])[0];
    let (least, prequal) = (p99(SchedulerKind::LeastConnection), p99(SchedulerKind::Prequal));
    println!(
        "{shape:?}, {balancers} balancers: least-connection {least:.1} ms, prequal {prequal:.1} ms"
    );
    prequal / least
}

const SHAPES: [Shape; 4] =
    [Shape::Cores(4.0), Shape::SlowCores(4.0), Shape::SlowCores(1.0), Shape::SlowWorkers(4.0)];

#[test]
#[ignore = "prints a table"]
fn tails() {
    let kinds = SchedulerKind::ALL.into_iter().map(|kind| (kind.name(), Policy::Kind(kind)));
    let more = [("turns by CPU", Policy::TurnsByCpu), ("oracle", Policy::Oracle)];
    let policies: Vec<_> = kinds.chain(more).collect();
    for (shape, balancers) in SHAPES.iter().flat_map(|&shape| [(shape, 1), (shape, 4)]) {
        println!("{shape:?}, {balancers} balancers");
        for (name, policy) in &policies {
            let cell = |load: f64| {
                let scenario = Scenario { shape, taken: TAKEN, balancers, load, seconds: 33.0 };
                let [p50, p99, p999] = quantiles(*policy, scenario, [0.5, 0.99, 0.999]);
                format!("{p50:7.1} {p99:7.1} {p999:7.1}")
            };
            println!("{name:26} {}", [0.75, 0.9, 1.1].map(cell).join(" | "));
        }
    }
}

#[test]
fn prequal_keeps_the_tail_short_while_others_take_cores() {
    let ratio = prequal_over_least(Shape::Cores(4.0), TAKEN, 1);
    assert!(ratio <= 0.72, "{ratio:.2}");
}

#[test]
fn prequal_keeps_the_tail_short_while_others_slow_cores() {
    let ratio = prequal_over_least(Shape::SlowCores(4.0), TAKEN, 1);
    assert!(ratio <= 0.95, "{ratio:.2}");
}

#[test]
fn prequal_keeps_the_tail_short_while_others_slow_single_cores() {
    let ratio = prequal_over_least(Shape::SlowCores(1.0), TAKEN, 1);
    assert!(ratio <= 0.85, "{ratio:.2}");
}

#[test]
fn prequal_keeps_the_tail_short_while_others_slow_workers() {
    let ratio = prequal_over_least(Shape::SlowWorkers(4.0), TAKEN, 1);
    assert!(ratio <= 0.8, "{ratio:.2}");
}

#[test]
fn prequal_keeps_the_tail_short_with_several_balancers() {
    let ratio = prequal_over_least(Shape::SlowCores(4.0), TAKEN, 4);
    assert!(ratio <= 0.8, "{ratio:.2}");
}

#[test]
fn prequal_loses_little_where_no_other_program_runs() {
    let ratio = prequal_over_least(Shape::Cores(4.0), [0.0; 8], 1);
    assert!(ratio <= 1.02, "{ratio:.2}");
}
