//! Unstarted items move with their slice.
//!
//! At the cut the source takes back, from the queues of its caller, every item of the slices that
//! is not started. It processes items that were published again after a loss itself, as they are
//! out of order. The others become the first entries of the tail, in their order. The source keeps
//! each entry until the target has acknowledged it, so a message may be lost, late or duplicated.
//! CUT contains the positions after which such items follow: until the target has finished them, it
//! claims no more than that.
//!
//! The source keeps the positions of these items uncommitted until the controller has claims of the
//! target that cover them ([`Progress::claimed`](crate::message::Progress)). So at every moment the
//! claims of at least one of the two show the item as unfinished. If the target is lost before
//! that, its slices return to the source. The source then processes the items that were not
//! acknowledged, and accepts the others from clients.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::config::Order;
use crate::ids::{HandoverId, SliceId, Writer};
use crate::message::{Backlog, Item, TailEntry};
use crate::worker::ownership::Handed;
use crate::worker::{Output, Reason, SourceAction, Worker};

/// The items of one handover that its source had not started, kept at the source.
#[derive(Debug, Default)]
pub(super) struct Unstarted {
    /// All items, by slice.
    items: BTreeMap<SliceId, BTreeSet<(Writer, u64)>>,
    /// By slice: the number of the tail entry after its last item.
    ends: BTreeMap<SliceId, u64>,
    /// By writer: the position before its first item.
    after: BTreeMap<Writer, u64>,
}

impl Unstarted {
    /// Stores `items`, which are the first entries of the tail.
    pub(super) fn new<T>(items: &[Item<T>]) -> Self {
        let mut unstarted = Self::default();
        for (number, item) in (1..).zip(items) {
            let (slice, writer, position) = (item.slice, item.writer, item.position);
            unstarted.items.entry(slice).or_default().insert((writer, position));
            unstarted.ends.insert(slice, number);
            let after = unstarted.after.entry(writer).or_insert(position - 1);
            *after = (position - 1).min(*after);
        }
        unstarted
    }

    /// The position before the first item of `writer`.
    pub(super) fn after(&self, writer: Writer) -> Option<u64> {
        self.after.get(&writer).copied()
    }

    /// The number of the tail entry after the last item of `slice`.
    pub(super) fn end(&self, slice: SliceId) -> u64 {
        self.ends.get(&slice).copied().unwrap_or(0)
    }

    /// The backlog for CUT.
    pub(super) fn backlog(&self) -> Vec<Backlog> {
        let of_slice = |(slice, items): (&SliceId, &BTreeSet<(Writer, u64)>)| {
            let mut backlog: Vec<Backlog> = Vec::new();
            for (writer, position) in items {
                if backlog.last().is_none_or(|last| last.writer != *writer) {
                    backlog.push(Backlog { slice: *slice, writer: *writer, after: position - 1 });
                }
            }
            backlog
        };
        self.items.iter().flat_map(of_slice).collect()
    }

    /// Removes the items of `slice`.
    fn take(&mut self, slice: SliceId) -> BTreeSet<(Writer, u64)> {
        self.items.remove(&slice).unwrap_or_default()
    }
}

/// Items that return to a source with its slices.
pub(super) struct Returned<T> {
    /// Items that the target did not acknowledge, in order.
    pub items: VecDeque<Item<T>>,
    /// Items that the target acknowledged, by slice.
    pub handed: BTreeMap<SliceId, Handed>,
}

