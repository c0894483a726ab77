mod pauses;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::ids::{GROUPS, Group};

const PERIOD: Duration = Duration::from_millis(250);

/// Workers that do every move of the balancer, and slices with known loads.
struct Cluster {
    balancer: Balancer,
    now: Duration,
    workers: Vec<WorkerInput>,
    loads: Vec<f64>,
    owners: Vec<WorkerId>,
    moved: usize,
}

/// Time of an item when there are very many.
const ITEM: Duration = Duration::from_micros(10);

fn worker(id: u64, weight: u16) -> WorkerInput {
    let weight = Weight::new(weight).unwrap();
    WorkerInput { id: WorkerId(id), weight, leaving: false, takes: true }
}

/// A slice with `arrived` items of `item` each in a period, all of them processed.
fn done_at_once(number: usize, owner: WorkerId, arrived: u64, item: Duration) -> SliceInput {
    SliceInput {
        id: SliceId(number as u32),
        owner,
        blocked: false,
        observed: PERIOD,
        arrived,
        done: arrived,
        busy: item * arrived as u32,
        queued: 0,
    }
}

fn items(seconds: f64, item: Duration) -> u64 {
    (seconds / item.as_secs_f64()).round() as u64
}

impl Cluster {
    /// All slices start on the first worker.
    fn new(workers: Vec<WorkerInput>, loads: Vec<f64>) -> Self {
        let owners = vec![workers[0].id; loads.len()];
        let balancer = Balancer::new(Policy::default());
        let now = Duration::from_secs(100);
        Self { balancer, now, workers, loads, owners, moved: 0 }
    }

    fn inputs(&self) -> Vec<SliceInput> {
        let slice = |(number, load): (usize, &f64)| {
            let arrived = items(PERIOD.as_secs_f64() * load, ITEM);
            done_at_once(number, self.owners[number], arrived, ITEM)
        };
        self.loads.iter().enumerate().map(slice).collect()
    }

    fn round(&mut self) -> Round {
        self.now += PERIOD;
        let round = self.balancer.round(self.now, &self.workers, &self.inputs());
        self.moved(&round);
        round
    }

    fn moved(&mut self, round: &Round) {
        for planned in &round.moves {
            for slice in &planned.slices {
                assert_eq!(self.owners[slice.0 as usize], planned.source, "it owns what it gives");
                self.owners[slice.0 as usize] = planned.target;
                self.moved += 1;
            }
        }
    }

    fn rounds(&mut self, seconds: u32) {
        for _ in 0..seconds * 4 {
            self.round();
        }
    }

    fn load(&self, worker: &WorkerInput) -> f64 {
        let own = self.owners.iter().zip(&self.loads).filter(|(owner, _)| **owner == worker.id);
        own.map(|(_, load)| load).sum()
    }

    /// The largest excess of a worker over its share, relative to the share.
    fn imbalance(&self) -> f64 {
        let here = || self.workers.iter().filter(|worker| !worker.leaving);
        let weight: u32 = here().map(|worker| u32::from(worker.weight.get())).sum();
        let mean = self.loads.iter().sum::<f64>() / f64::from(weight);
        let over = |w: &WorkerInput| self.load(w) / f64::from(w.weight.get()) / mean - 1.0;
        here().map(over).fold(0.0, f64::max)
    }
}

fn random_loads(seed: u64, slices: usize) -> Vec<f64> {
    let mut rng = SmallRng::seed_from_u64(seed);
    (0..slices).map(|_| 4.0 / slices as f64 * rng.random_range(0.2..1.8)).collect()
}

#[test]
fn workers_are_within_5_per_cent_three_seconds_after_a_join() {
    for seed in 0..15 {
        for slices in [100, 300, 1000] {
            let mut cluster = Cluster::new(vec![worker(1, 1)], random_loads(seed, slices));
            for joining in 2..=5 {
                cluster.workers.push(worker(joining, 1));
                cluster.rounds(3);
                let imbalance = cluster.imbalance();
                assert!(
                    imbalance <= 0.05,
                    "seed {seed}, {slices} slices, {joining} workers: {imbalance}"
                );
                // Until no slice is in its cool-down.
                cluster.rounds(11);
            }
        }
    }
}

#[test]
fn a_worker_gets_load_by_its_weight() {
    let workers = vec![worker(1, 1), worker(2, 2), worker(3, 5)];
    let mut cluster = Cluster::new(workers, random_loads(7, 400));
    cluster.rounds(4);
    assert!(cluster.imbalance() <= 0.05, "{}", cluster.imbalance());
}

