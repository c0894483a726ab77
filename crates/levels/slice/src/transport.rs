//! What carries items and messages, and a worker that is driven over it.
//!
//! [`Transport`] is what the protocol needs of DDS, and no more. [`memory::Network`] is one without a network, for tests
//! that are to run the same every time.

pub mod memory;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::ids::{Group, HandoverId, SliceId, Writer};
use crate::message::{Envelope, Item, Keeps};
use crate::numbering::Numbering;
use crate::worker::{Output, Worker};

/// The worker is told of time so many times in [`crate::Config::resend`].
const TICKS: u32 = 16;

/// What came.
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

/// Carries items to a worker, and messages both ways.
pub trait Transport<T> {
    /// Why it cannot.
    type Error: std::error::Error;

    /// Opens a reader. `Subscribed` and `Settled` follow.
    ///
    /// # Errors
    /// When there can be no reader.
    fn subscribe(&mut self, group: Group) -> Result<(), Self::Error>;

    /// Closes the reader: nothing more comes from it.
    ///
    /// # Errors
    /// When it cannot be closed.
    fn unsubscribe(&mut self, group: Group) -> Result<(), Self::Error>;

    /// Slices have other numbers from now on: [`Worker::numbering`]. Of items that come the key
    /// counts, so that nothing depends on the moment of this call.
    fn renumber(&mut self, numbering: &Numbering) {
        let _ = numbering;
    }

    /// Sends a message. It may be lost: the protocol says again what is not answered.
    ///
    /// # Errors
    /// When it cannot be sent at all.
    fn send(&mut self, envelope: &Envelope<T>) -> Result<(), Self::Error>;

    /// Adds what has come since the last call.
    ///
    /// # Errors
    /// When nothing can come any more.
    fn arrivals(
        &mut self,
        now: Duration,
        arrivals: &mut Vec<Arrival<T>>,
    ) -> Result<(), Self::Error>;
}

/// What the application is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task<T> {
    /// Do the item; then [`Driver::finished`].
    Execute(Item<T>),
    /// Take the slice's state. `None`: it was lost.
    Import {
        /// The slice.
        slice: SliceId,
        /// Its state.
        state: Option<Vec<u8>>,
    },
    /// Give the slice's state: [`Driver::exported`].
    Export {
        /// The handover.
        handover: HandoverId,
        /// The slice.
        slice: SliceId,
    },
}

/// A worker over a transport. It waits for nothing and starts nothing: whoever calls it has the thread.
///
/// Tasks are queued by slice, so that a slow slice holds up no other. Within a slice they are in order, one at a time.
#[derive(Debug)]
pub struct Driver<T, N> {
    worker: Worker<T>,
    transport: N,
    queues: BTreeMap<SliceId, Queue<T>>,
    /// Slices that have something and are not busy.
    ready: BTreeSet<SliceId>,
    /// Tasks in all queues.
    queued: usize,
    /// The slice whose turn it is, or the next that has something.
    turn: SliceId,
    /// As of the last call that told it.
    now: Duration,
    /// When the worker was last told that time has passed.
    ticked: Option<Duration>,
    fenced: bool,
    arrivals: Vec<Arrival<T>>,
    /// Finished, and published again: who published them may have no reply.
    answers: Vec<Item<T>>,
    /// Grows when what was started before counts no more.
    round: u64,
}

#[derive(Debug)]
struct Queue<T> {
    /// Each with when it came.
    tasks: VecDeque<(Duration, Task<T>)>,
    busy: Busy,
}

/// What is under way of a slice, by key: one task, and others if slices were joined since.
#[derive(Debug, Default)]
struct Busy {
    one: Option<u64>,
    others: Vec<u64>,
}

impl Busy {
    fn is_none(&self) -> bool {
        self.one.is_none() && self.others.is_empty()
    }

    fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.others.len()
    }

    fn begins(&mut self, key: u64) {
        if let Some(other) = self.one.replace(key) {
            self.others.push(other);
        }
    }

    fn ends(&mut self, key: u64) {
        if self.one == Some(key) {
            self.one = self.others.pop();
        } else if let Some(at) = self.others.iter().position(|other| *other == key) {
            self.others.swap_remove(at);
        }
    }

    fn keys(self) -> impl Iterator<Item = u64> {
        self.one.into_iter().chain(self.others)
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { tasks: VecDeque::new(), busy: Busy::default() }
    }
}

