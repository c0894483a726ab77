//! Survey of the last controller's planned moves.
//!
//! Planned moves are not in the store, so that no move waits for a disk. All workers know their
//! own: each claims what it owns, gave and takes. Its claims also promise that it never cuts what
//! the last controller asked for and it has not cut yet ([`crate::worker`]). A worker that does not
//! report in time is lost, and fenced by then. So the survey is complete when every worker in the
//! store has reported or is lost. Until then slices are neither moved nor assigned.
//!
//! | alive | known | action |
//! |---|---|---|
//! | source and target | the cut, from the source | the move goes on |
//! | source and target | a shadow without a cut, from the target | the move is called off |
//! | source | the cut, from the source | the slices return to the source |
//! | source | the source is finished, and its positions | the slices are assigned from there on |
//! | target | the target takes, perhaps with the cut | it is asked to ignore any cut |
//! | neither | nothing, or that the target took them | the slices are assigned as the source's |
//!
//! In the fifth row only the target knows whether a cut reached it. If one did, it recovers the
//! unfinished items of the source.

use std::sync::Arc;
use std::time::Duration;

use crate::controller::{
    Controller, HandoverEvent, HandoverState, Intent, Member, Output, Record, Row,
};
use crate::ids::{HandoverId, Incarnation, SliceId};
use crate::message::{Backlog, Message, Past};
use crate::positions::Positions;

impl<T: Clone> Controller<T> {
    /// Whether the last controller's planned moves are not yet known.
    pub fn is_surveying(&self) -> bool {
        self.surveying
    }

    /// Ends the survey when no worker is left to report.
    pub(super) fn end_survey(&mut self, now: Duration) {
        #[cfg(test)]
        if self.sabotage == crate::worker::Sabotage::NoSurvey {
            self.surveying = false;
        }
        if !self.surveying || self.members.awaits() {
            return;
        }
        let living: Vec<Member> = self.members.living().cloned().collect();
        for member in &living {
            self.learn_owned(member);
        }
        self.learn_past();
        // If a slice has two moves, only the later one can be open.
        let mut taken = Vec::new();
        for member in &living {
            for given in &member.claims.given {
                let (source, target) = (member.incarnation, given.target);
                let state = HandoverState::Activating { source_lost: false };
                let cut = Some(Arc::new(given.cut.clone()));
                self.reopen(now, given.handover, &given.slices, (source, target), state, cut);
            }
        }
        // Also of a worker that reported and was lost since: if its source is lost, too, the
        // source's unfinished items have no owner.
        let heard: Vec<Member> = self.members.iter().filter(|m| m.is_here).cloned().collect();
        for member in &heard {
            taken.extend(member.claims.taken.iter().map(|taken| (member.incarnation, taken)));
        }
        taken.sort_by_key(|(_, taken)| std::cmp::Reverse(taken.handover));
        for (target, taken) in taken {
            let source_lost = self.members.is_lost(taken.source);
            let state = HandoverState::AbortingTarget { source_lost };
            self.reopen(now, taken.handover, &taken.slices, (taken.source, target), state, None);
        }
        for member in &living {
            self.disown(member);
        }
        // Not earlier: slices of a move that is reopened last would lack an owner when the first is
        // over.
        self.surveying = false;
        // No RESTORE was sent before.
        self.handovers.values_mut().for_each(|open| open.repeat.first(now));
        self.assign_unowned(now);
    }

    /// The store may lag behind the owners in the claims.
    fn learn_owned(&mut self, member: &Member) {
        let mut learnt: std::collections::BTreeMap<HandoverId, Vec<SliceId>> = Default::default();
        for (slice, epoch) in &member.claims.slices {
            if let Some(row) = self.table.get_mut(slice)
                && row.busy.is_none()
                && row.epoch < *epoch
            {
                *row = Row { owner: Some(member.incarnation), epoch: *epoch, ..Row::default() };
                learnt.entry(*epoch).or_default().push(*slice);
            }
        }
        for (epoch, slices) in learnt {
            self.out.push_back(Output::Note(Record::Owned(
                epoch,
                member.incarnation,
                slices.into(),
            )));
        }
    }

    /// Finished items of sources stay finished, even if the target is lost and cannot report from
    /// where it went on.
    fn learn_past(&mut self) {
        for Past { slices, done, backlog } in self.members.take_pasts() {
            let before = self.floors_of(&slices);
            for (slices, floor) in before.parts() {
                self.set_floor(slices, &Arc::new(floor.furthest(&done)));
            }
            // Items that the target received unstarted are not finished, unless they were known to
            // be.
            for Backlog { slice, writer, after } in backlog {
                let known = before.of(slice).map_or(0, |floor| floor.of(writer));
                if let Some(floor) = self.table.get_mut(&slice).and_then(|it| it.floor.as_mut()) {
                    Arc::make_mut(floor).set(writer, after.max(known));
                }
            }
        }
    }

    /// Reopens a planned move in the given state, for slices that no later move has changed.
    fn reopen(
        &mut self,
        now: Duration,
        handover: HandoverId,
        slices: &[SliceId],
        (source, target): (Incarnation, Incarnation),
        state: HandoverState,
        cut: Option<Arc<Positions>>,
    ) {
        if self.handovers.contains_key(&handover) {
            return;
        }
        let is_open = |slice: &&SliceId| {
            let row = self.table.get(slice);
            row.is_some_and(|row| row.busy.is_none() && row.epoch <= handover)
        };
        let slices: Arc<[SliceId]> = slices.iter().filter(is_open).copied().collect();
        if slices.is_empty() {
            return;
        }
        for slice in slices.iter() {
            // The store may not know that the source ever owned it. If the source lives, has no cut
            // and does not claim the slice, it is finished with it.
            let is_done = cut.is_none() && !self.members.is_lost(source);
            let is_done = is_done && !self.members.claims_slice(source, *slice);
            if let Some(row) = self.table.get_mut(slice)
                && row.epoch < handover
            {
                row.owner = Some(if is_done { target } else { source });
            }
        }
        let source = Some(source);
        let intent = Intent { slices, source, target, after: None, returns: None };
        self.open_at(now, handover, intent, state, cut);
        if self.members.is_lost(target) {
            self.event(now, handover, HandoverEvent::TargetLost);
        }
    }

    /// If a worker does not claim a slice that the table lists as its own, a worker that is lost
    /// has received it.
    fn disown(&mut self, member: &Member) {
        for (slice, row) in &mut self.table {
            let is_its = row.owner == Some(member.incarnation) && row.busy.is_none();
            if is_its && member.claims.epoch(*slice).is_none() {
                // An incarnation that does not exist: it counts as lost.
                row.owner = Some(Incarnation { number: 0, ..member.incarnation });
            }
        }
    }

    /// Moves in a worker's claims that are over: the message about their end may have been lost.
    pub(super) fn end_taken(&mut self, from: Incarnation, taken: &[HandoverId]) {
        if self.surveying {
            return;
        }
        for handover in taken {
            if !self.handovers.contains_key(handover) {
                self.send(from, Message::End { handover: *handover });
            }
        }
    }
}
