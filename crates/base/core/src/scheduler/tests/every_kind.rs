//! Properties of all ten schedulers.

use proptest::prelude::*;

use super::*;

fn any_kind() -> impl Strategy<Value = SchedulerKind> {
    (0..SchedulerKind::ALL.len()).prop_map(|at| SchedulerKind::ALL[at])
}

fn any_loads(slots: usize) -> impl Strategy<Value = Given> {
    let load = prop_oneof![4 => 0..20u32, 1 => Just(u32::MAX)];
    let response_us = prop::option::of(prop_oneof![Just(0.0), 0.5..1e7, Just(f64::NAN)]);
    (
        prop::collection::vec(load.clone(), slots),
        prop::collection::vec(load, slots),
        prop::collection::vec(response_us, slots),
    )
        .prop_map(|(in_flight, failures, response_us)| Given {
            in_flight,
            failures,
            response_us,
            ..Given::default()
        })
}

/// Weights that include zeros and extremes, and loads for them.
fn any_pool() -> impl Strategy<Value = (Vec<u32>, Given)> {
    let weight = prop_oneof![2 => Just(0), 5 => 1..10u32, 1 => Just(u32::MAX)];
    prop::collection::vec(weight, 0..12).prop_flat_map(|weights| {
        let loads = any_loads(weights.len());
        (Just(weights), loads)
    })
}

proptest! {
    // Two of the ten fill a table of 65,537 entries in every case.
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_pick_has_weight_and_is_not_the_avoided_one(
        kind in any_kind(),
        (weights, loads) in any_pool(),
        avoids in prop::collection::vec(prop::option::of(0..14usize), 30),
        seed: u64,
    ) {
        let mut bench = Bench::new(kind, &weights, seed);
        for avoid in avoids {
            let may_be_picked = |slot: &usize| weights[*slot] > 0;
            let others = (0..weights.len()).filter(may_be_picked).filter(|&slot| avoid != Some(slot));
            let has_other = others.count() > 0;
            match bench.pick(&loads, avoid) {
                None => prop_assert!(weights.iter().all(|&weight| weight == 0)),
                Some(slot) => {
                    prop_assert!(weights[slot] > 0, "{kind} picked weight 0");
                    prop_assert!(avoid != Some(slot) || !has_other, "{kind} picked the avoided");
                }
            }
        }
    }
}

#[test]
fn without_candidates_nothing_is_picked() {
    for kind in SchedulerKind::ALL {
        for weights in [&[][..], &[0], &[0, 0, 0]] {
            assert_eq!(Bench::new(kind, weights, 1).pick_idle(), None, "{kind} {weights:?}");
        }
    }
}

#[test]
fn the_only_candidate_is_picked_even_if_it_is_to_be_avoided() {
    for kind in SchedulerKind::ALL {
        let mut bench = Bench::new(kind, &[0, 5, 0], 1);
        for avoid in [None, Some(1), Some(0), Some(99)] {
            assert_eq!(bench.pick(&Given::default(), avoid), Some(1), "{kind} {avoid:?}");
        }
    }
}

#[test]
fn all_of_1000_backends_are_used() {
    for kind in SchedulerKind::ALL {
        let tally = Bench::new(kind, &[3; 1000], 7).tally(1000, 20_000, &Given::default());
        assert!(tally.iter().all(|&count| count > 0), "{kind}");
    }
}

#[test]
fn a_plan_serves_many_threads_that_start_apart() {
    let rotating = [
        SchedulerKind::RoundRobin,
        SchedulerKind::WeightedRoundRobin,
        SchedulerKind::LeastConnection,
        SchedulerKind::WeightedLeastConnection,
    ];
    for kind in rotating {
        let plan = prepare(kind, &candidates(&[1; 8]), 1);
        let mut first_picks = [false; 8];
        for thread in 0..64 {
            let mut rng = StdRng::seed_from_u64(thread);
            let scheduler = plan.clone().instance(&mut rng);
            let mut bench = Bench { scheduler, rng, asked: 0 };
            first_picks[bench.pick_idle().unwrap()] = true;
        }
        assert_eq!(first_picks, [true; 8], "{kind}");
    }
}
