//! A client: which slice an item is of, and what is kept until there is a reply. No socket, clock or thread.
//!
//! An item is kept until its first reply, and published again while there is none: that is how what a lost worker had
//! gets to its successor. A worker that executed it and was lost before its reply came makes a second reply possible;
//! it is told from the first.

mod assignment;
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
use crate::message::{Item, Keeps};
use crate::numbering::Numbering;

/// How long and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Published again when there was no reply for so long, at least; longer where replies take longer. And so often
    /// while the successor of a lost worker asks for it: a quarter of the workers' `recovery` or less, so that a lost
    /// try or two do no harm.
    pub again: Duration,
    /// The first time, it is not waited for longer.
    pub again_max: Duration,
    /// Items that are kept without a reply.
    pub pending_max: usize,
    /// Write to the base topic only, as publishers do that know no groups.
    pub plain: bool,
}

impl Default for Config {
    fn default() -> Self {
        let (again, again_max) = (Duration::from_millis(500), Duration::from_secs(60));
        Self { again, again_max, pending_max: 65_536, plain: false }
    }
}

/// Why an item is not published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// As many items as may be wait for replies.
    #[error(
        "{0} items wait for their replies, which is as many as may (`pending_max`): wait for replies"
    )]
    Full(usize),
    /// The id waits for its reply.
    #[error("item {0} was published before and has no reply yet: give each item an id of its own")]
    Pending(u64),
}

/// What a reply is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<T> {
    /// The first for its item, which came this long after the item was first published.
    First {
        /// The item, which is kept no longer.
        item: Item<T>,
        /// The time from publishing to the reply.
        delay: Duration,
    },
    /// There was one before, or the item is not this client's. It is to be dropped.
    Duplicate,
}

/// A client's side. Items have ids, by which replies name them.
#[derive(Debug)]
pub struct Client<T> {
    writer: u64,
    config: Config,
    positions: BTreeMap<Writer, u64>,
    pending: Retention<Item<T>>,
}

impl<T: Clone> Client<T> {
    /// A client whose writers are called `writer`, as no other's are.
    pub fn new(writer: u64, config: Config) -> Self {
        let pending = Retention::new(config.again, config.again_max);
        Self { writer, config, positions: BTreeMap::new(), pending }
    }

    /// The writer for items of `slice`: there is one for each group, opened when it is first used.
    pub fn writer(&self, slice: SliceId) -> Writer {
        let group = if self.config.plain { Group::BASE } else { Group::of(slice) };
        Writer { group, id: self.writer }
    }

    /// A new item: what is to be written now, by its writer.
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
        if self.pending.len() >= self.config.pending_max {
            return Err(Refused::Full(self.pending.len()));
        }
        if self.pending.contains(id) {
            return Err(Refused::Pending(id));
        }
        let writer = self.writer(slice);
        let position = self.positions.entry(writer).or_insert(0);
        *position += 1;
        let (key, position, again) = (u64::from(slice.0), *position, false);
        let item = Item { key, slice, writer, position, again, payload };
        self.pending.keep(now, id, slice, item.clone());
        Ok(item)
    }

    /// A reply came.
    pub fn reply(&mut self, now: Duration, id: u64) -> Reply<T> {
        match self.pending.reply(now, id) {
            Some((item, delay)) => Reply::First { item, delay },
            None => Reply::Duplicate,
        }
    }

    /// The next item that is to be written again, if one is due. Call it until there is none.
    pub fn again(&mut self, now: Duration) -> Option<Item<T>> {
        let item = self.pending.again(now)?;
        Some(Item { again: true, ..item.clone() })
    }

    /// The successor of a lost worker asks for what there is of these slices
    /// ([`crate::worker::Worker::recovering`]), which it names by `numbering`.
    pub fn asked(&mut self, now: Duration, slices: &[SliceId], numbering: &Numbering) {
        self.pending.asked(now, &Asked::new(slices, numbering));
    }

    /// Answers a worker that asks for these slices: the items without a reply, for each writer.
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

    /// The items that have no reply, by id.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = (u64, &Item<T>)> {
        self.pending.iter()
    }
}
