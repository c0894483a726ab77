//! Slices with few items each.

use super::*;
use crate::ids::{GROUPS, Group};

/// Arrivals of items when each slice has few.
#[derive(Clone, Copy)]
enum Coming {
    /// One slice after the other, as a client with consecutive item ids and modulo assignment does.
    InTurn,
    /// At random.
    ByChance,
}

/// Slices with about an item a second, so that a round sees hardly any.
struct Sparse {
    cluster: Cluster,
    rng: SmallRng,
    coming: Coming,
    item: Duration,
    /// For arrivals in turn: the fraction of an item that each slice has accumulated.
    due: Vec<f64>,
}

impl Sparse {
    fn new(seed: u64, coming: Coming, rates: impl Fn(&mut SmallRng) -> f64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let item = Duration::from_millis(1);
        let loads: Vec<_> = (0..1000).map(|_| rates(&mut rng) * item.as_secs_f64()).collect();
        let due = (0..1000).map(|_| rng.random_range(0.0..1.0)).collect();
        let mut cluster = Cluster::new(vec![worker(1, 1)], loads);
        // A round each half second, as the controllers do.
        cluster.now = Duration::from_secs(100);
        Self { cluster, rng, coming, item, due }
    }

    fn arrived(&mut self, slice: usize, seconds: f64) -> u64 {
        let expected = self.cluster.loads[slice] / self.item.as_secs_f64() * seconds;
        match self.coming {
            Coming::InTurn => {
                self.due[slice] += expected;
                let arrived = self.due[slice].floor();
                self.due[slice] -= arrived;
                arrived as u64
            }
            // Knuth's method: counts uniform numbers while their product is above exp(-expected).
            Coming::ByChance => {
                let (mut count, mut product) = (0, self.rng.random_range(0.0..1.0_f64));
                while product > (-expected).exp() {
                    count += 1;
                    product *= self.rng.random_range(0.0..1.0_f64);
                }
                count
            }
        }
    }

    fn rounds(&mut self, seconds: u32) {
        let period = Duration::from_millis(500);
        for _ in 0..seconds * 2 {
            let inputs: Vec<_> = (0..self.cluster.loads.len())
                .map(|slice| {
                    let arrived = self.arrived(slice, period.as_secs_f64());
                    let owner = self.cluster.owners[slice];
                    let input = done_at_once(slice, owner, arrived, self.item);
                    SliceInput { observed: period, ..input }
                })
                .collect();
            let cluster = &mut self.cluster;
            cluster.now += period;
            let round = cluster.balancer.round(cluster.now, &cluster.workers, &inputs);
            cluster.moved(&round);
        }
    }
}

fn joins_are_evened_out(what: &str, mut sparse: Sparse) {
    sparse.rounds(5);
    for joining in 2..=5 {
        sparse.cluster.workers.push(worker(joining, 1));
        sparse.rounds(3);
        let imbalance = sparse.cluster.imbalance();
        assert!(imbalance <= 0.05, "{what}, {joining} workers: {imbalance}");
        sparse.rounds(11);
    }
    let moved = sparse.cluster.moved;
    assert!(moved <= 1600, "{what}: {moved} moves");
}

#[test]
fn a_thousand_sparse_slices_are_balanced_three_seconds_after_a_join() {
    for seed in 0..4 {
        for coming in [Coming::InTurn, Coming::ByChance] {
            // As in lab/dpslb: each slice has an item every 1.25 s.
            joins_are_evened_out("alike", Sparse::new(seed, coming, |_| 0.8));
            let rates = |rng: &mut SmallRng| rng.random_range(0.2..1.8);
            joins_are_evened_out("different", Sparse::new(seed, coming, rates));
        }
    }
}

#[test]
fn slices_of_one_group_mostly_stay_on_one_worker() {
    let mut sparse = Sparse::new(1, Coming::ByChance, |_| 0.8);
    sparse.rounds(5);
    for joining in 2..=5 {
        sparse.cluster.workers.push(worker(joining, 1));
        sparse.rounds(14);
        let read: std::collections::BTreeSet<_> = (0..1000)
            .map(|slice| (sparse.cluster.owners[slice], Group::of(SliceId(slice as u32))))
            .collect();
        // A worker's share is no whole number of groups, so two workers read some of them.
        let bound = usize::from(GROUPS) + 4 * joining as usize;
        assert!(read.len() <= bound, "{joining} workers read {} groups", read.len());
    }
}

#[test]
fn a_hot_slice_among_sparse_slices_is_measured_within_two_seconds() {
    let mut sparse = Sparse::new(5, Coming::ByChance, |_| 0.8);
    sparse.cluster.workers.push(worker(2, 1));
    sparse.rounds(20);
    sparse.cluster.loads[3] = 0.2;
    sparse.rounds(2);
    let load = sparse.cluster.balancer.load(SliceId(3));
    assert!((0.1..0.3).contains(&load), "{load}");
    let others: f64 = (4..1000).map(|slice| sparse.cluster.balancer.load(SliceId(slice))).sum();
    assert!((0.7..0.9).contains(&others), "{others}");
}
