//! `prequal`.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn prequal_picks_the_cheapest_backend_that_is_not_hot(
        pool in prop::collection::vec((1..4u32, 0..30u32, 1..1000u32), 1..=16),
        seed: u64,
    ) {
        let weights: Vec<u32> = pool.iter().map(|(weight, ..)| *weight).collect();
        let in_flight: Vec<u32> = pool.iter().map(|(_, in_flight, _)| *in_flight).collect();
        let response_us = pool.iter().map(|(.., us)| Some(f64::from(*us))).collect();
        let loads = Given { response_us, ..Given::in_flight(&in_flight) };
        let slot = Bench::new(SchedulerKind::Prequal, &weights, seed).pick(&loads, None).unwrap();
        let load = |slot: usize| f64::from(in_flight[slot]) / f64::from(weights[slot]);
        let least = f64::from(pool.iter().map(|(.., us)| *us).min().unwrap());
        let cost = |slot: usize| {
            let slowness = (f64::from(pool[slot].2) / least / 1.25).max(1.0);
            f64::from(in_flight[slot] + 1) / f64::from(weights[slot]) * slowness.powf(0.75)
        };
        let is_hot = |slot: usize| {
            let less = (0..pool.len()).filter(|&other| load(other) < load(slot)).count();
            less > pool.len() / 2
        };
        prop_assert!(!is_hot(slot), "{slot} is hot");
        for other in (0..pool.len()).filter(|&other| cost(other) < cost(slot) * (1.0 - 1e-9)) {
            prop_assert!(is_hot(other), "{other} is cheaper");
        }
    }
}

#[test]
fn of_many_backends_prequal_picks_any_except_the_slow() {
    let response_us = (0..100).map(|slot| Some(if slot < 10 { 9000.0 } else { 1000.0 })).collect();
    let loads = Given { response_us, ..Given::default() };
    let tally = Bench::new(SchedulerKind::Prequal, &[1; 100], 4).tally(100, 9000, &loads);
    assert_eq!(tally[..10].iter().sum::<u64>(), 0, "{tally:?}");
    assert!(tally[10..].iter().all(|&count| count > 40), "{tally:?}");
}

#[test]
fn a_backend_without_a_response_time_receives_one_trial_request() {
    let mut loads = Given { response_us: vec![Some(10.0), None, Some(10.0)], ..Given::default() };
    let mut bench = Bench::new(SchedulerKind::Prequal, &[1, 1, 1], 6);
    assert_eq!(bench.pick(&loads, None), Some(1));
    loads.in_flight = vec![0, 1, 0];
    assert_ne!(bench.pick(&loads, None), Some(1), "one request at a time");
}

#[test]
fn without_response_times_the_least_loaded_is_taken() {
    let loads = Given::in_flight(&[3, 5, 2, 9]);
    let mut bench = Bench::new(SchedulerKind::Prequal, &[1; 4], 7);
    assert_eq!(bench.tally(4, 100, &loads), [0, 0, 100, 0]);
}

#[test]
fn of_two_backends_the_faster_one_is_taken_although_it_has_more_in_flight() {
    let response_us = vec![Some(1000.0), Some(5000.0)];
    let loads = Given { response_us, ..Given::in_flight(&[2, 1]) };
    let mut bench = Bench::new(SchedulerKind::Prequal, &[1, 1], 8);
    assert_eq!(bench.tally(2, 100, &loads), [100, 0]);
}

const SECOND: u64 = 1_000_000;

#[test]
fn the_service_time_is_the_same_with_any_number_in_flight_that_keeps_a_backend_busy() {
    let seen = crate::ServiceTime::default();
    assert_eq!(seen.estimate_us(0), None);
    for in_flight in (4..40).cycle().take(1000) {
        seen.observe(2000.0 * f64::from(in_flight), in_flight, SECOND);
    }
    let busy = seen.estimate_us(SECOND).unwrap();
    assert!((busy - 2000.0).abs() < 1.0, "{busy}");
    // One request uses one of four cores. A few such responses do not hide the other cores.
    for _ in 0..5 {
        seen.observe(8000.0, 1, SECOND);
    }
    let after = seen.estimate_us(SECOND).unwrap();
    assert!((after - 2000.0).abs() < 10.0, "{after}");
}

#[test]
fn the_service_time_follows_responses_and_decays_without_them() {
    let seen = crate::ServiceTime::default();
    seen.observe(8000.0, 4, SECOND);
    assert_eq!(seen.estimate_us(SECOND), Some(2000.0));
    let later = seen.estimate_us(21 * SECOND).unwrap();
    assert!(later < 20.0, "{later}: five times the decay");
    seen.observe(800.0, 4, 21 * SECOND);
    let found = seen.estimate_us(21 * SECOND).unwrap();
    assert!((found - 200.0).abs() < 20.0, "{found}: one response after a pause");
    for _ in 0..500 {
        seen.observe(1600.0, 4, 21 * SECOND);
    }
    let slower = seen.estimate_us(21 * SECOND).unwrap();
    assert!((slower - 400.0).abs() < 1.0, "{slower}");
}

#[test]
fn idle_backends_that_are_about_as_fast_take_turns() {
    let response_us = [1000.0, 1200.0, 1100.0, 2000.0].map(Some).into();
    let loads = Given { response_us, ..Given::default() };
    let mut bench = Bench::new(SchedulerKind::Prequal, &[1; 4], 9);
    assert_eq!(bench.tally(4, 30, &loads), [10, 10, 10, 0]);
}

#[test]
fn prequal_compares_load_relative_to_weight() {
    let loads = Given { response_us: vec![Some(1000.0); 2], ..Given::in_flight(&[4, 2]) };
    let picks = |weights| Bench::new(SchedulerKind::Prequal, weights, 10).tally(2, 10, &loads);
    assert_eq!(picks(&[3, 1]), [10, 0]);
    assert_eq!(picks(&[1, 1]), [0, 10]);
}
