//! What follows the end of a handover or of a worker: slices get owners.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::controller::{Controller, Handover, HandoverState, Intent, Output, Record};
use crate::ids::{HandoverId, Life, SliceId};
use crate::message::Message;
use crate::positions::Positions;

impl<T: Clone> Controller<T> {
    /// A handover is over, one way or another.
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
            _ => {}
        }
        self.out.push_back(Output::Record(Record::Closed(handover)));
        if !self.members.is_lost(open.taker) {
            self.send(open.taker, Message::End { handover });
        }
        self.assign_unowned(now);
    }

    /// The taker never had the slices, or is lost with them; the giver has kept all above the cut.
    fn give_back(&mut self, now: Duration, handover: HandoverId, open: &Handover) {
        let Some(giver) = open.giver else { return };
        let mut after = open.cut.as_deref().cloned().unwrap_or_default();
        let claimed = open
            .slices
            .first()
            .and_then(|slice| self.members.committed_as_owner(open.taker, *slice))
            .filter(|(epoch, _)| *epoch == handover);
        if let Some((_, committed)) = claimed {
            after = after.furthest(&committed);
        }
        let slices = open.slices.clone();
        let intent = Intent { slices, giver: None, taker: giver, after: Some(after) };
        self.begin_assignment(now, intent, Some(handover));
    }

    /// Neither side is left.
    fn assign_lost(&mut self, now: Duration, handover: HandoverId, open: &Handover) {
        let Some(giver) = open.giver else { return };
        let mut after = self.committed_by_giver(handover, giver);
        if let Some(cut) = &open.cut {
            after = after.least(cut);
        }
        for (target, slices) in self.spread(&open.slices) {
            let after = Some(after.clone());
            let intent = Intent { slices: slices.into(), giver: None, taker: target, after };
            self.begin_assignment(now, intent, None);
        }
        // With no worker there, it is found again when one comes: by owners that are lost.
        for slice in open.slices.iter() {
            if let Some(row) = self.table.get_mut(slice)
                && row.busy.is_none()
            {
                row.owner = Some(giver);
                row.floor = None;
            }
        }
    }

    /// What the giver had finished of what it gave.
    pub(super) fn committed_by_giver(&self, handover: HandoverId, giver: Life) -> Positions {
        if let Some(committed) = self.members.committed_as_giver(giver, handover) {
            return committed;
        }
        let slices = self.handovers.get(&handover).map(|open| open.slices.clone());
        let first = slices.and_then(|slices| slices.first().copied());
        let claimed = first.and_then(|slice| self.members.committed_as_owner(giver, slice));
        claimed.map(|(_, committed)| committed).unwrap_or_default()
    }

    fn begin_assignment(&mut self, now: Duration, intent: Intent, returns: Option<HandoverId>) {
        let state = HandoverState::Activating { giver_lost: false };
        self.begin(now, intent, state, returns);
    }

    /// The worker has its slices.
    pub(super) fn assigned(&mut self, now: Duration, handover: HandoverId) {
        self.own(handover);
        if let Some(open) = self.handovers.get_mut(&handover) {
            open.state = HandoverState::Moved;
        }
        self.over(now, handover);
    }

    /// The worker that slices were assigned to is lost: another gets them.
    pub(super) fn target_lost(&mut self, now: Duration, handover: HandoverId) {
        let Some(open) = self.handovers.remove(&handover) else { return };
        let claimed = open
            .slices
            .first()
            .and_then(|slice| self.members.committed_as_owner(open.taker, *slice))
            .filter(|(epoch, _)| *epoch == handover);
        let returned = open.returns.map(|given| self.members.committed_as_giver(open.taker, given));
        let after = match (claimed, returned) {
            (Some((_, committed)), _) => Some(committed),
            // It was their giver, and may have left some of them undone below the cut.
            (None, Some(committed)) => Some(committed.unwrap_or_default()),
            (None, None) => open.after.clone(),
        };
        for slice in open.slices.iter() {
            if let Some(row) = self.table.get_mut(slice) {
                row.busy = None;
            }
        }
        for (target, slices) in self.spread(&open.slices) {
            let after = after.clone();
            let intent = Intent { slices: slices.into(), giver: None, taker: target, after };
            self.begin_assignment(now, intent, None);
        }
        if self.members.able().next().is_none() {
            // It stays open, for whoever comes: its record says what was committed.
            self.wait_for_target(handover, open, after);
            return;
        }
        self.out.push_back(Output::Record(Record::Closed(handover)));
    }

    fn wait_for_target(
        &mut self,
        handover: HandoverId,
        mut open: Handover,
        after: Option<Positions>,
    ) {
        for slice in open.slices.iter() {
            if let Some(row) = self.table.get_mut(slice) {
                row.busy = Some(handover);
            }
        }
        open.after = after;
        open.returns = None;
        self.handovers.insert(handover, open);
    }

    /// Gives owners to slices that have none, or a lost one.
    pub(super) fn assign_unowned(&mut self, now: Duration) {
        if self.members.able().next().is_none() {
            return;
        }
        let stranded = self
            .handovers
            .iter()
            .filter(|(_, open)| open.giver.is_none() && self.members.is_lost(open.taker));
        for handover in stranded.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.target_lost(now, handover);
        }
        type Owners = BTreeMap<Option<(Life, HandoverId)>, Vec<SliceId>>;
        let mut unowned: Owners = BTreeMap::new();
        for (slice, row) in &self.table {
            let lost = row.owner.is_none_or(|owner| self.members.is_lost(owner));
            if lost && row.busy.is_none() {
                let of = row.owner.map(|owner| (owner, row.epoch));
                unowned.entry(of).or_default().push(*slice);
            }
        }
        if unowned.is_empty() {
            return;
        }
        for (owner, slices) in unowned {
            for (target, slices) in self.spread(&slices) {
                let after = owner.map(|(life, epoch)| self.committed(life, epoch, slices[0]));
                let intent = Intent { slices: slices.into(), giver: None, taker: target, after };
                self.begin_assignment(now, intent, None);
            }
        }
        let needed: Vec<_> = self
            .table
            .values()
            .filter_map(|row| row.owner)
            .chain(self.handovers.values().flat_map(|h| h.giver.into_iter().chain([h.taker])))
            .collect();
        self.members.bury(|life| needed.contains(&life));
    }

    /// What a lost owner had finished of `slice`.
    fn committed(&self, life: Life, epoch: HandoverId, slice: SliceId) -> Positions {
        let floor = self.table.get(&slice).and_then(|row| row.floor.as_deref());
        match self.members.committed_as_owner(life, slice) {
            Some((claimed, committed)) if claimed == epoch => committed,
            _ => floor.cloned().unwrap_or_default(),
        }
    }

    /// Spreads slices over the workers, the emptiest first.
    fn spread(&self, slices: &[SliceId]) -> Vec<(Life, Vec<SliceId>)> {
        let mut counts: BTreeMap<Life, usize> = self.members.able().map(|life| (life, 0)).collect();
        let open = self.handovers.values().filter(|open| !open.state.is_over());
        let coming = open.flat_map(|open| open.slices.iter().map(|_| open.taker));
        let owned = self.table.values().filter(|row| row.busy.is_none());
        for owner in owned.filter_map(|row| row.owner).chain(coming) {
            if let Some(count) = counts.get_mut(&owner) {
                *count += 1;
            }
        }
        let mut spread: BTreeMap<Life, Vec<SliceId>> = BTreeMap::new();
        for slice in slices {
            let emptiest = counts.iter_mut().min_by_key(|(life, count)| (**count, **life));
            let Some((life, count)) = emptiest else { return Vec::new() };
            *count += 1;
            spread.entry(*life).or_default().push(*slice);
        }
        spread.into_iter().collect()
    }
}
