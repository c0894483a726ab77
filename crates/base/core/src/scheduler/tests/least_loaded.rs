//! `least-connection` and `weighted-least-connection`.

use proptest::prelude::*;

use super::*;

/// LVS `lc` over destinations in this order: the first with the least overhead and weight above
/// zero.
fn lvs_lc(weights: &[u32], in_flight: &[u32], order: &[usize]) -> Option<usize> {
    let mut least: Option<usize> = None;
    for &dest in order.iter().filter(|&&dest| weights[dest] > 0) {
        if least.is_none_or(|least| in_flight[dest] < in_flight[least]) {
            least = Some(dest);
        }
    }
    least
}

/// LVS `wlc`: as `lc`, by `overhead(least) * weight(dest) > overhead(dest) * weight(least)`.
fn lvs_wlc(weights: &[u32], in_flight: &[u32], order: &[usize]) -> Option<usize> {
    let times = |a: u32, b: u32| i128::from(a) * i128::from(b);
    let mut least: Option<usize> = None;
    for &dest in order.iter().filter(|&&dest| weights[dest] > 0) {
        let is_less = least.is_none_or(|least| {
            times(in_flight[least], weights[dest]) > times(in_flight[dest], weights[least])
        });
        if is_less {
            least = Some(dest);
        }
    }
    least
}

type Model = fn(&[u32], &[u32], &[usize]) -> Option<usize>;

const MODELS: [(SchedulerKind, Model); 2] =
    [(SchedulerKind::LeastConnection, lvs_lc), (SchedulerKind::WeightedLeastConnection, lvs_wlc)];

proptest! {
    #[test]
    fn each_pick_equals_that_of_lvs_starting_after_the_last_pick(
        weights in prop::collection::vec(prop_oneof![0..4u32, Just(u32::MAX)], 1..10),
        rounds in prop::collection::vec(
            prop::collection::vec(prop_oneof![5 => 0..6u32, 1 => Just(u32::MAX)], 10),
            12,
        ),
        seed: u64,
    ) {
        for (kind, model) in MODELS {
            let mut bench = Bench::new(kind, &weights, seed);
            // The first pick shows where this thread's rotation starts, because all are idle.
            let mut last = bench.pick_idle();
            for in_flight in &rounds {
                let start = last.map_or(0, |last| last + 1);
                let order: Vec<_> = (start..weights.len()).chain(0..start).collect();
                last = bench.pick(&Given::in_flight(in_flight), None);
                prop_assert_eq!(last, model(&weights, in_flight, &order), "{}", kind);
            }
        }
    }

    #[test]
    fn a_retry_picks_the_least_loaded_of_the_other_backends(
        mut weights in prop::collection::vec(1..5u32, 2..8),
        in_flight in prop::collection::vec(0..9u32, 8),
        avoid in 0..2usize,
        seed: u64,
    ) {
        for (kind, model) in MODELS {
            let mut bench = Bench::new(kind, &weights, seed);
            let pick = bench.pick(&Given::in_flight(&in_flight), Some(avoid)).unwrap();
            let weight_before = std::mem::replace(&mut weights[avoid], 0);
            let order: Vec<_> = (0..weights.len()).collect();
            let least = model(&weights, &in_flight, &order).unwrap();
            // As good as the least, but not necessarily the first of equals.
            prop_assert_eq!(model(&weights, &in_flight, &[pick, least]), Some(pick), "{}", kind);
            weights[avoid] = weight_before;
        }
    }
}

#[test]
fn idle_backends_take_turns() {
    for (kind, _) in MODELS {
        let tally = Bench::new(kind, &[1, 7, 0, 3], 2).tally(4, 300, &Given::default());
        assert_eq!(tally, [100, 100, 0, 100], "{kind}");
    }
}

#[test]
fn long_lived_work_ends_up_equal_or_in_proportion_to_weight() {
    let weights = [1, 2, 4, 0, 5];
    let cases = [
        (SchedulerKind::LeastConnection, [300, 300, 300, 0, 300]),
        (SchedulerKind::WeightedLeastConnection, [100, 200, 400, 0, 500]),
    ];
    for (kind, expected) in cases {
        let mut bench = Bench::new(kind, &weights, 4);
        let mut loads = Given::in_flight(&[0; 5]);
        for _ in 0..1200 {
            let slot = bench.pick(&loads, None).unwrap();
            loads.in_flight[slot] += 1;
        }
        assert_eq!(loads.in_flight, expected, "{kind}");
    }
}

#[test]
fn least_connection_schedulers_do_not_count_failures_as_load() {
    for (kind, _) in MODELS {
        let loads = Given { failures: vec![1000, 0], ..Given::in_flight(&[0, 1]) };
        assert_eq!(Bench::new(kind, &[1, 1], 1).tally(2, 10, &loads), [10, 0], "{kind}");
    }
}
