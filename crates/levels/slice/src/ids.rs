//! What things are called by number: slices, workers, groups, writers, handovers.

use serde::{Deserialize, Serialize};

/// Static groups of slices: the unit of subscription. A slice is in group `slice % GROUPS`.
///
/// 64 readers are matched in about half a millisecond; one partition for each of 1000 slices would take 100.
pub const GROUPS: u8 = 64;

/// A slice of the stream: the unit of ownership. Every item says which slice it is of.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct SliceId(pub u32);

/// What a worker reads as one: one group of slices, or the base topic of publishers that know no groups.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Group(u8);

impl Group {
    /// Where publishers write that know no groups: items of every slice.
    pub const BASE: Self = Self(GROUPS);

    /// The group of `slice`.
    pub fn of(slice: SliceId) -> Self {
        Self((slice.0 % u32::from(GROUPS)) as u8)
    }

    /// The group of items with this key.
    pub(crate) fn of_key(key: u64) -> Self {
        Self((key % u64::from(GROUPS)) as u8)
    }

    /// The group of this number, if there is one.
    pub fn numbered(number: u32) -> Option<Self> {
        u8::try_from(number).ok().filter(|number| *number <= GROUPS).map(Self)
    }

    /// Its number: 0 to 63, and 64 for the base topic.
    pub fn number(self) -> u8 {
        self.0
    }
}

/// A set of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Groups(u128);

impl Groups {
    /// Those by which items of `slices` come in a stream that was never resized.
    #[cfg(test)]
    pub(crate) fn of(slices: &[SliceId]) -> Self {
        crate::numbering::Numbering::new(u32::MAX).groups(slices)
    }

    /// Adds a group.
    pub(crate) fn insert(&mut self, group: Group) {
        self.0 |= 1 << group.number();
    }

    pub(crate) fn contains(self, group: Group) -> bool {
        self.0 & 1 << group.number() != 0
    }

    /// By number, the base topic last.
    pub(crate) fn iter(self) -> impl Iterator<Item = Group> {
        (0..=GROUPS).map(Group).filter(move |group| self.contains(*group))
    }
}

/// One writer as its items reach a group. Its positions grow, and its items come in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Writer {
    /// The group that it is read through.
    pub group: Group,
    /// Which writer, among all of the domain.
    pub id: u64,
}

/// A worker, by the name it keeps when it starts anew.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct WorkerId(pub u64);

/// One life of a worker: from its start until it ends, or is given up as lost. What a life owned dies with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Life {
    /// Which worker.
    pub worker: WorkerId,
    /// Grows from life to life.
    pub number: u64,
}

/// The process that a worker runs in: by it two of one name are told apart, and found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Process {
    /// No other process has it.
    pub key: u64,
    /// The machine's name.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// When it was started: milliseconds since 1970.
    pub since_unix_ms: u64,
}

/// A handover, in every message about it. Later ones have larger numbers; a slice's *epoch* is the handover
/// that gave it to its owner.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct HandoverId(pub u64);

/// A controller's time in office, from the store's election. Workers obey none that is older than one they heard.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Term(pub u64);

/// SplitMix64's finalizer: neighbours in, strangers out.
pub(crate) fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_slices_come_by_their_groups_and_by_the_base_topic() {
        let groups = Groups::of(&[3, 67, 63, 0].map(SliceId));
        let numbers: Vec<_> = groups.iter().map(Group::number).collect();
        assert_eq!(numbers, [0, 3, 63, 64]);
        assert!(groups.contains(Group::BASE) && !groups.contains(Group::of(SliceId(1))));
        assert_eq!(Groups::of(&[]).iter().collect::<Vec<_>>(), [Group::BASE]);
    }
}