#[test]
fn what_is_even_is_left_alone() {
    let mut cluster = Cluster::new((1..=4).map(|id| worker(id, 1)).collect(), vec![0.01; 400]);
    cluster.rounds(15);
    let moved = cluster.moved;
    assert!(moved <= 320, "{moved} moves for 300 slices that were out of place");
    // Loads that vary by 5 % cause no moves.
    let mut rng = SmallRng::seed_from_u64(1);
    for _ in 0..400 {
        for load in &mut cluster.loads {
            *load = 0.01 * rng.random_range(0.95..1.05);
        }
        cluster.round();
    }
    assert!(cluster.moved <= moved + 2, "{} moves", cluster.moved - moved);
}

#[test]
fn a_round_moves_no_more_than_its_share() {
    let mut cluster = Cluster::new(vec![worker(1, 1), worker(2, 1)], vec![0.01; 100]);
    cluster.round();
    cluster.round();
    let before = cluster.load(&worker(2, 1));
    cluster.round();
    let share = (cluster.load(&worker(2, 1)) - before) / cluster.loads.iter().sum::<f64>();
    assert!(share <= 0.25 + 1e-9, "{share}");
}

#[test]
fn the_first_slices_of_a_newcomer_are_few() {
    let mut cluster = Cluster::new(vec![worker(1, 1)], vec![0.001; 1000]);
    cluster.rounds(1);
    cluster.workers.push(worker(2, 1));
    let first = cluster.round();
    assert_eq!(first.moves.len(), 1);
    assert_eq!(first.moves[0].slices.len(), Policy::default().first_batch_max);
}

#[test]
fn a_slice_that_moved_stays_for_the_cool_down() {
    let mut cluster = Cluster::new(vec![worker(1, 1), worker(2, 1)], vec![0.1; 10]);
    let cool_down = Duration::from_secs(10);
    cluster.balancer = Balancer::new(Policy { cool_down, ..Policy::default() });
    cluster.rounds(2);
    // All the load moves to the slices that were moved.
    let of_target = cluster.owners.iter().map(|owner| owner.0 == 2).collect::<Vec<_>>();
    for (load, moved) in cluster.loads.iter_mut().zip(&of_target) {
        *load = if *moved { 0.2 } else { 0.0 };
    }
    let moved = cluster.moved;
    cluster.rounds(7);
    assert_eq!(cluster.moved, moved, "within the cool-down");
    cluster.rounds(10);
    assert!(cluster.moved > moved, "after it");
    assert!(cluster.imbalance() <= 0.21, "{}", cluster.imbalance());
}

#[test]
fn who_leaves_is_left_by_all_and_the_others_stay_even() {
    let workers = (1..=4).map(|id| worker(id, 1)).collect();
    let mut cluster = Cluster::new(workers, random_loads(3, 300));
    cluster.rounds(4);
    cluster.workers[1].leaving = true;
    cluster.rounds(3);
    assert!(!cluster.owners.contains(&WorkerId(2)));
    assert!(cluster.imbalance() <= 0.05, "{}", cluster.imbalance());
}

#[test]
fn a_hot_slice_is_reported_and_gets_a_worker_for_itself() {
    let mut loads = vec![0.01; 100];
    loads[17] = 2.0;
    let workers = vec![worker(1, 1), worker(2, 1), worker(3, 1)];
    let mut cluster = Cluster::new(workers, loads);
    cluster.rounds(6);
    let round = cluster.round();
    assert_eq!(round.hot.iter().map(|hot| hot.slice).collect::<Vec<_>>(), [SliceId(17)]);
    let with_it = cluster.owners.iter().filter(|owner| **owner == cluster.owners[17]).count();
    assert!(with_it <= 3, "{with_it} slices beside the hot one");
}

/// Workers of one core each, with queues. Load beyond that waits, and moves with its slice.
struct Queues {
    cluster: Cluster,
    /// Work that waits for each slice, in core seconds.
    waiting: Vec<f64>,
    /// Workers with another number of cores than one.
    cores: BTreeMap<WorkerId, f64>,
    /// Time of an item, and the generator if arrivals are random.
    item: Duration,
    chance: Option<SmallRng>,
    handovers: usize,
}

impl Queues {
    /// The first worker owns all slices at the start.
    fn new(workers: Vec<WorkerInput>, offered: Vec<f64>) -> Self {
        let (waiting, cores) = (vec![0.0; offered.len()], BTreeMap::new());
        let cluster = Cluster::new(workers, offered);
        Self { cluster, waiting, cores, item: ITEM, chance: None, handovers: 0 }
    }

