use super::*;

#[test]
fn picks_are_in_proportion_to_weight() {
    for weights in [&[1, 2, 3, 0, 4][..], &[1000, 1], &[7; 50], &[u32::MAX, u32::MAX, 1 << 30]] {
        let mut bench = Bench::new(SchedulerKind::WeightedRandom, weights, 11);
        let tally = bench.tally(weights.len(), 50_000, &Given::default());
        assert_shares(&tally, &shares_by_weight(weights));
    }
}

#[test]
fn the_share_of_an_avoided_backend_is_spread_by_weight() {
    let weights = [4, 2, 0, 3, 1];
    for avoid in 0..weights.len() {
        let mut bench = Bench::new(SchedulerKind::WeightedRandom, &weights, 12);
        let mut tally = [0; 5];
        for _ in 0..20_000 {
            tally[bench.pick(&Given::default(), Some(avoid)).unwrap()] += 1;
        }
        let mut others = weights;
        others[avoid] = 0;
        assert_shares(&tally, &shares_by_weight(&others));
    }
}

#[test]
fn a_thousand_backends_share_by_weight() {
    let weights: Vec<u32> = (0..1000).map(|at| at % 10).collect();
    let mut bench = Bench::new(SchedulerKind::WeightedRandom, &weights, 13);
    let tally = bench.tally(1000, 200_000, &Given::default());
    assert_shares(&tally, &shares_by_weight(&weights));
}
