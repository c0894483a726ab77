//! Assigns slices after the end of a handover or the loss of a worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::by_slice::BySlice;
use crate::controller::standby::standby_of;
use crate::controller::{Controller, Handover, HandoverState, Intent, Output, Record};
use crate::ids::{Group, HandoverId, Incarnation, SliceId};
use crate::message::Message;
use crate::positions::Positions;

/// Slices without an owner, and the positions finished so far; `None`: they never had an owner.
type Left = (Arc<[SliceId]>, Option<Arc<Positions>>);

impl<T: Clone> Controller<T> {
    /// Ends a handover in any of its end states.
    pub(super) fn over(&mut self, now: Duration, handover: HandoverId) {
        let Some(open) = self.handovers.remove(&handover) else { return };
        for slice in open.slices.iter() {
            if let Some(row) = self.table.get_mut(slice) {
                row.busy = None;
            }
        }
        match open.state {
            HandoverState::Returned => self.give_back(now, handover, &open),
            HandoverState::Lost => self.assign_lost(now, handover, &open),
            HandoverState::Moved if open.source.is_some() => {
                // The target may still have to process items that the source had not started.
                for (slices, done) in
                    self.done_by_target(handover, &open).iter().flat_map(BySlice::parts)
                {
                    self.set_floor(slices, done);
                }
            }
            _ => {}
        }
        if open.source.is_none() {
            self.out.push_back(Output::Record(Record::Closed(handover)));
        }
        if !self.members.is_lost(open.target) {
            self.send(open.target, Message::End { handover });
        }
        self.assign_unowned(now);
    }

    /// The target never owned the slices, or is lost with them. The source has kept the items that
    /// the target did not acknowledge, and knows which of the others it must accept from clients.
    fn give_back(&mut self, now: Duration, handover: HandoverId, open: &Handover) {
        let Some(source) = open.source else { return };
        let mut after = open.cut.as_deref().cloned().unwrap_or_default();
        // As the source lives, the target recovered nothing: it had finished the same positions of
        // all slices.
        let committed = self.done_by_target(handover, open).unwrap_or_default();
        let least = committed.parts().map(|(_, at)| (**at).clone()).reduce(|a, b| a.least(&b));
        if let Some(committed) = least {
            after = after.furthest(&committed);
        }
        let (slices, returns) = (open.slices.clone(), Some(handover));
        let intent = Intent { slices, source: None, target: source, after: Some(after), returns };
        let returned = self.assign(now, intent);
        // The source may not have finished its items below the cut yet, and it may be lost.
        if let Some(returned) = self.handovers.get_mut(&returned) {
            returned.floors = open.floors.clone();
        }
    }

    /// Both source and target are lost.
    fn assign_lost(&mut self, now: Duration, handover: HandoverId, open: &Handover) {
        let Some(source) = open.source else { return };
        for (slices, after) in self.done_by_source(handover, open).parts() {
            self.assign_spread(now, slices, Some(after));
            // If no worker exists now, the loss of the owner is noticed again when one joins.
            for slice in slices.iter() {
                if let Some(row) = self.table.get_mut(slice)
                    && row.busy.is_none()
                {
                    // No claims have this epoch, so the floor counts.
                    (row.owner, row.epoch, row.floor) =
                        (Some(source), handover, Some(after.clone()));
                }
            }
        }
    }

    fn assign(&mut self, now: Duration, intent: Intent) -> HandoverId {
        self.begin(now, intent, HandoverState::Activating { source_lost: false })
    }

    fn assign_spread(&mut self, now: Duration, slices: &[SliceId], after: Option<&Positions>) {
        for (target, slices) in self.spread(slices) {
            let (slices, after) = (slices.into(), after.cloned());
            self.assign(now, Intent { slices, source: None, target, after, returns: None });
        }
    }

    /// The worker owns the slices that were assigned to it.
    pub(super) fn assigned(&mut self, now: Duration, handover: HandoverId) {
        self.own(handover);
        if let Some(open) = self.handovers.get_mut(&handover) {
            open.state = HandoverState::Moved;
        }
        self.over(now, handover);
    }

    /// The worker that slices were assigned to is lost: another worker gets them.
    pub(super) fn target_lost(&mut self, now: Duration, handover: HandoverId) {
        let Some(open) = self.handovers.remove(&handover) else { return };
        let left = self.left_by_target(handover, &open);
        if self.members.able().next().is_none() {
            return self.wait_for_target(handover, &open, left);
        }
        for slice in open.slices.iter() {
            if let Some(row) = self.table.get_mut(slice) {
                row.busy = None;
            }
        }
        for (slices, after) in left {
            self.assign_spread(now, &slices, after.as_deref());
        }
        self.out.push_back(Output::Record(Record::Closed(handover)));
    }

