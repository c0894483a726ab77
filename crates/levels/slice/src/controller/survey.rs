//! What a new controller learns of the last one's planned moves.
//!
//! They are not in the store: nobody waits for a disk while slices move. Workers know all of them. Each says in its claims
//! what it owns, gave and takes, and that what the last controller asked for and it has not cut it never will
//! ([`crate::worker`]). A worker that does not say so in time is lost, and fenced by then. So when everybody the store knows
//! has spoken or is lost, these are all the moves there are; until then slices are neither moved nor assigned.
//!
//! | who lives | what is known | what follows |
//! |---|---|---|
//! | giver and taker | the cut, from the giver; or a shadow, from the taker, and there is no cut | it goes on; it is called off |
//! | the giver | the cut, from the giver; or that it is done with them, and up to where | the slices come back to the giver; or are assigned, from there on |
//! | the taker | that it takes: only the taker knows whether the cut reached it | it is asked to promise that it heeds none; if it has one, it recovers what the giver left |
//! | nobody | nothing, or that the taker took them, if it was heard | the slices are assigned as the lost giver's |

use std::sync::Arc;
use std::time::Duration;

use crate::controller::{
    Controller, HandoverEvent, HandoverState, Intent, Member, Output, Record, Row,
};
use crate::ids::{HandoverId, Life, SliceId};
use crate::message::{Backlog, Message, Past};
use crate::positions::Positions;

impl<T: Clone> Controller<T> {
    /// Whether it is not known yet what the last controller left under way.
    pub fn is_surveying(&self) -> bool {
        self.surveying
    }

    /// Ends the survey when there is nobody left to hear.
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
        // Of two moves of one slice only the later can be open.
        let mut taken = Vec::new();
        for member in &living {
            for given in &member.claims.given {
                let (giver, taker) = (member.life, given.taker);
                let state = HandoverState::Activating { giver_lost: false };
                let cut = Some(Arc::new(given.cut.clone()));
                self.reopen(now, given.handover, &given.slices, (giver, taker), state, cut);
            }
        }
        // Also of one that was heard and is lost by now: what its giver had in hand is nobody's if that one is lost, too.
        let heard: Vec<Member> = self.members.iter().filter(|m| m.is_here).cloned().collect();
        for member in &heard {
            taken.extend(member.claims.taken.iter().map(|taken| (member.life, taken)));
        }
        taken.sort_by_key(|(_, taken)| std::cmp::Reverse(taken.handover));
        for (taker, taken) in taken {
            let giver_lost = self.members.is_lost(taken.giver);
            let state = HandoverState::AbortingTaker { giver_lost };
            self.reopen(now, taken.handover, &taken.slices, (taken.giver, taker), state, None);
        }
        for member in &living {
            self.disown(member);
        }
        // Not before: what is reopened last would be nobody's when the first is over.
        self.surveying = false;
        self.assign_unowned(now);
    }

    /// The store may be late with who owns what.
    fn learn_owned(&mut self, member: &Member) {
        let mut learnt: std::collections::BTreeMap<HandoverId, Vec<SliceId>> = Default::default();
        for (slice, epoch) in &member.claims.slices {
            if let Some(row) = self.table.get_mut(slice)
                && row.busy.is_none()
                && row.epoch < *epoch
            {
                *row = Row { owner: Some(member.life), epoch: *epoch, ..Row::default() };
                learnt.entry(*epoch).or_default().push(*slice);
            }
        }
        for (epoch, slices) in learnt {
            self.out.push_back(Output::Note(Record::Owned(epoch, member.life, slices.into())));
        }
    }

    /// What givers have done stays done, though the taker is lost and cannot say from where it went on.
    fn learn_past(&mut self) {
        for Past { slices, done, backlog } in self.members.take_pasts() {
            let before = self.floors_of(&slices);
            for (slices, floor) in before.parts() {
                self.set_floor(slices, &Arc::new(floor.furthest(&done)));
            }
            // What the taker received unstarted is not done, unless it was known to be.
            for Backlog { slice, writer, after } in backlog {
                let known = before.of(slice).map_or(0, |floor| floor.of(writer));
                if let Some(floor) = self.table.get_mut(&slice).and_then(|it| it.floor.as_mut()) {
                    Arc::make_mut(floor).set(writer, after.max(known));
                }
            }
        }
    }

    /// A planned move goes on from where it may be, as far as nothing has come after it.
    fn reopen(
        &mut self,
        now: Duration,
        handover: HandoverId,
        slices: &[SliceId],
        (giver, taker): (Life, Life),
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
            // The store may not know that the giver ever had it. One that lives, has no cut and claims it no more is done with it.
            let is_done = cut.is_none() && !self.members.is_lost(giver);
            let is_done = is_done && !self.members.claims_slice(giver, *slice);
            if let Some(row) = self.table.get_mut(slice)
                && row.epoch < handover
            {
                row.owner = Some(if is_done { taker } else { giver });
            }
        }
        let giver = Some(giver);
        let intent = Intent { slices, giver, taker, after: None, returns: None };
        self.open_at(now, handover, intent, state, cut);
        if self.members.is_lost(taker) {
            self.event(now, handover, HandoverEvent::TakerLost);
        }
    }

    /// What the table has as a worker's that does not claim it was given to somebody who is lost.
    fn disown(&mut self, member: &Member) {
        for (slice, row) in &mut self.table {
            let is_its = row.owner == Some(member.life) && row.busy.is_none();
            if is_its && member.claims.epoch(*slice).is_none() {
                // A life that nobody has: lost.
                row.owner = Some(Life { number: 0, ..member.life });
            }
        }
    }

    /// Moves that a worker takes part in and that are over: it was told, but may not have heard.
    pub(super) fn end_taken(&mut self, from: Life, taken: &[HandoverId]) {
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
