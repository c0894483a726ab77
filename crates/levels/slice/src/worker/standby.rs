//! What a worker keeps of slices that are another's, in case that one is lost.
//!
//! It costs the standby's network and memory, and saves what publishers do not keep themselves: items that the lost
//! owner had in hand are executed by the standby, which is the one that the slices are assigned to. It is best effort: a
//! standby that has just begun has not heard of what came before, and one that is lost with the owner saves nothing.

use std::collections::{BTreeMap, VecDeque};

use crate::by_slice::BySlice;
use crate::ids::{HandoverId, SliceId};
use crate::message::Item;
use crate::numbering::Numbering;
use crate::positions::Positions;
use crate::worker::{Reason, TakerState, Worker};

/// By slice: what has come for it and is not known to be committed, in order.
#[derive(Debug)]
pub(super) struct Standby<T> {
    slices: BTreeMap<SliceId, VecDeque<Item<T>>>,
    count: usize,
}

impl<T> Default for Standby<T> {
    fn default() -> Self {
        Self { slices: BTreeMap::new(), count: 0 }
    }
}

impl<T> Standby<T> {
    /// The slices that it stands by for.
    pub(super) fn slices(&self) -> impl Iterator<Item = SliceId> {
        self.slices.keys().copied()
    }

    /// Slices have other numbers from now on.
    pub(super) fn renumber(&mut self, from: &Numbering, to: &Numbering) {
        let before = std::mem::take(&mut self.slices);
        for slice in before.keys().flat_map(|slice| from.becomes(*slice, to)) {
            self.slices.entry(slice).or_default();
        }
        for item in before.into_values().flatten() {
            let slice = to.slice_of(item.key);
            self.slices.entry(slice).or_default().push_back(Item { slice, ..item });
        }
    }

    /// Whether there is anything to stand by for.
    pub(super) fn is_on(&self) -> bool {
        !self.slices.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All of a slice.
    fn take(&mut self, slice: SliceId) -> VecDeque<Item<T>> {
        let items = self.slices.remove(&slice).unwrap_or_default();
        self.count -= items.len();
        items
    }

    fn trim(&mut self, slices: &[SliceId], committed: &Positions) {
        for slice in slices {
            if let Some(items) = self.slices.get_mut(slice) {
                self.count -= items.len();
                items.retain(|item| item.position > committed.of(item.writer));
                self.count += items.len();
            }
        }
    }
}

impl<T: Clone> Worker<T> {
    /// Which slices it stands by for, whole, and what of them is committed.
    pub(super) fn on_standby(&mut self, committed: &BySlice) {
        let wanted: std::collections::BTreeSet<_> =
            committed.parts().flat_map(|(slices, _)| slices.iter().copied()).collect();
        let taken = self.taking.values().filter(|taking| taking.state == TakerState::Active);
        // Their giver may still be lost before it has drained them.
        let taken: std::collections::BTreeSet<_> =
            taken.flat_map(|taking| taking.slices.iter().copied()).collect();
        let known: Vec<_> = self.standby.slices.keys().copied().collect();
        for slice in known.iter().filter(|slice| !wanted.contains(slice)) {
            if !taken.contains(slice) {
                self.standby.take(*slice);
            }
        }
        for slice in &wanted {
            if !self.owned.contains_key(slice) {
                self.standby.slices.entry(*slice).or_default();
                self.subscribe_to(*slice);
            }
        }
        committed.parts().for_each(|(slices, committed)| self.standby.trim(slices, committed));
        self.unsubscribe_idle();
    }

    /// An item of a slice that is another's.
    pub(super) fn stand_by(&mut self, item: &Item<T>) {
        let max = self.config.standby_max;
        let standby = &mut self.standby;
        let Some(items) = standby.slices.get_mut(&item.slice) else { return };
        items.push_back(item.clone());
        standby.count += 1;
        if standby.count > max {
            items.pop_front();
            standby.count -= 1;
            self.drops.count(Reason::StandbyFull);
        }
    }

    /// The owner of these slices is lost, and they are this worker's: what was kept of them is done, as far as it is
    /// being recovered.
    pub(super) fn step_in(&mut self, slices: &[SliceId]) {
        for slice in slices {
            for item in self.standby.take(*slice) {
                // What this worker itself did, before the slice was the lost one's, is done.
                if !self.memory.has_finished(item.writer, item.position) {
                    self.admit(item, false);
                }
            }
        }
    }

    /// The handover that gave them is over: their giver leaves nothing undone.
    pub(super) fn stand_down(&mut self, handover: HandoverId) {
        let Some(taking) = self.taking.get(&handover) else { return };
        for slice in taking.slices.clone().iter() {
            if self.owned.contains_key(slice) {
                self.standby.take(*slice);
            }
        }
    }
}