    /// The positions from which assigned slices continue when their new owner is lost.
    fn left_by_target(&self, handover: HandoverId, open: &Handover) -> Vec<Left> {
        let left = if let Some(committed) = self.done_by_target(handover, open) {
            committed
        } else if let (Some(given), Some(after)) = (open.returns, &open.after) {
            // It was their source, and may have left items below the cut unfinished.
            self.done_before(open.target, given, open, Some(after))
        } else {
            return vec![(open.slices.clone(), open.after.clone().map(Arc::new))];
        };
        let part = |(slices, after): (&Arc<[SliceId]>, &Arc<Positions>)| {
            (slices.clone(), Some(after.clone()))
        };
        left.parts().map(part).collect()
    }

    /// The assignments stay open until a worker joins.
    fn wait_for_target(&mut self, handover: HandoverId, open: &Handover, left: Vec<Left>) {
        for (number, (slices, after)) in left.into_iter().enumerate() {
            let id = if number == 0 { handover } else { self.number() };
            for slice in slices.iter() {
                if let Some(row) = self.table.get_mut(slice) {
                    row.busy = Some(id);
                }
            }
            let (target, after) = (open.target, after.as_deref().cloned());
            let waiting = Handover {
                slices: slices.clone(),
                after: after.clone(),
                returns: None,
                ..open.clone()
            };
            let known = self.handovers.insert(id, waiting);
            debug_assert!(known.is_none());
            let intent = Intent { slices, source: None, target, after, returns: None };
            self.out.push_back(Output::Record(Record::Opened(id, intent)));
        }
    }

    /// Assigns slices without an owner or with a lost one.
    pub(super) fn assign_unowned(&mut self, now: Duration) {
        if self.surveying || self.members.able().next().is_none() {
            return;
        }
        let stranded = self
            .handovers
            .iter()
            .filter(|(_, open)| open.source.is_none() && self.members.is_lost(open.target));
        for handover in stranded.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.target_lost(now, handover);
        }
        let (mut new, mut unowned) = (Vec::new(), Vec::new());
        for (slice, row) in &self.table {
            let lost = row.owner.is_none_or(|owner| self.members.is_lost(owner));
            if lost && row.busy.is_none() {
                let is_new = row.owner.is_none() && row.floor.is_none();
                if is_new { &mut new } else { &mut unowned }.push(*slice);
            }
        }
        self.assign_spread(now, &new, None);
        for (slices, after) in self.done_by_owners(&unowned).parts() {
            self.assign_spread(now, slices, Some(after));
        }
    }

    /// Spreads slices over the workers, those with the fewest first. Slices of one group stay
    /// together while every worker gets its share: a worker receives the items of all groups of its
    /// slices.
    fn spread(&self, slices: &[SliceId]) -> Vec<(Incarnation, Vec<SliceId>)> {
        let mut counts = self.slice_counts();
        let share = (counts.values().sum::<usize>() + slices.len()).div_ceil(counts.len().max(1));
        let mut slices = slices.to_vec();
        slices.sort_by_key(|slice| (Group::of(*slice), *slice));
        let mut spread: BTreeMap<Incarnation, Vec<SliceId>> = BTreeMap::new();
        let mut last: Option<(Group, Incarnation)> = None;
        for slice in slices {
            let group = Group::of(slice);
            let same = last.filter(|(of, incarnation)| {
                *of == group && counts.get(incarnation).is_some_and(|count| *count < share)
            });
            let emptiest =
                || counts.iter().min_by_key(|(incarnation, count)| (**count, **incarnation));
            let next = same
                .map(|(_, incarnation)| incarnation)
                .or_else(|| emptiest().map(|(incarnation, _)| *incarnation));
            let Some(next) = next else { return Vec::new() };
            // A standby has the unfinished items of the lost owner.
            let owner = self.table.get(&slice).and_then(|row| row.owner);
            let standby = owner.filter(|_| self.config.standby);
            let standby = standby.and_then(|_| standby_of(slice, owner, self.members.able()));
            // A keeper has their state.
            let keeper = owner.and_then(|owner| self.keeper(owner));
            let keeper = keeper.filter(|keeper| counts.contains_key(keeper));
            let incarnation = standby.or(keeper).unwrap_or(next);
            last = Some((group, incarnation));
            *counts.entry(incarnation).or_default() += 1;
            spread.entry(incarnation).or_default().push(slice);
        }
        spread.values_mut().for_each(|slices| slices.sort_unstable());
        spread.into_iter().collect()
    }

    /// The number of slices that each worker owns or will get, for workers that may receive slices.
    pub(super) fn slice_counts(&self) -> BTreeMap<Incarnation, usize> {
        let mut counts: BTreeMap<Incarnation, usize> =
            self.members.prompt().into_iter().map(|incarnation| (incarnation, 0)).collect();
        let open = self.handovers.values().filter(|open| !open.state.is_over());
        let coming = open.flat_map(|open| open.slices.iter().map(|_| open.target));
        let owned = self.table.values().filter(|row| row.busy.is_none());
        for owner in owned.filter_map(|row| row.owner).chain(coming) {
            if let Some(count) = counts.get_mut(&owner) {
                *count += 1;
            }
        }
        counts
    }
}
