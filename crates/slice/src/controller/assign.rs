//! What follows the end of a handover or of a worker: slices get owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::controller::standby::standby_of;
use crate::controller::{Controller, Handover, HandoverState, Intent, Output, Record, Row};
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
        if open.giver.is_none() {
            self.out.push_back(Output::Record(Record::Closed(handover)));
        }
        if !self.members.is_lost(open.taker) {
            self.send(open.taker, Message::End { handover });
        }
        self.assign_unowned(now);
    }

    /// The taker never had the slices, or is lost with them; the giver has kept all above the cut.
    fn give_back(&mut self, now: Duration, handover: HandoverId, open: &Handover) {
        let Some(giver) = open.giver else { return };
        let mut after = open.cut.as_deref().cloned().unwrap_or_default();
        if let Some(committed) = self.committed_since(handover, open) {
            after = after.furthest(&committed);
        }
        let (slices, returns) = (open.slices.clone(), Some(handover));
        self.assign(now, Intent { slices, giver: None, taker: giver, after: Some(after), returns });
    }

    /// Neither side is left.
    fn assign_lost(&mut self, now: Duration, handover: HandoverId, open: &Handover) {
        let Some(giver) = open.giver else { return };
        let after = self.committed_by_giver(handover, open);
        self.assign_spread(now, &open.slices, Some(&after));
        // With no worker there, it is found again when one comes: by owners that are lost.
        let floor = Some(Arc::new(after));
        for slice in open.slices.iter() {
            if let Some(row) = self.table.get_mut(slice)
                && row.busy.is_none()
            {
                // No claims are of this epoch, so the floor is what counts.
                (row.owner, row.epoch, row.floor) = (Some(giver), handover, floor.clone());
            }
        }
    }

    /// What the giver of a handover, and those before it, had finished of what it gave.
    pub(super) fn committed_by_giver(&self, handover: HandoverId, open: &Handover) -> Positions {
        let Some(giver) = open.giver else { return Positions::default() };
        let committed = self.committed_by(giver, handover, open);
        match &open.cut {
            Some(cut) => committed.least(cut),
            None => committed,
        }
    }

    /// What `giver`, and those before it, had finished of what it had before the handover `given`.
    fn committed_by(&self, giver: Life, given: HandoverId, open: &Handover) -> Positions {
        let claimed = self.members.committed_as_giver(giver, given);
        // Claims from before the cut.
        let claimed = claimed.or_else(|| self.members.committed_of_all(giver, &open.slices));
        open.floors.least().furthest(&claimed.unwrap_or_default())
    }

    /// What the taker had finished of the slices since it has them, if it claimed them.
    fn committed_since(&self, handover: HandoverId, open: &Handover) -> Option<Positions> {
        let claimed = self.members.claims_epoch(open.taker, &open.slices, handover);
        claimed.then(|| self.members.committed_of_all(open.taker, &open.slices)).flatten()
    }

    fn assign(&mut self, now: Duration, intent: Intent) {
        self.begin(now, intent, HandoverState::Activating { giver_lost: false });
    }

    fn assign_spread(&mut self, now: Duration, slices: &[SliceId], after: Option<&Positions>) {
        for (taker, slices) in self.spread(slices) {
            let (slices, after) = (slices.into(), after.cloned());
            self.assign(now, Intent { slices, giver: None, taker, after, returns: None });
        }
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
        let Some(mut open) = self.handovers.remove(&handover) else { return };
        if let Some(committed) = self.committed_since(handover, &open) {
            open.after = Some(committed);
        } else if let Some(given) = open.returns.take() {
            // It was their giver, and may have left some of them undone below the cut.
            let committed = self.committed_by(open.taker, given, &open);
            open.after = open.after.map(|after| after.least(&committed));
        }
        if self.members.able().next().is_none() {
            return self.wait_for_target(handover, open);
        }
        for slice in open.slices.iter() {
            if let Some(row) = self.table.get_mut(slice) {
                row.busy = None;
            }
        }
        self.assign_spread(now, &open.slices, open.after.as_ref());
        self.out.push_back(Output::Record(Record::Closed(handover)));
    }

    /// It stays open, for whoever comes.
    fn wait_for_target(&mut self, handover: HandoverId, open: Handover) {
        let Handover { slices, taker, after, returns, .. } = open.clone();
        let known = self.handovers.insert(handover, open);
        debug_assert!(known.is_none());
        let intent = Intent { slices, giver: None, taker, after, returns };
        self.out.push_back(Output::Record(Record::Opened(handover, intent)));
    }

    /// Gives owners to slices that have none, or a lost one.
    pub(super) fn assign_unowned(&mut self, now: Duration) {
        if self.surveying || self.members.able().next().is_none() {
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
            for slices in self.of_one_floor(slices) {
                let after = match owner {
                    Some((life, epoch)) => Some(self.committed(life, epoch, slices[0])),
                    None => {
                        self.table.get(&slices[0]).and_then(|row| row.floor.as_deref().cloned())
                    }
                };
                self.assign_spread(now, &slices, after.as_ref());
            }
        }
    }

    /// Slices of which the same is known to be done go together. There are few such parts.
    fn of_one_floor(&self, slices: Vec<SliceId>) -> Vec<Vec<SliceId>> {
        let floor = |slice| self.table.get(&slice).and_then(|row| row.floor.as_ref());
        let mut parts: Vec<Vec<SliceId>> = Vec::new();
        for slice in slices {
            match parts.iter_mut().rev().find(|part| floor(part[0]) == floor(slice)) {
                Some(part) => part.push(slice),
                None => parts.push(vec![slice]),
            }
        }
        parts
    }

    /// What a lost owner had finished of `slice`.
    fn committed(&self, life: Life, epoch: HandoverId, slice: SliceId) -> Positions {
        match self.members.committed_as_owner(life, slice) {
            Some((claimed, committed)) if claimed == epoch => committed,
            _ => self.table.get(&slice).map(Row::floor).unwrap_or_default(),
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
            let emptiest = counts.iter().min_by_key(|(life, count)| (**count, **life));
            let Some((emptiest, _)) = emptiest else { return Vec::new() };
            // Who stood by has what the lost owner had in hand.
            let owner = self.table.get(slice).and_then(|row| row.owner);
            let standby = owner.filter(|_| self.config.standby);
            let standby = standby.and_then(|_| standby_of(*slice, owner, self.members.able()));
            let life = standby.unwrap_or(*emptiest);
            *counts.entry(life).or_default() += 1;
            spread.entry(life).or_default().push(*slice);
        }
        spread.into_iter().collect()
    }
}
