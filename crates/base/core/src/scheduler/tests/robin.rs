//! `round-robin` and `weighted-round-robin`.

use proptest::prelude::*;

use super::*;

/// LVS `rr`: the next one after the last with weight above zero.
fn lvs_rr(weights: &[u32], last: usize) -> Option<usize> {
    (1..=weights.len()).map(|step| (last + step) % weights.len()).find(|&at| weights[at] > 0)
}

/// LVS `wrr`: `ip_vs_wrr.c`, its mark with current weight, largest weight and decrement (the gcd).
struct LvsWrr<'a> {
    weights: &'a [u32],
    at: Option<usize>,
    current: i64,
    largest: i64,
    decrement: i64,
}

impl LvsWrr<'_> {
    fn new(weights: &[u32]) -> LvsWrr<'_> {
        let decrement = i64::from(weights.iter().copied().fold(0, gcd));
        let largest = i64::from(weights.iter().copied().max().unwrap()) - (decrement - 1);
        LvsWrr { weights, at: None, current: largest, largest, decrement }
    }

    fn pick(&mut self) -> usize {
        loop {
            let next = self.at.map_or(0, |at| at + 1);
            for at in next..self.weights.len() {
                if self.weights[at] > 0 && i64::from(self.weights[at]) >= self.current {
                    self.at = Some(at);
                    return at;
                }
            }
            self.at = None;
            self.current -= self.decrement;
            if self.current <= 0 {
                self.current = self.largest;
            }
        }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// nginx's smooth weighted round-robin: add the weights, pick the largest, subtract the sum from
/// it.
fn nginx_smooth(weights: &[i64], current: &mut [i64]) -> usize {
    for (sum, weight) in current.iter_mut().zip(weights) {
        *sum += weight;
    }
    let pick = (0..weights.len()).rev().max_by_key(|&at| current[at]).unwrap();
    current[pick] -= weights.iter().sum::<i64>();
    pick
}

/// The largest distance of any backend from its exact share after any number of picks, in units of
/// a turn divided by the weights' total.
fn worst_distance(weights: &[u32], picks: usize, mut pick: impl FnMut() -> usize) -> i128 {
    let total: i128 = weights.iter().copied().map(i128::from).sum();
    let mut taken = vec![0i128; weights.len()];
    let mut worst = 0;
    for made in 1..=picks {
        taken[pick()] += 1;
        for (&taken, &weight) in taken.iter().zip(weights) {
            worst = worst.max((taken * total - made as i128 * i128::from(weight)).abs());
        }
    }
    worst
}

fn some_weights(largest: u32, most: usize) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![1 => Just(0), 2 => Just(1), 4 => 1..=largest], 1..most)
        .prop_filter("a weight above zero", |weights| weights.iter().any(|&weight| weight > 0))
}

proptest! {
    #[test]
    fn round_robin_is_lvs_rr(weights in some_weights(5, 20), seed: u64) {
        let mut bench = Bench::new(SchedulerKind::RoundRobin, &weights, seed);
        let mut last = bench.pick_idle().unwrap();
        for _ in 0..50 {
            let expected = lvs_rr(&weights, last).unwrap();
            last = bench.pick_idle().unwrap();
            prop_assert_eq!(last, expected);
        }
    }

    #[test]
    fn weighted_round_robin_deviates_less_than_one_turn_from_exact_shares(weights in some_weights(60, 40), seed: u64) {
        let total: usize = weights.iter().sum::<u32>() as usize;
        let mut bench = Bench::new(SchedulerKind::WeightedRoundRobin, &weights, seed);
        let worst = worst_distance(&weights, 2 * total + 3, || bench.pick_idle().unwrap());
        prop_assert!(worst < total as i128, "{worst} of {total}");
    }

    #[test]
    fn weights_in_any_unit_keep_the_bound(
        weights in prop::collection::vec(prop_oneof![Just(1), Just(u32::MAX), 1..=u32::MAX], 1..12),
        seed: u64,
    ) {
        let total: i128 = weights.iter().copied().map(i128::from).sum();
        let mut bench = Bench::new(SchedulerKind::WeightedRoundRobin, &weights, seed);
        let worst = worst_distance(&weights, 500, || bench.pick_idle().unwrap());
        prop_assert!(worst < total, "{worst} of {total}");
    }

    #[test]
    fn weighted_round_robin_gives_each_lvs_wrr_cycle_the_same_turns(
        weights in some_weights(12, 10),
        seed: u64,
    ) {
        let cycle = weights.iter().sum::<u32>() / weights.iter().copied().fold(0, gcd);
        let mut bench = Bench::new(SchedulerKind::WeightedRoundRobin, &weights, seed);
        let mut lvs = LvsWrr::new(&weights);
        for _ in 0..3 {
            let ours = bench.tally(weights.len(), cycle as usize, &Given::default());
            let mut theirs = vec![0; weights.len()];
            for _ in 0..cycle {
                theirs[lvs.pick()] += 1;
            }
            prop_assert_eq!(&ours, &theirs);
        }
    }

    #[test]
    fn a_retry_takes_no_turn(
        weights in some_weights(9, 8),
        retries in prop::collection::vec(prop::option::of(0..8usize), 60),
        is_weighted: bool,
        seed: u64,
    ) {
        let kind = if is_weighted { SchedulerKind::WeightedRoundRobin } else { SchedulerKind::RoundRobin };
        let mut plain = Bench::new(kind, &weights, seed);
        let mut retried = Bench::new(kind, &weights, seed);
        let is_only = weights.iter().filter(|&&weight| weight > 0).count() == 1;
        for retry in retries {
            let may_retry = retry.is_some_and(|slot| weights.get(slot).is_some_and(|&it| it > 0));
            if may_retry && !is_only {
                retried.pick(&Given::default(), retry);
            }
            prop_assert_eq!(plain.pick_idle(), retried.pick_idle());
        }
    }
}

