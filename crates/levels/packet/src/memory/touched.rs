//! Tags of the flows that were seen in this interval.
//!
//! `bpf/include/touched.h` is the program's side, which describes the two forms.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::StateMemory;
use crate::abi::TOUCHED_WORDS;

/// Bits of a long and of a short tag, and the number of each in a word.
const LONG: (u32, usize) = (32, 2);
const SHORT: (u32, usize) = (21, 3);

/// A flow's bucket, with the flow's tag in this interval.
#[derive(Clone, Copy, Debug)]
pub struct Touched<'m> {
    words: &'m [AtomicU64],
    is_short: bool,
    tag: u64,
    mixed: u64,
}

impl StateMemory {
    /// All buckets, [`TOUCHED_WORDS`] each.
    pub fn touched(&self) -> &[AtomicU64] {
        let words = self.limits.touched_buckets as usize * TOUCHED_WORDS;
        self.area.words(self.limits.touched_offset as usize, words)
    }

    /// The bucket that has the tag of a flow if the flow was seen in this interval.
    pub fn touched_by(&self, digest: u64) -> Touched<'_> {
        let mixed = digest.wrapping_mul(self.interval().load(Relaxed));
        let bucket = (mixed >> 8) as usize & (self.limits.touched_buckets as usize - 1);
        let is_short = self.limits.short_tags != 0;
        let tag = match is_short {
            true => (((mixed >> 32) * ((1 << SHORT.0) - 1)) >> 32) + 1,
            false => mixed >> 32 | 1,
        };
        let words = &self.touched()[bucket * TOUCHED_WORDS..][..TOUCHED_WORDS];
        Touched { words, is_short, tag, mixed }
    }

    /// Forgets all flows of this interval.
    pub fn clear_touched(&self) {
        self.touched().iter().for_each(|word| word.store(0, Relaxed));
    }
}

impl Touched<'_> {
    /// Bits of a tag, and tags in a word.
    fn form(&self) -> (u32, usize) {
        if self.is_short { SHORT } else { LONG }
    }

    /// Number of tags in a bucket.
    pub fn ways(&self) -> usize {
        TOUCHED_WORDS * self.form().1
    }

    /// The word of a place, the number of bits below the place in it, and its mask.
    fn at(&self, place: usize) -> (&AtomicU64, u32, u64) {
        let (bits, in_a_word) = self.form();
        let shift = (place % in_a_word) as u32 * bits;
        (&self.words[place / in_a_word], shift, ((1 << bits) - 1) << shift)
    }

    fn place_of(&self, tag: u64) -> Option<usize> {
        (0..self.ways()).find(|place| {
            let (word, shift, mask) = self.at(*place);
            (word.load(Relaxed) & mask) >> shift == tag
        })
    }

    /// The place of the flow's tag.
    pub fn place(&self) -> Option<usize> {
        self.place_of(self.tag)
    }

    /// The place of the tag that the flow replaces in a full bucket.
    pub fn replaced(&self) -> usize {
        match self.is_short {
            true => ((self.mixed as usize & 0xff) * self.ways()) >> 8,
            false => self.mixed as usize & (self.ways() - 1),
        }
    }

    /// Adds the flow's tag, if need be in place of another.
    pub(crate) fn add(&self) {
        let (word, shift, mask) = self.at(self.place_of(0).unwrap_or_else(|| self.replaced()));
        word.store(word.load(Relaxed) & !mask | self.tag << shift, Relaxed);
    }

    /// Removes the flow's tag, as far as the program does not write to the word.
    pub(crate) fn clear(&self) {
        for place in 0..self.ways() {
            let (word, shift, mask) = self.at(place);
            let before = word.load(Relaxed);
            if (before & mask) >> shift == self.tag {
                let _ = word.compare_exchange(before, before & !mask, Relaxed, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
