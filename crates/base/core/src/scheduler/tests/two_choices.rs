//! `power-of-two` and `least-time`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;

/// The definition: each ordered pair with its probability, and the winner.
fn shares_of_pairs(weights: &[u32], is_better: impl Fn(usize, usize) -> bool) -> Vec<f64> {
    let total: f64 = weights.iter().copied().map(f64::from).sum();
    let mut shares = vec![0.0; weights.len()];
    for first in 0..weights.len() {
        for second in (0..weights.len()).filter(|&second| second != first) {
            let (a, b) = (f64::from(weights[first]), f64::from(weights[second]));
            let probability = a / total * b / (total - a);
            shares[if is_better(second, first) { second } else { first }] += probability;
        }
    }
    shares
}

fn load_per_weight(weights: &[u32], loads: &Given, slot: usize) -> f64 {
    let load = loads.in_flight(slot) + 8 * loads.recent_failures(slot);
    f64::from(load) / f64::from(weights[slot])
}

#[test]
fn power_of_two_takes_the_less_loaded_of_a_weighted_pair() {
    let weights = [1, 4, 0, 2, 3, 2];
    let cases = [
        Given::default(),
        Given::in_flight(&[3, 1, 0, 4, 2, 9]),
        Given { failures: vec![0, 2, 0, 0, 1, 0], ..Given::in_flight(&[3, 0, 0, 4, 2, 9]) },
    ];
    for loads in cases {
        let mut bench = Bench::new(SchedulerKind::PowerOfTwo, &weights, 21);
        let shares = shares_of_pairs(&weights, |a, b| {
            load_per_weight(&weights, &loads, a) < load_per_weight(&weights, &loads, b)
        });
        assert_shares(&bench.tally(weights.len(), 50_000, &loads), &shares);
    }
}

#[test]
fn least_time_takes_the_cheaper_of_a_weighted_pair() {
    let weights = [1, 4, 0, 2, 3, 2];
    let loads = Given {
        in_flight: vec![3, 1, 0, 4, 2, 0],
        failures: vec![0, 1, 0, 0, 0, 0],
        response_us: [900.0, 500.0, 1.0, 700.0, 2500.0, 9000.0].map(Some).to_vec(),
        ..Given::default()
    };
    let cost = |slot: usize| {
        let load = loads.in_flight(slot) + 8 * loads.recent_failures(slot);
        loads.response_us[slot].unwrap() * f64::from(load + 1) / f64::from(weights[slot])
    };
    let shares = shares_of_pairs(&weights, |a, b| cost(a) < cost(b));
    let mut bench = Bench::new(SchedulerKind::LeastTime, &weights, 22);
    assert_shares(&bench.tally(weights.len(), 50_000, &loads), &shares);
}

proptest! {
    #[test]
    fn of_two_backends_power_of_two_picks_the_less_loaded(
        weights in [1..9u32, 1..9u32],
        in_flight in [0..20u32, 0..20u32],
        failures in [0..3u32, 0..3u32],
        seed: u64,
    ) {
        let loads = Given { failures: failures.to_vec(), ..Given::in_flight(&in_flight) };
        let [a, b] = [0, 1].map(|slot| load_per_weight(&weights, &loads, slot));
        let pick = Bench::new(SchedulerKind::PowerOfTwo, &weights, seed).pick(&loads, None).unwrap();
        let (picked, other) = if pick == 0 { (a, b) } else { (b, a) };
        prop_assert!(picked <= other, "{picked} was picked before {other}");
    }
}

/// The response of a simulated backend, and its delay.
#[derive(Clone, Copy)]
enum Answer {
    AfterUs(u64),
    FailsAfterUs(u64),
}

const TAU_US: f64 = 10_000_000.0;

/// Peak-EWMA times and decayed failures, computed as in the session engine.
struct Simulated {
    given: Given,
    failures: Vec<f64>,
    response_us: Vec<Option<f64>>,
    at_us: u64,
}

impl Simulated {
    fn new(backends: usize) -> Simulated {
        let given = Given {
            in_flight: vec![0; backends],
            failures: vec![0; backends],
            response_us: vec![None; backends],
            ..Given::default()
        };
        let (failures, response_us) = (vec![0.0; backends], vec![None; backends]);
        Simulated { given, failures, response_us, at_us: 0 }
    }

    fn advance(&mut self, to_us: u64) {
        let keep = (-((to_us - self.at_us) as f64) / TAU_US).exp();
        self.at_us = to_us;
        for slot in 0..self.failures.len() {
            self.failures[slot] *= keep;
            self.response_us[slot] = self.response_us[slot].map(|us| us * keep);
            self.given.failures[slot] = self.failures[slot].round() as u32;
            self.given.response_us[slot] = self.response_us[slot];
        }
    }

    fn finish(&mut self, slot: usize, answer: Answer) {
        self.given.in_flight[slot] -= 1;
        match answer {
            Answer::FailsAfterUs(_) => self.failures[slot] += 1.0,
            Answer::AfterUs(us) => {
                let known_us = self.response_us[slot].unwrap_or(0.0);
                self.response_us[slot] = Some(known_us.max(us as f64));
            }
        }
        self.advance(self.at_us);
    }
}

