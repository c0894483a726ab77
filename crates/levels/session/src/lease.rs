//! A picked backend, and the loads that schedulers see.
#![allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use equipoise_core::Loads;
use equipoise_core::concurrency::Outcome;

use crate::permits::Work;
use crate::reason::Reason;
use crate::snapshot::{BackendView, PoolView, Snapshot};
use crate::stats::BackendStats;

/// A backend picked for one piece of work. It counts as in flight until the lease is dropped, and
/// the lease holds its permit.
pub(crate) struct Lease {
    snapshot: Rc<Arc<Snapshot>>,
    pool: usize,
    slot: usize,
    thread: usize,
    /// The kind of permits that it takes.
    work: Work,
    has_permit: Cell<bool>,
    /// Time at which it gave its permit back, while it has none.
    away_since: Cell<Option<Instant>>,
    /// Total time without a permit before it took the permit back.
    away: Cell<Duration>,
    /// Time at which it took its permit, if the backend's limit is learnt.
    since: Cell<Option<Instant>>,
    /// The outcome of the work, as far as it is known.
    outcome: Cell<Option<Outcome>>,
}

impl Lease {
    /// Counts one more in flight at the backend in `slot` of a pool; `None` if it has no free
    /// permit.
    #[inline]
    pub(crate) fn acquire(
        snapshot: &Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
    ) -> Option<Lease> {
        Lease::acquire_for(Work::Usual, snapshot, pool, slot, thread)
    }

    /// As [`Self::acquire`], with the permits of this kind of work.
    #[inline]
    pub(crate) fn acquire_for(
        work: Work,
        snapshot: &Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
    ) -> Option<Lease> {
        let permits = &snapshot.pools[pool].backends[slot].live.permits;
        let is_acquired = permits.try_acquire_for(work);
        is_acquired.then(|| Lease::of_permit(work, snapshot.clone(), pool, slot, thread))
    }

    /// A peer for a delegated request: one with room, or one that may be asked whether it has some.
    ///
    /// A request with a body that is arriving (not `is_whole`) would wait at a peer without room,
    /// since it cannot be sent twice. It asks only if no response has announced anything for a
    /// while.
    pub(crate) fn of_peer(
        snapshot: &Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
        is_whole: bool,
    ) -> Option<Lease> {
        let room = &snapshot.pools[pool].backends[slot].live.room;
        Lease::acquire(snapshot, pool, slot, thread).or_else(|| {
            let may_ask = is_whole || room.is_old(Instant::now());
            may_ask.then(|| Lease::asking(snapshot, pool, slot, thread))?
        })
    }

    /// A peer that has no room, or no known room, and may be asked again.
    pub(crate) fn asking(
        snapshot: &Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
    ) -> Option<Lease> {
        let live = &snapshot.pools[pool].backends[slot].live;
        live.room.may_ask(Instant::now()).then(|| {
            live.permits.acquire_beyond(Work::Usual);
            Lease::of_permit(Work::Usual, snapshot.clone(), pool, slot, thread)
        })
    }

    /// Sets the room that the leased peer reported in its response; `None` if it has no limit.
    pub(crate) fn set_room(&self, free: Option<u32>) {
        let live = &self.backend().live;
        match free {
            Some(free) => live.permits.set_free(free, self.permits()),
            None => live.permits.set_limit(None),
        }
        live.room.announced(Instant::now());
    }

    /// Permits that will be free in the leased backend's pool once this work is over.
    pub(crate) fn room(&self) -> Option<u32> {
        self.pool().free_permits(self.permits())
    }

    /// Number of permits of usual work that it holds.
    fn permits(&self) -> u32 {
        u32::from(self.work == Work::Usual && self.has_permit.get())
    }

    /// A lease with a permit that was acquired before.
    pub(crate) fn of_permit(
        work: Work,
        snapshot: Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
    ) -> Lease {
        let lease = Lease::new(work, true, snapshot, pool, slot, thread);
        lease.begin_sample();
        lease
    }

    /// Counts one more in flight at the backend in `slot` of a pool, whatever its limit, without a
    /// permit.
    pub(crate) fn without_permit(
        snapshot: &Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
    ) -> Lease {
        snapshot.pools[pool].backends[slot].live.permits.begin_without();
        Lease::new(Work::Usual, false, snapshot.clone(), pool, slot, thread)
    }

    fn new(
        work: Work,
        has_permit: bool,
        snapshot: Rc<Arc<Snapshot>>,
        pool: usize,
        slot: usize,
        thread: usize,
    ) -> Lease {
        let (has_permit, away_since, away) =
            (Cell::new(has_permit), Cell::default(), Cell::default());
        let (since, outcome) = (Cell::default(), Cell::default());
        Lease { snapshot, pool, slot, thread, work, has_permit, away_since, away, since, outcome }
    }

    /// Records the outcome of the work for the learnt limit. Work that is not measured stays so.
    #[inline]
    pub(crate) fn went(&self, outcome: Outcome) {
        if self.outcome.get() != Some(Outcome::NotMeasured) {
            self.outcome.set(Some(outcome));
        }
    }

    /// Records the reason of a failure. A client that leaves says nothing about the backend,
    /// because it may have lost its network, or its user left the page. A request that exceeds its
    /// own time limit before a response shows that the backend is slow.
    pub(crate) fn failed(&self, reason: Reason) {
        if let Some(outcome) = outcome_of_failure(reason, self.outcome.get().is_some()) {
            self.went(outcome);
        }
    }

    #[inline]
    fn begin_sample(&self) {
        let (pool, backend) = (self.pool(), self.backend());
        if self.work == Work::Usual
            && backend.live.learning.is_on()
            && let Some(hub) = pool.queue.hub()
        {
            self.since.set(Some(Instant::now()));
            backend.announce_to(hub, &pool.queue);
        }
    }

