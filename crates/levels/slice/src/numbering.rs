//! Maps keys of items to slices, and slices to those of a stream that was resized.

use equipoise_core::hash::key_hash;
use serde::{Deserialize, Serialize};

use crate::ids::{Group, Groups, HandoverId, SliceId};

/// Largest number of slices of a stream.
pub const SLICES_MAX: u32 = 1 << 20;

/// The key of items with this text in their field.
pub fn text_key(text: &[u8]) -> u64 {
    key_hash(text)
}

/// The key of items with this number in their field, sign-extended.
pub fn number_key(number: u64) -> u64 {
    key_hash(&number.to_le_bytes())
}

/// The numbering of a stream's slices: an item with key `k` is in slice `k % slices`.
///
/// When the number doubles, slice `s` becomes `s` and `s + slices`, and each of its items is in one
/// of the two. So a split needs no move, and a join needs both halves at one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Numbering {
    /// The resize that introduced it, numbered as a handover; 0 if the stream was never resized.
    pub epoch: HandoverId,
    /// The number of slices.
    pub slices: u32,
    /// The largest number of slices that the stream ever had. Publishers that number slices
    /// themselves may use numbers below it.
    pub ids: u32,
}

impl Numbering {
    /// The numbering of a stream with this number of slices that was never resized.
    pub fn new(slices: u32) -> Self {
        Self { epoch: HandoverId(0), slices, ids: slices }
    }

    /// The numbering of the same stream after a resize to this number of slices.
    #[must_use]
    pub fn resized(self, slices: u32, epoch: HandoverId) -> Self {
        Self { epoch, slices, ids: self.ids.max(slices) }
    }

    /// The slice of items with this key.
    pub fn slice_of(&self, key: u64) -> SliceId {
        SliceId((key % u64::from(self.slices.max(1))) as u32)
    }

    /// Whether one of the two numbers is twice the other.
    pub fn is_step_to(&self, slices: u32) -> bool {
        let (less, more) = (self.slices.min(slices), self.slices.max(slices));
        less > 0 && less.checked_mul(2) == Some(more) && more <= SLICES_MAX
    }

    /// Whether a file or a worker with this number may mean this stream: after a resize, it may
    /// have the number from before it or from after another one.
    pub fn is_of(&self, slices: u32) -> bool {
        let (less, more) = (self.slices.min(slices), self.slices.max(slices));
        let resized = self.epoch > HandoverId(0);
        less == more
            || resized && less > 0 && more.is_multiple_of(less) && (more / less).is_power_of_two()
    }

    /// The slices of `to` that `slice` becomes: two, or the one that it is joined to.
    pub fn becomes(&self, slice: SliceId, to: &Self) -> impl Iterator<Item = SliceId> + use<> {
        let other = (to.slices > self.slices).then(|| SliceId(slice.0 + self.slices));
        let first = SliceId(slice.0 % to.slices.max(1));
        [first].into_iter().chain(other)
    }

    /// The slice that `slice` is joined with in `to`, which has half as many.
    pub fn partner(&self, slice: SliceId, to: &Self) -> SliceId {
        let half = to.slices;
        SliceId(if slice.0 < half { slice.0 + half } else { slice.0 - half })
    }

    /// The groups that may carry items of `slice`, for every number that publishers may use.
    pub fn groups_of(&self, slice: SliceId) -> impl Iterator<Item = Group> + use<> {
        // After 64 numbers the groups repeat.
        let (step, ids) = (self.slices.max(1), self.ids.max(self.slices));
        (slice.0..ids.max(slice.0 + 1))
            .step_by(step as usize)
            .take(usize::from(crate::ids::GROUPS))
            .map(|id| Group::of(SliceId(id)))
    }

    /// The groups that carry items of `slices`: their own, and the base topic.
    pub(crate) fn groups(&self, slices: &[SliceId]) -> Groups {
        let mut groups = Groups::default();
        groups.insert(Group::BASE);
        slices.iter().flat_map(|slice| self.groups_of(*slice)).for_each(|it| groups.insert(it));
        groups
    }

    /// Converts slices to `to`, in order. Joined slices need both halves.
    pub(crate) fn convert(&self, slices: &[SliceId], to: &Self) -> Vec<SliceId> {
        let is_whole = |slice: &&SliceId| {
            to.slices >= self.slices || slices.binary_search(&self.partner(**slice, to)).is_ok()
        };
        let all = slices.iter().filter(is_whole).flat_map(|slice| self.becomes(*slice, to));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(numbers: &[u32]) -> Vec<SliceId> {
        numbers.iter().copied().map(SliceId).collect()
    }

    #[test]
    fn a_slice_becomes_two_and_every_key_stays_with_one_of_them() {
        let four = Numbering::new(4);
        let eight = four.resized(8, HandoverId(9));
        for key in [0, 3, 4, 7, 8, u64::MAX] {
            let halves: Vec<_> = four.becomes(four.slice_of(key), &eight).collect();
            assert!(halves.contains(&eight.slice_of(key)), "{key}");
            assert_eq!(
                eight.becomes(eight.slice_of(key), &four).collect::<Vec<_>>(),
                [four.slice_of(key)]
            );
        }
        assert_eq!(eight.partner(SliceId(1), &four), SliceId(5));
        assert_eq!(eight.partner(SliceId(5), &four), SliceId(1));
        assert!(four.is_step_to(8) && four.is_step_to(2));
        assert!(!four.is_step_to(4) && !four.is_step_to(16) && !four.is_step_to(3));
        assert!(!Numbering::new(1).is_step_to(0));
        assert!(!Numbering::new(SLICES_MAX).is_step_to(2 * SLICES_MAX));
    }

    #[test]
    fn items_of_a_joined_slice_come_by_the_groups_of_all_its_numbers() {
        let ten = Numbering::new(10);
        let numbers = |of: &Numbering, slice| {
            of.groups_of(SliceId(slice)).map(Group::number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&ten, 3), [3]);
        let five = ten.resized(5, HandoverId(1));
        assert_eq!(numbers(&five, 3), [3, 8]);
        let twenty = five.resized(10, HandoverId(2)).resized(20, HandoverId(3));
        assert_eq!(numbers(&twenty, 13), [13]);
        assert_eq!(twenty.ids, 20);
        assert!(twenty.is_of(10) && twenty.is_of(40) && !twenty.is_of(30) && !twenty.is_of(0));
        assert!(ten.is_of(10) && !ten.is_of(20), "it was never resized");
        // No bound is known: the slice number is the key itself.
        assert_eq!(numbers(&Numbering::new(u32::MAX), 70), [6]);
    }

    #[test]
    fn only_whole_slices_are_joined() {
        let four = Numbering::new(4);
        let two = four.resized(2, HandoverId(1));
        assert_eq!(four.convert(&slices(&[0, 1, 2]), &two), slices(&[0]));
        let eight = four.resized(8, HandoverId(1));
        assert_eq!(four.convert(&slices(&[1, 3]), &eight), slices(&[1, 3, 5, 7]));
    }
}
