//! Which slices should move: a function of what was measured. It moves nothing itself.
//!
//! The load of a slice is the share of a core that it would keep busy if there were cores enough:
//! the rate at which its items come, done or not, times what one takes ([`estimate`]). Items that
//! wait count as if they came within [`Policy::queue_horizon`]: they move with their slice, so that
//! queues are evened out as loads are. A worker's load is that of its slices, by its weight. Each
//! round takes the best move (most imbalance removed for its cost) again and again, until the
//! workers are even, or as much load has been moved as a round may ([`sides`]). Of slices of the
//! same worth those of one group go together, so that few groups are read by several workers. In a
//! round a worker gives or takes, but does not do both. When loads are even, slices that bring none
//! are spread by number.
//!
//! # Source
//! Adya et al., "Slicer", OSDI 2016, section 4.4 (weighted moves within a churn budget). Deviates: no merging or
//! splitting of slices; hysteresis, and a cool-down for each slice; load is busy time, as slices' items differ.

mod estimate;
mod sides;
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

/// A worker is not stuck while its item may only take long: this many times what items take.
const STUCK_ITEMS: u32 = 4;

/// How eagerly is balanced.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// What was measured this long ago counts by 1/e. Of slices with few items, what came longer ago counts, too.
    pub smoothing: Duration,
    /// Items that wait count as load as if they came within this time.
    pub queue_horizon: Duration,
    /// A worker is stuck that has had items for this long and finished none: it gets no slices, and its own go to
    /// others.
    pub stuck: Duration,
    /// Begins when the most loaded worker has this much over the mean, as a share of the mean.
    pub begin: f64,
    /// And goes on until it has no more than this.
    pub stop: f64,
    /// Of the whole load, what a round moves at most.
    pub share_max: f64,
    /// Slices in one handover.
    pub batch_max: usize,
    /// Slices in the first handover to a worker that has none.
    pub first_batch_max: usize,
    /// A slice that moved stays this long, unless it goes to a worker that has not been here for longer.
    pub cool_down: Duration,
    /// A slice is hot with this share of what one worker should have.
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

/// A worker that slices may be on.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerInput {
    /// Which.
    pub id: WorkerId,
    /// Its share of the load. 0: it gets nothing new and keeps what it has; but what others leave, if nobody else is there.
    pub weight: Weight,
    /// It is to be left without slices.
    pub leaving: bool,
    /// It may be given slices. One that may not, and is not leaving, keeps what it has.
    pub takes: bool,
}

/// What was measured of a slice since the last round.
#[derive(Debug, Clone, PartialEq)]
pub struct SliceInput {
    /// Which.
    pub id: SliceId,
    /// Who owns it.
    pub owner: WorkerId,
    /// It is in a handover, or its owner is not sure: it cannot be moved now.
    pub blocked: bool,
    /// The time that the following are of. Zero: its owner has said nothing since.
    pub observed: Duration,
    /// Items that came.
    pub arrived: u64,
    /// Items that were done.
    pub done: u64,
    /// How long those were being done.
    pub busy: Duration,
    /// Items that wait or are being done.
    pub queued: u64,
}

/// Slices to be moved together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// From whom.
    pub giver: WorkerId,
    /// To whom.
    pub taker: WorkerId,
    /// Which.
    pub slices: Vec<SliceId>,
}

/// A slice that is too large to be balanced.
#[derive(Debug, Clone, PartialEq)]
pub struct Hot {
    /// Which.
    pub slice: SliceId,
    /// Of what one worker should have.
    pub share: f64,
}

/// What a round comes to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Round {
    /// What to move.
    pub moves: Vec<Move>,
    /// Slices that no move can even out.
    pub hot: Vec<Hot>,
    /// What the most loaded worker had over the mean before the moves, as a share of the mean.
    pub imbalance: f64,
    /// Why it moves no more.
    pub why: Why,
}

/// What has to be remembered from round to round.
#[derive(Debug, Clone)]
pub struct Balancer {
    policy: Policy,
    loads: Estimates,
    known: BTreeMap<SliceId, Known>,
    /// Since when each worker is here; those of the first round have always been.
    joined: BTreeMap<WorkerId, Option<Duration>>,
    last: Option<Duration>,
    moving: bool,
}

