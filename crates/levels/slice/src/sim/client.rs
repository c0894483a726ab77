//! Clients: they publish items, and publish them again until there is a reply.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::RngExt;

use crate::client::{self, Reply};
use crate::ids::SliceId;
use crate::message::Item;
use crate::numbering::Numbering;
use crate::sim::world::{Event, World};
use crate::sim::{ITEM_DELAY_US_MAX, MATCH_DELAY_US_MAX, Scenario};
use crate::worker::Sabotage;

/// An item by client and number.
pub(super) type ItemId = (u64, u64);

#[derive(Debug)]
pub(super) struct Client {
    pub id: u64,
    pub protocol: client::Client<ItemId>,
    pub created: u64,
    is_plain: bool,
    pub next: u64,
    /// Replies by item number, all of them.
    pub replies: BTreeMap<u64, u32>,
}

impl Client {
    pub(super) fn new(id: u64, created: u64, scenario: &Scenario) -> Self {
        let seed = scenario.seed;
        let checkpoints = scenario.checkpoint_us.is_some();
        let checkpoints = checkpoints && scenario.sabotage != Sabotage::ForgetReplied;
        // Some clients publish slow items again early.
        let again = [2_000, 5_000, 12_000][(id + seed / 5) as usize % 3];
        let is_plain = (id + seed / 2).is_multiple_of(2);
        let config = client::Config {
            again: Duration::from_micros(again),
            checkpoints,
            plain: is_plain,
            ..client::Config::default()
        };
        let protocol = client::Client::new(id, config);
        Self { id, protocol, created, is_plain, next: 1, replies: BTreeMap::new() }
    }

    pub(super) fn has_pending(&self) -> bool {
        self.protocol.pending().next().is_some()
    }
}

impl World {
    pub(super) fn publish_next(&mut self, client: usize) {
        if self.now >= self.until {
            return;
        }
        // Publishers that do not know groups may use more keys than slices exist.
        let is_plain = self.scenario.resizes && self.clients[client].is_plain;
        let keys = if is_plain { 4 * self.scenario.slices } else { self.scenario.slices };
        let slice = SliceId(self.rng.random_range(0..keys));
        let now = self.clock();
        let at = &mut self.clients[client];
        let number = at.next;
        at.next += 1;
        match at.protocol.publish(now, number, slice, (at.id, number)) {
            Ok(item) => self.publish(client, &item),
            Err(refused) => self.judge.fault(refused.to_string()),
        }
        let name = self.clients[client].id;
        self.judge.published.entry((slice, name)).or_default().push(number);
        self.judge.verdict.items += 1;
        let gap = self.rng.random_range(1..2 * self.scenario.item_gap_us);
        self.after(gap, Event::Publish { client });
    }

    pub(super) fn publish_again(&mut self, client: usize) {
        if !self.scenario.again {
            return;
        }
        let now = self.clock();
        while let Some(item) = self.clients[client].protocol.again(now) {
            self.publish(client, &item);
        }
        self.after(1_000, Event::Again { client });
    }

    /// Whether no messages pass between the client and the node.
    pub(super) fn is_apart(&self, client: u64, node: usize) -> bool {
        self.apart.get(&(client, node)).is_some_and(|until| *until > self.now)
    }

    /// Disconnects a client and a node. The node notices that the client's writers are gone when
    /// the items in transit have arrived. It notices their return only from their items.
    pub(super) fn part(&mut self) {
        let client = self.rng.random_range(0..self.clients.len());
        let node = self.rng.random_range(0..self.nodes.len());
        let id = self.clients[client].id;
        if !self.is_apart(id, node) {
            let lasts = self.rng.random_range(3 * ITEM_DELAY_US_MAX..60_000);
            self.apart.insert((id, node), self.now + lasts);
            self.after(2 * ITEM_DELAY_US_MAX, Event::WriterGone { node, client: id });
        }
    }

    pub(super) fn replied(&mut self, (client, item): ItemId) {
        let now = self.clock();
        let client = &mut self.clients[client as usize];
        let replies = client.replies.entry(item).or_insert(0);
        *replies += 1;
        let first = matches!(client.protocol.reply(now, item), Reply::First { .. });
        if first != (*replies == 1) {
            self.judge.fault(format!("a reply to {item} was taken for what it is not"));
        }
    }

    /// A recovering worker asks clients for their items.
    pub(super) fn ask(&mut self, node: usize) {
        let at = &self.nodes[node];
        let asks = at.alive && at.worker.sabotage != Sabotage::NoAsk;
        let slices: Vec<_> = at.worker.recovering().collect();
        let numbering = *at.worker.numbering();
        if !asks || slices.is_empty() {
            return;
        }
        for client in 0..self.clients.len() {
            if self.rng.random_range(0..1000) >= self.scenario.dropped_permille {
                let delay = self.rng.random_range(10..500);
                let slices = slices.clone();
                self.after(delay, Event::Asked { client, node, slices, numbering });
            }
        }
    }

    pub(super) fn asked(
        &mut self,
        client: usize,
        node: usize,
        slices: &[SliceId],
        numbering: &Numbering,
    ) {
        let now = self.clock();
        let protocol = &mut self.clients[client].protocol;
        protocol.asked(now, slices, numbering);
        // Some clients do not support answers. Checkpoints need clients that do.
        if self.scenario.checkpoint_us.is_none()
            && (client as u64 + self.scenario.seed / 3).is_multiple_of(3)
        {
            return;
        }
        for keeps in protocol.keeps(slices, numbering) {
            if self.rng.random_range(0..1000) >= self.scenario.dropped_permille {
                let delay = self.rng.random_range(10..3_000);
                self.after(delay, Event::Keeps { node, keeps });
            }
        }
    }

    fn publish(&mut self, client: usize, item: &Item<ItemId>) {
        let (id, created) = (self.clients[client].id, self.clients[client].created);
        for node in 0..self.nodes.len() {
            if !self.nodes[node].alive || self.is_apart(id, node) {
                continue;
            }
            let Some(reader) = self.nodes[node].readers.get_mut(&item.writer.group) else {
                continue;
            };
            // A client publishes when it has matched every reader that existed when it began.
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
            let item = item.clone();
            self.at(time, Event::Item { node, reader: number_of, item });
        }
    }
}
