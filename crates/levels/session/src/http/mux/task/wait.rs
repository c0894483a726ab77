//! How long a session waits for a response, and what becomes of one that is late.

use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Task;
use crate::http::mux::behind::Behind;
use crate::http::mux::ticket::{HandOver, Slot, State};
use crate::reason::Reason;
use crate::worker::Phase;

/// A wait that is bounded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitingFor {
    /// The next request.
    Request,
    /// The response of this number, or the rest of its body.
    Response { number: u64, is_late: bool, begun: bool },
}

impl Task {
    /// Gives the session to the client at the front, with the rest of its response; the requests
    /// behind are sent again elsewhere.
    pub(super) fn hand_over(&mut self) {
        let Some(current) = self.current.take() else { return };
        let slot = self.shared.queue.borrow_mut().pop_front();
        let (Some(slot), Some(mut session)) = (slot, self.session.take()) else { return };
        self.holds_up(&slot);
        let written = session.written - self.before;
        let leaves = written + session.socket.pending() as u64;
        session.reused |= self.completed > 0;
        self.outstanding = 0;
        let unsent = slot.end.saturating_sub(written);
        let hand_over = HandOver {
            lease: slot.lease,
            session,
            input: self.input.take().filter(|input| !input.is_empty()),
            response: (current.head, current.pump),
            shared: leaves > slot.end,
            unsent: usize::try_from(unsent).unwrap_or(usize::MAX),
        };
        slot.ticket.tell(State::HandedOver(Box::new(hand_over)));
    }

    /// Counts a response that is too slow or large for those behind it. One on a session that was
    /// set aside is counted already.
    fn holds_up(&self, slot: &Slot) {
        if self.behind.is_none() {
            slot.lease.stats().multiplex_handed_over.add(1);
            self.worker.mux.note_slow(self.target.backend.id, slot.path);
            self.pace.was_late();
        }
    }

    /// Leaves the session to its late response. The requests behind are sent again elsewhere, and
    /// the responses to those that the backend has are discarded.
    fn set_aside(&mut self) {
        let queue = self.shared.queue.borrow();
        let Some(late) = queue.front() else { return };
        self.holds_up(late);
        self.behind = Some(Behind::new(late.head, self.outstanding - 1));
        drop(queue);
        self.shared.set_aside();
    }

    /// Whether no client waits for the late response. The session then ends, as an
    /// exclusive one would.
    pub(super) fn is_given_up(&mut self) -> bool {
        let queue = self.shared.queue.borrow();
        let Some(late) = queue.front().filter(|_| self.behind.is_some()) else { return false };
        let Some(reason) = late.ticket.why_abandoned() else { return false };
        self.worker.backend_failed(&late.lease, reason);
        drop(queue);
        self.shared.queue.borrow_mut().clear();
        self.current = None;
        true
    }

    /// Returns a session that was set aside, and has all its responses, to the idle ones.
    pub(super) fn give_back(&mut self, now: Instant) {
        let is_clean = self.written == self.writing.len() && self.input.is_none();
        if let Some(session) = self.session.take().filter(|_| is_clean) {
            self.worker.idle.give(session, None, self.target.idle_sessions_max, now);
        }
    }

    /// Sets the session aside if requests wait behind a response while others are answered.
    ///
    /// The thread reads what has arrived between two checks, so that its own pauses make no
    /// response late.
    pub(super) fn look_for_late(&mut self, cx: &mut Context<'_>, now: Instant) {
        let waits = self.current.is_none() && self.behind.is_none();
        if !waits || self.outstanding < 2 {
            return;
        }
        let after = self.pace.check_after(self.outstanding, self.target.slow);
        let (check, next) =
            self.check.get_or_insert_with(|| (Box::pin(sleep(after)), self.completed));
        if check.as_mut().poll(cx).is_pending() {
            return;
        }
        let is_late = *next == self.completed
            && now.saturating_duration_since(self.next_since) >= after
            && self.pace.others_went_on(self.next_at);
        *next = self.completed;
        check.as_mut().reset(tokio::time::Instant::now() + after);
        // Has this task woken then.
        let _ = check.as_mut().poll(cx);
        if is_late {
            self.set_aside();
        }
    }

    /// Ends the session when it is idle for too long or cut, and sees to a response that is
    /// overdue.
    pub(super) fn look_at_time(&mut self, now: Instant) -> Poll<()> {
        let phase = self.worker.phase.get();
        let waiting_for = self.waiting_for();
        let is_idle = waiting_for == WaitingFor::Request;
        if phase == Phase::Cutting
            || self.target.backend.live.cut.load(Relaxed)
            || (is_idle && phase == Phase::Draining)
        {
            return Poll::Ready(());
        }
        if self.armed_for != Some(waiting_for) {
            self.arm(now, waiting_for);
        } else if self.deadline.is_past() {
            if self.is_over(waiting_for) {
                return Poll::Ready(());
            }
            self.arm(now, self.waiting_for());
        }
        Poll::Pending
    }

    fn arm(&mut self, now: Instant, waiting_for: WaitingFor) {
        self.armed_for = Some(waiting_for);
        self.deadline.set(now, self.bound(waiting_for));
    }

    fn waiting_for(&self) -> WaitingFor {
        if self.shared.in_flight() == 0 && self.outstanding == 0 {
            return WaitingFor::Request;
        }
        let (is_late, begun) = (self.behind.is_some(), self.current.is_some());
        WaitingFor::Response { number: self.completed, is_late, begun }
    }

    fn bound(&self, waiting_for: WaitingFor) -> Duration {
        match waiting_for {
            WaitingFor::Request => self.target.idle,
            WaitingFor::Response { is_late: true, begun: false, .. } => self.response_timeout(),
            WaitingFor::Response { .. } => self.target.slow,
        }
    }

    /// The bound of the late response, and of those behind it.
    fn response_timeout(&self) -> Duration {
        let queue = self.shared.queue.borrow();
        let routed = queue.front().and_then(|late| late.routed.as_ref());
        routed.and_then(|it| it.options().response_timeout).unwrap_or(self.target.response)
    }

    /// Whether a wait that has lasted too long ends the session.
    fn is_over(&mut self, waiting_for: WaitingFor) -> bool {
        match waiting_for {
            WaitingFor::Request => true,
            WaitingFor::Response { begun: true, .. } => {
                self.hand_over();
                true
            }
            WaitingFor::Response { is_late: true, .. } => {
                self.cut(Reason::ResponseTimeout);
                true
            }
            // The backend has not taken the request, and answered those before it.
            WaitingFor::Response { .. } if self.outstanding == 0 => true,
            WaitingFor::Response { .. } => {
                self.set_aside();
                false
            }
        }
    }
}
