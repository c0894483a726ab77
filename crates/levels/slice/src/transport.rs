//! Transports of items and messages, and a driver that runs a worker over one.
//!
//! [`Transport`] is the part of DDS that the protocol needs. [`memory::Network`] works within a
//! process, for reproducible tests.

mod folder;
pub mod memory;
mod queues;
mod task;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::{Group, SliceId, Writer};
use crate::message::{Covered, Envelope, Item, Keeps};
use crate::numbering::Numbering;
use crate::worker::{Output, Worker};

pub use folder::{FolderDone, FolderTask};
use queues::Queue;
pub use queues::Waiting;
pub use task::{Started, Task, Token};

/// Ticks of the worker per [`crate::Config::resend`].
const TICKS: u32 = 16;

/// An arrival from the transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival<T> {
    /// An item, in its writer's order.
    Item(Item<T>),
    /// A message for this worker.
    Control(Envelope<T>),
    /// See [`Worker::keeps`].
    Keeps(Keeps),
    /// See [`Worker::subscribed`].
    Subscribed(Group),
    /// See [`Worker::settled`].
    Settled(Group),
    /// See [`Worker::writer_gone`].
    WriterGone(Writer),
}

/// Carries items to a worker, and messages in both directions.
pub trait Transport<T> {
    /// The transport's error.
    type Error: std::error::Error;

    /// Opens a reader. `Subscribed` and `Settled` follow.
    ///
    /// # Errors
    /// When the reader cannot be opened.
    fn subscribe(&mut self, group: Group) -> Result<(), Self::Error>;

    /// Closes the reader: nothing more arrives from it.
    ///
    /// # Errors
    /// When it cannot be closed.
    fn unsubscribe(&mut self, group: Group) -> Result<(), Self::Error>;

    /// The stream was resized: [`Worker::numbering`]. Only the keys of arriving items count, so the
    /// time of this call does not matter.
    fn renumber(&mut self, numbering: &Numbering) {
        let _ = numbering;
    }

    /// Sends a message. It may be lost: the protocol repeats messages without an answer.
    ///
    /// # Errors
    /// When it cannot be sent at all.
    fn send(&mut self, envelope: &Envelope<T>) -> Result<(), Self::Error>;

    /// Appends all arrivals since the last call.
    ///
    /// # Errors
    /// When nothing can arrive any more.
    fn arrivals(
        &mut self,
        now: Duration,
        arrivals: &mut Vec<Arrival<T>>,
    ) -> Result<(), Self::Error>;
}

/// A worker over a transport. It blocks nowhere and starts no thread; it runs in the caller's
/// thread.
///
/// Tasks are queued by slice, so that a slow slice delays no other. Within a slice they run in
/// order, one at a time.
#[derive(Debug)]
pub struct Driver<T, N> {
    worker: Worker<T>,
    transport: N,
    queues: BTreeMap<SliceId, Queue<T>>,
    /// Slices with waiting tasks and none in progress.
    ready: BTreeSet<SliceId>,
    /// Tasks in all queues.
    queued: usize,
    /// The slice with the next turn; if it has no task, the next one that has.
    turn: SliceId,
    /// The time of the last call with a time.
    now: Duration,
    /// Time of the worker's last tick.
    ticked: Option<Duration>,
    fenced: bool,
    arrivals: Vec<Arrival<T>>,
    /// Finished items that were published again: their client may lack the reply.
    answers: Vec<Item<T>>,
    /// Items that clients need not keep.
    covered: Vec<Covered>,
    /// Work for the folder of checkpoints.
    folder: Vec<FolderTask>,
    /// Increases when tasks that were started before do not count any more.
    round: u64,
    /// By slice: grows when what was started before of it counts no more.
    discards: BTreeMap<SliceId, u64>,
}

impl<T: Clone, N: Transport<T>> Driver<T, N> {
    /// Drives `worker`.
    pub fn new(worker: Worker<T>, transport: N) -> Self {
        Self {
            worker,
            transport,
            queues: BTreeMap::new(),
            ready: BTreeSet::new(),
            queued: 0,
            turn: SliceId(0),
            now: Duration::ZERO,
            ticked: None,
            fenced: true,
            arrivals: Vec::new(),
            answers: Vec::new(),
            covered: Vec::new(),
            folder: Vec::new(),
            round: 0,
            discards: BTreeMap::new(),
        }
    }

