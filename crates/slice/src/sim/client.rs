//! A client: publishes items, and, if it is to, again until there is a reply.

use std::collections::BTreeMap;

use rand::RngExt;

use crate::ids::{Group, SliceId, Writer};
use crate::message::Item;
use crate::sim::world::{Event, World};
use crate::sim::{ITEM_DELAY_US_MAX, MATCH_DELAY_US_MAX};

/// An item by client and number.
pub(super) type ItemId = (u64, u64);

#[derive(Debug)]
pub(super) struct Client {
    pub id: u64,
    /// Writes to the base topic only.
    pub plain: bool,
    pub created: u64,
    pub next: u64,
    /// Items without a reply: slice, and when it was last published.
    pub pending: BTreeMap<u64, (SliceId, u64)>,
    /// Replies, by item.
    pub replies: BTreeMap<u64, u32>,
}

impl Client {
    pub(super) fn new(id: u64, created: u64, seed: u64) -> Self {
        Self {
            id,
            plain: (id + seed / 2).is_multiple_of(2),
            created,
            next: 1,
            pending: BTreeMap::new(),
            replies: BTreeMap::new(),
        }
    }

    pub(super) fn writer(&self, slice: SliceId) -> Writer {
        let group = if self.plain { Group::BASE } else { Group::of(slice) };
        Writer { group, id: self.id }
    }
}

impl World {
    pub(super) fn publish_next(&mut self, client: usize) {
        if self.now >= self.until {
            return;
        }
        let slice = SliceId(self.rng.random_range(0..self.scenario.slices));
        let at = &mut self.clients[client];
        let item = at.next;
        at.next += 1;
        at.pending.insert(item, (slice, self.now));
        self.judge.verdict.items += 1;
        self.publish(client, slice, item, false);
        let gap = self.rng.random_range(1..2 * self.scenario.item_gap_us);
        self.after(gap, Event::Publish { client });
    }

    pub(super) fn publish_again(&mut self, client: usize) {
        let old = self.now.saturating_sub(12_000);
        let pending = self.clients[client].pending.iter_mut();
        let due = pending.filter(|(_, (_, at))| *at <= old);
        let mut again = Vec::new();
        for (item, (slice, at)) in due {
            *at = self.now;
            again.push((*slice, *item));
        }
        for (slice, item) in again {
            self.publish(client, slice, item, true);
        }
        self.after(6_000, Event::Again { client });
    }

    pub(super) fn publish(&mut self, client: usize, slice: SliceId, number: u64, again: bool) {
        let at = &self.clients[client];
        let (id, writer, created) = (at.id, at.writer(slice), at.created);
        for node in 0..self.nodes.len() {
            if !self.nodes[node].alive {
                continue;
            }
            let process = self.nodes[node].process;
            let Some(reader) = self.nodes[node].readers.get_mut(&writer.group) else { continue };
            // A client publishes when it has matched every reader there was when it began.
            let matched = *reader.matched.entry(id).or_insert_with(|| {
                if reader.opened <= created {
                    0
                } else {
                    reader.opened + self.rng.random_range(0..MATCH_DELAY_US_MAX)
                }
            });
            if matched > self.now {
                continue;
            }
            let number_of = reader.number;
            let late = self.rng.random_range(0..20) == 0;
            let delay = self.rng.random_range(10..if late { ITEM_DELAY_US_MAX } else { 400 });
            let arrived = self.arrived.entry((id, node, number_of)).or_insert(0);
            *arrived = (self.now + delay).max(*arrived + 1);
            let time = *arrived;
            let item = Item { slice, writer, position: number, again, payload: (id, number) };
            self.at(time, Event::Item { node, process, reader: number_of, item });
        }
    }
}
