//! Recovery in order: the unfinished items of a lost worker are processed before newer ones.
//!
//! Clients publish the items of a lost worker again, while newer items of the same writers arrive.
//! In strict order the successor therefore holds all items of a recovered slice. It asks clients
//! for their items, and a client answers which ones it keeps ([`Keeps`]). When all of these have
//! arrived, no item of that writer is missing, and the worker starts them by their positions. Newer
//! ones follow at once if the worker has received the writer's items since before the answer;
//! otherwise the next answer covers them. Some publishers do not answer: when no item was published
//! again for [`Config::recovery`](crate::Config::recovery), the worker starts the items that it
//! has. An item that arrives later is processed when it is an orphan, and counted as
//! [`Reason::OutOfOrder`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::ids::{SliceId, Writer};
use crate::message::{Item, Keeps, Lacks};
#[cfg(test)]
use crate::worker::Sabotage;
use crate::worker::ownership::Recovering;
use crate::worker::{Output, Reason, Worker};

impl<T: Clone> Worker<T> {
    /// Whether items of a recovered slice wait until the recovery is over.
    pub(super) fn recovers_in_order(&self) -> bool {
        let strict = self.config.order.is_strict();
        #[cfg(test)]
        let strict = strict && self.sabotage != Sabotage::NoRecoveryHold;
        strict
    }

    /// A client's answer to the worker that recovers slices of its items ([`Worker::recovering`]).
    pub fn keeps(&mut self, now: Duration, keeps: &Keeps) {
        let Keeps { writer, through, slices, numbering } = keeps;
        if *numbering != self.numbering.epoch {
            return;
        }
        for (slice, positions) in slices {
            let Some(owned) = self.owned.get_mut(slice) else { continue };
            let (unfinished, memory) = (&self.unfinished, &self.memory);
            let replays = owned.recovering.as_ref().is_some_and(Recovering::replays);
            let here = |at| {
                unfinished.has(*slice, *writer, at) || !replays && memory.has_finished(*writer, at)
            };
            if owned.held.is_some()
                && let Some(recovering) = &mut owned.recovering
            {
                recovering.answered(now, *writer, *through, positions, here);
                self.start_known(*slice);
            }
        }
    }

    /// Items that clients keep and that a replay still lacks: clients should publish them again.
    /// At most about `max` items; call it again when these have arrived.
    pub fn lacking(&self, max: usize) -> Vec<Lacks> {
        let mut all: BTreeMap<Writer, BTreeSet<u64>> = BTreeMap::new();
        let mut count = 0;
        for (slice, owned) in &self.owned {
            let Some(recovering) = owned.recovering.as_ref().filter(|it| it.replays()) else {
                continue;
            };
            if self.restores.has(*slice) {
                continue;
            }
            for (writer, missing) in recovering.missing() {
                if count >= max {
                    break;
                }
                count += missing.len();
                all.entry(writer).or_default().extend(missing);
            }
        }
        let lacks = |(writer, positions): (_, BTreeSet<_>)| Lacks {
            writer,
            positions: positions.into_iter().collect(),
        };
        all.into_iter().map(lacks).collect()
    }

    /// A new item of an owned slice has arrived, in its writer's order.
    pub(super) fn hears(&mut self, item: &Item<T>) {
        let owned = self.owned.get_mut(&item.slice);
        if let Some(recovering) = owned.and_then(|owned| owned.recovering.as_mut()) {
            recovering.hears(item.writer, item.position);
        }
    }

    /// Handles an item of a slice while its items are held.
    pub(super) fn hold(&mut self, item: Item<T>) {
        let Some(owned) = self.owned.get_mut(&item.slice) else { return };
        let Some(held) = &mut owned.held else { return };
        let (slice, writer, position) = (item.slice, item.writer, item.position);
        let Some(recovering) = &mut owned.recovering else { return held.push(item) };
        let restoring = self.restores.has(slice);
        if !restoring && recovering.is_in_order(writer, position) {
            return self.start_in_order(vec![item]);
        }
        held.push(item);
        if recovering.came(writer, position) && !restoring {
            self.start_known(slice);
        }
    }