    /// Discards the measurement, because the backend had not begun with the work. Nothing finished,
    /// so a limit that rises while nothing finishes goes on rising.
    pub(crate) fn not_begun(&self) {
        self.since.set(None);
    }

    /// Ends the measurement, because the work no longer holds a permit.
    #[inline]
    fn end_sample(&self) {
        if let Some(since) = self.since.take()
            && let Some(hub) = self.pool().queue.hub()
        {
            let outcome = self.outcome.get().unwrap_or(Outcome::NotMeasured);
            hub.finished(self.thread, self.backend().id, since, outcome);
        }
    }

    /// The permit that it holds.
    pub(crate) fn permit(&self) -> Option<Work> {
        self.has_permit.get().then_some(self.work)
    }

    /// Gives the permit back, because the work no longer waits for the backend.
    pub(crate) fn give_permit_back(&self) {
        if self.has_permit.replace(false) {
            self.end_sample();
            self.away_since.set(Some(Instant::now()));
            self.backend().live.permits.give_back(self.work);
            self.freed();
        }
    }

    /// Takes the permit back, if it was given back. The backend may then exceed its limit.
    pub(crate) fn take_permit_back(&self) {
        if !self.has_permit.replace(true) {
            if let Some(since) = self.away_since.take() {
                self.away.set(self.away.get() + since.elapsed());
            }
            self.backend().live.permits.take_back(self.work);
            self.begin_sample();
        }
    }

    /// The part of `took`, a time up to `now`, during which the work held its permit.
    #[inline]
    pub(crate) fn permit_time(&self, took: Duration, now: Instant) -> Duration {
        let away = self.away_since.get().map(|since| now.saturating_duration_since(since));
        took.saturating_sub(self.away.get() + away.unwrap_or_default())
    }

    /// True if it holds a permit of a backend with a limit, so that other requests may wait for it.
    pub(crate) fn holds_others_up(&self) -> bool {
        self.has_permit.get() && self.backend().live.permits.limit().is_some()
    }

    /// Gives a free permit to a waiting request.
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

    /// True if the operator set the backend down, so that the work must be cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.backend().live.cut.load(Relaxed)
    }
}

/// The outcome for the backend of a response with this status.
pub(crate) fn outcome_of(status: u16) -> Outcome {
    if status >= 500 { Outcome::Failed } else { Outcome::Answered }
}

/// The outcome for the backend of a failure; `None` if the response has decided it already.
fn outcome_of_failure(reason: Reason, has_answered: bool) -> Option<Outcome> {
    match reason {
        Reason::ResponseTimeout | Reason::UpstreamStalled | Reason::ConnectTimeout => {
            Some(Outcome::TimedOut)
        }
        Reason::RequestTimeout if !has_answered => Some(Outcome::TimedOut),
        reason if reason.blames_backend() => Some(Outcome::Failed),
        _ => (!has_answered).then_some(Outcome::NotMeasured),
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let permit = self.permit();
        self.end_sample();
        self.backend().live.permits.release(permit);
        if permit.is_some() {
            self.freed();
        }
    }
}

pub(crate) struct PoolLoads<'a> {
    pool: &'a PoolView,
    epoch: Instant,
    now: Cell<Option<Instant>>,
    /// The kind of work with the limits that count; `None`: backends are picked whatever their
    /// limits.
    work: Option<Work>,
}

impl<'a> PoolLoads<'a> {
    pub(crate) fn new(pool: &'a PoolView, epoch: Instant) -> Self {
        PoolLoads { pool, epoch, now: Cell::new(None), work: Some(Work::Usual) }
    }

    /// The same loads for this kind of work; `None`: without limits.
    pub(crate) fn of(self, work: Option<Work>) -> Self {
        PoolLoads { work, ..self }
    }

    /// Sum of the recent failures of all backends, decayed.
    pub(crate) fn recent_failures_of_all(&self) -> u32 {
        (0..self.pool.backends.len()).map(|slot| self.recent_failures(slot)).sum()
    }

    /// Reads the clock at most once per pick, and only for schedulers that need it.
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
        let live = &self.pool.backends[slot].live;
        live.limit().filter(|_| !live.learning.is_guess())
    }

    fn is_full(&self, slot: usize) -> bool {
        let permits = &self.pool.backends[slot].live.permits;
        self.work.is_some_and(|work| permits.is_full_for(work))
    }

    fn recent_failures(&self, slot: usize) -> u32 {
        let live = &self.pool.backends[slot].live;
        if live.has_failed() { live.recent_failures(self.now(), self.epoch) } else { 0 }
    }

    fn response_us(&self, slot: usize) -> Option<f64> {
        self.pool.backends[slot].live.response_us(self.now(), self.epoch)
    }

    fn service_us(&self, slot: usize) -> Option<f64> {
        self.pool.backends[slot].live.service_us(self.now(), self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_reasons_map_to_the_recorded_backend_outcome() {
        let rows = [
            (Reason::ClientGone, false, Some(Outcome::NotMeasured)),
            (Reason::ClientGone, true, None),
            (Reason::BodyTimeout, false, Some(Outcome::NotMeasured)),
            (Reason::RequestTimeout, false, Some(Outcome::TimedOut)),
            (Reason::RequestTimeout, true, None),
            (Reason::ResponseTimeout, false, Some(Outcome::TimedOut)),
            (Reason::UpstreamStalled, true, Some(Outcome::TimedOut)),
            (Reason::UpstreamClosed, false, Some(Outcome::Failed)),
        ];
        for (reason, has_answered, outcome) in rows {
            assert_eq!(outcome_of_failure(reason, has_answered), outcome, "{}", reason.name());
        }
    }
}
