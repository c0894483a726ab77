//! Decides which slices should move, from measurements. It moves nothing itself.
//!
//! The load of a slice is the share of a core that it would keep busy if there were enough cores:
//! the rate at which its items arrive, processed or not, times the time of an item ([`estimate`]).
//! The standing queue of a slice counts, too: the fewest items that waited within
//! [`Policy::queue_horizon`], as if they arrived within that time. They move with their slice, so
//! balancing evens out standing queues as well. A queue that its worker works off, for example
//! after a pause, is no load. The load of a worker is that of its slices, divided by its weight.
//!
//! Each round takes the best move (the most imbalance removed for its cost) again and again, until
//! the workers are even or the round has moved as much load as it may ([`sides`]). Among slices of
//! equal worth, those of one group go together, so that few groups have several readers. In a round
//! a worker either gives or takes. In later rounds it gives and takes no standing queue while one
//! of an earlier round is still moving: that takes its time, which makes it slower, and a slower
//! worker would give still more. When loads are even, slices without load are spread by number.
//!
//! # Source
//! Adya et al., "Slicer", OSDI 2016, section 4.4 (weighted moves within a churn budget). Deviates:
//! no merging or splitting of slices; hysteresis, and a cool-down for each slice; load is busy
//! time, as the items of slices differ. Nichols and Jacobson, "Controlling queue delay", ACM Queue
//! 2012 (the standing queue is the minimum over a time).

mod estimate;
mod sides;
mod standing_queue;
#[cfg(test)]
mod tests;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use equipoise_core::Weight;

use why::End;
pub use why::{Hold, Why};

use crate::ids::{Groups, SliceId, WorkerId};
use estimate::Estimates;
use sides::{Piece, Side, Sides, Step};
use standing_queue::StandingQueue;

/// A worker is stuck only after this many times the mean time of an item, as an item may just take
/// long.
const STUCK_ITEMS: u32 = 4;

/// A busy worker that has reported nothing for longer than this gives and receives nothing: its
/// measurements are older than those of the others. Workers report every 250 ms.
const SILENCE: Duration = Duration::from_millis(300);

/// How eagerly the balancer moves slices.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Time constant of the measurements. For slices with few items it is longer.
    pub smoothing: Duration,
    /// Items that waited for all of this time count as load, as if they arrived within it.
    pub queue_horizon: Duration,
    /// A worker that has had items for this long and finished none is stuck: it receives no slices,
    /// and its own move away.
    pub stuck: Duration,
    /// Balancing begins when the most loaded worker exceeds the mean by this share of the mean.
    pub begin: f64,
    /// Balancing stops at this excess.
    pub stop: f64,
    /// Largest share of the whole load that a round moves.
    pub share_max: f64,
    /// Largest number of slices in one handover.
    pub batch_max: usize,
    /// Largest number of slices in the first handover to a worker without slices.
    pub first_batch_max: usize,
    /// A slice stays for this long after a move, unless it goes to a worker that joined within this
    /// time.
    pub cool_down: Duration,
    /// A slice is hot from this share of a worker's mean load on.
    pub hot: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            smoothing: Duration::from_secs(1),
            queue_horizon: Duration::from_secs(10),
            stuck: Duration::from_secs(10),
            begin: 0.08,
            stop: 0.02,
            share_max: 0.25,
            batch_max: 512,
            first_batch_max: 8,
            cool_down: Duration::from_secs(2),
            hot: 0.8,
        }
    }
}

/// A worker in the input of the balancer.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerInput {
    /// The worker.
    pub id: WorkerId,
    /// Its share of the load. With 0 it receives nothing new and keeps its slices. It receives
    /// those of leaving workers only if no worker has a larger weight.
    pub weight: Weight,
    /// It should lose all its slices.
    pub leaving: bool,
    /// It may receive slices. One that may not, and is not leaving, keeps its slices.
    pub takes: bool,
}

/// Measurements of a slice since the last round.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceInput {
    /// The slice.
    pub id: SliceId,
    /// Its owner.
    pub owner: WorkerId,
    /// It cannot move now: it is in a handover, or pinned.
    pub blocked: bool,
    /// It is in a handover.
    pub in_handover: bool,
    /// The time of these measurements. Zero: its owner has reported nothing since.
    pub observed: Duration,
    /// Items that arrived.
    pub arrived: u64,
    /// Items that were finished.
    pub done: u64,
    /// Time spent on the finished items.
    pub busy: Duration,
    /// Items that wait or are being processed.
    pub queued: u64,
}