    /// Work that arrives for each slice in a period.
    fn offered(&mut self) -> Vec<f64> {
        let (period, item) = (PERIOD.as_secs_f64(), self.item.as_secs_f64());
        let loads = self.cluster.loads.iter();
        match &mut self.chance {
            None => loads.map(|load| load * period).collect(),
            Some(rng) => {
                loads.map(|load| poisson(rng, load * period / item) as f64 * item).collect()
            }
        }
    }

    /// A period: each worker shares its core among its slices by the work that waits. Returns the
    /// work done.
    fn round(&mut self) -> f64 {
        let period = PERIOD.as_secs_f64();
        let offered = self.offered();
        let mut inputs = self.cluster.inputs();
        for (slice, input) in inputs.iter_mut().enumerate() {
            self.waiting[slice] += offered[slice];
            input.arrived = items(offered[slice], self.item);
        }
        let mut all = 0.0;
        for worker in &self.cluster.workers {
            let own: Vec<_> =
                (0..inputs.len()).filter(|slice| inputs[*slice].owner == worker.id).collect();
            let wanted: f64 = own.iter().map(|slice| self.waiting[*slice]).sum();
            let core = self.cores.get(&worker.id).copied().unwrap_or(1.0);
            let share = if wanted > 0.0 { (core * period / wanted).min(1.0) } else { 0.0 };
            for slice in own {
                let done = self.waiting[slice] * share;
                all += done;
                self.waiting[slice] -= done;
                inputs[slice].busy = Duration::from_secs_f64(done);
                inputs[slice].done = items(done, self.item);
                inputs[slice].queued = items(self.waiting[slice], self.item);
            }
        }
        let cluster = &mut self.cluster;
        cluster.now += PERIOD;
        let round = cluster.balancer.round(cluster.now, &cluster.workers, &inputs);
        cluster.moved(&round);
        self.handovers += round.moves.len();
        all / period
    }

    /// The rate over the last second.
    fn rounds(&mut self, seconds: u32) -> f64 {
        let rates: Vec<_> = (0..seconds * 4).map(|_| self.round()).collect();
        rates.iter().rev().take(4).sum::<f64>() / 4.0
    }

    fn waiting(&self) -> f64 {
        self.waiting.iter().sum()
    }
}

fn poisson(rng: &mut SmallRng, expected: f64) -> u64 {
    // Knuth's method: counts uniform numbers while their product is above exp(-expected).
    let (mut count, mut product) = (0, rng.random_range(0.0..1.0_f64));
    while product > (-expected).exp() {
        count += 1;
        product *= rng.random_range(0.0..1.0_f64);
    }
    count
}

/// As in `equipoise demo slice`: 50 slices, items of 20 ms, a load of 4 cores, a worker joins every
/// 4 s.
#[test]
fn a_client_without_a_bound_gets_the_sum_of_the_workers_and_the_backlog_is_gone_in_time() {
    for seed in 0..10 {
        let mut queues = Queues::new(vec![worker(1, 1)], vec![0.08; 50]);
        queues.item = Duration::from_millis(20);
        queues.chance = Some(SmallRng::seed_from_u64(seed));
        queues.rounds(4);
        for joining in 2..=5_u32 {
            queues.cluster.workers.push(worker(joining.into(), 1));
            let rate = queues.rounds(3);
            let sum = f64::from(joining);
            assert!(rate >= 0.95 * sum, "seed {seed}, {joining} workers: {rate}");
            queues.rounds(1);
        }
        queues.cluster.loads = vec![0.0; 50];
        let needed = queues.waiting() / 5.0;
        let mut periods = 0;
        while queues.waiting() > 1e-3 {
            queues.round();
            periods += 1;
            assert!(periods < 1000, "seed {seed}: {} wait", queues.waiting());
        }
        let took = f64::from(periods) * PERIOD.as_secs_f64();
        assert!(
            took <= 1.1 * needed + 2.0 * PERIOD.as_secs_f64(),
            "seed {seed}: {took} s for {needed}"
        );
    }
}

#[test]
fn three_equal_workers_with_even_load_are_left_alone() {
    // Half full, nearly full, and overloaded: then queues grow on all workers.
    for (seed, each) in [(1, 0.5), (2, 0.9), (3, 0.97), (4, 1.2)] {
        let workers = (1..=3).map(|id| worker(id, 1)).collect();
        let mut queues = Queues::new(workers, vec![3.0 * each / 60.0; 60]);
        queues.item = Duration::from_millis(5);
        queues.chance = Some(SmallRng::seed_from_u64(seed));
        queues.rounds(10);
        queues.handovers = 0;
        queues.rounds(300);
        assert!(queues.handovers <= 5, "{each}: {} handovers in five minutes", queues.handovers);
    }
}

