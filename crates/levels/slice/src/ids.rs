//! Numeric identifiers: slices, workers, groups, writers, handovers.

use serde::{Deserialize, Serialize};

/// Number of groups of slices. A group is the unit of subscription. A slice is in group
/// `slice % GROUPS`.
///
/// 64 readers are matched in about half a millisecond; one partition for each of 1000 slices would
/// take 100 ms.
pub const GROUPS: u8 = 64;

/// A slice of the stream: the unit of ownership. Every item names its slice.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct SliceId(pub u32);

/// The unit that a worker subscribes to: one group of slices, or the base topic of publishers that
/// do not know groups.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Group(u8);

impl Group {
    /// The topic of publishers that do not know groups: items of every slice.
    pub const BASE: Self = Self(GROUPS);

    /// The group of `slice`.
    pub fn of(slice: SliceId) -> Self {
        Self((slice.0 % u32::from(GROUPS)) as u8)
    }

    /// The group of items with this key.
    pub(crate) fn of_key(key: u64) -> Self {
        Self((key % u64::from(GROUPS)) as u8)
    }

    /// The group with this number, if there is one.
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
    /// The groups that carry items of `slices` in a stream that was never resized.
    #[cfg(test)]
    pub(crate) fn of(slices: &[SliceId]) -> Self {
        let mut groups = Self::default();
        groups.insert(Group::BASE);
        slices.iter().for_each(|slice| groups.insert(Group::of(*slice)));
        groups
    }

    /// Adds a group.
    pub(crate) fn insert(&mut self, group: Group) {
        self.0 |= 1 << group.number();
    }

    pub(crate) fn contains(self, group: Group) -> bool {
        self.0 & 1 << group.number() != 0
    }

    /// Ordered by number, the base topic last.
    pub(crate) fn iter(self) -> impl Iterator<Item = Group> {
        (0..=GROUPS).map(Group).filter(move |group| self.contains(*group))
    }
}

/// A writer, as read through one group. Its positions increase, and its items arrive in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Writer {
    /// The group that it is read through.
    pub group: Group,
    /// The writer's number, unique in the domain.
    pub id: u64,
}

/// A worker, by the name that it keeps over restarts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct WorkerId(pub u64);

/// One incarnation of a worker: from its start until it ends, or is given up as lost. Its ownership
/// of slices ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    /// The worker.
    pub worker: WorkerId,
    /// Increases with each incarnation.
    pub number: u64,
}

/// The process of a worker. It distinguishes two processes of one name, and helps to find them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Process {
    /// Unique key of the process.
    pub key: u64,
    /// Host name.
    pub host: String,
    /// Process id on the host.
    pub pid: u32,
    /// Start time: milliseconds since 1970.
    pub since_unix_ms: u64,
}

/// A handover, in every message about it. Later ones have larger numbers. The *epoch* of a slice is
/// the handover that gave it to its owner.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct HandoverId(pub u64);

/// The term of a controller, from the store's election. Workers ignore messages of a term older
/// than the latest that they received.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Term(pub u64);

/// The finalizer of SplitMix64: similar values have unrelated results.
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
