//! What is known to be done of several slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::controller::{Controller, Row};
use crate::ids::{Group, SliceId, Writer};
use crate::positions::Positions;

/// A set of groups of slices, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Groups(u64);

impl Groups {
    fn of(slice: SliceId) -> Self {
        Self(1 << Group::of(slice).number())
    }

    /// Whether `writer` may bring items of slices of these groups.
    fn hear(self, writer: Writer) -> bool {
        let any = self.0 != 0;
        any && (writer.group == Group::BASE || self.0 & (1 << writer.group.number()) != 0)
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What was done of slices before somebody had them. Slices that came together share it: there are as many positions to look
/// at as there were handovers, not as there are slices; and a move that begins looks at none.
#[derive(Debug, Clone, Default)]
pub(super) struct Floors {
    /// Each with the groups of its slices.
    known: Vec<(Arc<Positions>, Groups)>,
    /// Groups of slices of which nothing is known.
    unknown: Groups,
}

impl Floors {
    /// Of a slice this is done; `None`: nothing is known.
    pub(super) fn add(&mut self, slice: SliceId, floor: Option<&Arc<Positions>>) {
        let group = Groups::of(slice);
        match (floor, self.known.last_mut()) {
            (None, _) => self.unknown.add(group),
            (Some(floor), Some((last, groups))) if Arc::ptr_eq(last, floor) => groups.add(group),
            (Some(floor), _) => self.known.push((floor.clone(), group)),
        }
    }

    /// Done of each of them. A writer counts only for slices of which it may bring items: who knows nothing of it since
    /// none of its slices are of that group is not asked.
    pub(super) fn least(&self) -> Positions {
        let mut least: BTreeMap<Writer, u64> = BTreeMap::new();
        for (floor, groups) in &self.known {
            for (writer, at) in floor.iter().filter(|(writer, _)| groups.hear(*writer)) {
                let known = least.entry(writer).or_insert(at);
                *known = at.min(*known);
            }
        }
        let is_known = |writer: Writer| {
            let mut hearing = self.known.iter().filter(|(_, groups)| groups.hear(writer));
            !self.unknown.hear(writer) && hearing.all(|(floor, _)| floor.knows(writer))
        };
        least.into_iter().filter(|(writer, _)| is_known(*writer)).collect()
    }
}

impl<T> Controller<T> {
    pub(super) fn floors_of(&self, slices: &[SliceId]) -> Floors {
        let mut floors = Floors::default();
        let rows = slices.iter().filter_map(|slice| Some((*slice, self.table.get(slice)?)));
        rows.for_each(|(slice, row): (SliceId, &Row)| floors.add(slice, row.floor.as_ref()));
        floors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(positions: &[(u32, u64)]) -> Arc<Positions> {
        let of = |group: u32| Writer { group: Group::numbered(group).expect("a group"), id: 1 };
        Arc::new(positions.iter().map(|(group, at)| (of(*group), *at)).collect())
    }

    fn least(floors: &[(u32, Option<&Arc<Positions>>)]) -> Positions {
        let mut all = Floors::default();
        floors.iter().for_each(|(slice, floor)| all.add(SliceId(*slice), *floor));
        all.least()
    }

    #[test]
    fn of_slices_of_one_group_the_least_is_done_and_nothing_if_one_is_unknown() {
        let (one, other) = (at(&[(3, 7), (64, 9)]), at(&[(3, 5), (64, 20)]));
        assert_eq!(least(&[(3, Some(&one)), (67, Some(&other))]), *at(&[(3, 5), (64, 9)]));
        assert_eq!(least(&[(3, Some(&one)), (67, None)]), Positions::default());
        assert_eq!(least(&[]), Positions::default());
    }

    #[test]
    fn a_writer_is_not_asked_for_slices_of_other_groups_but_those_of_the_base_topic_are() {
        let (one, other) = (at(&[(3, 7), (64, 9)]), at(&[(5, 4), (64, 2)]));
        let both = least(&[(3, Some(&one)), (5, Some(&other))]);
        assert_eq!(both, *at(&[(3, 7), (5, 4), (64, 2)]));
        assert_eq!(least(&[(3, Some(&one)), (5, None)]), *at(&[(3, 7)]));
        // What a handover of more slices knew of other groups says nothing of these.
        let more = at(&[(3, 1), (5, 4), (64, 9)]);
        assert_eq!(least(&[(3, Some(&one)), (5, Some(&more))]), *at(&[(3, 7), (5, 4), (64, 9)]));
    }
}
