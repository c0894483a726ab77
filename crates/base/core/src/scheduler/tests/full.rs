//! Picks while some candidates are at their concurrency limit.

use proptest::prelude::*;

use super::*;

fn limited(in_flight: &[u32], limits: &[u32]) -> Given {
    let limits = limits.iter().map(|&limit| (limit > 0).then_some(limit)).collect();
    Given { limits, ..Given::in_flight(in_flight) }
}

proptest! {
    // Two of the ten fill a table of 65,537 entries in every case.
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_pick_is_never_full_and_fails_only_without_room(
        at in 0..SchedulerKind::ALL.len(),
        pool in prop::collection::vec((0..3u32, 0..4u32, 0..4u32), 1..10),
        avoids in prop::collection::vec(prop::option::of(0..10usize), 20),
        seed: u64,
    ) {
        let kind = SchedulerKind::ALL[at];
        let weights: Vec<u32> = pool.iter().map(|(weight, ..)| *weight).collect();
        let in_flight: Vec<u32> = pool.iter().map(|(_, in_flight, _)| *in_flight).collect();
        let limits: Vec<u32> = pool.iter().map(|(.., limit)| *limit).collect();
        let loads = limited(&in_flight, &limits);
        let listed = weights.iter().filter(|&&weight| weight > 0).count();
        let mut bench = Bench::new(kind, &weights, seed);
        for avoid in avoids {
            let may_be_picked = |slot: usize| {
                let is_avoided = avoid == Some(slot) && listed > 1;
                weights[slot] > 0 && !loads.is_full(slot) && !is_avoided
            };
            match bench.pick(&loads, avoid) {
                Some(slot) => prop_assert!(may_be_picked(slot), "{kind} picked {slot}"),
                None => prop_assert!(!(0..weights.len()).any(may_be_picked), "{kind}"),
            }
        }
    }
}

#[test]
fn round_robin_gives_the_turns_of_a_full_candidate_to_others() {
    let loads = limited(&[0, 2, 0], &[2, 2, 2]);
    let tally = Bench::new(SchedulerKind::RoundRobin, &[1, 1, 1], 3).tally(3, 100, &loads);
    assert_eq!(tally, [50, 0, 50]);
}

#[test]
fn a_full_candidates_share_is_spread_by_weight() {
    let weights = [4, 1, 3];
    for kind in [SchedulerKind::WeightedRandom, SchedulerKind::WeightedRoundRobin] {
        let loads = limited(&[5, 0, 0], &[5, 0, 0]);
        let tally = Bench::new(kind, &weights, 9).tally(3, 40_000, &loads);
        assert_eq!(tally[0], 0, "{kind}");
        let share = tally[2] as f64 / 40_000.0;
        assert!((0.72..0.78).contains(&share), "{kind}: {tally:?}");
    }
}

#[test]
fn load_is_compared_relative_to_limits_except_by_weighted_least_connection() {
    // 6 of 40 is less than 2 of 4. Without limits it is more.
    let cases = [(limited(&[6, 2], &[40, 4]), 0), (Given::in_flight(&[6, 2]), 1)];
    let kinds = [
        SchedulerKind::LeastConnection,
        SchedulerKind::PowerOfTwo,
        SchedulerKind::LeastTime,
        SchedulerKind::Prequal,
    ];
    for (mut loads, expected) in cases {
        loads.response_us = vec![Some(1000.0); 2];
        for kind in kinds {
            let picks = Bench::new(kind, &[1, 1], 5).tally(2, 20, &loads);
            assert_eq!(picks[expected], 20, "{kind}");
        }
        let by_weight = Bench::new(SchedulerKind::WeightedLeastConnection, &[1, 1], 5);
        assert_eq!({ by_weight }.tally(2, 20, &loads), [0, 20]);
    }
}

#[test]
fn prequal_avoids_a_candidate_that_is_hot_by_its_limit() {
    // The second one is the fastest. It is hot with 3 of 4, but not with 3 beside 9.
    let cases = [(limited(&[9, 3, 2], &[90, 4, 5]), 0), (Given::in_flight(&[9, 3, 2]), 1)];
    for (mut loads, expected) in cases {
        loads.response_us = [1000.0, 10.0, 1000.0].map(Some).into();
        let picks = Bench::new(SchedulerKind::Prequal, &[1; 3], 5).tally(3, 20, &loads);
        assert_eq!(picks[expected], 20, "{picks:?}");
    }
}

#[test]
fn a_candidate_without_a_limit_is_compared_by_requests_in_flight() {
    let loads = limited(&[3, 4], &[0, 1000]);
    let tally = Bench::new(SchedulerKind::LeastConnection, &[1, 1], 5).tally(2, 10, &loads);
    assert_eq!(tally, [10, 0]);
}

#[test]
fn hashes_keep_their_candidate_while_it_has_room_and_return_to_it() {
    for kind in [SchedulerKind::Maglev, SchedulerKind::SourceHash] {
        let mut bench = Bench::new(kind, &[1; 5], 1);
        let mut ask = |key: u64, loads: &Given| {
            let (flow_hash, source_hash) = hash::offset_and_skip(key, 0);
            let rng = &mut bench.rng;
            let mut ask = Ask { flow_hash, source_hash, avoid: None, loads, rng };
            bench.scheduler.pick(&mut ask).unwrap()
        };
        let idle = Given::default();
        for key in 0..200 {
            let home = ask(key, &idle);
            let mut loads = limited(&[1; 5], &[2; 5]);
            assert_eq!(ask(key, &loads), home, "{kind}");
            loads.in_flight[home] = 2;
            let other = ask(key, &loads);
            assert_ne!(other, home, "{kind}");
            assert_eq!(ask(key, &loads), other, "{kind}: the same one while nothing changes");
            assert_eq!(ask(key, &idle), home, "{kind}");
        }
    }
}
