//! Positions of several slices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::SliceId;
use crate::numbering::Numbering;
use crate::positions::Positions;

/// Positions by slice. Slices with equal positions form one part and share them, so the number of
/// parts grows with the number of handovers, not of slices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BySlice {
    /// Each part: its slices in order, and their positions.
    parts: Vec<(Arc<[SliceId]>, Arc<Positions>)>,
}

impl BySlice {
    /// Groups `slices`, which are in order. Slices with the same `key` have the same `positions`,
    /// which the function computes for one of them. Parts are in the order of their first slices.
    pub(crate) fn grouped<K: Ord>(
        slices: impl IntoIterator<Item = SliceId>,
        key: impl Fn(SliceId) -> K,
        positions: impl Fn(SliceId) -> Arc<Positions>,
    ) -> Self {
        let mut numbers: BTreeMap<K, usize> = BTreeMap::new();
        let mut parts: Vec<(Vec<SliceId>, Arc<Positions>)> = Vec::new();
        let mut known: BTreeMap<Arc<Positions>, usize> = BTreeMap::new();
        for slice in slices {
            let number = *numbers.entry(key(slice)).or_insert_with(|| {
                let of = positions(slice);
                // Different keys may have equal positions.
                *known.entry(of.clone()).or_insert_with(|| {
                    parts.push((Vec::new(), of));
                    parts.len() - 1
                })
            });
            parts[number].0.push(slice);
        }
        Self { parts: parts.into_iter().map(|(slices, of)| (slices.into(), of)).collect() }
    }

    /// All parts: slices, and the positions of each of them.
    pub fn parts(&self) -> impl Iterator<Item = (&Arc<[SliceId]>, &Arc<Positions>)> {
        self.parts.iter().map(|(slices, positions)| (slices, positions))
    }

    /// The index of the part that contains `slice`.
    pub(crate) fn part(&self, slice: SliceId) -> Option<usize> {
        self.parts.iter().position(|(slices, _)| slices.binary_search(&slice).is_ok())
    }

    /// The positions of `slice`.
    pub fn of(&self, slice: SliceId) -> Option<&Arc<Positions>> {
        self.part(slice).and_then(|part| self.parts.get(part)).map(|(_, positions)| positions)
    }

    /// Keeps only parts with positions that fulfil the condition.
    pub(crate) fn retain(&mut self, holds: impl Fn(&Positions) -> bool) {
        self.parts.retain(|(_, positions)| holds(positions));
    }
}

impl BySlice {
    /// Converts it to `to`: two joined slices get the smaller positions of both.
    pub(crate) fn renumbered(&self, from: &Numbering, to: &Numbering) -> Self {
        let slices: Vec<_> = self.parts().flat_map(|(slices, _)| slices.iter().copied()).collect();
        let becomes = slices.iter().flat_map(|slice| from.becomes(*slice, to));
        let becomes: BTreeSet<_> = becomes.collect();
        let halves = |slice: SliceId| to.becomes(slice, from);
        let part = |slice| self.part(slice);
        let key = |slice| halves(slice).map(part).collect::<Vec<_>>();
        Self::grouped(becomes, key, |slice| {
            let mut known = halves(slice).map(|half| self.of(half).cloned().unwrap_or_default());
            let first = known.next().unwrap_or_default();
            known.fold(
                first,
                |one, other| {
                    if one == other { one } else { Arc::new(one.least(&other)) }
                },
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Group, Writer};

    fn at(position: u64) -> Arc<Positions> {
        let writer = Writer { group: Group::BASE, id: 1 };
        Arc::new([(writer, position)].into_iter().collect())
    }

    #[test]
    fn slices_of_which_the_same_is_known_are_one_part() {
        let asked = std::cell::Cell::new(0);
        let positions = |slice: SliceId| {
            asked.set(asked.get() + 1);
            at(u64::from(slice.0 % 3) / 2)
        };
        let slices = (0..7).map(SliceId);
        let known = BySlice::grouped(slices, |slice| slice.0 % 3, positions);
        assert_eq!(asked.get(), 3, "once for each key");
        let of = |slices: &[u32]| slices.iter().copied().map(SliceId).collect::<Vec<_>>();
        let parts: Vec<_> =
            known.parts().map(|(slices, at)| (slices.to_vec(), at.clone())).collect();
        assert_eq!(parts, [(of(&[0, 1, 3, 4, 6]), at(0)), (of(&[2, 5]), at(1))]);
        assert_eq!(known.of(SliceId(5)), Some(&at(1)));
        assert_eq!(known.of(SliceId(7)), None);
    }
}
