//! Programs that are functions: what the worker's own threads do.

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

/// What a program does with items. Of one slice there is one call at a time.
pub trait Process: Send + Sync + 'static {
    /// Does an item; the reply.
    fn process(&self, item: &DataItem<'_>) -> Vec<u8>;

    /// The same, where what the item changes elsewhere is to be refused once another worker has the
    /// slice: see [`Token`].
    fn process_fenced(&self, item: &DataItem<'_>, _token: Token) -> Vec<u8> {
        self.process(item)
    }

    /// Takes a slice's state over. `None`: it was lost.
    fn import(&self, _slice: SliceId, _state: Option<&[u8]>) {}

    /// Gives a slice's state away.
    fn export(&self, _slice: SliceId) -> Option<Vec<u8>> {
        None
    }

    /// Gives a slice's state for a checkpoint, and keeps it.
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

/// Work for the worker's own threads, by a [`Process`]. Between an item's arrival and its work is no other thread, and whoever
/// has done one takes the next.
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
    /// `count` threads that work, at least one. They start with the worker.
    pub fn new(count: usize, process: impl Process) -> Self {
        Self { count: count.max(1), process: Arc::new(process) }
    }
}

/// Does what was started.
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
