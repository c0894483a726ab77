//! Admitted items that are not finished, or not replied to.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::ids::{SliceId, Writer};
use crate::message::Item;
use crate::numbering::Numbering;
use crate::positions::Positions;

/// Admitted items that are not finished, by writer and by slice.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    /// Includes items with replies in transit.
    by_writer: HashMap<Writer, BTreeSet<u64>>,
    replying: VecDeque<Replying>,
    /// Unfinished items by slice, with their keys.
    by_slice: BTreeMap<SliceId, BTreeMap<(Writer, u64), u64>>,
}

/// A finished item.
#[derive(Debug)]
struct Replying {
    finished: Duration,
    slice: SliceId,
    key: u64,
    writer: Writer,
    position: u64,
}

impl Unfinished {
    pub(super) fn add<T>(&mut self, item: &Item<T>) {
        let (writer, position) = (item.writer, item.position);
        self.by_writer.entry(writer).or_default().insert(position);
        self.by_slice.entry(item.slice).or_default().insert((writer, position), item.key);
    }

    /// Assigns all items to the new slices of their keys.
    pub(super) fn renumber(&mut self, to: &Numbering) {
        let items = std::mem::take(&mut self.by_slice).into_values().flatten();
        for (item, key) in items {
            self.by_slice.entry(to.slice_of(key)).or_default().insert(item, key);
        }
        for replying in &mut self.replying {
            replying.slice = to.slice_of(replying.key);
        }
    }

    /// The item is finished, and its reply in transit. Returns whether it was unfinished.
    pub(super) fn finish(
        &mut self,
        now: Duration,
        slice: SliceId,
        writer: Writer,
        position: u64,
    ) -> bool {
        let Some(of_slice) = self.by_slice.get_mut(&slice) else { return false };
        let Some(key) = of_slice.remove(&(writer, position)) else { return false };
        if of_slice.is_empty() {
            self.by_slice.remove(&slice);
        }
        self.replying.push_back(Replying { finished: now, slice, key, writer, position });
        true
    }

    /// The item was not started, and another worker processes it.
    pub(super) fn withdraw(&mut self, slice: SliceId, writer: Writer, position: u64) {
        if let Some(of_slice) = self.by_slice.get_mut(&slice)
            && of_slice.remove(&(writer, position)).is_some()
        {
            if of_slice.is_empty() {
                self.by_slice.remove(&slice);
            }
            self.remove_of_writer(writer, position);
        }
    }

    /// The slice goes back to an earlier state: none of it is under way any more.
    pub(super) fn clear_slice(&mut self, slice: SliceId) {
        for (writer, position) in self.by_slice.remove(&slice).unwrap_or_default().into_keys() {
            self.remove_of_writer(writer, position);
        }
    }

    /// Whether an item of `slice` at or below these positions is not finished.
    pub(super) fn has_up_to(&self, slice: SliceId, positions: &Positions) -> bool {
        let Some(items) = self.by_slice.get(&slice) else { return false };
        let has = |(writer, at)| items.range((writer, 0)..=(writer, at)).next().is_some();
        positions.iter().any(has)
    }

    /// Replies to items that were finished by then have arrived.
    pub(super) fn replied(&mut self, until: Duration) {
        while let Some(Replying { slice, writer, position, .. }) =
            self.replying.pop_front_if(|replying| replying.finished <= until)
        {
            // It may have been admitted again.
            if !self.has(slice, writer, position) {
                self.remove_of_writer(writer, position);
            }
        }
    }

    /// Whether it was admitted and is not finished.
    pub(super) fn has(&self, slice: SliceId, writer: Writer, position: u64) -> bool {
        self.by_slice.get(&slice).is_some_and(|items| items.contains_key(&(writer, position)))
    }

    /// Number of unfinished items of all slices.
    pub(super) fn len(&self) -> usize {
        self.by_slice.values().map(BTreeMap::len).sum()
    }

    /// Whether everything is finished and replied to.
    pub(super) fn is_clear(&self) -> bool {
        self.by_writer.is_empty() && self.replying.is_empty() && self.by_slice.is_empty()
    }

    /// Number of unfinished items of `slice`.
    pub(super) fn of_slice(&self, slice: SliceId) -> usize {
        self.by_slice.get(&slice).map_or(0, BTreeMap::len)
    }

    /// The first position of `writer` without a reply.
    pub(super) fn least(&self, writer: Writer) -> Option<u64> {
        self.by_writer.get(&writer).and_then(|positions| positions.first().copied())
    }

    pub(super) fn clear(&mut self) {
        self.by_writer.clear();
        self.replying.clear();
        self.by_slice.clear();
    }

    fn remove_of_writer(&mut self, writer: Writer, position: u64) {
        if let Some(positions) = self.by_writer.get_mut(&writer) {
            positions.remove(&position);
            if positions.is_empty() {
                self.by_writer.remove(&writer);
            }
        }
    }
}