    /// The worker.
    pub fn worker(&self) -> &Worker<T> {
        &self.worker
    }

    /// The transport.
    pub fn transport(&self) -> &N {
        &self.transport
    }

    /// The slices with tasks that wait or are in progress.
    pub fn waiting(&self, now: Duration) -> impl Iterator<Item = Waiting> {
        self.queues.iter().map(move |(slice, queue)| {
            let since = queue.tasks.front().map_or(now, |(since, _)| *since);
            let tasks = queue.tasks.len() + queue.busy.len();
            Waiting { slice: *slice, tasks, age: now.saturating_sub(since) }
        })
    }

    /// See [`Worker::take_handed_over`].
    pub fn take_handed_over(&mut self) -> BTreeMap<SliceId, u64> {
        self.worker.take_handed_over()
    }

    /// The number of waiting tasks.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Handles arrivals and carries out the outputs. Call it on an arrival, and at least every
    /// `Config::resend` or after [`Worker::idle_for`].
    ///
    /// # Errors
    /// Errors of the transport.
    pub fn step(&mut self, now: Duration) -> Result<(), N::Error> {
        self.now = now;
        let mut arrivals = std::mem::take(&mut self.arrivals);
        self.transport.arrivals(now, &mut arrivals)?;
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Item(item) => self.worker.item(now, item),
                Arrival::Control(envelope) => {
                    self.worker.message(now, envelope);
                    // The sender waits for an answer, and many items may follow.
                    self.carry_out()?;
                }
                Arrival::Keeps(keeps) => self.worker.keeps(now, &keeps),
                Arrival::Subscribed(group) => self.worker.subscribed(now, group),
                Arrival::Settled(group) => self.worker.settled(now, group),
                Arrival::WriterGone(writer) => self.worker.writer_gone(now, writer),
            }
        }
        self.arrivals = arrivals;
        // A tick checks every slice and handover, so it does not run for every item.
        let period = self.worker.config().resend / TICKS;
        if self.ticked.is_none_or(|ticked| now.saturating_sub(ticked) >= period) {
            self.ticked = Some(now);
            self.worker.tick(now);
        }
        self.carry_out()
    }

    /// The next task of a slice without one in progress, if the lease is valid. Slices take turns.
    pub fn start(&mut self, now: Duration) -> Option<Started<T>> {
        if self.fenced || now >= self.worker.lease_until() {
            return None;
        }
        let slice = *self.ready.range(self.turn..).next().or_else(|| self.ready.first())?;
        self.ready.remove(&slice);
        let queue = self.queues.get_mut(&slice)?;
        let (_, task) = queue.tasks.pop_front()?;
        queue.busy.begins(task.key());
        self.queued -= 1;
        self.turn = SliceId(slice.0.wrapping_add(1));
        // A slice with tasks is owned: the worker drops its tasks when it loses it.
        let epoch = self.worker.epoch(slice).unwrap_or_default();
        let discards = self.discards_of(slice);
        Some(Started { round: self.round, slice, epoch, discards, task })
    }

    /// Whether the started task still counts: it does not if the worker was given up since.
    pub fn is_current(&self, started: &Started<T>) -> bool {
        started.round == self.round
    }

    fn discards_of(&self, slice: SliceId) -> u64 {
        self.discards.get(&slice).copied().unwrap_or(0)
    }

    /// Whether the state that it was started with was not replaced since.
    fn counts(&self, started: &Started<T>) -> bool {
        self.is_current(started) && started.discards == self.discards_of(started.slice)
    }

    /// Items that clients need not keep any more, to be sent to them.
    pub fn covered(&mut self) -> std::vec::Drain<'_, Covered> {
        self.covered.drain(..)
    }

    /// See [`Worker::checkpoint_wanted`].
    pub fn checkpoint_wanted(&mut self, slices: &[SliceId]) {
        self.worker.checkpoint_wanted(slices);
    }

    /// The current round, as in [`Started::round`].
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Finished items that were published again: their replies may be lost, and should be sent
    /// again if known.
    pub fn answers(&mut self) -> std::vec::Drain<'_, Item<T>> {
        self.answers.drain(..)
    }

    /// A task is done: an item was processed and replied to, or a state was imported.
    ///
    /// # Errors
    /// Errors of the transport.
    pub fn finished(&mut self, now: Duration, started: &Started<T>) -> Result<(), N::Error> {
        self.processed(started);
        self.replied(now, started)
    }

    /// A task is done except for the reply: its slice goes on. [`Driver::replied`] follows.
    pub fn processed(&mut self, started: &Started<T>) {
        if self.is_done(started)
            && self.counts(started)
            && let Task::Execute(item) = &started.task
        {
            self.worker.processed(item.slice, item.writer, item.position);
        }
    }

    /// The reply to a processed item was sent.
    ///
    /// # Errors
    /// Errors of the transport.
    pub fn replied(&mut self, now: Duration, started: &Started<T>) -> Result<(), N::Error> {
        if !self.counts(started) {
            return Ok(());
        }
        if let Task::Execute(item) = &started.task {
            let slice = self.worker.numbering().slice_of(item.key);
            self.worker.finished(now, slice, item.writer, item.position);
        }
        self.carry_out()
    }

    /// An export is done, with the state.
    ///
    /// # Errors
    /// Errors of the transport.
    pub fn exported(
        &mut self,
        now: Duration,
        started: &Started<T>,
        state: Option<Vec<u8>>,
    ) -> Result<(), N::Error> {
        if self.is_done(started) && self.counts(started) {
            match started.task {
                Task::Export { handover, slice } => {
                    self.worker.exported(now, handover, slice, state);
                }
                Task::Snapshot { slice, number } => {
                    self.worker.snapshotted(now, slice, number, state);
                }
                Task::Execute(_) | Task::Import { .. } => {}
            }
        }
        self.carry_out()
    }

    fn is_done(&mut self, started: &Started<T>) -> bool {
        if !self.is_current(started) {
            return false;
        }
        let key = started.task.key();
        let slice = self.worker.numbering().slice_of(key);
        if let Some(queue) = self.queues.get_mut(&slice) {
            queue.busy.ends(key);
            match (queue.busy.is_none(), queue.tasks.is_empty()) {
                (true, true) => drop(self.queues.remove(&slice)),
                (true, false) => drop(self.ready.insert(slice)),
                _ => {}
            }
        }
        true
    }

    fn carry_out(&mut self) -> Result<(), N::Error> {
        while let Some(output) = self.worker.poll() {
            match output {
                Output::Send(envelope) => self.transport.send(&envelope)?,
                Output::Subscribe(group) => self.transport.subscribe(group)?,
                Output::Unsubscribe(group) => self.transport.unsubscribe(group)?,
                Output::Execute(item) => self.queue(item.slice, Task::Execute(item)),
                Output::Answer(item) => self.answers.push(item),
                Output::Import { slice, state } => {
                    self.queue(slice, Task::Import { slice, state });
                }
                Output::Recall { handover, slices } => {
                    let items = self.recall(&slices);
                    self.worker.recalled(self.now, handover, items);
                }
                Output::Export { handover, slice } => {
                    self.queue(slice, Task::Export { handover, slice });
                }
                Output::Renumber(numbering) => {
                    self.transport.renumber(&numbering);
                    self.refile(&numbering);
                }
                Output::Snapshot { slice, number } => {
                    self.queue_before_items(slice, Task::Snapshot { slice, number });
                }
                Output::Discard(slice) => self.discard(slice),
                Output::Covered(covered) => self.covered.push(covered),
                Output::Store(slice, checkpoint) => {
                    self.folder.push(FolderTask::Store(slice, checkpoint));
                }
                Output::Load { slice, epoch, is_last } => {
                    self.folder.push(FolderTask::Load(slice, epoch, is_last));
                }
                Output::Fence => self.fenced = true,
                Output::Resume => self.fenced = false,
                Output::Reset => {
                    self.queues.clear();
                    self.ready.clear();
                    self.discards.clear();
                    (self.queued, self.round) = (0, self.round + 1);
                }
            }
        }
        Ok(())
    }
}
