//! A queue of finished requests from one thread to another, without a lock.

use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crossbeam_utils::CachePadded;
use equipoise_core::concurrency::Outcome;

/// Number of samples in a ring: 40,000 requests a second during the hub's longest pause of 100 ms.
/// Further samples are lost.
const CAPACITY: usize = 4096;

/// A finished request. Times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Finished {
    pub(super) backend: u32,
    pub(super) outcome: Outcome,
    /// Time since the hub's start.
    pub(super) at_us: u64,
    pub(super) service_us: u64,
}

/// Finished requests of one data thread. Only that thread adds, and only the hub's thread takes.
pub(super) struct Ring {
    entries: Box<[Entry]>,
    /// Entries added so far.
    added: CachePadded<AtomicUsize>,
    /// Entries taken so far.
    taken: CachePadded<AtomicUsize>,
}

#[derive(Default)]
struct Entry {
    /// The backend's id, and the outcome in the lowest two bits.
    what: AtomicU64,
    at_us: AtomicU64,
    service_us: AtomicU64,
}

const OUTCOMES: [Outcome; 4] =
    [Outcome::Answered, Outcome::Failed, Outcome::TimedOut, Outcome::NotMeasured];

impl Ring {
    pub(super) fn new() -> Ring {
        Ring {
            entries: (0..CAPACITY).map(|_| Entry::default()).collect(),
            added: CachePadded::default(),
            taken: CachePadded::default(),
        }
    }

    /// Adds a request, or drops it if the ring is full.
    #[inline]
    pub(super) fn add(&self, one: Finished) {
        if self.len() == CAPACITY {
            return;
        }
        let added = self.added.load(Relaxed);
        let entry = &self.entries[added % CAPACITY];
        let outcome = match one.outcome {
            Outcome::Answered => 0,
            Outcome::Failed => 1,
            Outcome::TimedOut => 2,
            Outcome::NotMeasured => 3,
        };
        entry.what.store((u64::from(one.backend) << 2) | outcome, Relaxed);
        entry.at_us.store(one.at_us, Relaxed);
        entry.service_us.store(one.service_us, Relaxed);
        self.added.store(added.wrapping_add(1), Release);
    }

    /// True if it should be emptied soon.
    #[inline]
    pub(super) fn is_half_full(&self) -> bool {
        self.len() >= CAPACITY / 2
    }

    #[inline]
    fn len(&self) -> usize {
        self.added.load(Relaxed).wrapping_sub(self.taken.load(Acquire))
    }

    /// Takes out all requests.
    pub(super) fn take(&self, mut each: impl FnMut(Finished)) {
        let added = self.added.load(Acquire);
        let mut taken = self.taken.load(Relaxed);
        while taken != added {
            let entry = &self.entries[taken % CAPACITY];
            let what = entry.what.load(Relaxed);
            each(Finished {
                backend: (what >> 2) as u32,
                outcome: OUTCOMES[(what & 3) as usize],
                at_us: entry.at_us.load(Relaxed),
                service_us: entry.service_us.load(Relaxed),
            });
            taken = taken.wrapping_add(1);
        }
        self.taken.store(taken, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(number: u64) -> Finished {
        let outcome = OUTCOMES[(number % 4) as usize];
        Finished { backend: number as u32, outcome, at_us: number, service_us: 2 * number }
    }

    #[test]
    fn each_added_request_is_taken_once_and_in_order() {
        let ring = Ring::new();
        let mut next = 0;
        for _ in 0..5 {
            let from = next;
            for _ in 0..1500 {
                ring.add(finished(next));
                next += 1;
            }
            let mut expected = from..next;
            ring.take(|one| assert_eq!(Some(one), expected.next().map(finished)));
            assert_eq!(expected.next(), None);
        }
    }

    #[test]
    fn a_full_ring_drops_the_newest() {
        let ring = Ring::new();
        for number in 0..CAPACITY as u64 + 10 {
            assert_eq!(ring.is_half_full(), number >= CAPACITY as u64 / 2);
            ring.add(finished(number));
        }
        let mut count = 0;
        ring.take(|one| {
            assert_eq!(one, finished(count));
            count += 1;
        });
        assert_eq!(count, CAPACITY as u64);
        assert!(!ring.is_half_full());
    }

    #[test]
    fn two_threads_transfer_every_request_in_order() {
        let ring = Ring::new();
        let all = if cfg!(miri) { 5_000 } else { 200_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..all {
                    while ring.is_half_full() {
                        std::thread::yield_now();
                    }
                    ring.add(finished(number));
                }
            });
            let mut next = 0;
            while next < all {
                ring.take(|one| {
                    assert_eq!(one, finished(next));
                    next += 1;
                });
            }
        });
    }
}
