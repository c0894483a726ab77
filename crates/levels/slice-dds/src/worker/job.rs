//! What an application is to do, and how it says that it has.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use equipoise_dds::Waker;
use equipoise_dds::items::DataItem;
use equipoise_slice::SliceId;
use equipoise_slice::transport::{Started, Task, Token};

use crate::drops::DropReason;
use crate::form::Form;
use crate::payload::Payload;
use crate::worker::program::SET_ASIDE_REPLY;
use crate::worker::replies::Replies;

/// Where finished jobs go.
#[derive(Debug, Clone)]
pub(super) struct Exits {
    pub(super) done: Sender<Done>,
    pub(super) waker: Waker,
    pub(super) replies: Arc<Replies>,
    pub(super) standing: Arc<Standing>,
}

/// Whether jobs may be begun.
#[derive(Debug)]
pub(super) struct Standing {
    begun: Instant,
    /// Of [`equipoise_slice::transport::Driver::round`].
    round: AtomicU64,
    /// When the lease ends, nanoseconds since `begun`.
    lease_until_ns: AtomicU64,
}

impl Standing {
    pub(super) fn new(begun: Instant) -> Arc<Self> {
        Arc::new(Self { begun, round: AtomicU64::new(0), lease_until_ns: AtomicU64::new(0) })
    }

    pub(super) fn set(&self, round: u64, lease_until: Duration) {
        let lease_until_ns = u64::try_from(lease_until.as_nanos()).unwrap_or(u64::MAX);
        self.lease_until_ns.store(lease_until_ns, Relaxed);
        self.round.store(round, Relaxed);
    }
}

/// A job that is done.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) started: Started<Payload>,
    pub(super) state: Option<Vec<u8>>,
    pub(super) busy: Duration,
    /// Its reply is on its way, or it has none. Else the reply waits, and the item is not finished.
    pub(super) is_replied: bool,
}

/// Something to do, of one slice. Until it is done nothing else of that slice is.
#[derive(Debug)]
pub struct Job {
    started: Started<Payload>,
    exits: Exits,
    begun: Cell<Instant>,
}

/// What there is to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work<'a> {
    /// Do the item, and answer it.
    Item(DataItem<'a>),
    /// Take the slice's state, as another worker exported it. `None`: it was lost.
    Import(Option<&'a [u8]>),
    /// Give the slice's state; it goes to another worker.
    Export,
    /// Give the slice's state for a checkpoint, and keep it: the slice stays.
    Snapshot,
}

impl Job {
    pub(super) fn new(started: Started<Payload>, exits: Exits) -> Self {
        Self { started, exits, begun: Cell::new(Instant::now()) }
    }

    /// The slice.
    pub fn slice(&self) -> SliceId {
        self.started.slice()
    }

    /// The fencing token of an item.
    pub fn token(&self) -> Option<Token> {
        self.started.token()
    }

    /// It was not worked on before `at`: its slice was not busy with it until then. Without this, since it was given out.
    pub fn begun(&self, at: Instant) {
        self.begun.set(at.max(self.begun.get()));
    }

    /// What is to be done. `None` for an item that is malformed behind its slice: there is nothing to do but
    /// [`Job::done`].
    pub fn work(&self) -> Option<Work<'_>> {
        Work::of(&self.started, self.exits.replies.form())
    }

    /// Whether it is still to be done: not when the worker was given up since it was handed out. Then others have its slice, and
    /// nobody waits for it: see [`Job::withdraw`].
    pub fn is_current(&self) -> bool {
        self.started.round() == self.exits.standing.round.load(Relaxed)
    }

    /// Whether it may be begun now. Not while the worker's lease has lapsed: its slice may become another's.
    pub fn may_begin(&self) -> bool {
        let standing = &self.exits.standing;
        let until = Duration::from_nanos(standing.lease_until_ns.load(Relaxed));
        self.is_current() && standing.begun.elapsed() < until
    }

    /// It was not begun, and will not be.
    pub fn withdraw(self) {
        self.done(None);
    }

    /// It is not done, and will not be: it has ended its program so often. Its client is told so.
    pub(super) fn set_aside(self, ends: u32) {
        self.exits.replies.count(DropReason::SetAside);
        let reply =
            format!("{SET_ASIDE_REPLY}: its program has ended {ends} times with it in hand");
        let reply = self.exits.replies.form().refusal(reply);
        self.done(reply);
    }

    /// It is done. `answer` is the reply to an item, or the state of an export; `None`: no reply, no state. An item
    /// without a reply is published again by clients that wait for one.
    pub fn done(self, answer: Option<Vec<u8>>) {
        let done = Done::of(self.started, answer, self.begun.get(), &self.exits.replies);
        // The worker has ended: nobody counts what was done.
        let _ = self.exits.done.send(done);
        self.exits.waker.wake();
    }
}

impl<'a> Work<'a> {
    pub(super) fn of(started: &'a Started<Payload>, form: &Form) -> Option<Self> {
        match &started.task {
            Task::Execute(item) => form.item(item).ok().map(Work::Item),
            Task::Import { state, .. } => Some(Work::Import(state.as_deref())),
            Task::Export { .. } => Some(Work::Export),
            Task::Snapshot { .. } => Some(Work::Snapshot),
        }
    }
}

impl Done {
    /// It is done, since `begun`: answers the client, if it was an item.
    pub(super) fn of(
        started: Started<Payload>,
        answer: Option<Vec<u8>>,
        begun: Instant,
        replies: &Replies,
    ) -> Self {
        let busy = begun.elapsed();
        let (mut is_replied, mut state) = (true, None);
        match (&started.task, answer) {
            (Task::Execute(item), Some(answer)) => {
                let reply = replies.form().item(item).ok();
                let reply = reply.and_then(|item| replies.form().reply(&item, answer));
                is_replied = reply.is_none_or(|cdr| replies.send(&started, cdr));
            }
            (Task::Export { .. } | Task::Snapshot { .. }, answer) => state = answer,
            _ => {}
        }
        Self { started, state, busy, is_replied }
    }
}