#[test]
fn nginx_smooth_weighted_round_robin_exceeds_a_turn_where_ours_does_not() {
    let weights = [50, 50, 8, 1, 1];
    let signed = weights.map(i64::from);
    let mut current = [0; 5];
    assert_eq!(worst_distance(&weights, 110, || nginx_smooth(&signed, &mut current)), 120);
    for seed in 0..20 {
        let mut bench = Bench::new(SchedulerKind::WeightedRoundRobin, &weights, seed);
        assert!(worst_distance(&weights, 110, || bench.pick_idle().unwrap()) < 110);
    }
}

#[test]
fn retries_are_shared_by_the_others_in_proportion() {
    let weights = [5, 1, 0, 2, 1];
    let cases = [
        (SchedulerKind::RoundRobin, shares_by_weight(&[0, 1, 0, 1, 1])),
        (SchedulerKind::WeightedRoundRobin, shares_by_weight(&[0, 1, 0, 2, 1])),
    ];
    for (kind, shares) in cases {
        let mut bench = Bench::new(kind, &weights, 3);
        let mut tally = [0; 5];
        for _ in 0..8000 {
            tally[bench.pick(&Given::default(), Some(0)).unwrap()] += 1;
        }
        assert_shares(&tally, &shares);
    }
}

#[test]
fn a_thousand_backends_keep_the_bound() {
    let weights: Vec<u32> = (0..1000).map(|at| 1 + at * at % 1000).collect();
    let total: i128 = weights.iter().copied().map(i128::from).sum();
    let mut bench = Bench::new(SchedulerKind::WeightedRoundRobin, &weights, 5);
    assert!(worst_distance(&weights, 3000, || bench.pick_idle().unwrap()) < total);
}

#[test]
fn a_cycle_contains_each_backend_by_weight_and_evenly_spread() {
    use super::super::cycle_of_turns;
    let cycle = cycle_of_turns(&candidates(&[40, 0, 20, 20]), 100);
    assert_eq!(cycle.len(), 4, "without common factors");
    assert!((0..4).all(|at| cycle[at] != 0 || cycle[(at + 1) % 4] != 0), "{cycle:?}");
    let count = |slot| cycle.iter().filter(|&&it| it == slot).count();
    assert_eq!([0, 1, 2, 3].map(count), [2, 0, 1, 1]);
    assert!(cycle_of_turns(&candidates(&[0, 0]), 100).is_empty());
}

#[test]
fn an_overlong_cycle_is_rounded_and_keeps_every_backend_with_weight() {
    use super::super::cycle_of_turns;
    let weights = [999, 1, 500, 0, 998];
    let cycle = cycle_of_turns(&candidates(&weights), 50);
    assert!(cycle.len() <= 50 && cycle.len() >= 46, "{}", cycle.len());
    let counts = weights
        .iter()
        .enumerate()
        .map(|(slot, &weight)| (weight, cycle.iter().filter(|&&it| it == slot).count()));
    for (weight, count) in counts {
        let exact = f64::from(weight) * 50.0 / 2498.0;
        assert!((count as f64 - exact).abs() <= 1.5, "weight {weight}: {count}");
        assert_eq!(count > 0, weight > 0);
    }
}
