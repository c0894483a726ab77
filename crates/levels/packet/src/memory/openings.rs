//! The SYNs that the program saw: one entry each, which the next flow of the same place overwrites.
//!
//! `note_opening` of `bpf/include/learn.h` is the program's side. An entry counts in the interval
//! of its SYN and in the next one. The program does not lock: an entry that two CPUs wrote at once
//! has the digest of one and the rest of the other. `check` differs then, but for one pair of flows
//! in 65,536.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::StateMemory;
use crate::abi::Opening;

/// Words of an entry.
const WORDS: usize = 2;

impl StateMemory {
    fn opening_words(&self) -> &[AtomicU64] {
        let words = self.limits.openings as usize * WORDS;
        self.area.words(self.limits.openings_offset as usize, words)
    }

    fn opening_place(&self, digest: u64) -> &[AtomicU64] {
        let at = digest as usize & (self.limits.openings as usize - 1);
        &self.opening_words()[at * WORDS..][..WORDS]
    }

    /// Notes a SYN, as the program does.
    pub(crate) fn note_opening(&self, digest: u64, slot: u16, service: u16, how: u8) {
        let (stamp, check) = (stamp_of(self.interval().load(Relaxed)), check_of(digest));
        let entry = Opening { digest, slot, service, how, stamp, check };
        let place = self.opening_place(digest);
        place[0].store(entry.digest, Relaxed);
        place[1].store(rest_of(&entry), Relaxed);
    }

    /// Whether the program saw a SYN of the flow, in this interval or the one before.
    pub(crate) fn has_opened(&self, digest: u64) -> bool {
        self.opening(self.opening_place(digest)).is_some_and(|opening| opening.digest == digest)
    }

    /// The SYNs of this interval and the one before that no other flow has overwritten.
    pub fn openings(&self) -> impl Iterator<Item = Opening> {
        self.opening_words().chunks_exact(WORDS).filter_map(|words| self.opening(words))
    }

    /// An entry, if it is whole and of one of the two intervals.
    fn opening(&self, words: &[AtomicU64]) -> Option<Opening> {
        let opening = opening_of(words[0].load(Relaxed), words[1].load(Relaxed));
        let stamps =
            [self.interval(), self.previous_interval()].map(|it| stamp_of(it.load(Relaxed)));
        let is_whole = opening.digest != 0 && opening.check == check_of(opening.digest);
        (is_whole && stamps.contains(&opening.stamp)).then_some(opening)
    }
}

fn stamp_of(interval: u64) -> u8 {
    (interval >> 56) as u8
}

fn check_of(digest: u64) -> u16 {
    (digest >> 48) as u16
}

fn rest_of(opening: &Opening) -> u64 {
    let Opening { slot, service, how, stamp, check, .. } = *opening;
    let ([s0, s1], [v0, v1], [c0, c1]) =
        (slot.to_ne_bytes(), service.to_ne_bytes(), check.to_ne_bytes());
    u64::from_ne_bytes([s0, s1, v0, v1, how, stamp, c0, c1])
}

fn opening_of(digest: u64, rest: u64) -> Opening {
    let [s0, s1, v0, v1, how, stamp, c0, c1] = rest.to_ne_bytes();
    let [slot, service, check] = [[s0, s1], [v0, v1], [c0, c1]].map(u16::from_ne_bytes);
    Opening { digest, slot, service, how, stamp, check }
}
