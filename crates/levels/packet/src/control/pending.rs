//! Flows that the program recorded itself: reads, ages and deletes the records.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant};

use crate::abi::{PENDING_WAYS, SLOT_BITS};
use crate::digest::Digest;
use crate::memory::StateMemory;

/// Mask of the slot in a word; the other bits belong to the digest.
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// The pending table of one memory.
#[derive(Debug)]
pub(super) struct Pending {
    state: StateMemory,
    /// For each word: the time when it was first found, in ticks of [`AGE_UNIT`] since the start,
    /// plus one; 0: free.
    found: Vec<u32>,
    /// Number of words in use at the last reading.
    held: u32,
    /// The same by service number.
    held_of: Vec<u32>,
    started: Instant,
}

/// Resolution of ages.
const AGE_UNIT: Duration = Duration::from_millis(10);

/// A recorded flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// Index of its word.
    pub(super) at: usize,
    word: u64,
    pub(super) digest: Digest,
    /// Number of its service. The program writes it after the word, so it is valid if `age` is not
    /// 0.
    pub(super) service: u16,
    pub(super) slot: u16,
    /// Time since it was first found.
    pub(super) age: Duration,
}

impl Pending {
    /// Limits the recorded flows to a part of the table: above it, lines of eight soon overflow.
    pub(super) fn new(state: StateMemory, services: usize, now: Instant) -> Pending {
        let words = state.pending();
        let (room, found) = (words.len() as u32, vec![0; words.len()]);
        state.pending_mark().store(room / 4 * 3, Relaxed);
        let held_of = vec![0; services];
        let mut pending = Pending { state, found, held: 0, held_of, started: now };
        // The program may already be recording: its count is adjusted, never overwritten.
        let counted = pending.counted();
        pending.held =
            pending.state.pending().iter().filter(|word| word.load(Acquire) != 0).count() as u32;
        pending.correct(counted);
        pending
    }

    /// Divides the table among the services in use, as the registry does: see [`Flows::share_out`].
    ///
    /// [`Flows::share_out`]: super::flows::Flows::share_out
    pub(super) fn share_out(&self, in_use: impl Iterator<Item = bool> + Clone) {
        let services = in_use.clone().filter(|it| *it).count() as u32;
        let mark = self.state.pending_mark().load(Relaxed);
        let share = if services > 1 { mark / (2 * services) } else { 0 };
        let share_of = |is_used: bool| if is_used { share } else { 0 };
        let unused = |number: usize, is_used: bool| {
            share_of(is_used).saturating_sub(self.state.pending_share(number)[0].load(Relaxed))
        };
        let all: u32 = in_use.clone().enumerate().map(|(number, it)| unused(number, it)).sum();
        for (number, is_used) in in_use.enumerate() {
            let [_, share, reserved] = self.state.pending_share(number);
            share.store(share_of(is_used), Relaxed);
            reserved.store(all.saturating_sub(unused(number, is_used)), Relaxed);
        }
    }

    fn counted_of(&self) -> Vec<u32> {
        let count = |number| self.state.pending_share(number)[0].load(Acquire);
        (0..self.held_of.len()).map(count).collect()
    }

    /// Like [`Self::correct`], for each service.
    fn correct_each(&self, counted: &[u32]) {
        for (number, (held, counted)) in self.held_of.iter().zip(counted).enumerate() {
            let count = self.state.pending_share(number)[0];
            if held != counted && count.load(Acquire) == *counted {
                count.fetch_add(held.wrapping_sub(*counted), Relaxed);
            }
        }
    }

    fn counted(&self) -> u32 {
        self.state.pending_count().load(Acquire)
    }

    /// Corrects the count, which was `counted` before the words were read. A process that is killed
    /// between deleting a flow and counting it leaves a wrong count.
    fn correct(&self, counted: u32) {
        let missing = self.held.wrapping_sub(counted);
        if missing != 0 && self.counted() == counted {
            self.state.pending_count().fetch_add(missing, Relaxed);
        }
    }

    /// Returns the number of recorded flows.
    pub(super) fn len(&self) -> usize {
        self.state.pending_count().load(Relaxed) as usize
    }

    /// Whether it is above half its mark.
    pub(super) fn is_pressed(&self) -> bool {
        self.len() >= self.state.pending_mark().load(Relaxed) as usize / 2
    }

    /// Reads all flows into `into`.
    pub(super) fn read(&mut self, now: Instant, into: &mut Vec<Recorded>) {
        into.clear();
        let counted = self.counted();
        if counted == 0 && self.held == 0 {
            return;
        }
        let stamp = (now.saturating_duration_since(self.started).as_millis() / AGE_UNIT.as_millis())
            as u32
            + 1;
        let counted_of = self.counted_of();
        self.held_of.fill(0);
        let (words, services) = (self.state.pending(), self.state.pending_services());
        let lines = words.len() / PENDING_WAYS;
        for (at, (word, found)) in words.iter().zip(&mut self.found).enumerate() {
            let word = word.load(Acquire);
            if word == 0 {
                *found = 0;
                continue;
            }
            if *found == 0 {
                *found = stamp;
            }
            let service = services[at].load(Relaxed);
            if let Some(held) = self.held_of.get_mut(usize::from(service)) {
                *held += 1;
            }
            let line = (at / PENDING_WAYS) as u64;
            debug_assert!(lines > SLOT_MASK as usize, "the line gives the digest's low bits");
            let digest = Digest(word & !SLOT_MASK | line & SLOT_MASK);
            let (slot, age) = ((word & SLOT_MASK) as u16, AGE_UNIT * stamp.wrapping_sub(*found));
            into.push(Recorded { at, word, digest, service, slot, age });
        }
        self.held = into.len() as u32;
        self.correct(counted);
        self.correct_each(&counted_of);
    }

    /// Deletes a flow.
    pub(super) fn delete(&mut self, recorded: &Recorded) {
        let word = &self.state.pending()[recorded.at];
        if word.compare_exchange(recorded.word, 0, AcqRel, Relaxed).is_ok() {
            let one_less = |count: u32| Some(count.saturating_sub(1));
            // The update function always returns a value.
            let _ = self.state.pending_count().fetch_update(Relaxed, Relaxed, one_less);
            if usize::from(recorded.service) < self.held_of.len() {
                let count = self.state.pending_share(usize::from(recorded.service))[0];
                let _ = count.fetch_update(Relaxed, Relaxed, one_less);
            }
            self.held = self.held.saturating_sub(1);
        }
        self.found[recorded.at] = 0;
    }
}
