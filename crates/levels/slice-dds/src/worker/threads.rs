//! Applications that are functions, called by the worker's own threads.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use equipoise_dds::items::DataItem;
use equipoise_slice::SliceId;
use equipoise_slice::transport::{Started, Token};

use crate::payload::Payload;
use crate::worker::Work;
use crate::worker::job::Done;
use crate::worker::replies::Replies;

/// Processes items. Calls for one slice never overlap.
pub trait Process: Send + Sync + 'static {
    /// Processes an item and returns the reply.
    fn process(&self, item: &DataItem<'_>) -> Vec<u8>;

    /// The same, for effects elsewhere that must be refused after the slice has moved to another
    /// worker: see [`Token`].
    fn process_fenced(&self, item: &DataItem<'_>, _token: Token) -> Vec<u8> {
        self.process(item)
    }

    /// Takes over the state of a slice. `None`: the state was lost.
    fn import(&self, _slice: SliceId, _state: Option<&[u8]>) {}

    /// Exports the state of a slice that moves to another worker.
    fn export(&self, _slice: SliceId) -> Option<Vec<u8>> {
        None
    }

    /// Returns the state of a slice for a checkpoint, and keeps it.
    fn snapshot(&self, slice: SliceId) -> Option<Vec<u8>> {
        let state = self.export(slice);
        self.import(slice, state.as_deref());
        state
    }
}

impl<F: Fn(&DataItem<'_>) -> Vec<u8> + Send + Sync + 'static> Process for F {
    fn process(&self, item: &DataItem<'_>) -> Vec<u8> {
        self(item)
    }
}

/// Work for the worker's own threads, with a [`Process`]. The thread that receives an item also
/// processes it, and a thread that has finished an item takes the next.
pub struct Threads {
    pub(super) count: usize,
    pub(super) process: Arc<dyn Process>,
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Threads {
    /// `count` threads, at least one. They start with the worker.
    pub fn new(count: usize, process: impl Process) -> Self {
        Self { count: count.max(1), process: Arc::new(process) }
    }
}

/// Processes a job.
pub(super) fn work(started: Started<Payload>, process: &dyn Process, replies: &Replies) -> Done {
    let begun = Instant::now();
    let answer = match Work::of(&started, replies.form()) {
        None => None,
        Some(Work::Item(item)) => Some(match started.token() {
            Some(token) => process.process_fenced(&item, token),
            None => process.process(&item),
        }),
        Some(Work::Import(state)) => {
            process.import(started.slice(), state);
            None
        }
        Some(Work::Export) => process.export(started.slice()),
        Some(Work::Snapshot) => process.snapshot(started.slice()),
    };
    Done::of(started, answer, begun, replies)
}
