//! A session that requests of many clients are put on.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Waker;

use super::pace::Pace;
use super::task::{self, Target};
use super::ticket::{Lost, Slot, State};
use crate::lease::Lease;
use crate::snapshot::BackendView;
use crate::worker::Worker;

/// The part of a session that clients' tasks share with [its own](super::task).
pub(super) struct MuxSession {
    /// Requests not yet written.
    pub(super) out: RefCell<Vec<u8>>,
    /// Requests written or about to be, in order.
    pub(super) queue: RefCell<VecDeque<Slot>>,
    pub(super) waker: RefCell<Option<Waker>>,
    /// It takes requests.
    open: Cell<bool>,
    /// The address at the other end; `None` while it connects, and for a unix socket.
    pub(super) remote: Cell<Option<SocketAddr>>,
    /// A request was put on it before.
    used: Cell<bool>,
    /// Bytes of all requests that were put on it.
    pushed: Cell<u64>,
}

impl MuxSession {
    /// Starts a session to the leased backend; requests may be put on it before it is connected.
    pub(super) fn start(worker: &Rc<Worker>, lease: &Lease, pace: &Rc<Pace>) -> Rc<MuxSession> {
        let session = Rc::new(MuxSession {
            out: RefCell::default(),
            queue: RefCell::default(),
            waker: RefCell::default(),
            open: Cell::new(true),
            remote: Cell::new(None),
            used: Cell::new(false),
            pushed: Cell::new(0),
        });
        let task = task::run(worker.clone(), session.clone(), Target::of(lease), pace.clone());
        tokio::task::spawn_local(task);
        session
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Whether it goes to an address that the backend has now.
    pub(super) fn reaches(&self, backend: &BackendView) -> bool {
        self.remote.get().is_none_or(|remote| backend.place.includes(Some(remote)))
    }

    pub(super) fn in_flight(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Puts a request on the queue.
    pub(super) fn push(&self, mut slot: Slot, request: &[u8]) {
        if self.used.replace(true) {
            slot.lease.stats().sessions_reused.add(1);
        }
        let mut out = self.out.borrow_mut();
        // The task runs after those that are ready now, and so finds their requests as well.
        if out.is_empty() {
            self.wake();
        }
        out.extend_from_slice(request);
        self.pushed.set(self.pushed.get() + request.len() as u64);
        slot.end = self.pushed.get();
        self.queue.borrow_mut().push_back(slot);
    }

    /// Wakes the session's task.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Takes no more requests, and only the first on the queue stays. The others are sent again
    /// elsewhere.
    pub(super) fn set_aside(&self) {
        self.open.set(false);
        self.out.borrow_mut().clear();
        let behind = self.queue.borrow_mut().split_off(1);
        behind.into_iter().for_each(|slot| lose(slot, Lost::Behind));
    }

    /// Takes no more requests. Those on the queue are sent again elsewhere. `next` is the fate of
    /// the first of them.
    pub(super) fn close(&self, next: Lost) {
        self.open.set(false);
        let rest = if next == Lost::Unsent { Lost::Unsent } else { Lost::Behind };
        let fates = std::iter::once(next).chain(std::iter::repeat(rest));
        self.queue.take().into_iter().zip(fates).for_each(|(slot, fate)| lose(slot, fate));
    }
}

/// Tells a request's client that its session ends, or waits for another's response.
fn lose(slot: Slot, fate: Lost) {
    if fate == Lost::Behind {
        slot.lease.stats().multiplex_repeated.add(1);
    }
    if matches!(fate, Lost::Behind | Lost::Unsent) {
        slot.lease.not_begun();
    }
    slot.ticket.tell(State::Lost(fate));
}
