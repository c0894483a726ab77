//! The workers in a balancing round, and moves between them.

use std::collections::BTreeMap;

use crate::ids::{Group, Groups, SliceId, WorkerId, mixed};

/// Fixed cost of the handover of a slice, as a share of the mean load of a worker.
const HANDOVER_COST: f64 = 0.01;
/// A move must gain more than this share of the slice's load. A slice with less than this share of
/// the typical load is not moved.
const GAIN_MIN: f64 = 0.1;
/// A slice with less than this share of the mean load of a slice is idle.
const IDLE: f64 = 0.01;

/// A slice, its source, its target.
pub(super) type Step = (SliceId, WorkerId, WorkerId);

/// A worker in a balancing round.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) weight: f64,
    /// May receive slices.
    pub(super) takes: bool,
    pub(super) leaving: bool,
    pub(super) load: f64,
    pub(super) slices: Vec<Piece>,
    /// The groups of its slices.
    pub(super) groups: Groups,
    pub(super) gave: bool,
    pub(super) took: bool,
}

/// A slice of a worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) slice: SliceId,
    pub(super) load: f64,
    /// The load by which it is chosen.
    pub(super) typical: f64,
}

impl Side {
    pub(super) fn relative(&self) -> f64 {
        self.load / self.weight
    }

    /// Adds a slice that the worker has when the round begins.
    pub(super) fn add(&mut self, piece: Piece) {
        self.load += piece.load;
        self.groups.insert(Group::of(piece.slice));
        self.slices.push(piece);
    }

    /// The order in which the worker takes slices of equal worth, largest first. Slices of one
    /// group go together, as a worker receives the items of all groups of its slices. Slice numbers
    /// may correlate with loads, so the order of groups, and of slices in a group, is random.
    fn order(&self, slice: SliceId) -> (bool, u64, u64) {
        let group = Group::of(slice);
        let has_group = self.groups.contains(group);
        (has_group, mixed(u64::from(group.number())), mixed(u64::from(slice.0)))
    }
}

/// Whether a slice must not move to a worker now.
pub(super) type Stays<'s> = &'s dyn Fn(SliceId, WorkerId) -> bool;

/// All workers.
#[derive(Debug, Default)]
pub(super) struct Sides(pub(super) BTreeMap<WorkerId, Side>);

impl Sides {
    pub(super) fn targets(&self) -> impl Iterator<Item = (WorkerId, &Side)> {
        self.0.iter().filter(|(_, side)| side.takes).map(|(id, side)| (*id, side))
    }

    /// Moves all slices off leaving workers, whatever it costs: the largest slice first, to the
    /// least loaded worker.
    pub(super) fn leave(&mut self, stays: Stays<'_>, moved: &mut Vec<Step>) {
        let leaving = self.0.iter().filter(|(_, side)| side.leaving);
        let mut leaving: Vec<_> = leaving
            .flat_map(|(id, side)| side.slices.iter().map(|of| (of.slice, of.load, *id)))
            .collect();
        leaving.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        for (slice, load, source) in leaving {
            let after = |side: &Side| (side.load + load) / side.weight;
            let emptiest = self
                .targets()
                .min_by(|a, b| {
                    let slices = |side: &Side| side.slices.len();
                    after(a.1).total_cmp(&after(b.1)).then(slices(a.1).cmp(&slices(b.1)))
                })
                .map(|(id, _)| id);
            let Some(target) = emptiest else { return };
            if !stays(slice, target) {
                self.shift((slice, source, target), load);
                moved.push((slice, source, target));
            }
        }
    }

