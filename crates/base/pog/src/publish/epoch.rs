//! The epoch word and its memory orderings.

use crate::sync::{AtomicU64, Ordering, fence};

/// Number of publications; 0: none yet. Its low bit selects the current copy.
#[derive(Debug)]
#[repr(transparent)]
pub struct EpochWord(AtomicU64);

impl EpochWord {
    /// An epoch word before the first publication.
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> EpochWord {
        EpochWord(AtomicU64::new(0))
    }

    /// Returns the copy that an epoch selects: 0 or 1.
    #[inline(always)]
    pub(crate) fn copy(epoch: u64) -> usize {
        (epoch & 1) as usize
    }

    /// Begins a lookup: all writes before this epoch are visible afterwards.
    #[inline(always)]
    pub(crate) fn begin(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Ends a lookup that began in `epoch`. Returns whether none of the data it read can have been
    /// overwritten.
    ///
    /// If a cell that the lookup read was written after a flip, then this fence and the one in
    /// [`Self::flip`] order that flip before this load, which therefore does not return `epoch`.
    #[inline(always)]
    pub(crate) fn still(&self, epoch: u64) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == epoch
    }

    /// Makes the other copy current. A reader that sees the new epoch sees all writes to that copy.
    /// A reader that still sees the old epoch after its lookup has seen no later write to the old
    /// copy.
    #[inline]
    pub(crate) fn flip(&self) -> u64 {
        let epoch = self.0.load(Ordering::Relaxed) + 1;
        self.0.store(epoch, Ordering::Release);
        fence(Ordering::Release);
        epoch
    }
}

#[cfg(all(test, loom))]
mod tests {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicU16, Ordering::Relaxed};
    use loom::thread;

    use super::EpochWord;

    /// Two copies of a component of two cells. In a consistent state, their xor is the generation
    /// times three.
    struct Shared {
        epoch: EpochWord,
        copies: [[AtomicU16; 2]; 2],
    }

    impl Shared {
        fn new() -> Shared {
            let copy = || [AtomicU16::new(0), AtomicU16::new(0)];
            Shared { epoch: EpochWord::new(), copies: [copy(), copy()] }
        }

        fn publish(&self, generation: u16) {
            let shadow = EpochWord::copy(self.epoch.begin() + 1);
            self.copies[shadow][0].store(generation, Relaxed);
            self.copies[shadow][1].store(generation * 2, Relaxed);
            self.epoch.flip();
        }

        /// One attempt; `None` if the epoch changed.
        fn read(&self) -> Option<(u64, u16, u16)> {
            let epoch = self.epoch.begin();
            let copy = &self.copies[EpochWord::copy(epoch)];
            let (a, b) = (copy[0].load(Relaxed), copy[1].load(Relaxed));
            self.epoch.still(epoch).then_some((epoch, a, b))
        }
    }

    #[test]
    fn a_reader_never_sees_half_a_change() {
        loom::model(|| {
            let shared = Arc::new(Shared::new());
            let writer = {
                let shared = shared.clone();
                thread::spawn(move || (1..=3).for_each(|generation| shared.publish(generation)))
            };
            let mut epoch_before = 0;
            for _ in 0..2 {
                if let Some((epoch, a, b)) = shared.read() {
                    assert_eq!((u64::from(a), u64::from(b)), (epoch, 2 * epoch));
                    assert!(epoch >= epoch_before, "an epoch that was seen stays seen");
                    epoch_before = epoch;
                }
            }
            writer.join().unwrap();
            assert_eq!(
                shared.read(),
                Some((3, 3, 6)),
                "without a writer, the first attempt serves"
            );
        });
    }

    #[test]
    fn a_writer_that_stops_midway_does_not_affect_readers() {
        loom::model(|| {
            let shared = Arc::new(Shared::new());
            shared.publish(1);
            let writer = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let shadow = EpochWord::copy(shared.epoch.begin() + 1);
                    shared.copies[shadow][0].store(99, Relaxed);
                })
            };
            assert_eq!(shared.read(), Some((1, 1, 2)));
            writer.join().unwrap();
            assert_eq!(shared.read(), Some((1, 1, 2)));
            shared.publish(2);
            assert_eq!(shared.read(), Some((2, 2, 4)), "the next writer writes the copy whole");
        });
    }
}
