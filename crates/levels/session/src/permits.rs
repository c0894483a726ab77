//! Work in flight at a backend, and the permits that limit it.

use std::num::NonZeroU32;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crossbeam_utils::CachePadded;
use equipoise_core::load::RequestClass;

/// The work in flight at a backend over all threads, and its concurrency limit.
///
/// Work in flight and the permits of usual work share one word, so that each change is one atomic
/// operation: work in flight in the upper half, permits in the lower half. Work gives its permit
/// back early when it no longer waits for the backend (a tunnel, a client that reads slowly). It
/// stays in flight for schedulers and status.
///
/// Light work has separate permits: as many as usual work, and at least [`LIGHT_MIN`] if the limit
/// is learnt. A light request costs almost nothing. It takes no permit from usual work, and does
/// not wait when usual work exceeds a limit that has just fallen. A limit is learnt from usual work
/// alone, because short times among long ones would be noise.
///
/// `SeqCst`, because the order of a release and a look at the queue matters ([`crate::queue`]). On
/// x86 it costs no more than other locked instructions.
#[derive(Debug)]
pub(crate) struct Permits {
    counts: CachePadded<AtomicU64>,
    /// Permits of light work.
    light: AtomicU32,
    /// Greatest number of permits of each kind of work, or [`UNLIMITED`].
    limit: AtomicU32,
    /// Least number of permits of light work.
    light_min: AtomicU32,
}

/// The kind of permits that a piece of work takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    /// Permits of usual work.
    #[default]
    Usual,
    /// Permits of light work.
    Light,
}

impl From<RequestClass> for Work {
    fn from(class: RequestClass) -> Work {
        if class == RequestClass::Light { Work::Light } else { Work::Usual }
    }
}

const UNLIMITED: u32 = u32::MAX;
/// Least number of permits of light work, if the limit is learnt. Light work does not influence
/// that limit.
const LIGHT_MIN: u32 = 64;
const PERMIT: u64 = 1;
const IN_FLIGHT: u64 = 1 << 32;

impl Permits {
    /// No work in flight, and no limit.
    pub(crate) fn new() -> Permits {
        Permits {
            counts: CachePadded::new(AtomicU64::new(0)),
            light: AtomicU32::new(0),
            limit: AtomicU32::new(UNLIMITED),
            light_min: AtomicU32::new(0),
        }
    }

    pub(crate) fn in_flight(&self) -> u32 {
        (self.counts.load(Relaxed) >> 32) as u32
    }

    /// Number of held permits, of usual and of light work.
    pub(crate) fn held(&self) -> u32 {
        self.held_for(Work::Usual) + self.held_for(Work::Light)
    }

    /// Number of permits that this kind of work holds. It exceeds the limit if that was lowered, or
    /// if work took its permit back.
    #[inline]
    pub(crate) fn held_for(&self, work: Work) -> u32 {
        match work {
            Work::Usual => self.counts.load(Relaxed) as u32,
            Work::Light => self.light.load(Relaxed),
        }
    }

    pub(crate) fn limit(&self) -> Option<u32> {
        Some(self.limit.load(Relaxed)).filter(|limit| *limit != UNLIMITED)
    }

    /// Sets the limit. Waiting requests use an increase when the queue looks again.
    pub(crate) fn set_limit(&self, limit: Option<NonZeroU32>) {
        self.light_min.store(0, SeqCst);
        self.limit.store(limit.map_or(UNLIMITED, NonZeroU32::get), SeqCst);
    }

    /// As [`Self::set_limit`], for a learnt limit.
    pub(crate) fn set_learned(&self, limit: NonZeroU32) {
        self.light_min.store(LIGHT_MIN, SeqCst);
        self.limit.store(limit.get(), SeqCst);
    }

    /// Greatest number of permits for this work; `None` without a limit.
    #[inline]
    fn most(&self, work: Work) -> Option<u32> {
        let limit = self.limit()?;
        Some(match work {
            Work::Usual => limit,
            Work::Light => limit.max(self.light_min.load(Relaxed)),
        })
    }

