//! A resize at a worker: each slice becomes two, or two become one.
//!
//! The controller announces a resize. A worker accepts it in its claims when it can take it: no
//! handover is open, no slice is being recovered, and slices that will be joined have the same
//! positions of earlier owners. When all workers accept and no slice is moving, the controller
//! stores the new numbering, and each worker takes it when it receives it. No slice changes its
//! owner, so workers exchange no messages. Messages with another numbering are ignored.
//!
//! Waiting items, and those in progress, belong to the slice of their key. In strict order a joined
//! slice starts its next item when those of both halves have ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{HandoverId, SliceId, Writer};
use crate::numbering::Numbering;
use crate::positions::Positions;
#[cfg(test)]
use crate::worker::Sabotage;
use crate::worker::ownership::Owned;
use crate::worker::{Output, Worker};

/// Time after which clients have all replies for a slice that was given away, in units of
/// [`Config::recovery`](crate::Config::recovery).
const ANSWERED: u32 = 2;

impl<T: Clone> Worker<T> {
    /// Handles a resize. `takes_effect`: take the new numbering now.
    pub(super) fn on_resize(&mut self, now: Duration, to: Numbering, takes_effect: bool) {
        if to.epoch <= self.numbering.epoch {
            return;
        }
        if !takes_effect {
            let before = self.announced.replace((to, now));
            if before.is_none_or(|(before, _)| before != to) {
                self.say_claims(now);
            }
            return;
        }
        // If it cannot take it, the controller repeats the message.
        let marks = self.marks();
        if self.can_take(now, &to, &marks) {
            self.renumber(now, to);
        }
    }

    /// The announced resize, if this worker can take it. `marks`: the committed positions.
    pub(super) fn ready_for(&self, now: Duration, marks: &Positions) -> Option<HandoverId> {
        let (to, _) = self.announced.as_ref()?;
        self.can_take(now, to, marks).then_some(to.epoch)
    }

    /// Forgets a resize that is not announced any more, as it was called off.
    pub(super) fn tick_resize(&mut self, now: Duration) {
        let patience = self.config.patience;
        self.announced = self.announced.filter(|(_, heard)| now.saturating_sub(*heard) < patience);
    }

    fn can_take(&self, now: Duration, to: &Numbering, marks: &Positions) -> bool {
        let holds = !(self.owned.is_empty() && self.unfinished.is_clear());
        if !holds && self.handovers() == 0 {
            return true;
        }
        let is_still = |owned: &Owned<T>| owned.held.is_none() && owned.recovering.is_none();
        let still = self.handovers() == 0
            && self.released.is_empty()
            && self.shadows.is_empty()
            && self.owned.values().all(is_still);
        still
            && self.numbering.is_step_to(to.slices)
            && self.past.fits(&self.numbering, to, now.checked_sub(ANSWERED * self.config.recovery))
            && (to.slices > self.numbering.slices || self.can_join(to, marks))
    }

    /// Whether every slice has its other half here, with the same positions.
    fn can_join(&self, to: &Numbering, marks: &Positions) -> bool {
        // Earlier acceptance holds: the controller has checked that no slice came since.
        let is_promised = self.promised == Some(to.epoch);
        self.owned.iter().all(|(slice, owned)| {
            let half = self.numbering.partner(*slice, to);
            let alike = |other| self.is_alike(&[*slice, half], owned, other, marks);
            self.owned.get(&half).is_some_and(|other| is_promised || alike(other))
        })
    }

    /// Whether both halves have the same positions of earlier owners, or this worker has passed
    /// those that differ.
    fn is_alike(
        &self,
        halves: &[SliceId],
        one: &Owned<T>,
        other: &Owned<T>,
        marks: &Positions,
    ) -> bool {
        let groups = self.numbering.groups(halves);
        let passed = |one: &Positions, other: &Positions, reached: &dyn Fn(Writer) -> u64| {
            // Writers of other groups have no items of these slices.
            let both = one.iter().chain(other.iter()).filter(|(it, _)| groups.contains(it.group));
            both.into_iter()
                .all(|(writer, at)| one.of(writer) == other.of(writer) || reached(writer) >= at)
        };
        one.low == other.low
            && passed(&one.cut, &other.cut, &|writer| marks.of(writer))
            && passed(&one.floor, &other.floor, &|writer| self.last(writer).unwrap_or(0))
    }

    fn renumber(&mut self, now: Duration, to: Numbering) {
        let from = std::mem::replace(&mut self.numbering, to);
        self.announced = self.announced.filter(|(announced, _)| announced.epoch > to.epoch);
        let mut owned: BTreeMap<SliceId, Owned<T>> = BTreeMap::new();
        for (slice, half) in std::mem::take(&mut self.owned) {
            for slice in from.becomes(slice, &to) {
                match owned.get_mut(&slice) {
                    Some(joined) => joined.join(&half),
                    None => drop(owned.insert(slice, half.split())),
                }
            }
        }
        self.owned = owned;
        self.unfinished.renumber(&to);
        self.standby.renumber(&from, &to);
        self.past.renumber(&from, &to);
        for (slice, count) in std::mem::take(&mut self.handed_over) {
            if let Some(slice) = from.becomes(slice, &to).next() {
                *self.handed_over.entry(slice).or_default() += count;
            }
        }
        let needed: Vec<_> = self.owned.keys().copied().chain(self.standby.slices()).collect();
        needed.into_iter().for_each(|slice| self.subscribe_to(slice));
        self.unsubscribe_idle();
        #[cfg(test)]
        let refiles = self.sabotage != Sabotage::NoRefile;
        #[cfg(not(test))]
        let refiles = true;
        if refiles {
            self.out.push_back(Output::Renumber(to));
        }
        self.say_claims(now);
    }
}

impl<T: Clone> Owned<T> {
    /// One of its two halves. No items are held.
    fn split(&self) -> Self {
        Self {
            epoch: self.epoch,
            cut: self.cut.clone(),
            floor: self.floor.clone(),
            low: self.low.clone(),
            held: None,
            unstarted: Vec::new(),
            recovering: None,
        }
    }

    /// Adds the other half, which has the same positions or positions that were passed.
    fn join(&mut self, other: &Self) {
        let further = |one: &mut Arc<Positions>, other: &Arc<Positions>| {
            if one != other {
                *one = Arc::new(one.furthest(other));
            }
        };
        self.epoch = self.epoch.max(other.epoch);
        further(&mut self.cut, &other.cut);
        further(&mut self.floor, &other.floor);
    }
}
