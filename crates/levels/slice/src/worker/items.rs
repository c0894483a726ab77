//! Which arriving items this worker processes: its own, each once and in order.

use std::time::Duration;

use crate::ids::{Group, SliceId, Writer};
use crate::message::Item;
#[cfg(test)]
use crate::worker::Sabotage;
use crate::worker::taking::Hole;
use crate::worker::{Output, Reason, Worker};

/// A client without a reply this long after an item was finished may have lost it.
const ANSWER: Duration = Duration::from_millis(500);

/// The positions received from a writer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub first: u64,
    pub last: u64,
}

impl<T: Clone> Worker<T> {
    /// An item arrived. Items of a writer arrive in order, without gaps from the first one on; an
    /// item that is published again may arrive at any time.
    pub fn item(&mut self, now: Duration, mut item: Item<T>) {
        self.claims.change();
        // It may have been read before a resize.
        item.slice = self.numbering.slice_of(item.key);
        let group = item.writer.group;
        if !self.subscriptions.contains_key(&group)
            || (group != Group::BASE && group != Group::of_key(item.key))
        {
            self.drops.count(Reason::NotOwned);
            return;
        }
        let again = item.again;
        #[cfg(test)]
        let again = again && self.sabotage != Sabotage::TrustAgain;
        if again {
            return self.again(now, item);
        }
        // The writer's return may be noticed only after its items.
        self.gone.remove(&item.writer);
        let position = item.position;
        let seen = self.seen.entry(item.writer).or_insert(Seen { first: position, last: 0 });
        if position <= seen.last {
            return self.again(now, item);
        }
        seen.last = position;
        let first = seen.first;
        self.route(now, item, first);
        if !self.watching.is_empty() {
            self.move_on(now);
        }
    }

    /// Handles an item that was published before. Every worker that received it then has it, unless
    /// the worker or the item was lost.
    pub(super) fn again(&mut self, now: Duration, item: Item<T>) {
        let (writer, position) = (item.writer, item.position);
        if self.replays(now, &item) {
            return self.admit(item, false);
        }
        // No other worker has the reply, even if another owns the slice.
        if self.has_finished(item.slice, writer, position) {
            self.drops.count(Reason::Duplicate);
            // The reply may still be in transit: if it is lost, the item is published once more.
            let then = now.checked_sub(self.config.orphan.min(ANSWER));
            if then.is_some_and(|then| self.memory.has_finished_before(then, writer, position)) {
                self.out.push_back(Output::Answer(item));
            }
            return;
        }
        let Some(owned) = self.owned.get_mut(&item.slice) else {
            return self.drops.count(Reason::NotOwned);
        };
        if self.unfinished.has(item.slice, writer, position) {
            return self.drops.count(Reason::Duplicate);
        }
        if owned.recovers(now, writer, position) {
            return self.admit(item, false);
        }
        let orphan = self.orphan_after();
        #[cfg(test)]
        let orphan = if self.sabotage == Sabotage::NoOrphans { Duration::MAX } else { orphan };
        if self.may_be_elsewhere(&item) || !self.memory.is_orphan(now, writer, position, orphan) {
            return self.drops.count(Reason::Duplicate);
        }
        self.execute_orphan(item);
    }

    /// Time after which an orphan is processed: its last owner may be paused for a lease, and have
    /// it.
    pub(super) fn orphan_after(&self) -> Duration {
        self.config.orphan.max(self.config.lease + self.config.margin)
    }

    /// Whether an item of an owned slice may be at its source, or wait here for a tail.
    pub(super) fn may_be_elsewhere(&self, item: &Item<T>) -> bool {
        let Some(owned) = self.owned.get(&item.slice) else { return true };
        let Some(taking) = self.taking.get(&owned.epoch) else { return false };
        if taking.state.is_over() || taking.source.is_none() {
            return false;
        }
        item.position <= owned.floor.of(item.writer) || !taking.is_known(item.writer)
    }

    /// The application has finished an item, and its reply is in transit: it counts as committed
    /// after [`Config::reply`].
    pub fn finished(&mut self, now: Duration, slice: SliceId, writer: Writer, position: u64) {
        if !self.unfinished.finish(now, slice, writer, position) {
            return;
        }
        self.claims.change();
        self.memory.finish(now, writer, position);
        if self.unfinished.of_slice(slice) == 0 {
            self.slice_drained(now, slice);
        }
    }

    pub(super) fn route(&mut self, now: Duration, item: Item<T>, first: u64) {
        if self.standby.is_on() && !self.owned.contains_key(&item.slice) {
            self.stand_by(&item);
        }
        if let Some(owned) = self.owned.get(&item.slice) {
            let epoch = owned.epoch;
            #[cfg(test)]
            if self.sabotage == Sabotage::NoTail {
                return self.admit(item, true);
            }
            if let Some(taking) = self.taking.get_mut(&epoch) {
                match taking.hole(&item, first) {
                    Hole::None => {}
                    Hole::Waits => return,
                    Hole::Asks => return self.begin_active(now, epoch),
                }
            }
            self.hears(&item);
            self.admit(item, true);
        } else if let Some(handover) = self.shadow_of(item.slice) {
            self.shadow(now, handover, item);
        } else if let Some(handover) = self.released.get(&item.slice).map(|it| it.handover) {
            self.release(now, handover, item);
        } else {
            self.drops.count(Reason::NotOwned);
        }
    }

    /// Admits an item of an owned slice that has no gap before it. `fresh`: it arrives for the
    /// first time.
    pub(super) fn admit(&mut self, mut item: Item<T>, fresh: bool) {
        let Some(owned) = self.owned.get_mut(&item.slice) else { return };
        // Items after it may be finished already, so it is not handed over. Held items are
        // processed in order.
        item.again |= owned.held.is_none() && owned.is_recovering(item.writer, item.position);
        match owned.admit(item.writer, item.position, fresh) {
            Ok(()) => {}
            #[cfg(test)]
            Err(Reason::Late) if self.sabotage == Sabotage::NoLateDrop => {}
            Err(reason) => return self.drops.count(reason),
        }
        self.execute(item);
    }

    /// The item is this worker's to process.
    pub(super) fn execute(&mut self, item: Item<T>) {
        let Some(owned) = self.owned.get_mut(&item.slice) else { return };
        self.unfinished.add(&item);
        match owned.held {
            Some(_) => self.hold(item),
            None => self.out.push_back(Output::Execute(item)),
        }
    }

    pub(super) fn last(&self, writer: Writer) -> Option<u64> {
        self.seen.get(&writer).map(|seen| seen.last)
    }

    /// Whether all items of `writer` up to `position` that can arrive have arrived.
    pub(super) fn has_reached(&self, writer: Writer, position: u64) -> bool {
        self.last(writer).is_some_and(|last| last >= position) || self.gone.contains_key(&writer)
    }
}
