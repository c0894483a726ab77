//! The jobs of an application, and its reports of finished jobs.

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

/// Receivers of finished jobs.
#[derive(Debug, Clone)]
pub(super) struct Exits {
    pub(super) done: Sender<Done>,
    pub(super) waker: Waker,
    pub(super) replies: Arc<Replies>,
    pub(super) standing: Arc<Standing>,
}

/// Whether jobs may begin.
#[derive(Debug)]
pub(super) struct Standing {
    begun: Instant,
    /// Value of [`equipoise_slice::transport::Driver::round`].
    round: AtomicU64,
    /// End of the lease, in nanoseconds since `begun`.
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

/// A finished job.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) started: Started<Payload>,
    pub(super) state: Option<Vec<u8>>,
    pub(super) busy: Duration,
    /// Its reply is sent, or it has none. Otherwise the reply waits, and the item is not finished.
    pub(super) is_replied: bool,
}

/// A job of one slice. Nothing else of the slice is processed before it is done.
#[derive(Debug)]
pub struct Job {
    started: Started<Payload>,
    exits: Exits,
    begun: Cell<Instant>,
}

/// The content of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work<'a> {
    /// Process the item, and reply to it.
    Item(DataItem<'a>),
    /// Take over the slice's state, as another worker exported it. `None`: the state was lost.
    Import(Option<&'a [u8]>),
    /// Export the slice's state, which moves to another worker.
    Export,
    /// Return the slice's state for a checkpoint, and keep it: the slice stays.
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

    /// Work on the job did not begin before `at`, so its slice was not busy until then. Without
    /// this call the slice counts as busy from the start of the job.
    pub fn begun(&self, at: Instant) {
        self.begun.set(at.max(self.begun.get()));
    }

    /// The content. `None`: the item is malformed after its slice number, and only [`Job::done`] is
    /// left to call.
    pub fn work(&self) -> Option<Work<'_>> {
        Work::of(&self.started, self.exits.replies.form())
    }

    /// Whether the job is still needed. It is not if the worker was given up since it started the
    /// job: then other workers have its slice, and [`Job::withdraw`] ends the job.
    pub fn is_current(&self) -> bool {
        self.started.round() == self.exits.standing.round.load(Relaxed)
    }

    /// Whether it may begin now. It may not while the worker's lease has expired, because its slice
    /// may move to another worker.
    pub fn may_begin(&self) -> bool {
        let standing = &self.exits.standing;
        let until = Duration::from_nanos(standing.lease_until_ns.load(Relaxed));
        self.is_current() && standing.begun.elapsed() < until
    }

    /// Ends a job that was not begun and will not be.
    pub fn withdraw(self) {
        self.done(None);
    }

    /// Quarantines the item, with which the program ended repeatedly. The client receives a reply
    /// about it.
    pub(super) fn set_aside(self, ends: u32) {
        self.exits.replies.count(DropReason::SetAside);
        let reply =
            format!("{SET_ASIDE_REPLY}: its program has ended {ends} times with it in hand");
        let reply = self.exits.replies.form().refusal(reply);
        self.done(reply);
    }

    /// Ends the job. `answer` is the reply to an item, or the state of an export. `None`: no reply,
    /// no state. A client that waits for a reply publishes the item again.
    pub fn done(self, answer: Option<Vec<u8>>) {
        let done = Done::of(self.started, answer, self.begun.get(), &self.exits.replies);
        // After the end of the worker, no thread receives it.
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
    /// A job that was in progress since `begun` and is done. Sends the reply, if it is an item.
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
