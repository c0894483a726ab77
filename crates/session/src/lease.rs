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

/// A backend picked for one piece of work; counted in flight until dropped.
pub(crate) struct Lease {
    snapshot: Rc<Arc<Snapshot>>,
    pool: usize,
    slot: usize,
    thread: usize,
}

impl Lease {
    /// Counts the backend in `slot` of a pool one more in flight.
    pub(crate) fn new(
        snapshot: Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
    ) -> Lease {
        snapshot.pools[pool].backends[slot].live.in_flight.fetch_add(1, Relaxed);
        Lease { snapshot, pool, slot, thread }
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
        self.backend().live.in_flight.fetch_sub(1, Relaxed);
    }
}

pub(crate) struct PoolLoads<'a> {
    pool: &'a PoolView,
    epoch: Instant,
    now: Cell<Option<Instant>>,
}

impl<'a> PoolLoads<'a> {
    pub(crate) fn new(pool: &'a PoolView, epoch: Instant) -> Self {
        PoolLoads { pool, epoch, now: Cell::new(None) }
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
        self.pool.backends[slot].live.in_flight.load(Relaxed)
    }

    fn recent_failures(&self, slot: usize) -> u32 {
        let live = &self.pool.backends[slot].live;
        if live.has_failed() { live.recent_failures(self.now(), self.epoch) } else { 0 }
    }

    fn response_us(&self, slot: usize) -> Option<f64> {
        self.pool.backends[slot].live.response_us(self.now(), self.epoch)
    }
}