/// A slice, as it was in the last round.
#[derive(Debug, Clone)]
struct Known {
    owner: WorkerId,
    moved: Option<Duration>,
    /// Items that waited, as its last owner reported. A new owner reports a moment later.
    queued: u64,
}

impl Balancer {
    /// A balancer that knows nothing yet.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            loads: Estimates::default(),
            known: BTreeMap::new(),
            joined: BTreeMap::new(),
            last: None,
            moving: false,
        }
    }

    /// The load of `slice`, in cores.
    pub fn load(&self, slice: SliceId) -> f64 {
        self.loads.load(slice)
    }

    /// The load of what waits of `slice`, in cores: it is done in [`Policy::queue_horizon`]. Rounds
    /// even out both.
    pub fn backlog(&self, slice: SliceId) -> f64 {
        let queued = self.known.get(&slice).map_or(0, |known| known.queued);
        // One item may be under way, and is no backlog.
        let seconds = self.loads.item_seconds(slice) * queued.saturating_sub(1) as f64;
        seconds / self.policy.queue_horizon.as_secs_f64().max(1e-3)
    }

    /// A worker that has had items for this long and finished none is stuck.
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
        let mut sides = self.sides(workers, slices);
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
        let mut moved = Vec::new();
        sides.leave(&|slice, _| blocked.contains(&slice), &mut moved);
        let left = moved.len();
        let stays = |slice, taker| {
            blocked.contains(&slice) || cooling.contains(&slice) && !self.is_new(now, taker)
        };
        let mut budget = self.policy.share_max * load;
        let enough = mean * (1.0 + self.policy.stop);
        let mut goes_on = self.moving;
        while goes_on && budget > 0.0 {
            let Some((step, load)) = sides.best(&stays, budget, mean, enough) else {
                // As even as it gets, unless something only has to wait.
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
        Round { moves, hot, imbalance, why }
    }

    /// Nobody has a weight: what those leave who are to be left goes to workers that get nothing else.
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

    /// Whether there is enough to be evened out. Returns the imbalance, and from where on it is.
    fn begin_or_go_on(&mut self, sides: &Sides, mean: f64) -> (f64, f64) {
        let worst = sides.takers().map(|(_, side)| side);
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
        let mut moved = BTreeSet::new();
        for SliceInput { id, owner, queued, .. } in slices {
            let new = || Known { owner: *owner, moved: None, queued: *queued };
            let known = self.known.entry(*id).or_insert_with(new);
            if known.owner == *owner {
                known.queued = *queued;
            } else {
                (known.owner, known.moved) = (*owner, Some(now));
                known.queued = (*queued).max(known.queued);
                moved.insert(*id);
            }
        }
        let present: BTreeSet<_> = slices.iter().map(|slice| slice.id).collect();
        self.known.retain(|slice, _| present.contains(slice));
        self.loads.learn(self.policy.smoothing, slices, &moved);
    }

    fn sides(&self, workers: &[WorkerInput], slices: &[SliceInput]) -> Sides {
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
            }
        }
        Sides(sides)
    }

    /// Slices that cannot move now, and those that moved lately.
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

    /// Whether `worker` came lately: what goes there does not swing back.
    fn is_new(&self, now: Duration, worker: WorkerId) -> bool {
        let joined = self.joined.get(&worker).copied().flatten();
        joined.is_some_and(|since| now.saturating_sub(since) < self.policy.cool_down)
    }

    /// One handover for each pair of workers. The rest of what should move is found again in the next round.
    fn batches(&self, moved: &[Step], newcomers: &[WorkerId]) -> Vec<Move> {
        let mut pairs: BTreeMap<(WorkerId, WorkerId), Vec<SliceId>> = BTreeMap::new();
        for (slice, giver, taker) in moved {
            pairs.entry((*giver, *taker)).or_default().push(*slice);
        }
        pairs
            .into_iter()
            .map(|((giver, taker), mut slices)| {
                let first = newcomers.contains(&taker);
                let max = if first { self.policy.first_batch_max } else { self.policy.batch_max };
                slices.truncate(max);
                Move { giver, taker, slices }
            })
            .collect()
    }

    fn hot(&self, mean: f64, slices: &[SliceInput]) -> Vec<Hot> {
        // The mean is for a weight of 1; a worker has at least that.
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
