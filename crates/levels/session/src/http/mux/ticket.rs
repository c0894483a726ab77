//! State of one request that a client's task and a session's task share.
#![allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use super::paths::PathId;
use crate::buffer::Buffer;
use crate::deadline::Deadline;
use crate::door::Door;
use crate::http::edits::Timing;
use crate::http::pump::Pump;
use crate::http::response::{NodeFields, ResponseHead};
use crate::http::routed::Routed;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::snapshot::FrontDoorView;
use crate::socket::Socket;
use crate::stats::count_status;
use crate::upstream::Session;

/// One client connection's place in a session's queue; used again for each of its requests.
pub(in crate::http) struct Ticket {
    pub(super) client: Rc<Socket>,
    pub(super) door: Rc<Door>,
    pub(super) deadline: Rc<Deadline>,
    pub(super) state: RefCell<State>,
    /// Bytes of the response that the client's socket did not take yet.
    pub(super) leftover: RefCell<Vec<u8>>,
    /// Bytes of the request and of what came of its response so far.
    pub(super) moved: Cell<u64>,
    /// Woken when the state changes and the client's task would not notice.
    pub(super) waker: RefCell<Option<Waker>>,
    /// The client's task does not watch its socket, so that it has to be woken at the end.
    pub(super) wants_wake: Cell<bool>,
}

/// Where a request is.
pub(super) enum State {
    /// Not on a session.
    Idle,
    /// On a session. Nothing of the final response was sent to the client.
    Waiting,
    /// On a session, with the final response under way to the client.
    Responding,
    /// The client no longer waits for the response.
    Abandoned(Reason),
    /// The response is complete. Bytes that the client did not accept are in `leftover`.
    Done { at: Instant, status: u16, close: bool },
    /// The session is the client's alone from now on.
    HandedOver(Box<HandOver>),
    /// The session ended before a response came; the request may be sent again.
    Lost(Lost),
    /// No response will come.
    Failed(Reason),
    /// A part of the response was sent, and no more will come.
    Cut(Reason),
}

/// Where a request was when its session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Lost {
    /// Behind another one: the backend had not come to it.
    Behind,
    /// Next to be answered, on a session that had answered others: it was stale, or about to close.
    NextOnUsed,
    /// Next to be answered, and the first of its session, so it may have caused the backend's end.
    NextOnNew,
    /// The session could not be opened.
    Unsent,
}

/// A session that is handed over in the middle of a response.
pub(in crate::http) struct HandOver {
    pub(in crate::http) lease: Lease,
    pub(in crate::http) session: Box<Session>,
    pub(in crate::http) input: Option<Buffer>,
    /// The response's head and the rest of its body.
    pub(in crate::http) response: (ResponseHead, Pump),
    /// Bytes of the request that were not sent yet.
    pub(in crate::http) unsent: usize,
    /// Something of requests behind was sent: the session ends with this response.
    pub(in crate::http) shared: bool,
}

impl Ticket {
    pub(in crate::http) fn new(
        client: Rc<Socket>,
        door: Rc<Door>,
        deadline: Rc<Deadline>,
    ) -> Rc<Ticket> {
        Rc::new(Ticket {
            client,
            door,
            deadline,
            state: RefCell::new(State::Idle),
            leftover: RefCell::default(),
            moved: Cell::new(0),
            waker: RefCell::default(),
            wants_wake: Cell::new(false),
        })
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.why_abandoned().is_some()
    }

    /// Why the client no longer waits for the response.
    pub(super) fn why_abandoned(&self) -> Option<Reason> {
        match *self.state.borrow() {
            State::Abandoned(reason) => Some(reason),
            _ => None,
        }
    }

    /// Stores the task to wake.
    pub(super) fn watch(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &*waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
    }

    /// Notes that the final response has begun.
    pub(super) fn responds(&self) {
        let mut state = self.state.borrow_mut();
        if matches!(*state, State::Waiting) {
            *state = State::Responding;
        }
    }

    /// Ends the request without the rest of its response.
    pub(super) fn cut(&self, reason: Reason) {
        let has_begun = matches!(*self.state.borrow(), State::Responding);
        self.tell(if has_begun { State::Cut(reason) } else { State::Failed(reason) });
    }

    /// Changes the state and wakes the client's task.
    pub(super) fn tell(&self, state: State) {
        if self.is_abandoned() {
            return;
        }
        *self.state.borrow_mut() = state;
        self.wake();
    }

    /// Sends bytes of the response, and keeps those that the client's socket does not accept.
    pub(super) fn deliver(&self, bytes: &[u8]) {
        if self.is_abandoned() {
            return;
        }
        self.moved.set(self.moved.get() + bytes.len() as u64);
        let mut leftover = self.leftover.borrow_mut();
        let sent = match leftover.is_empty() {
            // A socket that has failed is noticed by the client's task.
            true => self.client.try_write(bytes).unwrap_or(0),
            false => 0,
        };
        self.door.stats(|stats| stats.bytes_out.add(sent as u64));
        if sent < bytes.len() {
            leftover.extend_from_slice(&bytes[sent..]);
            drop(leftover);
            self.wake();
        }
    }

    /// Ends a response that was delivered whole. The client's task is only woken if it has
    /// something left to do before the next request: it waits for that one anyway.
    pub(super) fn finish(&self, slot: &Slot, head: &ResponseHead, now: Instant) {
        if self.is_abandoned() {
            return;
        }
        self.door.stats(|stats| {
            count_status(&stats.responses, head.status);
            stats.requests_in_flight.sub(1);
            stats.request_time.record(now.saturating_duration_since(slot.begun));
            stats.classes[slot.head.class as usize].bytes.add(self.moved.get());
        });
        let close = head.closes_client;
        *self.state.borrow_mut() = State::Done { at: now, status: head.status, close };
        self.deadline.set(now, slot.idle);
        if close || self.wants_wake.get() || !self.leftover.borrow().is_empty() {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// A request on a session's queue.
pub(super) struct Slot {
    pub(super) ticket: Rc<Ticket>,
    pub(super) head: crate::http::request::RequestHead,
    pub(super) path: PathId,
    pub(super) lease: Lease,
    /// When its head was read.
    pub(super) begun: Instant,
    /// When it got its backend: later, if it waited for one with room.
    pub(super) leased: Instant,
    /// Time that it has waited for a backend with room.
    pub(super) queued: Duration,
    /// Add `Via` to the response.
    pub(super) via: bool,
    /// The front door when it was put on the session.
    pub(super) view: Rc<Arc<FrontDoorView>>,
    /// The route that it takes.
    pub(super) routed: Option<Routed>,
    /// The value of its sticky cookie.
    pub(super) sticky: Option<u64>,
    /// Fields between nodes in the response, with the most room that it announces.
    pub(super) node_fields: NodeFields,
    /// Bytes put on the session up to the end of this request.
    pub(super) end: u64,
    /// The client's connection ends with this response.
    pub(super) close: bool,
    /// The client's idle time-out.
    pub(super) idle: Duration,
}

impl Slot {
    /// The times for a response that begins `now`, if the client is to get them.
    pub(super) fn timing(&self, now: Instant) -> Option<Timing> {
        let times =
            || Timing { backend: now.saturating_duration_since(self.leased), queue: self.queued };
        self.view.config.server_timing.then(times)
    }
}
