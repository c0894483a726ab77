//! Items that have replies and are kept until a checkpoint contains them.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{SliceId, Writer};
use crate::message::{Covered, Lacks};
use crate::numbering::Numbering;

/// Largest number of slices and writers with a known checkpoint. Any process may send one.
const COVERED_MAX: usize = 1 << 16;

/// Items that have replies, by writer and position.
#[derive(Debug, Clone, Default)]
pub(super) struct Replied {
    items: BTreeMap<(Writer, u64), (u64, SliceId)>,
    /// The writers of this client.
    writers: BTreeSet<Writer>,
    /// By slice of the workers: the positions that checkpoints contain. A reply may arrive later.
    covered: BTreeMap<(SliceId, Writer), u64>,
    /// The numbering of the workers.
    numbering: Option<Numbering>,
}

impl Replied {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// A new item of this writer is published.
    pub(super) fn publishes(&mut self, writer: Writer) {
        self.writers.insert(writer);
    }

    /// Adds item `id`, which has a reply now. Returns whether it must be kept: no checkpoint is
    /// known to contain it.
    pub(super) fn add(&mut self, place: (Writer, u64), id: u64, slice: SliceId) -> bool {
        let (writer, position) = place;
        let slice_of = |it: &Numbering| it.slice_of(slice.0.into());
        let covered = self.numbering.as_ref().map(slice_of).and_then(|slice| {
            let through = self.covered.get(&(slice, writer)).copied();
            through.filter(|through| position <= *through)
        });
        if covered.is_none() {
            self.items.insert(place, (id, slice));
        }
        covered.is_none()
    }

    pub(super) fn remove(&mut self, place: (Writer, u64)) {
        self.items.remove(&place);
    }

    /// Removes the items that these checkpoints contain. Returns their ids.
    pub(super) fn covered(&mut self, covered: &[Covered], numbering: &Numbering) -> Vec<u64> {
        self.numbering = Some(*numbering);
        let mut gone = Vec::new();
        for Covered { slice, contained, .. } in covered {
            for (writer, through) in contained.iter().filter(|it| self.writers.contains(&it.0)) {
                let is_in = |of: SliceId| numbering.slice_of(of.0.into()) == *slice;
                let range = self.items.range((writer, 0)..=(writer, through));
                let of_slice = range.filter(|(_, (_, of))| is_in(*of));
                gone.extend(of_slice.map(|(place, (id, _))| (*place, *id)));
                let key = (*slice, writer);
                if self.covered.len() < COVERED_MAX || self.covered.contains_key(&key) {
                    let known = self.covered.entry(key).or_default();
                    *known = through.max(*known);
                }
            }
        }
        for (place, _) in &gone {
            self.items.remove(place);
        }
        gone.into_iter().map(|(_, id)| id).collect()
    }

    /// The ids of the items that a worker lacks.
    pub(super) fn lacking<'a>(&'a self, lacks: &'a [Lacks]) -> impl Iterator<Item = u64> + 'a {
        let ids = |place: (Writer, u64)| self.items.get(&place).map(|(id, _)| *id);
        lacks.iter().flat_map(Lacks::items).filter_map(ids)
    }

    /// The slices of the items.
    pub(super) fn slices(&self) -> BTreeSet<SliceId> {
        self.items.values().map(|(_, slice)| *slice).collect()
    }
}