/// The picks of half a minute, or the first 20,000. 64 clients send their next request after each
/// response.
fn simulate(kind: SchedulerKind, answers: &[Answer]) -> Vec<u64> {
    let mut bench = Bench::new(kind, &vec![1; answers.len()], 31);
    let mut loads = Simulated::new(answers.len());
    let mut tally = vec![0; answers.len()];
    let mut finishing: BinaryHeap<Reverse<(u64, Option<usize>)>> =
        (0..64).map(|client| Reverse((client, None))).collect();
    while let Some(Reverse((now_us, done))) = finishing.pop()
        && now_us < 30_000_000
        && tally.iter().sum::<u64>() < 20_000
    {
        loads.advance(now_us);
        if let Some(slot) = done {
            loads.finish(slot, answers[slot]);
        }
        let slot = bench.pick(&loads.given, None).unwrap();
        loads.given.in_flight[slot] += 1;
        tally[slot] += 1;
        let (Answer::AfterUs(took_us) | Answer::FailsAfterUs(took_us)) = answers[slot];
        finishing.push(Reverse((now_us + took_us, Some(slot))));
    }
    tally
}

fn part(tally: &[u64], slot: usize) -> f64 {
    tally[slot] as f64 / tally.iter().sum::<u64>() as f64
}

#[test]
fn a_fast_failing_backend_receives_almost_no_requests() {
    let slow = Answer::AfterUs(40_000);
    for failing in [Answer::FailsAfterUs(100), Answer::FailsAfterUs(2)] {
        for answers in [&[slow, slow, failing][..], &[slow, failing], &[failing, slow, slow, slow]]
        {
            let slot = answers.iter().position(|it| matches!(it, Answer::FailsAfterUs(_))).unwrap();
            let kinds =
                [SchedulerKind::PowerOfTwo, SchedulerKind::LeastTime, SchedulerKind::Prequal];
            for kind in kinds {
                let tally = simulate(kind, answers);
                assert!(part(&tally, slot) < 0.002, "{kind}: {tally:?}");
            }
            // The simulation can detect the fault: a scheduler that counts only requests in flight
            // fails.
            let tally = simulate(SchedulerKind::LeastConnection, answers);
            assert!(part(&tally, slot) > 0.8, "{tally:?}");
        }
    }
}

#[test]
fn a_faster_backend_gets_more() {
    for kind in [SchedulerKind::PowerOfTwo, SchedulerKind::LeastTime] {
        let tally = simulate(kind, &[Answer::AfterUs(50_000), Answer::AfterUs(200_000)]);
        assert!(part(&tally, 0) > 0.7, "{kind}: {tally:?}");
        assert!(tally[1] > 0, "{kind}: {tally:?}");
    }
}

#[test]
fn one_slow_answer_shuts_a_backend_out_only_until_it_has_decayed() {
    let mut bench = Bench::new(SchedulerKind::LeastTime, &[1, 1, 1], 23);
    let mut part_at = |seconds: f64| {
        let slow_us = 5_000_000.0 * (-seconds * 1e6 / TAU_US).exp();
        let response_us = vec![Some(slow_us), Some(1000.0), Some(1000.0)];
        let tally = bench.tally(3, 3000, &Given { response_us, ..Given::default() });
        part(&tally, 0)
    };
    assert_eq!(part_at(0.0), 0.0);
    assert_eq!(part_at(80.0), 0.0);
    assert!(part_at(90.0) > 0.6, "10 s * ln(5000) = 85 s after, it is as fast as the others again");
}

#[test]
fn a_backend_without_a_sample_is_tried_one_request_at_a_time() {
    let mut bench = Bench::new(SchedulerKind::LeastTime, &[1, 1], 24);
    let mut loads = Given::in_flight(&[0, 0]);
    loads.response_us = vec![Some(200.0), None];
    assert_eq!(bench.tally(2, 100, &loads), [0, 100]);
    loads.in_flight = vec![0, 1];
    assert_eq!(bench.tally(2, 100, &loads), [100, 0], "its first answer is awaited");
    loads.in_flight = vec![4, 1];
    assert_eq!(bench.tally(2, 100, &loads), [0, 100], "but it does not idle beside a busy one");
    loads = Given { failures: vec![0, 1], in_flight: vec![3, 0], ..loads };
    assert_eq!(bench.tally(2, 100, &loads), [100, 0], "a failed trial is not repeated at once");
}

#[test]
fn without_a_sample_least_time_compares_requests_in_flight() {
    let loads = Given::in_flight(&[5, 2]);
    let mut bench = Bench::new(SchedulerKind::LeastTime, &[1, 1], 25);
    assert_eq!(bench.tally(2, 100, &loads), [0, 100]);
}

#[test]
fn fully_decayed_estimates_still_favour_the_less_busy_backend() {
    let loads = Given {
        response_us: vec![Some(0.0), Some(f64::MIN_POSITIVE)],
        ..Given::in_flight(&[9, 1])
    };
    let mut bench = Bench::new(SchedulerKind::LeastTime, &[1, 1], 26);
    assert_eq!(bench.tally(2, 100, &loads), [0, 100]);
}
