//! `prequal`.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn it_takes_the_fastest_of_those_that_are_not_hot(
        pool in prop::collection::vec((1..4u32, 0..30u32, 1..1000u32), 1..=16),
        seed: u64,
    ) {
        let weights: Vec<u32> = pool.iter().map(|(weight, ..)| *weight).collect();
        let in_flight: Vec<u32> = pool.iter().map(|(_, in_flight, _)| *in_flight).collect();
        let response_us = pool.iter().map(|(.., us)| Some(f64::from(*us))).collect();
        let loads = Given { response_us, ..Given::in_flight(&in_flight) };
        let slot = Bench::new(SchedulerKind::Prequal, &weights, seed).pick(&loads, None).unwrap();
        let load = |slot: usize| f64::from(in_flight[slot]) / f64::from(weights[slot]);
        let less = (0..pool.len()).filter(|&other| load(other) < load(slot)).count();
        prop_assert!((less as f64) < (0.84 * pool.len() as f64).ceil(), "{slot} is hot");
        let faster = |&other: &usize| pool[other].2 < pool[slot].2;
        // The load of each faster one is above that of 84 % of all.
        for other in (0..pool.len()).filter(faster) {
            let less = (0..pool.len()).filter(|&third| load(third) < load(other)).count();
            prop_assert!(less as f64 >= (0.84 * pool.len() as f64).ceil(), "{other} is faster");
        }
    }
}

#[test]
fn of_many_backends_it_takes_any_but_the_slow() {
    let response_us = (0..100).map(|slot| Some(if slot < 10 { 9000.0 } else { 1000.0 })).collect();
    let loads = Given { response_us, ..Given::default() };
    let tally = Bench::new(SchedulerKind::Prequal, &[1; 100], 4).tally(100, 9000, &loads);
    assert_eq!(tally[..10].iter().sum::<u64>(), 0, "{tally:?}");
    assert!(tally[10..].iter().all(|&count| count > 40), "{tally:?}");
}

#[test]
fn each_backend_is_tried_at_once() {
    let mut loads = Given { response_us: vec![Some(10.0), None, Some(10.0)], ..Given::default() };
    let mut bench = Bench::new(SchedulerKind::Prequal, &[1, 1, 1], 6);
    assert_eq!(bench.pick(&loads, None), Some(1));
    loads.in_flight = vec![0, 1, 0];
    assert_ne!(bench.pick(&loads, None), Some(1), "one request at a time");
}

#[test]
fn the_expected_response_time_grows_with_the_number_in_flight_and_decays() {
    let seen = crate::ResponseByLoad::default();
    assert_eq!(seen.expected_us(3, 0), None);
    seen.observe(8000.0, 4, 1_000_000);
    assert_eq!(seen.expected_us(0, 1_000_000), Some(2000.0));
    assert_eq!(seen.expected_us(4, 1_000_000), Some(10_000.0));
    let later = seen.expected_us(4, 21_000_000).unwrap();
    assert!(later < 100.0, "{later}: five times the decay");
    for _ in 0..500 {
        seen.observe(800.0, 4, 2_000_000);
    }
    let faster = seen.expected_us(4, 2_000_000).unwrap();
    assert!((faster - 1000.0).abs() < 10.0, "{faster}");
}
