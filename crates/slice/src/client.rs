//! A client: which slice an item is of, and what is kept until there is a reply. No socket, clock or thread.
//!
//! An item is kept until its first reply, and published again while there is none: that is how what a lost worker had
//! gets to its successor. A worker that executed it and was lost before its reply came makes a second reply possible;
//! it is told from the first.

mod assignment;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thiserror::Error;

pub use assignment::{Assignment, Bounds, BoundsInvalid};

use crate::ids::{Group, SliceId, Writer};
use crate::message::Item;

/// How long and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Published again when there was no reply for so long. A quarter of the workers' `recovery` or less, so that a
    /// lost try or two do no harm.
    pub again: Duration,
    /// Items that are kept without a reply.
    pub pending_max: usize,
    /// Write to the base topic only, as publishers do that know no groups.
    pub plain: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { again: Duration::from_millis(500), pending_max: 65_536, plain: false }
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

#[derive(Debug)]
struct Pending<T> {
    item: Item<T>,
    published: Duration,
    due: Duration,
}

/// A client's side. Items have ids, by which replies name them.
#[derive(Debug)]
pub struct Client<T> {
    writer: u64,
    config: Config,
    positions: BTreeMap<Writer, u64>,
    pending: BTreeMap<u64, Pending<T>>,
    due: BTreeSet<(Duration, u64)>,
}

impl<T: Clone> Client<T> {
    /// A client whose writers are called `writer`, as no other's are.
    pub fn new(writer: u64, config: Config) -> Self {
        Self {
            writer,
            config,
            positions: BTreeMap::new(),
            pending: BTreeMap::new(),
            due: BTreeSet::new(),
        }
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
        if self.pending.contains_key(&id) {
            return Err(Refused::Pending(id));
        }
        let writer = self.writer(slice);
        let position = self.positions.entry(writer).or_insert(0);
        *position += 1;
        let item = Item { slice, writer, position: *position, again: false, payload };
        let due = now + self.config.again;
        self.pending.insert(id, Pending { item: item.clone(), published: now, due });
        self.due.insert((due, id));
        Ok(item)
    }

    /// A reply came.
    pub fn reply(&mut self, now: Duration, id: u64) -> Reply<T> {
        let Some(pending) = self.pending.remove(&id) else { return Reply::Duplicate };
        self.due.remove(&(pending.due, id));
        Reply::First { item: pending.item, delay: now.saturating_sub(pending.published) }
    }

    /// The next item that is to be written again, if one is due. Call it until there is none.
    pub fn again(&mut self, now: Duration) -> Option<Item<T>> {
        let (due, id) = *self.due.first()?;
        if due > now {
            return None;
        }
        self.due.pop_first();
        let pending = self.pending.get_mut(&id)?;
        pending.due = now + self.config.again.max(Duration::from_nanos(1));
        self.due.insert((pending.due, id));
        Some(Item { again: true, ..pending.item.clone() })
    }

    /// When [`Client::again`] has to be called next.
    pub fn due(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The items that have no reply, by id.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = (u64, &Item<T>)> {
        self.pending.iter().map(|(id, pending)| (*id, &pending.item))
    }
}