impl<T> Task<T> {
    /// Says the slice. A state, which is of a whole slice, stands for its first key.
    fn key(&self) -> u64 {
        match self {
            Self::Execute(item) => item.key,
            Self::Import { slice, .. } | Self::Export { slice, .. } => u64::from(slice.0),
        }
    }
}

/// What waits of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Which slice.
    pub slice: SliceId,
    /// How many tasks: those that wait, and one that is under way.
    pub tasks: usize,
    /// How long the first of those has waited that are not under way.
    pub age: Duration,
}

/// The fencing token of an item: a sink compares it to refuse the writes of a worker that was given
/// up and does not know yet.
///
/// Of one slice, epochs grow from owner to owner, whoever was lost and whichever controller leads.
/// In the orders that are strict an owner begins when the one before it has ended or is given up,
/// so that a sink may refuse every epoch below the largest that it saw of the slice. In
/// [`crate::Order::Free`] the owner before may still be at items that it had started: there a sink
/// refuses a position of a writer that it has seen.
///
/// # Source
/// Kleppmann, "How to do distributed locking", 2016; Gray, Cheriton, SOSP 1989 (leases).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// The slice.
    pub slice: SliceId,
    /// The handover that gave the slice to the worker.
    pub epoch: HandoverId,
    /// The writer of the item, in the domain.
    pub writer: u64,
    /// Position of the item at its writer: with it, what tells it from all others.
    pub position: u64,
}

/// A task that was given out. What it belonged to may be over when it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started<T> {
    round: u64,
    slice: SliceId,
    epoch: HandoverId,
    /// What is to be done.
    pub task: Task<T>,
}

impl<T> Started<T> {
    /// The slice.
    pub fn slice(&self) -> SliceId {
        self.slice
    }

    /// See [`Driver::round`].
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The key of its item: at most one of each is under way.
    pub fn key(&self) -> u64 {
        self.task.key()
    }

