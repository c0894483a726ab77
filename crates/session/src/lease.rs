//! A picked backend, and what schedulers see of those to pick from.
#![allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use equipoise_core::Loads;

use crate::snapshot::{BackendView, PoolView, Snapshot};
use crate::stats::BackendStats;

/// A backend picked for one piece of work: counted in flight until dropped, and the permit for it.
pub(crate) struct Lease {
    snapshot: Rc<Arc<Snapshot>>,
    pool: usize,
    slot: usize,
    thread: usize,
    has_permit: Cell<bool>,
}

impl Lease {
    /// Counts the backend in `slot` of a pool one more in flight; `None` if it has no free permit.
    #[inline]
    pub(crate) fn acquire(
        snapshot: &Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
    ) -> Option<Lease> {
        let is_acquired = snapshot.pools[pool].backends[slot].live.permits.try_acquire();
        is_acquired.then(|| Lease::of_permit(snapshot.clone(), pool, slot, thread))
    }

    /// A lease with a permit that was acquired already.
    pub(crate) fn of_permit(
        snapshot: Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
    ) -> Lease {
        Lease { snapshot, pool, slot, thread, has_permit: Cell::new(true) }
    }

    /// Counts the backend in `slot` of a pool one more in flight, whatever its limit, and holds no permit.
    pub(crate) fn without_permit(
        snapshot: &Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
    ) -> Lease {
        snapshot.pools[pool].backends[slot].live.permits.begin_without();
        let has_permit = Cell::new(false);
        Lease { snapshot: snapshot.clone(), pool, slot, thread, has_permit }
    }

    /// Gives the permit back: from now on the backend is not what this work waits for.
    pub(crate) fn give_permit_back(&self) {
        if self.has_permit.replace(false) {
            self.backend().live.permits.give_back();
            self.freed();
        }
    }

    /// Takes the permit back, if it was given back. The backend may then have more than its limit.
    pub(crate) fn take_permit_back(&self) {
        if !self.has_permit.replace(true) {
            self.backend().live.permits.take_back();
        }
    }

    /// Whether it holds a permit of a backend that has a limit, so that other requests may wait for it.
    pub(crate) fn holds_others_up(&self) -> bool {
        self.has_permit.get() && self.backend().live.permits.limit().is_some()
    }

    /// Hands a permit that has come free to a request that waits for one.
    #[inline]
    fn freed(&self) {
        let queue = &self.pool().queue;
        if queue.has_waiting() {
            queue.freed(self.slot, &self.backend().live);
        }
    }

    pub(crate) fn pool(&self) -> &PoolView {
        &self.snapshot.pools[self.pool]
    }

    pub(crate) fn backend(&self) -> &BackendView {
        &self.pool().backends[self.slot]
    }

    pub(crate) fn stats(&self) -> &BackendStats {
        self.backend().live.stats.shard(self.thread)
    }

    /// Whether the operator set the backend down: the work is to be cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.backend().live.cut.load(Relaxed)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let has_permit = self.has_permit.get();
        self.backend().live.permits.release(has_permit);
        if has_permit {
            self.freed();
        }
    }
}

pub(crate) struct PoolLoads<'a> {
    pool: &'a PoolView,
    epoch: Instant,
    now: Cell<Option<Instant>>,
    /// Backends are picked whatever their limits.
    is_exempt: bool,
}

impl<'a> PoolLoads<'a> {
    pub(crate) fn new(pool: &'a PoolView, epoch: Instant) -> Self {
        PoolLoads { pool, epoch, now: Cell::new(None), is_exempt: false }
    }

    /// The same loads without limits.
    pub(crate) fn exempt(self) -> Self {
        PoolLoads { is_exempt: true, ..self }
    }

    /// Failures seen lately at any of them, decayed.
    pub(crate) fn recent_failures_of_all(&self) -> u32 {
        (0..self.pool.backends.len()).map(|slot| self.recent_failures(slot)).sum()
    }

    /// The clock is read at most once a pick, and only by schedulers that need it.
    fn now(&self) -> Instant {
        let now = self.now.get().unwrap_or_else(Instant::now);
        self.now.set(Some(now));
        now
    }
}

impl Loads for PoolLoads<'_> {
    fn in_flight(&self, slot: usize) -> u32 {
        self.pool.backends[slot].live.in_flight()
    }

    fn limit(&self, slot: usize) -> Option<u32> {
        self.pool.backends[slot].live.limit()
    }

    fn is_full(&self, slot: usize) -> bool {
        !self.is_exempt && self.pool.backends[slot].live.permits.is_full()
    }

    fn recent_failures(&self, slot: usize) -> u32 {
        let live = &self.pool.backends[slot].live;
        if live.has_failed() { live.recent_failures(self.now(), self.epoch) } else { 0 }
    }

    fn response_us(&self, slot: usize) -> Option<f64> {
        self.pool.backends[slot].live.response_us(self.now(), self.epoch)
    }
}