#[test]
fn a_queue_is_load() {
    // Both are busy all the time. Only the queues show which has too much, and it is less than
    // twice as much.
    let mut queues = Queues::new(vec![worker(1, 1), worker(2, 1)], vec![0.12; 20]);
    for slice in 10..20 {
        queues.cluster.owners[slice] = WorkerId(2);
    }
    queues.waiting[..10].fill(2.0);
    let before = queues.cluster.owners.clone();
    queues.rounds(3);
    let moved: Vec<_> =
        (0..20).filter(|slice| queues.cluster.owners[*slice] != before[*slice]).collect();
    assert!(!moved.is_empty() && moved.iter().all(|slice| *slice < 10), "{moved:?}");
}

#[test]
fn workers_that_join_one_by_one_are_even_three_seconds_later_and_work_the_queues_off() {
    for seed in 0..20 {
        // The load is 4 cores on one worker: every worker is full until the last has joined.
        let mut queues = Queues::new(vec![worker(1, 1)], random_loads(seed, 200));
        queues.rounds(2);
        for joining in 2..=5 {
            queues.cluster.workers.push(worker(joining, 1));
            let rate = queues.rounds(3);
            assert!(rate >= 0.95 * joining as f64, "seed {seed}, {joining} workers: {rate}");
            queues.rounds(9);
        }
        // Each worker has a fifth of a core free.
        queues.rounds(60);
        assert!(queues.waiting() < 0.1, "seed {seed}: {} s of work wait", queues.waiting());
        let imbalance = queues.cluster.imbalance();
        assert!(imbalance <= 0.08, "seed {seed}: {imbalance}");
        let moved = queues.cluster.moved;
        queues.rounds(30);
        assert_eq!(queues.cluster.moved, moved, "what is even stays");
    }
}

#[test]
fn with_nobody_to_take_nothing_moves() {
    let mut cluster = Cluster::new(vec![worker(1, 1)], vec![0.1; 10]);
    cluster.workers[0].leaving = true;
    assert_eq!(cluster.round(), Round::default());
    let mut balancer = Balancer::new(Policy::default());
    assert_eq!(balancer.round(PERIOD, &[], &[]), Round::default());
}

