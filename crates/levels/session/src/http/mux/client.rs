//! The client's side of a multiplexed session.

use std::future::poll_fn;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::ticket::{HandOver, Lost, Slot, State, Ticket};
use crate::http::attempt::Outgoing;
use crate::http::connection::{After, ClientConnection};
use crate::http::exchange::Reached;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::worker::Phase;

/// The result of a request on a shared session.
pub(in crate::http) enum Shared {
    /// The response reached the client.
    Done(Reached),
    /// It cannot be served.
    Failed(Reason),
    /// The session is the client's alone now; these bytes of the response are still to be sent.
    HandedOver(Box<HandOver>, Vec<u8>),
    /// The session ended before there was a response.
    Lost(Lost),
    /// No shared session has room.
    NoRoom(Lease),
}

impl ClientConnection {
    /// Puts the request on a shared session and waits for its end. Its head was read at `begun`; it
    /// has had the lease since `leased`.
    pub(in crate::http) async fn share(
        &mut self,
        lease: Lease,
        outgoing: &Outgoing,
        begun: Instant,
        leased: Instant,
    ) -> Shared {
        let path = self.worker.mux.path_of(&outgoing.first);
        let Some(session) = self.worker.mux.choose(&self.worker, &lease, path) else {
            lease.stats().multiplex_alone.add(1);
            return Shared::NoRoom(lease);
        };
        lease.stats().multiplex_shared.add(1);
        let view = self.door.view();
        let ticket = self.ticket.get_or_insert_with(|| {
            Ticket::new(self.client.clone(), self.door.clone(), self.deadline.clone())
        });
        let ticket = ticket.clone();
        *ticket.state.borrow_mut() = State::Waiting;
        ticket.moved.set(outgoing.first.len() as u64);
        // With a further request read already, the socket may stay silent; a log line is due at the
        // end.
        ticket.wants_wake.set(self.input.is_some() || self.logged.is_some());
        match self.request_end {
            Some(end) => self.deadline.set(leased, end.saturating_duration_since(leased)),
            // The session's task looks after a backend that is slow.
            None => self.deadline.clear(),
        }
        let slot = Slot {
            ticket: ticket.clone(),
            head: outgoing.head,
            path,
            lease,
            begun,
            leased,
            via: view.config.via,
            view: view.clone(),
            routed: self.routed.clone(),
            sticky: self.hashes.sticky,
            queued: outgoing.queued,
            node_fields: self.node_fields(&outgoing.head),
            end: 0,
            close: !outgoing.head.keep_alive,
            idle: view.config.timeouts.idle,
        };
        session.push(slot, &outgoing.first);
        let mut watch_client = true;
        let shared = poll_fn(|cx| self.poll_shared(cx, &ticket, &mut watch_client)).await;
        if ticket.is_abandoned() {
            session.wake();
        }
        if let Shared::HandedOver(hand_over, unsent) = &shared {
            let left = hand_over.unsent + unsent.len();
            self.count_bytes(&outgoing.head, ticket.moved.get().saturating_sub(left as u64));
        }
        shared
    }

    fn poll_shared(
        &mut self,
        cx: &mut Context<'_>,
        ticket: &Rc<Ticket>,
        watch_client: &mut bool,
    ) -> Poll<Shared> {
        ticket.watch(cx);
        if let Poll::Ready(ended) = self.look_at(ticket) {
            return Poll::Ready(ended);
        }
        if !ticket.leftover.borrow().is_empty() {
            if let Err(reason) = self.flush(cx, ticket) {
                return Poll::Ready(self.abandon(ticket, reason));
            }
            if let Poll::Ready(ended) = self.look_at(ticket) {
                return Poll::Ready(ended);
            }
        }
        if *watch_client && self.client.poll_readable(cx).is_ready() {
            // A further request, or the client has closed its half and may still read.
            if self.client.is_reset() {
                return Poll::Ready(self.abandon(ticket, Reason::ClientGone));
            }
            *watch_client = false;
            ticket.wants_wake.set(true);
        }
        if self.worker.phase.get() == Phase::Cutting {
            return Poll::Ready(self.abandon(ticket, Reason::ShuttingDown));
        }
        if self.deadline.is_past() {
            let reason = if ticket.leftover.borrow().is_empty() {
                Reason::ResponseTimeout
            } else {
                Reason::ClientStalled
            };
            let reason = self.timed_out(reason);
            return Poll::Ready(self.abandon(ticket, reason));
        }
        Poll::Pending
    }

    /// Whether the request has come to an end, and to which.
    fn look_at(&mut self, ticket: &Rc<Ticket>) -> Poll<Shared> {
        let mut state = ticket.state.borrow_mut();
        let ended = match &*state {
            State::Idle | State::Waiting | State::Responding | State::Abandoned(_) => {
                return Poll::Pending;
            }
            State::Done { .. } if !ticket.leftover.borrow().is_empty() => return Poll::Pending,
            _ => mem::replace(&mut *state, State::Idle),
        };
        let (after, status, ended, counted) = match ended {
            State::HandedOver(hand_over) => {
                return Poll::Ready(Shared::HandedOver(hand_over, ticket.leftover.take()));
            }
            State::Lost(fate) => return Poll::Ready(Shared::Lost(fate)),
            State::Done { at, status, close: true } => (After::Close, status, at, true),
            State::Done { at, status, close: false } => (After::KeepAlive, status, at, true),
            State::Failed(reason) => return Poll::Ready(Shared::Failed(reason)),
            State::Cut(reason) => {
                self.dropped(reason);
                (After::Abort, 0, Instant::now(), false)
            }
            State::Idle | State::Waiting | State::Responding | State::Abandoned(_) => {
                return Poll::Pending;
            }
        };
        Poll::Ready(Shared::Done(Reached { after, status, ended, counted }))
    }

    /// Sends the bytes that the client's socket did not accept before.
    fn flush(&self, cx: &mut Context<'_>, ticket: &Ticket) -> Result<(), Reason> {
        let mut leftover = ticket.leftover.borrow_mut();
        let mut sent = 0;
        let result = self.poll_send(cx, &leftover, &mut sent);
        leftover.drain(..sent);
        match result {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        }
    }

    /// Abandons the request. The rest of its response is discarded.
    fn abandon(&mut self, ticket: &Ticket, reason: Reason) -> Shared {
        let state = ticket.state.replace(State::Abandoned(reason));
        self.ticket = None;
        let counted = match state {
            State::Done { .. } => true,
            State::Responding => false,
            _ => return Shared::Failed(reason),
        };
        self.dropped(reason);
        Shared::Done(Reached { after: After::Abort, status: 0, ended: Instant::now(), counted })
    }
}
