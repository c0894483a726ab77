//! Handles messages of workers.

use std::sync::Arc;
use std::time::Duration;

use crate::controller::members::Heard;
use crate::controller::{Controller, HandoverEvent, HandoverState, Output, Record};
use crate::ids::{HandoverId, Incarnation};
use crate::message::{Address, Claims, Envelope, Message, Progress};
use crate::positions::Positions;

impl<T: Clone> Controller<T> {
    /// Handles a message. Messages of an earlier term count as well: reports of workers are true
    /// for every controller.
    pub fn message(&mut self, now: Duration, envelope: Envelope<T>) {
        let Address::Worker(from) = envelope.from else { return };
        if envelope.to != Address::Controller {
            return;
        }
        if let Message::Claims(claims) = envelope.message {
            return self.claims(now, from, *claims, envelope.term == self.term);
        }
        // The message is about a handover that ended before the resize.
        if envelope.message.names_slices() && envelope.numbering != self.numbering.epoch {
            return;
        }
        if self.members.is_lost(from) {
            return;
        }
        match envelope.message {
            Message::Ready { handover, positions, settled } => {
                if let Some(open) = self.handovers.get_mut(&handover)
                    && open.state == HandoverState::Preparing
                {
                    (open.positions, open.settled) = (positions, settled);
                    self.event(now, handover, HandoverEvent::Ready);
                }
            }
            Message::Cut { handover, positions, .. } => {
                self.learn_cut(handover, positions);
                self.event(now, handover, HandoverEvent::Cut);
            }
            Message::Active { handover, cut, progress } => {
                self.active(now, handover, from, cut, &progress);
            }
            Message::Closed { handover, cut } => {
                self.learn_cut(handover, cut);
                self.event(now, handover, HandoverEvent::Closed);
            }
            Message::Alive { number } if envelope.term == self.term => self.alive(from, number),
            Message::Aborted { handover } => match self.handovers.get(&handover) {
                Some(open) if open.source == Some(from) => {
                    self.event(now, handover, HandoverEvent::SourceAborted);
                }
                Some(open) if open.target == from => {
                    self.event(now, handover, HandoverEvent::TargetAborted);
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Handles the claims of a worker; `is_current`: they were made in the present term.
    fn claims(&mut self, now: Duration, from: Incarnation, mut claims: Claims, is_current: bool) {
        let number = claims.number;
        let numbering = claims.numbering.epoch;
        claims.renumber(&self.numbering);
        let taken: Vec<_> = claims.taken.iter().map(|taken| taken.handover).collect();
        match self.members.heard(from, claims, is_current, now) {
            Heard::Renewed => {
                self.send(from, Message::Grant { number });
                self.end_taken(from, &taken);
            }
            Heard::New => {
                self.out.push_back(Output::Record(Record::Heard(from)));
                self.send(from, Message::Grant { number });
            }
            Heard::Stranger => {
                self.out.push_back(Output::Record(Record::Lost(from)));
                self.send(from, Message::Expel { last: from.number });
            }
            Heard::Unknown => {}
            Heard::Expelled { last } => self.send(from, Message::Expel { last }),
            Heard::Refused { last, holder, heard } => {
                self.send(from, Message::Refuse { last, holder, heard });
            }
            Heard::Succeeds(before) => {
                self.out.push_back(Output::Record(Record::Heard(from)));
                self.send(from, Message::Grant { number });
                self.lost(now, before);
            }
        }
        self.tell_numbering(from, numbering);
        self.end_survey(now);
        self.assign_unowned(now);
    }

    fn active(
        &mut self,
        now: Duration,
        handover: HandoverId,
        from: Incarnation,
        cut: Positions,
        progress: &Progress,
    ) {
        let Some(open) = self.handovers.get(&handover) else { return };
        if open.target != from {
            return;
        }
        if open.source.is_none() {
            // If the worker were lost now, its claims would show what is left to do; before, the
            // assignment did.
            let claims = self.members.claims(from);
            if claims.is_some_and(|claims| claims.has_since(&open.slices, handover)) {
                self.assigned(now, handover);
            }
            return;
        }
        self.learn_cut(handover, cut);
        self.event(now, handover, HandoverEvent::Active);
        if progress.recovered.is_some_and(|claims| self.members.has_claimed(from, claims)) {
            self.recovered(now, handover);
        }
    }

    fn learn_cut(&mut self, handover: HandoverId, cut: Positions) {
        if let Some(open) = self.handovers.get_mut(&handover)
            && open.cut.is_none()
        {
            open.cut = Some(Arc::new(cut));
        }
    }

    /// The target is recovering the items of the lost source, and its claims do not exceed what is
    /// finished.
    fn recovered(&mut self, now: Duration, handover: HandoverId) {
        let Some(open) = self.handovers.get(&handover) else { return };
        if open.state != (HandoverState::Settling { source_lost: true }) {
            return;
        }
        let done = self.done_by_source(handover, open);
        for (slices, after) in done.parts() {
            self.set_floor(slices, after);
        }
        self.event(now, handover, HandoverEvent::Recovered);
    }
}
