//! What was admitted and is not finished, or not replied to.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::ids::{SliceId, Writer};

/// Admitted items that are not finished, by writer and by slice.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    /// With those whose replies are on their way.
    by_writer: HashMap<Writer, BTreeSet<u64>>,
    /// Finished, and when.
    replying: VecDeque<(Duration, SliceId, Writer, u64)>,
    by_slice: BTreeMap<SliceId, BTreeSet<(Writer, u64)>>,
}

impl Unfinished {
    pub(super) fn add(&mut self, slice: SliceId, writer: Writer, position: u64) {
        self.by_writer.entry(writer).or_default().insert(position);
        self.by_slice.entry(slice).or_default().insert((writer, position));
    }

    /// It is finished, and the reply is on its way. Whether it was there.
    pub(super) fn finish(
        &mut self,
        now: Duration,
        slice: SliceId,
        writer: Writer,
        position: u64,
    ) -> bool {
        let Some(of_slice) = self.by_slice.get_mut(&slice) else { return false };
        if !of_slice.remove(&(writer, position)) {
            return false;
        }
        if of_slice.is_empty() {
            self.by_slice.remove(&slice);
        }
        self.replying.push_back((now, slice, writer, position));
        true
    }

    /// It was not started, and another worker does it.
    pub(super) fn withdraw(&mut self, slice: SliceId, writer: Writer, position: u64) {
        if let Some(of_slice) = self.by_slice.get_mut(&slice)
            && of_slice.remove(&(writer, position))
        {
            if of_slice.is_empty() {
                self.by_slice.remove(&slice);
            }
            self.remove_of_writer(writer, position);
        }
    }

    /// Replies to what was finished by then have arrived.
    pub(super) fn replied(&mut self, until: Duration) {
        while let Some((_, slice, writer, position)) =
            self.replying.pop_front_if(|(finished, ..)| *finished <= until)
        {
            let of_slice = self.by_slice.get(&slice);
            // It may have been given to this worker once more.
            if !of_slice.is_some_and(|items| items.contains(&(writer, position))) {
                self.remove_of_writer(writer, position);
            }
        }
    }

    /// Whether it was admitted and is not finished.
    pub(super) fn has(&self, slice: SliceId, writer: Writer, position: u64) -> bool {
        self.by_slice.get(&slice).is_some_and(|items| items.contains(&(writer, position)))
    }

    /// How many there are of all slices.
    pub(super) fn len(&self) -> usize {
        self.by_slice.values().map(BTreeSet::len).sum()
    }

    /// Whether everything is finished and replied to.
    pub(super) fn is_clear(&self) -> bool {
        self.by_writer.is_empty() && self.replying.is_empty() && self.by_slice.is_empty()
    }

    /// How many `slice` has.
    pub(super) fn of_slice(&self, slice: SliceId) -> usize {
        self.by_slice.get(&slice).map_or(0, BTreeSet::len)
    }

    /// The least of `writer` that is not replied to.
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