#[test]
fn who_joins_soon_after_another_gets_of_what_has_just_moved() {
    let mut balancer = Balancer::new(Policy::default());
    let mut owners: Vec<u64> = vec![1; 100];
    let mut workers = vec![1];
    // A round each half second; each slice keeps a hundredth of a core busy.
    for round in 0..24_u64 {
        match round {
            4 => workers.push(2),
            14 => workers.push(3),
            _ => {}
        }
        let now = Duration::from_millis(500 * round);
        let here: Vec<_> = workers.iter().map(|id| worker(*id, 1)).collect();
        let slices: Vec<_> = (0..100)
            .map(|slice| {
                let input = done_at_once(slice, WorkerId(owners[slice]), 500, ITEM);
                SliceInput { observed: Duration::from_millis(500), ..input }
            })
            .collect();
        for step in balancer.round(now, &here, &slices).moves {
            for slice in step.slices {
                owners[slice.0 as usize] = step.target.0;
            }
        }
    }
    let most = (1..=3).map(|worker| owners.iter().filter(|owner| **owner == worker).count()).max();
    assert!(most <= Some(35), "{owners:?}");
}

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
fn a_thousand_slices_with_an_item_a_second_each_are_even_three_seconds_after_a_join() {
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
fn slices_of_one_group_go_together() {
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
fn a_hot_slice_among_sparse_ones_shows_within_two_seconds() {
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

#[test]
fn slices_without_load_are_spread_by_number_and_only_where_anything_may_move() {
    let mut cluster = Cluster::new(vec![worker(1, 1)], vec![0.0; 100]);
    cluster.rounds(1);
    cluster.workers.extend([worker(2, 1), worker(3, 2)]);
    cluster.rounds(12);
    let of = |cluster: &Cluster, id| cluster.owners.iter().filter(|o| **o == WorkerId(id)).count();
    let counts = [1, 2, 3].map(|id| of(&cluster, id));
    assert_eq!(counts.iter().sum::<usize>(), 100);
    assert!(counts[0].abs_diff(25) <= 1 && counts[1].abs_diff(25) <= 1, "{counts:?}");
    let moved = cluster.moved;
    cluster.rounds(30);
    assert_eq!(cluster.moved, moved, "what is even stays");

    let mut still = Cluster::new(vec![worker(1, 1), worker(2, 1)], vec![0.0; 100]);
    still.balancer = Balancer::new(Policy { share_max: 0.0, ..Policy::default() });
    still.rounds(5);
    assert_eq!(still.moved, 0);
}

#[test]
fn idle_slices_are_spread_beside_busy_ones() {
    let loads = (0..200).map(|slice| if slice < 20 { 0.02 } else { 0.0 }).collect();
    let mut cluster = Cluster::new(vec![worker(1, 1)], loads);
    cluster.rounds(2);
    cluster.workers.push(worker(2, 1));
    cluster.rounds(15);
    let idle = (20..200).filter(|slice| cluster.owners[*slice] == WorkerId(2)).count();
    assert!((80..=100).contains(&idle), "{idle} of 180");
    assert!(cluster.imbalance() <= 0.11, "{}", cluster.imbalance());
}

#[test]
fn a_worker_that_acknowledges_nothing_looks_no_less_loaded_than_it_is() {
    // Items arrive for both workers, and only the first processes them.
    let mut balancer = Balancer::new(Policy::default());
    let workers = [worker(1, 1), worker(2, 1)];
    for round in 1..=20_u64 {
        let slices: Vec<_> = (0..20)
            .map(|slice| {
                let mute = slice >= 10;
                let input = done_at_once(slice, WorkerId(if mute { 2 } else { 1 }), 10, ITEM);
                match mute {
                    true => {
                        SliceInput { done: 0, busy: Duration::ZERO, queued: 10 * round, ..input }
                    }
                    false => input,
                }
            })
            .collect();
        let moves = balancer.round(PERIOD * round as u32, &workers, &slices).moves;
        assert!(moves.iter().all(|step| step.target == WorkerId(1)), "{moves:?}");
    }
    assert!(balancer.load(SliceId(15)) > 0.5 * balancer.load(SliceId(5)));
}

#[test]
fn a_worker_that_does_less_than_its_weight_says_gives_what_it_cannot_do() {
    // One has four cores, the other one; the load of both together is 3.6 cores.
    let mut queues = Queues::new(vec![worker(1, 1), worker(2, 1)], vec![0.036; 100]);
    queues.cores.insert(WorkerId(1), 4.0);
    for slice in 50..100 {
        queues.cluster.owners[slice] = WorkerId(2);
    }
    queues.rounds(120);
    let load = queues.cluster.load(&worker(2, 1));
    assert!(load <= 1.05, "{load} of its one core");
    let before = queues.waiting();
    queues.rounds(60);
    assert!(
        queues.waiting() <= before + 1.0,
        "its queue does not grow: {before}, {}",
        queues.waiting()
    );
}

#[test]
fn a_worker_that_may_take_nothing_keeps_what_it_has() {
    let mut cluster = Cluster::new(vec![worker(1, 1), worker(2, 1)], vec![0.01; 100]);
    cluster.workers[1].takes = false;
    cluster.rounds(5);
    assert_eq!(cluster.moved, 0);
    let mut cluster = Cluster::new(vec![worker(1, 1), worker(2, 1)], vec![0.01; 100]);
    cluster.workers[0].takes = false;
    cluster.rounds(5);
    assert_eq!(cluster.moved, 0, "it gives nothing either");
}

#[test]
fn a_worker_is_not_stuck_while_its_items_only_take_long() {
    let mut balancer = Balancer::new(Policy::default());
    assert_eq!(balancer.stuck_after(), Policy::default().stuck);
    for round in 1..40 {
        let long = done_at_once(0, WorkerId(1), 1, Duration::from_secs(20));
        balancer.round(PERIOD * round, &[worker(1, 1)], &[long]);
    }
    assert_eq!(balancer.stuck_after().as_secs(), 80);
}

#[test]
fn who_leaves_is_left_by_all_though_the_others_have_no_weight() {
    let mut cluster = Cluster::new(vec![worker(1, 1), worker(2, 0), worker(3, 0)], vec![0.1; 10]);
    for _ in 0..8 {
        cluster.round();
    }
    assert_eq!(cluster.moved, 0, "they get nothing else");
    cluster.workers[0].leaving = true;
    for _ in 0..8 {
        cluster.round();
    }
    let of = |id| cluster.owners.iter().filter(|owner| **owner == WorkerId(id)).count();
    assert_eq!([of(1), of(2), of(3)], [0, 5, 5]);
}
