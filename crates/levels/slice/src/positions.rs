//! Positions of writers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::Writer;

/// A position for each writer. A missing writer is at 0, which is before its first item.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Positions(BTreeMap<Writer, u64>);

impl Positions {
    /// The position of `writer`.
    pub fn of(&self, writer: Writer) -> u64 {
        self.0.get(&writer).copied().unwrap_or(0)
    }

    /// Whether `writer` has a position.
    pub fn knows(&self, writer: Writer) -> bool {
        self.0.contains_key(&writer)
    }

    /// Sets the position of `writer`.
    pub fn set(&mut self, writer: Writer, position: u64) {
        self.0.insert(writer, position);
    }

    /// Raises where `writer` stands to `position`, if that is further.
    pub(crate) fn raise(&mut self, writer: Writer, position: u64) {
        let known = self.0.entry(writer).or_insert(0);
        *known = position.max(*known);
    }

    /// Forgets `writer`.
    pub(crate) fn remove(&mut self, writer: Writer) {
        self.0.remove(&writer);
    }

    /// All writers with their positions.
    pub fn iter(&self) -> impl Iterator<Item = (Writer, u64)> {
        self.0.iter().map(|(writer, position)| (*writer, *position))
    }

    /// The number of writers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no writers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The larger position of both, for each writer.
    #[must_use]
    pub fn furthest(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for (writer, position) in other.iter() {
            let known = all.0.entry(writer).or_insert(0);
            *known = position.max(*known);
        }
        all
    }

    /// The smaller position of both, for each writer: one that is missing in either is at 0.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        let both = self.iter().filter(|(writer, _)| other.knows(*writer));
        both.map(|(writer, position)| (writer, position.min(other.of(writer)))).collect()
    }
}

impl FromIterator<(Writer, u64)> for Positions {
    fn from_iter<I: IntoIterator<Item = (Writer, u64)>>(positions: I) -> Self {
        Self(positions.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Group;

    fn at(positions: &[(u64, u64)]) -> Positions {
        positions.iter().map(|(id, at)| (Writer { group: Group::BASE, id: *id }, *at)).collect()
    }

    #[test]
    fn the_further_and_the_lesser_take_an_unknown_writer_as_0() {
        let (one, other) = (at(&[(1, 5), (2, 9)]), at(&[(1, 7), (3, 4)]));
        assert_eq!(one.furthest(&other), at(&[(1, 7), (2, 9), (3, 4)]));
        assert_eq!(one.least(&other), at(&[(1, 5)]));
        assert_eq!(one.least(&other).of(Writer { group: Group::BASE, id: 2 }), 0);
    }
}
