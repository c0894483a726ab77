//! Learnt concurrency limits.
//!
//! ```text
//! Lease --Ring (one per data-plane thread)--> Hub's thread: Learner::observe, Learner::step
//!                                                 |
//!                        Permits (the new limit) <+> Queue::look (requests that wait for it)
//! ```
//!
//! A request costs two readings of the clock and a store into its thread's ring. One thread adjusts
//! all limits: every 5 ms while requests wait, ten times a second while backends have work, and
//! otherwise not at all. A backend without work is not adjusted.
//!
//! In a cluster the balancers of one backend share its limit. [`Learning::tally`] is this
//! balancer's part, and [`Learning::hear`] takes the others' for the thread's next step.

mod hub;
mod ring;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use equipoise_basics::lock;
use equipoise_core::concurrency::{Load, Report, Sample, SharedLearner, Tally};

pub(crate) use self::hub::{Hub, HubThread, Target};

/// State of learning a backend's concurrency limit.
#[derive(Default)]
pub(crate) struct Learning {
    is_on: AtomicBool,
    /// True while the hub's thread adjusts the limit.
    is_active: AtomicBool,
    /// True if a best number in flight was found.
    is_known: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Longest wait in the pool's queue.
    wait: Duration,
    /// Created when the backend first has work.
    learner: Option<Box<SharedLearner>>,
    /// Tallies of the cluster's other balancers, for the hub's thread.
    heard: Option<Heard>,
}

struct Heard {
    /// The cluster's number of this balancer.
    own: u64,
    others: Vec<Tally>,
}

impl Learning {
    /// True if the limit is learnt.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// True if the limit is learnt and still the initial one, which says nothing about the backend.
    pub(crate) fn is_guess(&self) -> bool {
        self.is_on() && !self.is_known.load(Relaxed)
    }

    /// Returns true for one caller, which must then pass the backend to the hub.
    #[inline]
    pub(crate) fn begins(&self) -> bool {
        !self.is_active.load(SeqCst) && !self.is_active.swap(true, SeqCst)
    }

    /// The learnt state; `None` if the limit is not learnt, or the backend has had no work.
    pub(crate) fn report(&self) -> Option<Report> {
        self.lock().learner.as_ref().map(|learner| learner.report())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Begins or continues to learn, and passes the limit to `publish`.
    pub(crate) fn turn_on(&self, wait: Duration, publish: impl FnOnce(u32)) {
        let mut state = self.lock();
        state.wait = wait;
        if let Some(learner) = &mut state.learner {
            learner.set_wait(wait);
        }
        publish(state.learner.as_ref().map_or_else(|| first(wait).limit(), |it| it.limit()));
        self.is_on.store(true, SeqCst);
    }

    /// Discards the learnt state, then calls `publish`. The hub's thread sets no limit after that.
    pub(crate) fn turn_off(&self, publish: impl FnOnce()) {
        let mut state = self.lock();
        self.is_on.store(false, SeqCst);
        self.is_known.store(false, Relaxed);
        (state.learner, state.heard) = (None, None);
        publish();
    }

    /// Whether the limit is learnt and the backend has had work recently.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_on() && self.is_active.load(SeqCst)
    }

    /// The tally for the cluster's other balancers; `None` if the limit is not learnt, or the
    /// backend has had no work recently.
    pub(crate) fn tally(&self) -> Option<Tally> {
        let state = self.lock();
        state.learner.as_ref().filter(|_| self.is_under_way()).map(|learner| learner.tally())
    }

    /// Takes the tallies of the cluster's other balancers for the next step. `own` is the cluster's
    /// number of this balancer.
    pub(crate) fn hear(&self, own: u64, others: Vec<Tally>) {
        // A backend without work is not adjusted, and the tallies would be too old later.
        if self.is_under_way() {
            self.lock().heard = Some(Heard { own, others });
        }
    }

    /// Adjusts the limit, also by the other balancers' tallies, and passes the learner to
    /// `publish`, unless the limit is no longer learnt.
    fn step<T>(&self, load: Load, publish: impl FnOnce(&SharedLearner) -> T) -> Option<T> {
        let mut state = self.lock();
        if !self.is_on() {
            return None;
        }
        let heard = state.heard.take();
        let learner = state.learner();
        learner.step(load);
        if let Some(Heard { own, others }) = heard {
            learner.identify(own);
            learner.exchange(load.now, &others);
        }
        self.is_known.store(learner.report().knee.is_some(), Relaxed);
        Some(publish(learner))
    }

    /// Takes in a request that has finished, unless the limit is no longer learnt.
    fn observe(&self, sample: Sample) {
        let mut state = self.lock();
        if self.is_on() {
            state.learner().observe(&[sample]);
        }
    }
}

impl State {
    fn learner(&mut self) -> &mut SharedLearner {
        self.learner.get_or_insert_with(|| Box::new(first(self.wait)))
    }
}

/// A learner without a cluster.
fn first(wait: Duration) -> SharedLearner {
    SharedLearner::new(wait, 0)
}

impl fmt::Debug for Learning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learning").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}