    /// The move from the most to the least loaded worker that removes most imbalance for its cost,
    /// and the load moved; between other workers if `stays` permits none between these two. Only
    /// slices with at most `budget` move. `mean`: mean load of a worker with weight 1. A worker
    /// with at most `enough` gives nothing.
    pub(super) fn best(
        &self,
        stays: Stays<'_>,
        budget: f64,
        mean: f64,
        enough: f64,
    ) -> Option<(Step, f64)> {
        let by_load = |a: &(WorkerId, &Side), b: &(WorkerId, &Side)| {
            a.1.relative().total_cmp(&b.1.relative())
        };
        // The most loaded worker may have no slice that helps: it may have one hot slice only.
        let gives = |(_, side): &(WorkerId, &Side)| !side.took && side.relative() > enough;
        let mut sources: Vec<_> = self.targets().filter(gives).collect();
        sources.sort_by(|a, b| by_load(b, a));
        let mut targets: Vec<_> = self.targets().filter(|(_, side)| !side.gave).collect();
        targets.sort_by(by_load);
        let pairs = targets.iter().flat_map(|to| sources.iter().map(move |from| (*from, *to)));
        for ((source, from), (target, to)) in pairs {
            let gap = from.relative() - to.relative();
            let gain = |load: f64| {
                let after = (from.load - load) / from.weight - (to.load + load) / to.weight;
                gap - after.abs()
            };
            // A move disturbs the load that it moves, and each handover has a fixed cost.
            let worth = |load: f64| gain(load) / (load + HANDOVER_COST * mean);
            let helps = |of: &&Piece| {
                of.load <= budget
                    && of.load > GAIN_MIN * of.typical
                    && gain(of.load) > GAIN_MIN * of.load / from.weight
                    && !stays(of.slice, target)
            };
            let best = from.slices.iter().filter(helps).max_by(|a, b| {
                let order = || to.order(a.slice).cmp(&to.order(b.slice));
                worth(a.typical).total_cmp(&worth(b.typical)).then_with(order)
            });
            if let Some(best) = best {
                return Some(((best.slice, source, target), best.load));
            }
        }
        None
    }

    /// Spreads slices without load by number, so that they are spread already when load arrives.
    /// Moves at most `share_max` of them. A worker with more load than `enough` receives none.
    pub(super) fn spread_idle(
        &mut self,
        stays: Stays<'_>,
        share_max: f64,
        enough: f64,
        moved: &mut Vec<Step>,
    ) {
        let (count, load) = self.0.values().fold((0, 0.0), |(count, load), side| {
            (count + side.slices.len(), load + side.load.max(0.0))
        });
        let bound = IDLE * load / count.max(1) as f64;
        let idle = |side: &Side| side.slices.iter().filter(|of| of.load <= bound).count();
        let mut idle: BTreeMap<_, _> = self.targets().map(|(id, side)| (id, idle(side))).collect();
        let all: usize = idle.values().sum();
        for _ in 0..(share_max * all as f64).ceil() as usize {
            let by_weight = |id: &WorkerId, count: usize| {
                count as f64 / self.0.get(id).map_or(1.0, |side| side.weight)
            };
            let of = |id: &WorkerId| by_weight(id, idle.get(id).copied().unwrap_or(0));
            let ids = || idle.keys().copied();
            let gives = |id: &WorkerId| self.0.get(id).is_some_and(|side| !side.took);
            let takes = |id: &WorkerId| {
                self.0.get(id).is_some_and(|side| !side.gave && side.relative() <= enough)
            };
            let Some(source) = ids().filter(gives).max_by(|a, b| of(a).total_cmp(&of(b))) else {
                return;
            };
            let Some(target) = ids().filter(takes).min_by(|a, b| of(a).total_cmp(&of(b))) else {
                return;
            };
            let (from, to) = (idle[&source], idle[&target]);
            // A difference of one slice is not worth a move.
            if from < 2 || by_weight(&source, from - 1) < by_weight(&target, to + 1) {
                return;
            }
            let (Some(side), Some(to_side)) = (self.0.get(&source), self.0.get(&target)) else {
                return;
            };
            let movable = side.slices.iter().filter(|of| of.load <= bound);
            let movable = movable.filter(|of| !stays(of.slice, target));
            let movable = movable.max_by_key(|of| to_side.order(of.slice)).copied();
            let Some(Piece { slice, load, .. }) = movable else { return };
            self.shift((slice, source, target), load);
            idle.insert(source, from - 1);
            idle.insert(target, to + 1);
            moved.push((slice, source, target));
        }
    }

    pub(super) fn shift(&mut self, (slice, source, target): Step, load: f64) {
        if let Some(side) = self.0.get_mut(&source) {
            side.load -= load;
            side.slices.retain(|of| of.slice != slice);
            side.gave = true;
        }
        if let Some(side) = self.0.get_mut(&target) {
            side.load += load;
            side.groups.insert(Group::of(slice));
            side.took = true;
        }
    }
}
