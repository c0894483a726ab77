//! Recovery in order: what a lost worker left undone is done before newer items.
//!
//! Clients publish again the items of a lost worker, while newer items of the same writers come, too. Where order is
//! strict the successor therefore holds everything of a recovered slice. When nothing has come again for
//! [`Config::recovery`](crate::Config::recovery), it starts the items, those of each writer by their positions.
//! An item that comes after that is done when it is an orphan, and counted: [`Reason::OutOfOrder`].

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::ids::{SliceId, Writer};
use crate::message::Item;
#[cfg(test)]
use crate::worker::Sabotage;
use crate::worker::{Output, Reason, Worker};

impl<T: Clone> Worker<T> {
    /// Whether items of a recovered slice wait until the recovery is over.
    pub(super) fn recovers_in_order(&self) -> bool {
        let strict = self.config.order.is_strict();
        #[cfg(test)]
        let strict = strict && self.sabotage != Sabotage::NoRecoveryHold;
        strict
    }

    /// Ends recoveries whose time is over, and starts what they held.
    pub(super) fn tick_recovery(&mut self, now: Duration) {
        if self.is_fenced() {
            return;
        }
        let recovery = self.config.recovery;
        let mut ended = Vec::new();
        for (slice, owned) in &mut self.owned {
            let since = owned.recovering.as_ref().map(|recovering| recovering.since());
            if since.is_some_and(|since| now.saturating_sub(since) >= recovery) {
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

    /// Starts the items of `slice` that were held while it was recovered.
    fn start_recovered(&mut self, slice: SliceId) {
        let Some(owned) = self.owned.get_mut(&slice) else { return };
        let Some(held) = owned.held.take() else { return };
        let unstarted = std::mem::take(&mut owned.unstarted);
        let items = by_position(unstarted.into_iter().chain(held).collect());
        // No item after one of these is done by a worker that lives: they may be handed over.
        let in_order = items.into_iter().map(|item| Item { again: false, ..item });
        self.out.extend(in_order.map(Output::Execute));
    }

    /// An item of an owned slice that nobody has, and that came too late to be recovered in order.
    pub(super) fn execute_orphan(&mut self, item: Item<T>) {
        if self.config.order.is_strict() {
            self.drops.count(Reason::OutOfOrder);
        }
        self.execute(item);
    }
}

/// The items of each writer by their positions, in the places that the writer's items have among all.
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
