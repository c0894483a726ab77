//! Work in flight at a backend, and the permits that bound it.

use std::num::NonZeroU32;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crossbeam_utils::CachePadded;

/// What a backend has in flight, over all threads, and its concurrency limit.
///
/// Both counts share one word, so that each change is one atomic operation: work in flight in the upper half, the
/// permits that this work holds in the lower half. Work gives its permit back early when the backend is no longer
/// what it waits for (a tunnel, a client that reads slowly); it stays in flight for schedulers and status.
///
/// `SeqCst`, because the order of a release and a look at the queue matters ([`crate::queue`]). On x86 a locked
/// instruction costs the same with it.
#[derive(Debug)]
pub(crate) struct Permits {
    counts: CachePadded<AtomicU64>,
    /// [`UNLIMITED`] or the most permits.
    limit: AtomicU32,
}

const UNLIMITED: u32 = u32::MAX;
const PERMIT: u64 = 1;
const IN_FLIGHT: u64 = 1 << 32;

impl Permits {
    /// Nothing in flight, and no limit.
    pub(crate) fn new() -> Permits {
        Permits { counts: CachePadded::new(AtomicU64::new(0)), limit: AtomicU32::new(UNLIMITED) }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        (self.counts.load(Relaxed) >> 32) as u32
    }

    /// Permits that are held. More than the limit if that was lowered, or if work took its permit back.
    pub(crate) fn held(&self) -> u32 {
        self.counts.load(Relaxed) as u32
    }

    pub(crate) fn limit(&self) -> Option<u32> {
        Some(self.limit.load(Relaxed)).filter(|limit| *limit != UNLIMITED)
    }

    /// Sets the limit. Raised, it takes effect for requests that wait when the queue looks again.
    pub(crate) fn set_limit(&self, limit: Option<NonZeroU32>) {
        self.limit.store(limit.map_or(UNLIMITED, NonZeroU32::get), SeqCst);
    }

    /// Whether no permit is free.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let limit = self.limit.load(Relaxed);
        limit != UNLIMITED && self.held() >= limit
    }

    /// Counts one more in flight, with a permit; false if none is free.
    #[inline]
    pub(crate) fn try_acquire(&self) -> bool {
        let limit = self.limit.load(Relaxed);
        if limit == UNLIMITED {
            self.counts.fetch_add(IN_FLIGHT + PERMIT, SeqCst);
            return true;
        }
        let more = |counts: u64| ((counts as u32) < limit).then_some(counts + IN_FLIGHT + PERMIT);
        self.counts.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Counts one more in flight, without a permit.
    pub(crate) fn begin_without(&self) {
        self.counts.fetch_add(IN_FLIGHT, SeqCst);
    }

    /// Counts one less in flight.
    #[inline]
    pub(crate) fn release(&self, with_permit: bool) {
        let permit = if with_permit { PERMIT } else { 0 };
        self.counts.fetch_sub(IN_FLIGHT + permit, SeqCst);
    }

    /// Gives back the permit of work that stays in flight.
    pub(crate) fn give_back(&self) {
        self.counts.fetch_sub(PERMIT, SeqCst);
    }

    /// Takes back the permit of work in flight, even beyond the limit.
    pub(crate) fn take_back(&self) {
        self.counts.fetch_add(PERMIT, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_end_at_the_limit_and_return() {
        let permits = Permits::new();
        permits.set_limit(NonZeroU32::new(2));
        assert!(permits.try_acquire() && permits.try_acquire());
        assert!(!permits.try_acquire() && permits.is_full());
        permits.release(true);
        assert!(!permits.is_full() && permits.try_acquire());
        assert_eq!((permits.in_flight(), permits.held()), (2, 2));
    }

    #[test]
    fn work_without_a_permit_stays_in_flight_and_takes_no_room() {
        let permits = Permits::new();
        permits.set_limit(NonZeroU32::new(1));
        assert!(permits.try_acquire());
        permits.give_back();
        assert!(permits.try_acquire());
        assert_eq!((permits.in_flight(), permits.held()), (2, 1));
        permits.take_back();
        assert_eq!((permits.in_flight(), permits.held()), (2, 2));
        permits.release(true);
        assert!(permits.is_full());
        permits.release(true);
        assert_eq!((permits.in_flight(), permits.held()), (0, 0));
    }

    #[test]
    fn without_a_limit_nothing_is_full() {
        let permits = Permits::new();
        assert!((0..1000).all(|_| permits.try_acquire()));
        assert!(!permits.is_full());
        permits.set_limit(NonZeroU32::new(10));
        assert!(permits.is_full() && !permits.try_acquire());
        permits.set_limit(None);
        assert!(permits.try_acquire());
    }
}
