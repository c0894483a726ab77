//! Processes that stand still for 2 s, at random: a backlog that its worker works off is no load.

use super::*;

const SLICES: usize = 12;
/// Items of a slice in a second, and their time: each worker is nearly half busy.
const RATE: f64 = 25.0;
const ITEM: Duration = Duration::from_millis(3);
/// Rounds in a pause.
const PAUSE: u32 = 8;

/// A process that stands still.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stopped {
    /// A worker, which then reports nothing.
    Worker(usize),
    /// The program of a worker, which goes on to report its queue.
    Program(usize),
    /// A client that publishes this share of the items.
    Client(f64),
}

/// Two workers with a queue for each slice.
struct Workers {
    balancer: Balancer,
    now: Duration,
    owners: Vec<usize>,
    /// Items that wait for each slice, and items that its worker has not received yet.
    waiting: Vec<f64>,
    arriving: Vec<f64>,
    /// Time for which each worker has reported nothing.
    silent: [Duration; 2],
    /// When a queue of each worker was last empty, as it reported.
    empty: [Duration; 2],
    moved: usize,
}

impl Workers {
    fn new() -> Self {
        Self {
            balancer: Balancer::new(Policy::default()),
            now: Duration::ZERO,
            owners: (0..SLICES).map(|slice| slice % 2).collect(),
            waiting: vec![0.0; SLICES],
            arriving: vec![0.0; SLICES],
            silent: [Duration::ZERO; 2],
            empty: [Duration::ZERO; 2],
            moved: 0,
        }
    }

    fn rounds(&mut self, count: u32, stopped: Option<Stopped>) {
        (0..count).for_each(|_| self.round(stopped));
    }

    fn round(&mut self, stopped: Option<Stopped>) {
        self.now += PERIOD;
        let share = if let Some(Stopped::Client(share)) = stopped { 1.0 - share } else { 1.0 };
        for arriving in &mut self.arriving {
            *arriving += RATE * share * PERIOD.as_secs_f64();
        }
        let inputs: Vec<_> = (0..2).flat_map(|at| self.inputs(at, stopped)).collect();
        let round = self.balancer.round(self.now, &[worker(0, 1), worker(1, 1)], &inputs);
        for step in &round.moves {
            for slice in &step.slices {
                self.owners[slice.0 as usize] = step.target.0 as usize;
                self.moved += 1;
            }
        }
    }

    /// Whether a worker has had items waiting for each slice, for the whole horizon.
    fn has_standing_queue(&self) -> bool {
        let horizon = Policy::default().queue_horizon;
        self.empty.iter().any(|at| self.now - *at >= horizon)
    }

    /// Items arrive and are processed at worker `at`.
    fn inputs(&mut self, at: usize, stopped: Option<Stopped>) -> Vec<SliceInput> {
        let silent = stopped == Some(Stopped::Worker(at));
        let stands = silent || stopped == Some(Stopped::Program(at));
        let observed = if silent { Duration::ZERO } else { PERIOD + self.silent[at] };
        self.silent[at] = if silent { self.silent[at] + PERIOD } else { Duration::ZERO };
        let own: Vec<_> = (0..SLICES).filter(|slice| self.owners[*slice] == at).collect();
        let sum: f64 = own.iter().map(|slice| self.waiting[*slice] + self.arriving[*slice]).sum();
        let room = if stands { 0.0 } else { PERIOD.as_secs_f64() / ITEM.as_secs_f64() };
        let part = (room / sum.max(1e-9)).min(1.0);
        let input = |slice: usize| {
            let arrived = if silent { 0.0 } else { self.arriving[slice].floor() };
            self.arriving[slice] -= arrived;
            self.waiting[slice] += arrived;
            let done = (part * self.waiting[slice]).floor();
            self.waiting[slice] -= done;
            if self.waiting[slice] < 2.0 {
                self.empty[at] = self.now;
            }
            let input = done_at_once(slice, WorkerId(at as u64), done as u64, ITEM);
            let (arrived, queued) = (arrived as u64, self.waiting[slice] as u64);
            SliceInput { observed, arrived, queued, ..input }
        };
        own.into_iter().map(input).collect()
    }
}

/// Any process, as likely as the others. `None`: the controller.
fn any(rng: &mut SmallRng) -> Option<Stopped> {
    match rng.random_range(0..7) {
        at @ 0..2 => Some(Stopped::Worker(at)),
        at @ 2..4 => Some(Stopped::Program(at - 2)),
        4 => Some(Stopped::Client(2.0 / 3.0)),
        5 => Some(Stopped::Client(1.0 / 3.0)),
        _ => None,
    }
}

#[test]
fn a_pause_moves_no_slice() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut workers = Workers::new();
    for _ in 0..1000 {
        let (stopped, rest) = (any(&mut rng), rng.random_range(10..20));
        workers.rounds(PAUSE, stopped);
        workers.rounds(rest, None);
    }
    assert_eq!(workers.moved, 0);
}

#[test]
fn pauses_one_upon_the_other_move_slices_only_if_a_queue_stands_for_the_horizon() {
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut workers = Workers::new();
        let mut has_stood = false;
        // Ten minutes.
        for _ in 0..220 {
            let (stopped, rest) = (any(&mut rng), rng.random_range(0..6));
            for round in 0..PAUSE + rest {
                workers.round(stopped.filter(|_| round < PAUSE));
                has_stood |= workers.has_standing_queue();
                assert!(has_stood || workers.moved == 0, "seed {seed}: moved");
            }
        }
        assert!(workers.moved <= 24, "seed {seed}: {} slices moved", workers.moved);
    }
}
