//! Schedulers against naive models written from the definitions.

mod every_kind;
mod full;
mod kind;
mod least_loaded;
mod maglev;
mod prequal;
mod robin;
mod two_choices;
mod weighted_random;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::{Ask, Candidate, Loads, Scheduler, SchedulerKind, prepare};
use crate::hash;

/// Loads that a test states. Slots beyond the end are idle.
#[derive(Clone, Debug, Default)]
struct Given {
    in_flight: Vec<u32>,
    failures: Vec<u32>,
    response_us: Vec<Option<f64>>,
    limits: Vec<Option<u32>>,
}

impl Given {
    fn in_flight(in_flight: &[u32]) -> Given {
        Given { in_flight: in_flight.to_vec(), ..Given::default() }
    }
}

impl Loads for Given {
    fn in_flight(&self, slot: usize) -> u32 {
        self.in_flight.get(slot).copied().unwrap_or(0)
    }

    fn recent_failures(&self, slot: usize) -> u32 {
        self.failures.get(slot).copied().unwrap_or(0)
    }

    fn response_us(&self, slot: usize) -> Option<f64> {
        self.response_us.get(slot).copied().flatten()
    }

    fn limit(&self, slot: usize) -> Option<u32> {
        self.limits.get(slot).copied().flatten()
    }

    fn is_full(&self, slot: usize) -> bool {
        self.limit(slot).is_some_and(|limit| self.in_flight(slot) >= limit)
    }
}

/// A scheduler with its random numbers. Hashes differ in every pick.
struct Bench {
    scheduler: Box<dyn Scheduler>,
    rng: StdRng,
    asked: u64,
}

impl Bench {
    fn new(kind: SchedulerKind, weights: &[u32], seed: u64) -> Bench {
        let mut rng = StdRng::seed_from_u64(seed);
        let scheduler = prepare(kind, &candidates(weights), seed).instance(&mut rng);
        Bench { scheduler, rng, asked: 0 }
    }

    fn pick(&mut self, loads: &dyn Loads, avoid: Option<usize>) -> Option<usize> {
        self.asked += 1;
        let (flow_hash, source_hash) = hash::offset_and_skip(self.asked, 0);
        let rng = &mut self.rng;
        self.scheduler.pick(&mut Ask { flow_hash, source_hash, avoid, loads, rng })
    }

    fn pick_idle(&mut self) -> Option<usize> {
        self.pick(&Given::default(), None)
    }

    /// How many times each of `slots` is picked.
    fn tally(&mut self, slots: usize, picks: usize, loads: &dyn Loads) -> Vec<u64> {
        let mut tally = vec![0; slots];
        for _ in 0..picks {
            tally[self.pick(loads, None).unwrap()] += 1;
        }
        tally
    }
}

fn candidates(weights: &[u32]) -> Vec<Candidate> {
    let candidate = |(at, &weight): (u64, &u32)| {
        let port = 1 + at as u16;
        Candidate { identity: hash::identity(([192, 0, 2, 1], port).into()), weight }
    };
    (0..).zip(weights).map(candidate).collect()
}

/// Fails if `tally` does not match `shares` (sum 1): chi-square, five standard deviations.
fn assert_shares(tally: &[u64], shares: &[f64]) {
    let picks = tally.iter().sum::<u64>() as f64;
    let mut square = 0.0;
    let mut freedom = -1.0;
    for (at, (&count, &share)) in tally.iter().zip(shares).enumerate() {
        if share == 0.0 {
            assert_eq!(count, 0, "slot {at} must never be picked");
            continue;
        }
        square += (count as f64 - picks * share).powi(2) / (picks * share);
        freedom += 1.0;
    }
    let limit = freedom + 5.0 * f64::sqrt(2.0 * freedom);
    assert!(square <= limit, "chi-square {square} > {limit}: {tally:?} is not {shares:?}");
}

fn shares_by_weight(weights: &[u32]) -> Vec<f64> {
    let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    weights.iter().map(|&weight| f64::from(weight) / total).collect()
}
