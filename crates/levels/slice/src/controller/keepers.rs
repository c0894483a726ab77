//! Chooses the worker that keeps the checkpoints of each worker.
//!
//! Each worker has one keeper: the other worker that keeps for the fewest, and among these the one
//! with the fewest slices. The choice holds while the keeper lives and answers, because a new one
//! needs every state again. The slices of a lost worker go to its keeper, which has their states.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::controller::Controller;
use crate::ids::{HandoverId, Incarnation, SliceId};
use crate::message::Message;

/// Interval of messages about keepers, in intervals of claims.
const SAID_EVERY: u32 = 4;

/// The keepers, and the last messages about them.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    /// By owner. Lost owners are included until their slices have other owners.
    of: BTreeMap<Incarnation, Incarnation>,
    /// The living workers, in order.
    living: Vec<Incarnation>,
    /// Increases with each change of the list.
    number: u64,
    chosen: Option<Duration>,
    said: Option<Duration>,
}

impl<T: Clone> Controller<T> {
    /// The worker that keeps the checkpoints of `owner`, which may be lost.
    pub fn keeper(&self, owner: Incarnation) -> Option<Incarnation> {
        self.keepers.of.get(&owner).copied()
    }

    /// Tells a target that the state of its slices was lost, and which workers may have it.
    pub(super) fn say_restore(
        &mut self,
        target: Incarnation,
        handover: HandoverId,
        slices: Arc<[SliceId]>,
    ) {
        // A worker that has not reported yet may have them.
        if !self.surveying {
            let (number, others) = self.others(target);
            self.send(target, Message::Restore { handover, slices, number, others });
        }
    }

    /// The number of the list of living workers, and the list without `to`.
    fn others(&mut self, to: Incarnation) -> (u64, Vec<Incarnation>) {
        self.list_living();
        let others = self.keepers.living.iter().filter(|incarnation| **incarnation != to);
        (self.keepers.number, others.copied().collect())
    }

    /// Updates the list of living workers. Returns whether it has changed.
    fn list_living(&mut self) -> bool {
        let living: Vec<_> = self.members.living().map(|member| member.incarnation).collect();
        if self.keepers.number > 0 && living == self.keepers.living {
            return false;
        }
        self.keepers.number += 1;
        self.keepers.living = living;
        true
    }

    /// Chooses keepers, and tells each worker its own.
    pub(super) fn tick_keepers(&mut self, now: Duration) {
        // A worker that has not reported yet may have checkpoints.
        if self.config.checkpoints().is_none() || self.surveying {
            return;
        }
        let mut changed = self.list_living();
        // The choice examines every slice.
        let chosen = self.keepers.chosen;
        if !changed && chosen.is_some_and(|at| now.saturating_sub(at) < self.config.claims) {
            return;
        }
        self.keepers.chosen = Some(now);
        changed |= self.choose_keepers();
        let every = SAID_EVERY * self.config.claims;
        if !changed && self.keepers.said.is_some_and(|said| now.saturating_sub(said) < every) {
            return;
        }
        self.keepers.said = Some(now);
        for incarnation in self.keepers.living.clone() {
            let (number, others) = self.others(incarnation);
            let standby = self.keepers.of.get(&incarnation).copied();
            self.send(incarnation, Message::Keepers { number, standby, others });
        }
    }

    /// Chooses keepers. Returns whether one has changed.
    fn choose_keepers(&mut self) -> bool {
        let prompt = self.members.prompt();
        let is_good = |owner: Incarnation, keeper: &Incarnation| {
            prompt.contains(keeper) && keeper.worker != owner.worker
        };
        let lost_in_use = |incarnation: &Incarnation| {
            self.table.values().any(|row| row.owner == Some(*incarnation))
        };
        let living = &self.keepers.living;
        let mut of = self.keepers.of.clone();
        of.retain(|owner, keeper| {
            // A lost worker's keeper is known until its slices have other owners.
            if living.contains(owner) { is_good(*owner, keeper) } else { lost_in_use(owner) }
        });
        let mut duties: BTreeMap<Incarnation, usize> = BTreeMap::new();
        for (_, keeper) in of.iter().filter(|(owner, _)| living.contains(owner)) {
            *duties.entry(*keeper).or_default() += 1;
        }
        let slices = self.slice_counts();
        for owner in living {
            if of.contains_key(owner) {
                continue;
            }
            let others = prompt.iter().filter(|keeper| is_good(*owner, keeper));
            let load = |incarnation: &&Incarnation| {
                let of = |counts: &BTreeMap<Incarnation, usize>| {
                    counts.get(*incarnation).copied().unwrap_or(0)
                };
                (of(&duties), of(&slices), **incarnation)
            };
            if let Some(keeper) = others.min_by_key(load) {
                *duties.entry(*keeper).or_default() += 1;
                of.insert(*owner, *keeper);
            }
        }
        let changed = of != self.keepers.of;
        self.keepers.of = of;
        changed
    }
}
