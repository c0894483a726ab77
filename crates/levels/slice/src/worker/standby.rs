//! Items that a worker keeps of another's slices, in case that worker is lost.
//!
//! This costs the network and memory of the standby. It saves items that publishers do not keep
//! themselves: the standby receives the slices of the lost owner, and executes its unfinished
//! items. It is best effort: a standby that has just begun lacks earlier items, and one that is
//! lost with the owner saves nothing.

use std::collections::{BTreeMap, VecDeque};

use crate::by_slice::BySlice;
use crate::ids::{HandoverId, SliceId};
use crate::message::Item;
use crate::numbering::Numbering;
use crate::positions::Positions;
use crate::worker::{Reason, TargetState, Worker};

/// By slice: items that have arrived and are not known to be committed, in order.
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

    /// Converts all slices to `to`.
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

    /// Whether it stands by for any slice.
    pub(super) fn is_on(&self) -> bool {
        !self.slices.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes and returns the items of a slice.
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
    /// Sets all slices that it stands by for, and their committed positions.
    pub(super) fn on_standby(&mut self, committed: &BySlice) {
        let wanted: std::collections::BTreeSet<_> =
            committed.parts().flat_map(|(slices, _)| slices.iter().copied()).collect();
        let taken = self.taking.values().filter(|taking| taking.state == TargetState::Active);
        // Their source may still be lost before it has drained them.
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

    /// Keeps an item of another's slice.
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

    /// The owner of these slices is lost, and this worker owns them: the kept items are processed,
    /// as far as they are being recovered.
    pub(super) fn step_in(&mut self, slices: &[SliceId]) {
        for slice in slices {
            for item in self.standby.take(*slice) {
                // Items that this worker finished itself, as an earlier owner, are skipped.
                if !self.has_finished(*slice, item.writer, item.position) {
                    self.admit(item, false);
                }
            }
        }
    }

    /// The handover is over: the source has left nothing unfinished.
    pub(super) fn stand_down(&mut self, handover: HandoverId) {
        let Some(taking) = self.taking.get(&handover) else { return };
        for slice in taking.slices.clone().iter() {
            if self.owned.contains_key(slice) {
                self.standby.take(*slice);
            }
        }
    }
}