impl<T: Clone> Worker<T> {
    /// The answer to [`Output::Recall`]: the items that were taken back, those of each slice in
    /// order.
    pub fn recalled(&mut self, now: Duration, handover: HandoverId, items: Vec<Item<T>>) {
        let is_given =
            |slice: SliceId| self.released.get(&slice).is_some_and(|it| it.handover == handover);
        // Items that were published again stay: later items may be finished, which CUT does not
        // show. Items of slices that have returned stay, too.
        let (items, stay): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|item| !item.again && is_given(item.slice));
        self.out.extend(stay.into_iter().map(Output::Execute));
        for item in &items {
            self.unfinished.withdraw(item.slice, item.writer, item.position);
        }
        let Some(giving) = self.giving.get_mut(&handover) else { return };
        if !std::mem::take(&mut giving.recalls) {
            return;
        }
        giving.hand_over(items);
        let slices = giving.slices.clone();
        let is_given =
            |slice: &&SliceId| self.released.get(*slice).is_some_and(|it| it.handover == handover);
        let (mut idle, mut undrained) = (Vec::new(), BTreeSet::new());
        for slice in slices.iter().filter(is_given) {
            match self.unfinished.of_slice(*slice) {
                0 => idle.push(*slice),
                _ => drop(undrained.insert(*slice)),
            }
        }
        if self.config.order == Order::Stateful {
            undrained.extend(&idle);
        }
        giving.undrained = undrained;
        self.give(now, handover, SourceAction::SendCut);
        // After the cut: the target ignores it before.
        self.drained(now, handover, idle);
        self.say_tail(now, handover);
    }

    /// The items of `slices` that were handed over and return with them.
    pub(super) fn take_back(&mut self, slices: &[SliceId]) -> Returned<T> {
        let mut returned = Returned { items: VecDeque::new(), handed: BTreeMap::new() };
        let handovers: BTreeSet<_> =
            slices.iter().filter_map(|slice| Some(self.released.get(slice)?.handover)).collect();
        for handover in handovers {
            let Some(giving) = self.giving.get_mut(&handover) else { continue };
            let items = giving.unstarted_in_tail(slices);
            for slice in slices {
                let items = giving.unstarted.take(*slice);
                let handed = Handed { items, after: BTreeMap::new() };
                returned.handed.entry(*slice).or_insert(handed);
            }
            for item in &items {
                if let Some(handed) = returned.handed.get_mut(&item.slice) {
                    handed.items.remove(&(item.writer, item.position));
                }
            }
            returned.items.extend(items);
        }
        // The handover was over here when the controller gave its target up.
        for slice in slices.iter().filter(|slice| !self.released.contains_key(*slice)) {
            let after = self.past.handed(*slice);
            let handed = Handed { after, items: BTreeSet::new() };
            returned.handed.insert(*slice, handed);
        }
        returned
    }

    /// Admits an item of an owned slice that its source had not started.
    pub(super) fn admit_unstarted(&mut self, handover: HandoverId, item: Item<T>) {
        let Some(owned) = self.owned.get_mut(&item.slice).filter(|it| it.epoch == handover) else {
            return self.drops.count(Reason::NotOwned);
        };
        // Another owner may have returned to an earlier state: then this worker processes these
        // items again.
        let is_done = self.config.checkpoints().is_none()
            && self.memory.has_finished(item.writer, item.position);
        if is_done || self.unfinished.has(item.slice, item.writer, item.position) {
            return self.drops.count(Reason::Duplicate);
        }
        self.unfinished.add(&item);
        *self.handed_over.entry(item.slice).or_default() += 1;
        match &owned.held {
            Some(_) => owned.unstarted.push(item),
            None => self.out.push_back(Output::Execute(item)),
        }
    }

    /// Forgets lower bounds when all their items are finished and replied to.
    pub(super) fn settle_backlogs(&mut self) {
        for owned in self.owned.values_mut().filter(|owned| !owned.low.is_empty()) {
            let taking = self.taking.get(&owned.epoch);
            if taking.is_some_and(|taking| !taking.has_backlog()) || owned.recovering.is_some() {
                continue;
            }
            let (unfinished, cut) = (&self.unfinished, &owned.cut);
            owned.low.retain(|writer, _| {
                unfinished.least(*writer).is_some_and(|least| least <= cut.of(*writer))
            });
        }
    }
}

/// The unstarted items of `slices` at the beginning of `tail`.
pub(super) fn unstarted_of<T: Clone>(
    tail: &VecDeque<TailEntry<T>>,
    slices: &[SliceId],
) -> Vec<Item<T>> {
    let slices: BTreeSet<_> = slices.iter().collect();
    let items = tail.iter().filter_map(|entry| match entry {
        TailEntry::Unstarted(item) if slices.contains(&item.slice) => Some(item.clone()),
        _ => None,
    });
    items.collect()
}