/// Slices to be moved together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The source.
    pub source: WorkerId,
    /// The target.
    pub target: WorkerId,
    /// The slices.
    pub slices: Vec<SliceId>,
}

/// A slice with too much load to be balanced.
#[derive(Debug, Clone, PartialEq)]
pub struct Hot {
    /// The slice.
    pub slice: SliceId,
    /// Its load over the mean load of a worker.
    pub share: f64,
}

/// The result of a round.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Round {
    /// The moves to start.
    pub moves: Vec<Move>,
    /// Slices too large for any move to even out.
    pub hot: Vec<Hot>,
    /// The excess of the most loaded worker over the mean before the moves, as a share of the mean.
    pub imbalance: f64,
    /// Why the round moves no more.
    pub why: Why,
}

/// The balancer and its state between rounds.
#[derive(Debug, Clone)]
pub struct Balancer {
    policy: Policy,
    loads: Estimates,
    known: BTreeMap<SliceId, Known>,
    /// When each worker joined; `None` for those of the first round.
    joined: BTreeMap<WorkerId, Option<Duration>>,
    /// When each worker with slices last reported about them.
    reported: BTreeMap<WorkerId, Duration>,
    last: Option<Duration>,
    moving: bool,
    /// Moves of standing queues that are not over, with the time of their round.
    transfers: Vec<(Move, Duration)>,
}

/// A slice in the last round.
#[derive(Debug, Clone)]
struct Known {
    owner: WorkerId,
    moved: Option<Duration>,
    queue: StandingQueue,
}

