//! Which slices should move: a function of what was measured. It moves nothing itself.
//!
//! The load of a slice is the share of a core that it would keep busy if there were cores enough, smoothed. A worker
//! that is full cannot be busier, but its queues grow older: by `g` seconds in a second if it does `1 - g` of what
//! comes. So what comes is the busy time by `1 - g`. A worker's load is that of its slices, by its weight. Each round takes the best move (most imbalance removed for its cost) again and again, until the workers are
//! even, or as much load has been moved as a round may. In a round a worker gives or takes, but does not do both.
//!
//! # Source
//! Adya et al., "Slicer", OSDI 2016, section 4.4 (weighted moves within a churn budget). Deviates: no merging or
//! splitting of slices; hysteresis, and a cool-down for each slice; load is busy time, as slices' items differ.

#[cfg(test)]
mod tests;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use equipoise_core::Weight;

use why::End;
pub use why::{Hold, Why};

use crate::ids::{SliceId, WorkerId};

/// No queue is taken to grow or shrink faster than this, in seconds for each second: a worker does at least a tenth of
/// what comes.
const GROWTH_MAX: f64 = 0.9;

/// What the handover of a slice costs besides its load, as a share of the mean load of a worker.
const HANDOVER_COST: f64 = 0.01;

/// How eagerly is balanced.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// What was measured this long ago counts by 1/e.
    pub smoothing: Duration,
    /// When items of the most loaded worker wait this long, it is relieved however little it has over the mean.
    pub queue_horizon: Duration,
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
            queue_horizon: Duration::from_secs(1),
            begin: 0.08,
            stop: 0.02,
            share_max: 0.25,
            batch_max: 512,
            first_batch_max: 8,
            cool_down: Duration::from_secs(10),
            hot: 0.8,
        }
    }
}

/// A worker that slices may be on.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerInput {
    /// Which.
    pub id: WorkerId,
    /// Its share of the load. 0: it gets nothing new and keeps what it has.
    pub weight: Weight,
    /// It is to be left without slices.
    pub leaving: bool,
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
    /// How long its items were being done.
    pub busy: Duration,
    /// How long its oldest item waits.
    pub queue_age: Duration,
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
    loads: BTreeMap<SliceId, f64>,
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
    queue_age: Duration,
}

/// A worker while a round is planned.
#[derive(Debug)]
struct Side {
    weight: f64,
    leaving: bool,
    load: f64,
    queue_age: Duration,
    slices: Vec<SliceId>,
    gave: bool,
    took: bool,
}

impl Side {
    fn relative(&self) -> f64 {
        self.load / self.weight
    }

    fn takes(&self) -> bool {
        !self.leaving && self.weight > 0.0
    }
}

