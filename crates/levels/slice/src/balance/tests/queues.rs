//! Workers with queues.

use super::*;

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
                inputs[slice].done = items(done, self.item);
                inputs[slice].busy = self.item * inputs[slice].done as u32;
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
fn unbounded_load_uses_all_workers_and_the_backlog_drains_in_time() {
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
fn equal_workers_with_even_load_cause_almost_no_handovers() {
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
fn queued_items_count_as_load() {
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
fn joining_workers_are_balanced_in_three_seconds_and_drain_queues() {
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
fn a_worker_slower_than_its_weight_gives_its_excess_load_away() {
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

/// Moving a queue takes the time of both workers. One that looks more loaded because of that shall
/// not give it on.
#[test]
fn a_queue_moves_only_between_workers_without_another_move() {
    let workers = vec![worker(1, 1), worker(2, 1), worker(3, 1)];
    let mut balancer = Balancer::new(Policy::default());
    let mut on_the_way: Vec<Move> = Vec::new();
    let mut owners = vec![WorkerId(1); 30];
    let mut moves = Vec::new();
    for round in 1..=40_u32 {
        // Queues arrive after two seconds; their new owner then looks overloaded.
        let is_moving = |id: SliceId| on_the_way.iter().any(|of| of.slices.contains(&id));
        let slice = |(number, owner): (usize, &WorkerId)| {
            let id = SliceId(number as u32);
            let queued = if owner.0 == 1 { 200 } else { 400 };
            let done = done_at_once(number, *owner, 10, Duration::from_millis(1));
            let in_handover = is_moving(id);
            SliceInput { blocked: in_handover, in_handover, queued, ..done }
        };
        let slices: Vec<_> = owners.iter().enumerate().map(slice).collect();
        let begun = balancer.round(round * PERIOD, &workers, &slices).moves;
        for of in &begun {
            let apart = |other: &Move| {
                let ends = [other.source, other.target];
                !ends.contains(&of.source) && !ends.contains(&of.target)
            };
            assert!(on_the_way.iter().all(apart), "{of:?} beside {on_the_way:?}");
        }
        moves.extend(begun.iter().map(|_| round));
        on_the_way.extend(begun);
        if round % 8 == 0 {
            for of in on_the_way.drain(..) {
                of.slices.iter().for_each(|slice| owners[slice.0 as usize] = of.target);
            }
        }
    }
    assert!(moves.iter().any(|round| *round > 8), "what has arrived moves on: {moves:?}");
}

/// The moves of a balancer, each with the number of its round. Slice 0 is in a handover from worker
/// 1 to worker 3 that does not end. Worker 2 owns all other slices, each with a standing queue.
fn beside_an_endless_handover(workers: Vec<WorkerInput>, rounds: u32) -> Vec<(u32, Move)> {
    let mut balancer = Balancer::new(Policy::default());
    let slices = vec![SliceId(0)];
    let of = Move { source: WorkerId(1), target: WorkerId(3), slices };
    balancer.transfers.push((of, Duration::ZERO));
    let mut moves = Vec::new();
    for round in 1..=rounds {
        let slice = |number: usize| {
            let in_handover = number == 0;
            let owner = WorkerId(if in_handover { 3 } else { 2 });
            let done = done_at_once(number, owner, 10, Duration::from_millis(1));
            SliceInput { blocked: in_handover, in_handover, queued: 400, ..done }
        };
        let slices: Vec<_> = (0..20).map(slice).collect();
        let begun = balancer.round(round * PERIOD, &workers, &slices).moves;
        moves.extend(begun.into_iter().map(|of| (round, of)));
    }
    moves
}

#[test]
fn a_moving_queue_does_not_delay_other_workers() {
    let workers = vec![worker(2, 1), worker(3, 1), worker(4, 1)];
    let moves = beside_an_endless_handover(workers, 8);
    let ends: BTreeSet<_> = moves.iter().map(|(_, of)| (of.source.0, of.target.0)).collect();
    assert_eq!(ends, BTreeSet::from([(2, 4)]));
}

/// Its last item hangs in a program, for example.
#[test]
fn an_endless_handover_blocks_its_workers_only_for_the_horizon() {
    let moves = beside_an_endless_handover(vec![worker(2, 1), worker(3, 1)], 60);
    let first = moves.first().map(|(round, of)| (*round, of.source.0, of.target.0));
    let horizon = Policy::default().queue_horizon.div_duration_f64(PERIOD) as u32;
    assert_eq!(first, Some((horizon, 2, 3)));
}
