//! What an application is to do, and how it says that it has.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use equipoise_dds::items::{DataItem, Reply};
use equipoise_dds::{Waker, Writer};
use equipoise_slice::SliceId;
use equipoise_slice::transport::{Started, Task};

use crate::drops::{DropCounts, DropReason};
use crate::payload::Payload;

/// Where finished jobs go.
#[derive(Debug, Clone)]
pub(super) struct Exits {
    pub(super) done: Sender<Done>,
    pub(super) waker: Waker,
    pub(super) replies: Arc<Replies>,
}

/// Answers clients.
#[derive(Debug)]
pub(super) struct Replies {
    pub(super) writer: Writer,
    pub(super) drops: Arc<DropCounts>,
}

/// A job that is done.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) started: Started<Payload>,
    pub(super) state: Option<Vec<u8>>,
    pub(super) busy: Duration,
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
}

impl Job {
    pub(super) fn new(started: Started<Payload>, exits: Exits) -> Self {
        Self { started, exits, begun: Cell::new(Instant::now()) }
    }

    /// The slice.
    pub fn slice(&self) -> SliceId {
        self.started.slice()
    }

    /// It was not worked on before `at`: its slice was not busy with it until then. Without this, since it was given out.
    pub fn begun(&self, at: Instant) {
        self.begun.set(at.max(self.begun.get()));
    }

    /// What is to be done. `None` for an item that is malformed behind its slice: there is nothing to do but
    /// [`Job::done`].
    pub fn work(&self) -> Option<Work<'_>> {
        Work::of(&self.started)
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
    pub(super) fn of(started: &'a Started<Payload>) -> Option<Self> {
        match &started.task {
            Task::Execute(item) => item.payload.item().ok().map(Work::Item),
            Task::Import { state, .. } => Some(Work::Import(state.as_deref())),
            Task::Export { .. } => Some(Work::Export),
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
        if let (Task::Execute(item), Some(message)) = (&started.task, &answer)
            && let Ok(item) = item.payload.item()
        {
            replies.send(&item, message);
        }
        let state = if let Task::Export { .. } = started.task { answer } else { None };
        Self { started, state, busy }
    }
}

impl Replies {
    fn send(&self, item: &DataItem<'_>, message: &[u8]) {
        let reply =
            Reply { id: item.id, timestamp: item.timestamp, sender_id: item.sender_id, message };
        let mut cdr = Vec::new();
        reply.encode(&mut cdr);
        if let Err(error) = self.writer.write(&cdr) {
            self.drops.count(DropReason::ReplyRefused);
            tracing::debug!(%error, id = item.id, "a reply was not taken");
        }
    }
}