    /// Starts held items of `slice` that have no missing item before them.
    pub(super) fn start_known(&mut self, slice: SliceId) {
        if self.restores.has(slice) {
            return;
        }
        let Some(owned) = self.owned.get_mut(&slice) else { return };
        let (Some(recovering), Some(held)) = (&owned.recovering, &mut owned.held) else { return };
        let is_known = |item: &Item<T>| recovering.is_in_order(item.writer, item.position);
        let all = std::mem::take(&mut owned.unstarted).into_iter().chain(std::mem::take(held));
        let (known, others): (Vec<_>, Vec<_>) = all.partition(is_known);
        *held = others;
        self.start_in_order(known);
    }

    /// Ends recoveries after their time, and starts the held items.
    pub(super) fn tick_recovery(&mut self, now: Duration) {
        if self.is_fenced() {
            return;
        }
        let recovery = self.config.recovery;
        let mut ended = Vec::new();
        for (slice, owned) in &mut self.owned {
            let is_over = |recovering: &Recovering| recovering.is_over(now, recovery);
            if !self.restores.has(*slice) && owned.recovering.as_ref().is_some_and(is_over) {
                owned.recovering = None;
                ended.push(*slice);
            }
        }
        for slice in &ended {
            self.start_recovered(*slice);
        }
        if !ended.is_empty() {
            self.move_on(now);
        }
    }

    /// Starts the items of `slice` that were held during the recovery.
    fn start_recovered(&mut self, slice: SliceId) {
        let Some(owned) = self.owned.get_mut(&slice) else { return };
        let Some(held) = owned.held.take() else { return };
        let unstarted = std::mem::take(&mut owned.unstarted);
        self.start_in_order(unstarted.into_iter().chain(held).collect());
    }

    /// Starts items that wait for no missing item any more.
    fn start_in_order(&mut self, items: Vec<Item<T>>) {
        let items = by_position(items);
        // No living worker has finished an item after one of these, so they may be handed over.
        let in_order = items.into_iter().map(|item| Item { again: false, ..item });
        self.out.extend(in_order.map(Output::Execute));
    }

    /// Executes an orphan of an owned slice, which came too late to be recovered in order.
    pub(super) fn execute_orphan(&mut self, item: Item<T>) {
        if self.config.order.is_strict() {
            self.drops.count(Reason::OutOfOrder);
        }
        self.execute(item);
    }
}

/// Sorts the items of each writer by position, without changing the places of the writers.
fn by_position<T>(items: Vec<Item<T>>) -> Vec<Item<T>> {
    let writers: Vec<_> = items.iter().map(|item| item.writer).collect();
    let mut by_writer: HashMap<Writer, Vec<Item<T>>> = HashMap::new();
    for item in items {
        by_writer.entry(item.writer).or_default().push(item);
    }
    let sorted = |mut items: Vec<Item<T>>| {
        items.sort_by_key(|item| item.position);
        VecDeque::from(items)
    };
    let mut sorted: HashMap<_, _> =
        by_writer.into_iter().map(|(writer, items)| (writer, sorted(items))).collect();
    let next = |writer: &Writer| sorted.get_mut(writer).and_then(VecDeque::pop_front);
    writers.iter().filter_map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Group;

    #[test]
    fn items_of_each_writer_are_sorted_and_writers_keep_their_places() {
        let item = |(id, position)| Item {
            key: 1,
            slice: SliceId(1),
            writer: Writer { group: Group::BASE, id },
            position,
            again: false,
            payload: (),
        };
        let came = [(1, 9), (2, 3), (1, 7), (2, 1), (1, 8)].map(item);
        let sorted = by_position(came.to_vec());
        let sorted: Vec<_> = sorted.iter().map(|item| (item.writer.id, item.position)).collect();
        assert_eq!(sorted, [(1, 7), (2, 1), (1, 8), (2, 3), (1, 9)]);
    }
}