impl Balancer {
    /// A balancer without measurements.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            loads: Estimates::default(),
            known: BTreeMap::new(),
            joined: BTreeMap::new(),
            reported: BTreeMap::new(),
            last: None,
            moving: false,
            transfers: Vec::new(),
        }
    }

    /// The load of `slice`, in cores.
    pub fn load(&self, slice: SliceId) -> f64 {
        self.loads.load(slice)
    }

    /// The load of the standing queue of `slice`, in cores, if it is processed within
    /// [`Policy::queue_horizon`]. Rounds even out both loads.
    pub fn backlog(&self, slice: SliceId) -> f64 {
        let queued = self.known.get(&slice).map_or(0, |known| known.queue.items());
        // One item may be in progress, and is no backlog.
        let seconds = self.loads.item_seconds(slice) * queued.saturating_sub(1) as f64;
        seconds / self.policy.queue_horizon.as_secs_f64().max(1e-3)
    }

    /// The time after which a worker that has items and finished none is stuck.
    pub fn stuck_after(&self) -> Duration {
        let items = self.loads.item().map_or(Duration::ZERO, |item| item * STUCK_ITEMS);
        self.policy.stuck.max(items)
    }

    /// One round. `now` is the time since any fixed moment.
    pub fn round(
        &mut self,
        now: Duration,
        workers: &[WorkerInput],
        slices: &[SliceInput],
    ) -> Round {
        self.learn(now, workers, slices);
        let mut sides = self.sides(now, workers, slices);
        let (mut load, mut weight, mut slices_here) = (0.0, 0.0, 0);
        for side in sides.0.values().filter(|side| side.takes || side.leaving) {
            load += side.load;
            slices_here += side.slices.len();
            weight += if side.takes { side.weight } else { 0.0 };
        }
        if weight <= 0.0 {
            let moves = self.leave_to_standbys(sides, workers, slices);
            let why = if moves.is_empty() { Why::NobodyTakes } else { Why::Moves };
            return Round { why, moves, ..Round::default() };
        }
        if slices_here == 0 {
            return Round { why: Why::NothingMeasured, ..Round::default() };
        }
        let mean = load / weight;
        let (imbalance, bound) = self.begin_or_go_on(&sides, mean);
        let (blocked, cooling) = self.staying(now, slices);
        let handed: BTreeSet<_> =
            slices.iter().filter(|slice| slice.in_handover).map(|slice| slice.id).collect();
        let horizon = self.policy.queue_horizon;
        self.transfers.retain(|(of, begun)| {
            // The rest of a handover may wait for an item that never ends.
            let may_move = now.saturating_sub(*begun) < horizon;
            may_move && of.slices.iter().any(|slice| handed.contains(slice))
        });
        let mut moved = Vec::new();
        sides.leave(&|slice, _| blocked.contains(&slice), &mut moved);
        let left = moved.len();
        let stays = |slice, target| {
            blocked.contains(&slice)
                || cooling.contains(&slice) && !self.is_new(now, target)
                || self.transfer_of(slice, target).is_some()
        };
        let mut budget = self.policy.share_max * load;
        let enough = mean * (1.0 + self.policy.stop);
        let mut goes_on = self.moving;
        while goes_on && budget > 0.0 {
            let Some((step, load)) = sides.best(&stays, budget, mean, enough) else {
                // No move helps more; balancing goes on only if some slice has to wait.
                goes_on = !(moved.is_empty() && blocked.is_empty() && cooling.is_empty());
                break;
            };
            budget -= load;
            sides.shift(step, load);
            moved.push(step);
        }
        if moved.is_empty() {
            sides.spread_idle(&stays, self.policy.share_max, enough, &mut moved);
        }
        self.moving = goes_on;
        let moves = moved.len() > left;
        let newcomers = newcomers(workers, slices);
        let blocked = &blocked;
        let why = self.why(&sides, &End { now, mean, enough, imbalance, bound, moves, blocked });
        let (moves, hot) = (self.batches(&moved, &newcomers), self.hot(mean, slices));
        let has_queue = |of: &&Move| of.slices.iter().any(|slice| self.backlog(*slice) > 0.0);
        let begun: Vec<_> = moves.iter().filter(has_queue).map(|of| (of.clone(), now)).collect();
        self.transfers.extend(begun);
        Round { moves, hot, imbalance, why }
    }

    /// No worker has a weight: slices of leaving workers go to workers with weight 0.
    fn leave_to_standbys(
        &self,
        mut sides: Sides,
        workers: &[WorkerInput],
        slices: &[SliceInput],
    ) -> Vec<Move> {
        for worker in workers.iter().filter(|worker| worker.takes && !worker.leaving) {
            if let Some(side) = sides.0.get_mut(&worker.id) {
                (side.takes, side.weight) = (true, 1.0);
            }
        }
        let blocked = |slice: SliceId, _| slices.iter().any(|it| it.id == slice && it.blocked);
        let mut moved = Vec::new();
        sides.leave(&blocked, &mut moved);
        self.batches(&moved, &newcomers(workers, slices))
    }

    /// Decides whether to move slices. Returns the imbalance and the bound for it.
    fn begin_or_go_on(&mut self, sides: &Sides, mean: f64) -> (f64, f64) {
        let worst = sides.targets().map(|(_, side)| side);
        let worst = worst.max_by(|a, b| a.relative().total_cmp(&b.relative()));
        let worst = worst.map_or(0.0, Side::relative);
        let imbalance = if mean > 0.0 { (worst - mean).max(0.0) / mean } else { 0.0 };
        let policy = &self.policy;
        let bound = if self.moving { policy.stop } else { policy.begin };
        self.moving = imbalance > bound;
        (imbalance, bound)
    }

    fn learn(&mut self, now: Duration, workers: &[WorkerInput], slices: &[SliceInput]) {
        let since = self.last.map(|_| now);
        self.joined.retain(|worker, _| workers.iter().any(|here| here.id == *worker));
        for worker in workers {
            self.joined.entry(worker.id).or_insert(since);
        }
        self.last = Some(now);
        self.reported.retain(|worker, _| workers.iter().any(|here| here.id == *worker));
        let reporting = slices.iter().filter(|slice| !slice.observed.is_zero());
        self.reported.extend(reporting.map(|slice| (slice.owner, now)));
        let mut moved = BTreeSet::new();
        for SliceInput { id, owner, blocked, queued, observed, .. } in slices {
            let queue = StandingQueue::default();
            let new = || Known { owner: *owner, moved: None, queue };
            let known = self.known.entry(*id).or_insert_with(new);
            if known.owner != *owner {
                // The new owner reports the queue a moment later.
                (known.owner, known.moved) = (*owner, Some(now));
                moved.insert(*id);
            } else if !observed.is_zero() && !blocked {
                // During a handover, a part of the queue is on its way.
                known.queue.observe(now, *queued, self.policy.queue_horizon);
            }
        }
        let present: BTreeSet<_> = slices.iter().map(|slice| slice.id).collect();
        self.known.retain(|slice, _| present.contains(slice));
        self.loads.learn(self.policy.smoothing, slices, &moved);
    }

    /// Whether the measurements of a busy worker are older than those of others, so that they
    /// cannot be compared.
    fn is_silent(&self, now: Duration, worker: WorkerId) -> bool {
        let reported = self.reported.get(&worker);
        reported.is_some_and(|at| now.saturating_sub(*at) > SILENCE)
    }

    fn sides(&self, now: Duration, workers: &[WorkerInput], slices: &[SliceInput]) -> Sides {
        let side = |worker: &WorkerInput| Side {
            weight: f64::from(worker.weight.get()),
            takes: worker.takes && !worker.leaving && worker.weight.get() > 0,
            leaving: worker.leaving,
            load: 0.0,
            slices: Vec::new(),
            groups: Groups::default(),
            gave: false,
            took: false,
        };
        let mut sides: BTreeMap<_, _> =
            workers.iter().map(|worker| (worker.id, side(worker))).collect();
        for slice in slices {
            if let Some(side) = sides.get_mut(&slice.owner) {
                let backlog = self.backlog(slice.id);
                let load = self.load(slice.id) + backlog;
                let typical = self.loads.typical(slice.id) + backlog;
                side.add(Piece { slice: slice.id, load, typical });
                side.takes &= load <= 0.0 || !self.is_silent(now, slice.owner);
            }
        }
        Sides(sides)
    }

    /// Slices that cannot move now, and those in their cool-down.
    fn staying(
        &self,
        now: Duration,
        slices: &[SliceInput],
    ) -> (BTreeSet<SliceId>, BTreeSet<SliceId>) {
        let cooling = |slice: &&SliceInput| {
            self.known
                .get(&slice.id)
                .and_then(|known| known.moved)
                .is_some_and(|since| now.saturating_sub(since) < self.policy.cool_down)
        };
        let blocked = slices.iter().filter(|slice| slice.blocked).map(|slice| slice.id);
        (blocked.collect(), slices.iter().filter(cooling).map(|slice| slice.id).collect())
    }

    /// A move of standing queues that is not over, of the owner of `slice` or of `target`, if the
    /// slice has a standing queue.
    fn transfer_of(&self, slice: SliceId, target: WorkerId) -> Option<&Move> {
        if self.backlog(slice) <= 0.0 {
            return None;
        }
        let owner = self.known.get(&slice).map(|known| known.owner);
        let of = |worker: WorkerId| Some(worker) == owner || worker == target;
        self.transfers.iter().map(|(it, _)| it).find(|it| of(it.source) || of(it.target))
    }

    /// Whether `worker` joined within the cool-down: slices that go there do not swing back.
    fn is_new(&self, now: Duration, worker: WorkerId) -> bool {
        let joined = self.joined.get(&worker).copied().flatten();
        joined.is_some_and(|since| now.saturating_sub(since) < self.policy.cool_down)
    }

    /// One handover for each pair of workers. The next round finds the rest again.
    fn batches(&self, moved: &[Step], newcomers: &[WorkerId]) -> Vec<Move> {
        let mut pairs: BTreeMap<(WorkerId, WorkerId), Vec<SliceId>> = BTreeMap::new();
        for (slice, source, target) in moved {
            pairs.entry((*source, *target)).or_default().push(*slice);
        }
        pairs
            .into_iter()
            .map(|((source, target), mut slices)| {
                let first = newcomers.contains(&target);
                let max = if first { self.policy.first_batch_max } else { self.policy.batch_max };
                slices.truncate(max);
                Move { source, target, slices }
            })
            .collect()
    }

    fn hot(&self, mean: f64, slices: &[SliceInput]) -> Vec<Hot> {
        // The mean is for a weight of 1, the smallest that a worker has.
        let hot = |slice: &SliceInput| {
            let share = if mean > 0.0 { self.load(slice.id) / mean } else { 0.0 };
            (share >= self.policy.hot).then_some(Hot { slice: slice.id, share })
        };
        slices.iter().filter_map(hot).collect()
    }
}

/// Workers without slices.
fn newcomers(workers: &[WorkerInput], slices: &[SliceInput]) -> Vec<WorkerId> {
    let owns = |worker: &&WorkerInput| slices.iter().any(|slice| slice.owner == worker.id);
    workers.iter().filter(|worker| !owns(worker)).map(|worker| worker.id).collect()
}