impl Balancer {
    /// A balancer that knows nothing yet.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            loads: BTreeMap::new(),
            known: BTreeMap::new(),
            joined: BTreeMap::new(),
            last: None,
            moving: false,
        }
    }

    /// The smoothed load of `slice`, in cores.
    pub fn load(&self, slice: SliceId) -> f64 {
        self.loads.get(&slice).copied().unwrap_or(0.0)
    }

    /// One round. `now` is the time since any fixed moment.
    pub fn round(
        &mut self,
        now: Duration,
        workers: &[WorkerInput],
        slices: &[SliceInput],
    ) -> Round {
        let since = self.last.map(|_| now);
        self.joined.retain(|worker, _| workers.iter().any(|here| here.id == *worker));
        for worker in workers {
            self.joined.entry(worker.id).or_insert(since);
        }
        self.learn(now, slices);
        let mut sides = self.sides(workers, slices);
        let takers = sides.values().filter(|side| side.takes());
        let (load, weight) =
            takers.clone().fold((0.0, 0.0), |(l, w), side| (l + side.load, w + side.weight));
        let leaving: f64 = sides.values().filter(|side| side.leaving).map(|side| side.load).sum();
        if weight <= 0.0 {
            return Round::default();
        }
        let mean = (load + leaving) / weight;
        let worst = takers.max_by(|a, b| a.relative().total_cmp(&b.relative()));
        let is_behind = worst.is_some_and(|side| side.queue_age >= self.policy.queue_horizon);
        let worst = worst.map_or(0.0, Side::relative);
        let imbalance = if mean > 0.0 { (worst - mean).max(0.0) / mean } else { 0.0 };
        let policy = &self.policy;
        let bound = if self.moving || is_behind { policy.stop } else { policy.begin };
        self.moving = imbalance > bound;
        let mut budget = self.policy.share_max * (load + leaving);
        let (blocked, cooling) = self.staying(now, slices);
        let mut moved = Vec::new();
        self.leave(&mut sides, slices, &mut moved);
        let left = moved.len();
        while self.moving && budget > 0.0 {
            let stays = |slice, taker| {
                blocked.contains(&slice) || cooling.contains(&slice) && !self.is_new(now, taker)
            };
            let Some((slice, giver, taker)) = self.best(&sides, stays, budget, mean) else {
                // As even as it gets, unless something only has to wait.
                self.moving = !(moved.is_empty() && blocked.is_empty() && cooling.is_empty());
                break;
            };
            budget -= self.load(slice);
            self.shift(&mut sides, slice, giver, taker);
            moved.push((slice, giver, taker));
        }
        let moves = moved.len() > left;
        let newcomers: Vec<_> = workers
            .iter()
            .filter(|worker| !slices.iter().any(|slice| slice.owner == worker.id))
            .map(|worker| worker.id)
            .collect();
        let why = self.why(&sides, &End { now, mean, imbalance, bound, moves, blocked: &blocked });
        let (moves, hot) = (self.batches(&moved, &newcomers), self.hot(mean, slices));
        Round { moves, hot, imbalance, why }
    }

    fn learn(&mut self, now: Duration, slices: &[SliceInput]) {
        let passed = now.saturating_sub(self.last.unwrap_or(now)).as_secs_f64();
        self.last = Some(now);
        for slice in slices {
            let (owner, queue_age) = (slice.owner, slice.queue_age);
            let new = || Known { owner, moved: None, queue_age };
            let known = self.known.entry(slice.id).or_insert_with(new);
            let before = std::mem::replace(&mut known.queue_age, queue_age);
            if known.owner != owner {
                // Another worker, another queue: its growth is known in the next round.
                (known.owner, known.moved) = (owner, Some(now));
                continue;
            }
            if passed <= 0.0 {
                continue;
            }
            let growth = (queue_age.as_secs_f64() - before.as_secs_f64()) / passed;
            let growth = growth.clamp(-GROWTH_MAX, GROWTH_MAX);
            let load = slice.busy.as_secs_f64() / passed / (1.0 - growth);
            let known = self.loads.entry(slice.id).or_insert(load);
            let old = (-passed / self.policy.smoothing.as_secs_f64()).exp();
            *known = *known * old + load * (1.0 - old);
        }
        let present: BTreeSet<_> = slices.iter().map(|slice| slice.id).collect();
        self.loads.retain(|slice, _| present.contains(slice));
        self.known.retain(|slice, _| present.contains(slice));
    }

    fn sides(&self, workers: &[WorkerInput], slices: &[SliceInput]) -> BTreeMap<WorkerId, Side> {
        let side = |worker: &WorkerInput| Side {
            weight: f64::from(worker.weight.get()),
            leaving: worker.leaving,
            load: 0.0,
            queue_age: Duration::ZERO,
            slices: Vec::new(),
            gave: false,
            took: false,
        };
        let mut sides: BTreeMap<_, _> =
            workers.iter().map(|worker| (worker.id, side(worker))).collect();
        for slice in slices {
            if let Some(side) = sides.get_mut(&slice.owner) {
                side.load += self.load(slice.id);
                side.queue_age = side.queue_age.max(slice.queue_age);
                side.slices.push(slice.id);
            }
        }
        sides
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

    /// Who leaves is left, whatever it costs: the largest slice first, to the emptiest.
    fn leave(
        &self,
        sides: &mut BTreeMap<WorkerId, Side>,
        slices: &[SliceInput],
        moved: &mut Vec<(SliceId, WorkerId, WorkerId)>,
    ) {
        let leaving = |slice: &&SliceInput| {
            !slice.blocked && sides.get(&slice.owner).is_some_and(|side| side.leaving)
        };
        let mut leaving: Vec<_> = slices.iter().filter(leaving).collect();
        leaving.sort_by(|a, b| self.load(b.id).total_cmp(&self.load(a.id)).then(a.id.cmp(&b.id)));
        for slice in leaving {
            let after = |side: &Side| (side.load + self.load(slice.id)) / side.weight;
            let emptiest = sides
                .iter()
                .filter(|(_, side)| side.takes())
                .min_by(|a, b| {
                    let slices = |side: &Side| side.slices.len();
                    after(a.1).total_cmp(&after(b.1)).then(slices(a.1).cmp(&slices(b.1)))
                })
                .map(|(id, _)| *id);
            let Some(taker) = emptiest else { return };
            self.shift(sides, slice.id, slice.owner, taker);
            moved.push((slice.id, slice.owner, taker));
        }
    }

    /// The move from the fullest worker to the emptiest that evens out most for its cost.
    fn best(
        &self,
        sides: &BTreeMap<WorkerId, Side>,
        stays: impl Fn(SliceId, WorkerId) -> bool,
        budget: f64,
        mean: f64,
    ) -> Option<(SliceId, WorkerId, WorkerId)> {
        let takers = || sides.iter().filter(|(_, side)| side.takes());
        let by_load = |a: &(&WorkerId, &Side), b: &(&WorkerId, &Side)| {
            a.1.relative().total_cmp(&b.1.relative())
        };
        let mut givers: Vec<_> = takers().filter(|(_, side)| !side.took).collect();
        givers.sort_by(|a, b| by_load(b, a));
        let (taker, to) = takers().filter(|(_, side)| !side.gave).min_by(by_load)?;
        for (giver, from) in givers {
            // The fullest may have nothing that helps, as when it has one hot slice.
            if from.relative() <= mean * (1.0 + self.policy.stop) {
                return None;
            }
            let gap = from.relative() - to.relative();
            let gain = |slice: SliceId| {
                let load = self.load(slice);
                let after = (from.load - load) / from.weight - (to.load + load) / to.weight;
                gap - after.abs()
            };
            // What is moved is disturbed, and a handover has a price of its own.
            let worth = |slice: SliceId| gain(slice) / (self.load(slice) + HANDOVER_COST * mean);
            let best = from
                .slices
                .iter()
                .filter(|slice| !stays(**slice, *taker) && self.load(**slice) <= budget)
                .max_by(|a, b| worth(**a).total_cmp(&worth(**b)).then(b.cmp(a)));
            if let Some(best) = best
                && gain(*best) > 1e-3 * mean
            {
                return Some((*best, *giver, *taker));
            }
        }
        None
    }

    fn shift(
        &self,
        sides: &mut BTreeMap<WorkerId, Side>,
        slice: SliceId,
        giver: WorkerId,
        taker: WorkerId,
    ) {
        let load = self.load(slice);
        if let Some(side) = sides.get_mut(&giver) {
            side.load -= load;
            side.slices.retain(|of| *of != slice);
            side.gave = true;
        }
        if let Some(side) = sides.get_mut(&taker) {
            side.load += load;
            side.took = true;
        }
    }

    /// One handover for each pair of workers. The rest of what should move is found again in the next round.
    fn batches(
        &self,
        moved: &[(SliceId, WorkerId, WorkerId)],
        newcomers: &[WorkerId],
    ) -> Vec<Move> {
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