    /// Of an item.
    pub fn token(&self) -> Option<Token> {
        let Task::Execute(item) = &self.task else { return None };
        let (writer, position) = (item.writer.id, item.position);
        Some(Token { slice: self.slice, epoch: self.epoch, writer, position })
    }
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
            round: 0,
        }
    }

    /// The worker, to look at.
    pub fn worker(&self) -> &Worker<T> {
        &self.worker
    }

    /// The transport, to wait on.
    pub fn transport(&self) -> &N {
        &self.transport
    }

    /// The slices of which something waits or is under way.
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

    /// Tasks that wait.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Takes what has come and does what follows. Call it when something came, and at least every `Config::resend`, or after
    /// [`Worker::idle_for`].
    ///
    /// # Errors
    /// The transport's.
    pub fn step(&mut self, now: Duration) -> Result<(), N::Error> {
        self.now = now;
        let mut arrivals = std::mem::take(&mut self.arrivals);
        self.transport.arrivals(now, &mut arrivals)?;
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Item(item) => self.worker.item(now, item),
                Arrival::Control(envelope) => {
                    self.worker.message(now, envelope);
                    // Somebody waits for the answer, and what follows may be many items.
                    self.carry_out()?;
                }
                Arrival::Keeps(keeps) => self.worker.keeps(&keeps),
                Arrival::Subscribed(group) => self.worker.subscribed(now, group),
                Arrival::Settled(group) => self.worker.settled(now, group),
                Arrival::WriterGone(writer) => self.worker.writer_gone(now, writer),
            }
        }
        self.arrivals = arrivals;
        // It looks at every slice and handover, and items may come one by one.
        let period = self.worker.config().resend / TICKS;
        if self.ticked.is_none_or(|ticked| now.saturating_sub(ticked) >= period) {
            self.ticked = Some(now);
            self.worker.tick(now);
        }
        self.carry_out()
    }

    /// The next task of a slice that has none under way, if the lease is good. Slices take turns.
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
        // A slice that has tasks is owned: its tasks go when it goes.
        let epoch = self.worker.epoch(slice).unwrap_or_default();
        Some(Started { round: self.round, slice, epoch, task })
    }

    /// Whether what was started still counts: it does not when the worker was given up since.
    pub fn is_current(&self, started: &Started<T>) -> bool {
        started.round == self.round
    }

    /// The round of what is started now, which [`Started::round`] says of what was.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Items that were finished and come again: their replies may be lost, and are to be sent again if they are there.
    pub fn answers(&mut self) -> std::vec::Drain<'_, Item<T>> {
        self.answers.drain(..)
    }

    /// A task is done: an item was processed and replied to, or a state was taken.
    ///
    /// # Errors
    /// The transport's.
    pub fn finished(&mut self, now: Duration, started: &Started<T>) -> Result<(), N::Error> {
        self.processed(started);
        self.replied(now, started)
    }

    /// A task is done, but for the reply: its slice goes on. [`Driver::replied`] follows.
    pub fn processed(&mut self, started: &Started<T>) {
        self.is_done(started);
    }

    /// The reply to an item that was processed is on its way.
    ///
    /// # Errors
    /// The transport's.
    pub fn replied(&mut self, now: Duration, started: &Started<T>) -> Result<(), N::Error> {
        if !self.is_current(started) {
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
    /// The transport's.
    pub fn exported(
        &mut self,
        now: Duration,
        started: &Started<T>,
        state: Option<Vec<u8>>,
    ) -> Result<(), N::Error> {
        if self.is_done(started)
            && let Task::Export { handover, slice } = started.task
        {
            self.worker.exported(now, handover, slice, state);
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
                Output::Fence => self.fenced = true,
                Output::Resume => self.fenced = false,
                Output::Reset => {
                    self.queues.clear();
                    self.ready.clear();
                    (self.queued, self.round) = (0, self.round + 1);
                }
            }
        }
        Ok(())
    }

    /// Takes every item of `slices` that was not started from the queues.
    fn recall(&mut self, slices: &[SliceId]) -> Vec<Item<T>> {
        let mut items = Vec::new();
        for slice in slices {
            let Some(queue) = self.queues.get_mut(slice) else { continue };
            let mut left = VecDeque::new();
            for (since, task) in queue.tasks.drain(..) {
                match task {
                    Task::Execute(item) => items.push(item),
                    task => left.push_back((since, task)),
                }
            }
            queue.tasks = left;
            if queue.tasks.is_empty() {
                self.ready.remove(slice);
                if queue.busy.is_none() {
                    self.queues.remove(slice);
                }
            }
        }
        self.queued -= items.len();
        items
    }

    fn queue(&mut self, slice: SliceId, task: Task<T>) {
        let since = self.now;
        let queue = self.queues.entry(slice).or_default();
        queue.tasks.push_back((since, task));
        self.queued += 1;
        if queue.busy.is_none() {
            self.ready.insert(slice);
        }
    }

    /// Files what waits and what is under way by the slices that their keys say now. Of two that
    /// are joined, what came first goes first.
    fn refile(&mut self, numbering: &Numbering) {
        let mut waiting = Vec::new();
        let mut queues: BTreeMap<SliceId, Queue<T>> = BTreeMap::new();
        for queue in std::mem::take(&mut self.queues).into_values() {
            for key in queue.busy.keys() {
                queues.entry(numbering.slice_of(key)).or_default().busy.begins(key);
            }
            waiting.extend(queue.tasks);
        }
        waiting.sort_by_key(|(since, _)| *since);
        for (since, mut task) in waiting {
            let slice = numbering.slice_of(task.key());
            if let Task::Execute(item) = &mut task {
                item.slice = slice;
            }
            queues.entry(slice).or_default().tasks.push_back((since, task));
        }
        let is_ready = |(_, queue): &(&SliceId, &Queue<T>)| queue.busy.is_none();
        self.ready = queues.iter().filter(is_ready).map(|(slice, _)| *slice).collect();
        self.queues = queues;
    }
}
