//! Copies of a route's requests to another pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::PoolPlace;
use crate::stats::{Counter, Sharded};

/// Requests of a route are copied to a pool, whose answers are dropped.
#[derive(Clone, Debug, PartialEq)]
pub struct Mirror {
    /// The name of the pool.
    pub pool: Arc<str>,
    /// The share of requests that are copied, `0.0..=1.0`.
    pub share: f64,
    /// Body of a copied request, bytes; requests with a larger one are not copied.
    pub body_bytes_max: u64,
    /// Copies in flight over all threads; further requests are not copied.
    pub in_flight_max: u32,
}

/// The mirror of a route in a snapshot.
#[derive(Clone, Debug)]
pub struct MirrorView {
    /// Its pool.
    pub pool: PoolPlace,
    /// Counters, kept across snapshots.
    pub live: Arc<MirrorLive>,
}

impl PartialEq for MirrorView {
    fn eq(&self, other: &MirrorView) -> bool {
        self.pool == other.pool && Arc::ptr_eq(&self.live, &other.live)
    }
}

/// The end of a request's copy, or the reason why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CopyOutcome {
    /// The backend has answered, with any status.
    Answered,
    /// It was not connected, or did not answer whole in time.
    Failed,
    /// As many copies as may were in flight.
    InFlight,
    /// The request's body is larger than those that are copied.
    BodyTooLarge,
    /// The request ended before its body did.
    BodyIncomplete,
    /// No backend of the pool may be picked.
    NoBackend,
    /// All backends of the pool are at their concurrency limit.
    NoRoom,
}

impl CopyOutcome {
    /// All of them, in the order of their numbers, with their names in metrics.
    pub const ALL: [(CopyOutcome, &str); 7] = [
        (CopyOutcome::Answered, "answered"),
        (CopyOutcome::Failed, "failed"),
        (CopyOutcome::InFlight, "in_flight"),
        (CopyOutcome::BodyTooLarge, "body_too_large"),
        (CopyOutcome::BodyIncomplete, "body_incomplete"),
        (CopyOutcome::NoBackend, "no_backend"),
        (CopyOutcome::NoRoom, "no_room"),
    ];
}

/// Counters of a mirror.
#[derive(Debug)]
pub struct MirrorLive {
    in_flight: AtomicU32,
    outcomes: Sharded<[Counter; CopyOutcome::ALL.len()]>,
}

impl MirrorLive {
    /// Zeros.
    pub fn new(threads: usize) -> Arc<MirrorLive> {
        let outcomes = Sharded::new(threads);
        Arc::new(MirrorLive { in_flight: AtomicU32::new(0), outcomes })
    }

    /// Copies in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Outcomes so far, with their names.
    pub fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CopyOutcome::ALL.iter().map(|(outcome, name)| {
            (*name, self.outcomes.sum(|counters| counters[*outcome as usize].get()))
        })
    }

    /// Counts an outcome, on the thread of this index.
    pub(crate) fn count(&self, thread: usize, outcome: CopyOutcome) {
        self.outcomes.shard(thread)[outcome as usize].add(1);
    }

    /// Counts one more copy as in flight until the result is dropped; `None` if there are `most`.
    pub(crate) fn enter(self: &Arc<Self>, most: u32) -> Option<CopyInFlight> {
        let entered =
            self.in_flight.fetch_update(Relaxed, Relaxed, |n| (n < most).then_some(n + 1));
        entered.is_ok().then(|| CopyInFlight(Arc::clone(self)))
    }
}

/// Keeps a copy counted as in flight.
pub(crate) struct CopyInFlight(pub(crate) Arc<MirrorLive>);

impl Drop for CopyInFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}
