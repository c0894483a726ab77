mod pauses;
mod queues;
mod sparse;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

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
        in_handover: false,
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
fn a_balanced_load_causes_almost_no_moves() {
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
fn the_first_batch_to_a_new_worker_is_limited() {
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
fn a_leaving_worker_loses_all_slices_and_the_others_stay_balanced() {
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

#[test]
fn without_an_eligible_worker_no_slice_moves() {
    let mut cluster = Cluster::new(vec![worker(1, 1)], vec![0.1; 10]);
    cluster.workers[0].leaving = true;
    assert_eq!(cluster.round(), Round::default());
    let mut balancer = Balancer::new(Policy::default());
    assert_eq!(balancer.round(PERIOD, &[], &[]), Round::default());
}

#[test]
fn a_worker_that_joins_soon_after_another_receives_its_share() {
    // No slice may move twice during the test, except to a worker that has just joined.
    let cool_down = Duration::from_secs(15);
    let mut balancer = Balancer::new(Policy { cool_down, ..Policy::default() });
    let mut owners: Vec<u64> = vec![1; 100];
    let mut workers = vec![1];
    let (mut moved, mut again) = (BTreeSet::new(), 0);
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
                again += usize::from(!moved.insert(slice));
            }
        }
    }
    assert!(again > 0, "the third worker receives slices that have just moved");
    let most = (1..=3).map(|worker| owners.iter().filter(|owner| **owner == worker).count()).max();
    assert!(most <= Some(35), "{owners:?}");
}

#[test]
fn idle_slices_are_spread_by_number_unless_moves_are_off() {
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
fn idle_slices_and_busy_slices_are_both_spread_evenly() {
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
fn the_load_of_a_worker_that_acknowledges_nothing_is_not_underestimated() {
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
fn a_worker_that_takes_no_slices_also_gives_none() {
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
fn the_stuck_timeout_grows_with_the_duration_of_items() {
    let mut balancer = Balancer::new(Policy::default());
    assert_eq!(balancer.stuck_after(), Policy::default().stuck);
    for round in 1..40 {
        let long = done_at_once(0, WorkerId(1), 1, Duration::from_secs(20));
        balancer.round(PERIOD * round, &[worker(1, 1)], &[long]);
    }
    assert_eq!(balancer.stuck_after().as_secs(), 80);
}

#[test]
fn a_leaving_worker_loses_all_slices_even_to_workers_without_weight() {
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
