//! A client: assigns items to slices and keeps them until there is a reply. It has no socket, clock
//! or thread.
//!
//! An item is kept until its first reply, and published again while there is none. In this way the
//! items of a lost worker reach its successor. If a worker processed an item and was lost before
//! its reply arrived, a second reply may follow; the client recognises it.

mod assignment;
mod replied;
mod retention;
mod timeout;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

pub use assignment::{Assignment, Bounds, BoundsInvalid};
pub use retention::{Asked, Retention};

use crate::ids::{Group, SliceId, Writer};
use crate::message::{Covered, Item, Keeps, Lacks};
use crate::numbering::Numbering;

/// Settings of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Shortest time without a reply after which an item is published again; it is longer where
    /// replies take longer. Also the interval of publishing while the successor of a lost worker
    /// asks for items: at most a quarter of the workers' `recovery`, so that one or two lost
    /// attempts do no harm.
    pub again: Duration,
    /// Longest time until an item is first published again.
    pub again_max: Duration,
    /// Largest number of items without a reply.
    pub pending_max: usize,
    /// Workers take checkpoints: items that have a reply are kept until a checkpoint contains them.
    pub checkpoints: bool,
    /// Write to the base topic only, as publishers without knowledge of groups do.
    pub plain: bool,
}

impl Default for Config {
    fn default() -> Self {
        let (again, again_max) = (Duration::from_millis(500), Duration::from_secs(60));
        Self { again, again_max, pending_max: 65_536, checkpoints: false, plain: false }
    }
}

/// Why an item was not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// The largest number of items waits for replies.
    #[error("{0} items have no reply yet, which is the limit (`pending_max`): wait for replies")]
    Full(usize),
    /// The largest number of items waits for replies or checkpoints.
    #[error(
        "{0} items have no reply or are in no checkpoint yet, which is the limit (`pending_max`): \
         wait, or take checkpoints after fewer items"
    )]
    Uncovered(usize),
    /// An item with this id is kept.
    #[error(
        "item {0} was published before, and has no reply or is in no checkpoint yet: give each \
         item its own id"
    )]
    Pending(u64),
}

/// The kind of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<T> {
    /// The first for its item.
    First {
        /// The item.
        item: Item<T>,
        /// The time from publishing to the reply.
        delay: Duration,
    },
    /// A reply arrived before, or the item is not this client's. The application should drop it.
    Duplicate,
}

/// The protocol at a client. Replies name items by their ids.
#[derive(Debug)]
pub struct Client<T> {
    writer: u64,
    config: Config,
    positions: BTreeMap<Writer, u64>,
    pending: Retention<Item<T>>,
}

impl<T: Clone> Client<T> {
    /// A client with writers named `writer`, which must be unique.
    pub fn new(writer: u64, config: Config) -> Self {
        let pending = Retention::new(config.again, config.again_max);
        let pending = pending.with_checkpoints(config.checkpoints);
        Self { writer, config, positions: BTreeMap::new(), pending }
    }

    /// The writer for items of `slice`. Each group has one, opened at its first use.
    pub fn writer(&self, slice: SliceId) -> Writer {
        let group = if self.config.plain { Group::BASE } else { Group::of(slice) };
        Writer { group, id: self.writer }
    }

    /// Publishes a new item. Returns the item to write, with its writer.
    ///
    /// # Errors
    /// [`Refused`]; then nothing has changed.
    pub fn publish(
        &mut self,
        now: Duration,
        id: u64,
        slice: SliceId,
        payload: T,
    ) -> Result<Item<T>, Refused> {
        if self.pending.kept() >= self.config.pending_max {
            return Err(match self.pending.len() == self.pending.kept() {
                true => Refused::Full(self.pending.len()),
                false => Refused::Uncovered(self.pending.kept()),
            });
        }
        if self.pending.contains(id) {
            return Err(Refused::Pending(id));
        }
        let writer = self.writer(slice);
        let position = self.positions.entry(writer).or_insert(0);
        *position += 1;
        let (key, position, again) = (u64::from(slice.0), *position, false);
        let item = Item { key, slice, writer, position, again, payload };
        self.pending.keep(now, id, slice, (writer, position), item.clone());
        Ok(item)
    }

    /// Handles a reply.
    pub fn reply(&mut self, now: Duration, id: u64) -> Reply<T> {
        let item = self.pending.get(id).cloned();
        match item.zip(self.pending.reply(now, id)) {
            Some((item, delay)) => Reply::First { item, delay },
            None => Reply::Duplicate,
        }
    }

    /// These items are in checkpoints of slices as numbered by `numbering`: those that have
    /// replies need not be kept.
    pub fn covered(&mut self, covered: &[Covered], numbering: &Numbering) {
        self.pending.covered(covered, numbering);
    }

    /// The slices for which workers should take checkpoints soon, as this client can keep no more
    /// items.
    pub fn wants_checkpoints(&self) -> Vec<SliceId> {
        match self.pending.kept() >= self.config.pending_max {
            true => self.pending.replied_slices(),
            false => Vec::new(),
        }
    }

    /// The next item to write again, if one is due. Call it until it returns none.
    pub fn again(&mut self, now: Duration) -> Option<Item<T>> {
        let item = self.pending.again(now)?;
        Some(Item { again: true, ..item.clone() })
    }

    /// The successor of a lost worker asks for the items of these slices, as numbered by
    /// `numbering` ([`crate::worker::Worker::recovering`]).
    pub fn asked(&mut self, now: Duration, slices: &[SliceId], numbering: &Numbering) {
        self.pending.asked(now, &Asked::new(slices, numbering));
    }

    /// A worker lacks kept items of slices that it restores ([`crate::worker::Worker::lacking`]).
    pub fn lacks(&mut self, now: Duration, lacks: &[Lacks]) {
        self.pending.lacks(now, lacks);
    }

    /// The answer to a worker that asks for these slices: the kept items, by writer.
    pub fn keeps(&self, slices: &[SliceId], numbering: &Numbering) -> Vec<Keeps> {
        let asked = Asked::new(slices, numbering);
        let mut answers: BTreeMap<Writer, Keeps> = BTreeMap::new();
        for (slice, group) in asked.groups() {
            let group = if self.config.plain { Group::BASE } else { group };
            let writer = Writer { group, id: self.writer };
            let through = self.positions.get(&writer).copied().unwrap_or(0);
            let keeps = answers.entry(writer);
            let keeps = keeps.or_insert_with(|| Keeps::new(writer, through, numbering));
            keeps.slices.insert(slice, Vec::new());
        }
        for (slice, item) in self.pending.of(&asked) {
            if let Some(keeps) = answers.get_mut(&item.writer) {
                keeps.slices.entry(slice).or_default().push(item.position);
            }
        }
        answers.into_values().collect()
    }

    /// When [`Client::again`] has to be called next.
    pub fn due(&self) -> Option<Duration> {
        self.pending.due()
    }

    /// The items without a reply, by id.
    pub fn pending(&self) -> impl Iterator<Item = (u64, &Item<T>)> {
        self.pending.iter()
    }
}