    /// Number of free permits for usual work; `None` without a limit.
    pub(crate) fn free(&self) -> Option<u32> {
        self.limit().map(|limit| limit.saturating_sub(self.held_for(Work::Usual)))
    }

    /// Sets the limit so that `free` permits are free for usual work, beside those that it holds.
    /// `over` of the held ones belong to work that has ended.
    pub(crate) fn set_free(&self, free: u32, over: u32) {
        let held = self.held_for(Work::Usual).saturating_sub(over);
        self.limit.store(held.saturating_add(free).min(UNLIMITED - 1), SeqCst);
    }

    /// True if no permit is free for usual work.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full_for(Work::Usual)
    }

    /// True if no permit is free for this work.
    #[inline]
    pub(crate) fn is_full_for(&self, work: Work) -> bool {
        self.most(work).is_some_and(|most| self.held_for(work) >= most)
    }

    /// Counts one more in flight, with a permit. Returns false if none is free.
    #[inline]
    pub(crate) fn try_acquire(&self) -> bool {
        self.try_acquire_for(Work::Usual)
    }

    /// As [`Self::try_acquire`], with the permits of this work.
    #[inline]
    pub(crate) fn try_acquire_for(&self, work: Work) -> bool {
        let Some(most) = self.most(work) else {
            self.acquire_beyond(work);
            return true;
        };
        match work {
            Work::Usual => {
                let more =
                    |counts: u64| ((counts as u32) < most).then_some(counts + IN_FLIGHT + PERMIT);
                self.counts.fetch_update(SeqCst, SeqCst, more).is_ok()
            }
            Work::Light => {
                let more = |held: u32| (held < most).then_some(held + 1);
                let is_acquired = self.light.fetch_update(SeqCst, SeqCst, more).is_ok();
                if is_acquired {
                    self.begin_without();
                }
                is_acquired
            }
        }
    }

    /// Counts one more in flight, with a permit, even beyond the limit.
    pub(crate) fn acquire_beyond(&self, work: Work) {
        match work {
            Work::Usual => {
                self.counts.fetch_add(IN_FLIGHT + PERMIT, SeqCst);
            }
            Work::Light => {
                self.begin_without();
                self.take_back(Work::Light);
            }
        }
    }

    /// Counts one more in flight, without a permit.
    pub(crate) fn begin_without(&self) {
        self.counts.fetch_add(IN_FLIGHT, SeqCst);
    }

    /// Counts one less in flight; `permit` is the one that it held.
    #[inline]
    pub(crate) fn release(&self, permit: Option<Work>) {
        match permit {
            Some(Work::Usual) => {
                self.counts.fetch_sub(IN_FLIGHT + PERMIT, SeqCst);
            }
            Some(Work::Light) => {
                self.counts.fetch_sub(IN_FLIGHT, SeqCst);
                self.give_back(Work::Light);
            }
            None => {
                self.counts.fetch_sub(IN_FLIGHT, SeqCst);
            }
        }
    }

    /// Gives back the permit of work that stays in flight.
    pub(crate) fn give_back(&self, work: Work) {
        match work {
            Work::Usual => {
                self.counts.fetch_sub(PERMIT, SeqCst);
            }
            Work::Light => {
                self.light.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Takes back the permit of work in flight, even beyond the limit.
    pub(crate) fn take_back(&self, work: Work) {
        match work {
            Work::Usual => {
                self.counts.fetch_add(PERMIT, SeqCst);
            }
            Work::Light => {
                self.light.fetch_add(1, SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Option<Work> = Some(Work::Usual);

    #[test]
    fn permits_stop_at_the_limit_and_return_on_release() {
        let permits = Permits::new();
        permits.set_limit(NonZeroU32::new(2));
        assert!(permits.try_acquire() && permits.try_acquire());
        assert!(!permits.try_acquire() && permits.is_full());
        permits.release(USUAL);
        assert!(!permits.is_full() && permits.try_acquire());
        assert_eq!((permits.in_flight(), permits.held()), (2, 2));
    }

    #[test]
    fn work_without_a_permit_stays_in_flight_and_takes_no_room() {
        let permits = Permits::new();
        permits.set_limit(NonZeroU32::new(1));
        assert!(permits.try_acquire());
        permits.give_back(Work::Usual);
        assert!(permits.try_acquire());
        assert_eq!((permits.in_flight(), permits.held()), (2, 1));
        permits.take_back(Work::Usual);
        assert_eq!((permits.in_flight(), permits.held()), (2, 2));
        permits.release(USUAL);
        assert!(permits.is_full());
        permits.release(USUAL);
        assert_eq!((permits.in_flight(), permits.held()), (0, 0));
    }

    #[test]
    fn light_work_has_as_many_permits_of_its_own_as_usual_work() {
        let permits = Permits::new();
        permits.set_limit(NonZeroU32::new(2));
        assert!(permits.try_acquire() && permits.try_acquire() && !permits.try_acquire());
        assert!(permits.try_acquire_for(Work::Light) && permits.try_acquire_for(Work::Light));
        assert!(permits.is_full_for(Work::Light) && !permits.try_acquire_for(Work::Light));
        assert_eq!((permits.in_flight(), permits.held(), permits.free()), (4, 4, Some(0)));
        permits.release(USUAL);
        assert!(permits.is_full_for(Work::Light), "what it freed is for usual work");
        assert!(permits.try_acquire(), "light work takes no permit from usual work");
        permits.release(Some(Work::Light));
        permits.give_back(Work::Light);
        permits.release(None);
        assert_eq!((permits.in_flight(), permits.held()), (2, 2));
    }

    #[test]
    fn a_learned_limit_leaves_a_minimum_of_permits_for_light_work() {
        let permits = Permits::new();
        permits.set_learned(NonZeroU32::MIN);
        assert!(permits.try_acquire() && permits.is_full());
        assert!((0..LIGHT_MIN).all(|_| permits.try_acquire_for(Work::Light)));
        assert!(!permits.try_acquire_for(Work::Light), "though not without end");
        assert_eq!((permits.limit(), permits.held_for(Work::Usual)), (Some(1), 1));
        permits.set_limit(NonZeroU32::new(65));
        assert!(permits.try_acquire_for(Work::Light) && permits.is_full_for(Work::Light));
        permits.set_limit(NonZeroU32::new(2));
        permits.release(Some(Work::Light));
        assert!(permits.is_full_for(Work::Light), "a stated limit is as many of each");
    }

    #[test]
    fn a_lowered_limit_still_admits_light_work() {
        let permits = Permits::new();
        permits.set_limit(NonZeroU32::new(10));
        assert!((0..10).all(|_| permits.try_acquire()));
        permits.set_limit(NonZeroU32::new(2));
        assert!(permits.is_full() && !permits.is_full_for(Work::Light));
        assert!(permits.try_acquire_for(Work::Light));
    }

    #[test]
    fn set_free_sets_the_limit_to_held_plus_free_permits() {
        let permits = Permits::new();
        assert_eq!(permits.free(), None);
        assert!(permits.try_acquire() && permits.try_acquire());
        permits.set_free(1, 1);
        permits.release(USUAL);
        assert_eq!(permits.free(), Some(1));
        permits.set_free(0, 1);
        permits.release(USUAL);
        assert!(permits.is_full() && !permits.try_acquire(), "a limit of none at all");
        permits.acquire_beyond(Work::Usual);
        permits.set_free(3, 1);
        permits.release(USUAL);
        assert_eq!(permits.free(), Some(3));
    }

    #[test]
    fn permits_without_a_limit_are_never_full() {
        let permits = Permits::new();
        assert!((0..1000).all(|_| permits.try_acquire()));
        assert!(!permits.is_full());
        permits.set_limit(NonZeroU32::new(10));
        assert!(permits.is_full() && !permits.try_acquire());
        permits.set_limit(None);
        assert!(permits.try_acquire());
    }
}
