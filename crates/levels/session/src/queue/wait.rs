//! Waiting in a pool's queue, for the connections of every protocol.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::{Rank, Waiter};
use crate::deadline::Deadline;
use crate::door::Door;
use crate::lease::Lease;
use crate::reason::Reason;
use crate::snapshot::{PoolView, Snapshot};
use crate::socket::Socket;
use crate::worker::{Phase, Worker};

/// A pool in which no permit was free.
#[allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]
pub(crate) struct Full {
    pub(crate) snapshot: Rc<Arc<Snapshot>>,
    pub(crate) pool: usize,
    /// It is the pool of the request's route: the request waits for no other.
    pub(crate) is_routed: bool,
}

impl Full {
    pub(crate) fn pool(&self) -> &PoolView {
        &self.snapshot.pools[self.pool]
    }

    /// Makes sure that limits which are learned are looked at soon, now that a request waits.
    fn make_limits_move(&self) {
        let Some(hub) = self.pool().queue.hub() else { return };
        let mut learns = false;
        for backend in &self.pool().backends {
            learns |= backend.live.learning.is_on();
            backend.announce_to(hub, &self.pool().queue);
        }
        if learns {
            hub.hurry();
        }
    }

    /// Whether the pool has no backend yet, rather than none with room.
    pub(crate) fn awaits_backend(&self) -> bool {
        self.pool().backends.is_empty()
    }

    /// How long a request may wait in all.
    pub(crate) fn longest(&self) -> Duration {
        let pool = self.pool();
        let start = pool.options.start_wait.filter(|_| pool.backends.is_empty());
        start.unwrap_or(pool.options.queue.wait)
    }
}

/// How a wait ended, and how long it took.
pub(crate) struct Waited {
    /// `None`: the front door has another pool now, or its pool has no backend left. Pick again.
    pub(crate) lease: Result<Option<Lease>, Reason>,
    pub(crate) took: Duration,
}

/// Waits until a backend of the pool has room, `deadline` passes, or `client` leaves.
///
/// `avoid` is the backend that failed this request; the request does not take its permits.
pub(crate) async fn wait(
    worker: &Worker,
    door: &Door,
    client: &Socket,
    deadline: &Deadline,
    full: &Full,
    rank: Rank,
    avoid: Option<u32>,
) -> Waited {
    let since = Instant::now();
    let queue = &full.pool().queue;
    let waiter = queue.join(&full.snapshot, full.pool, rank, avoid, worker.index);
    full.make_limits_move();
    let mut wait = Wait { worker, door, client, deadline, full, waiter, watches_client: true };
    let lease = poll_fn(|cx| wait.poll(cx)).await;
    drop(wait);
    let took = since.elapsed();
    let stats = queue.stats.shard(worker.index);
    stats.waited.add(1);
    stats.wait.record(took);
    match &lease {
        Ok(Some(lease)) => lease.stats().queue_wait_us.add(took.as_micros() as u64),
        Ok(None) => {}
        Err(_) => stats.unserved.add(1),
    }
    Waited { lease, took }
}

struct Wait<'a> {
    worker: &'a Worker,
    door: &'a Door,
    client: &'a Socket,
    deadline: &'a Deadline,
    full: &'a Full,
    waiter: Waiter,
    watches_client: bool,
}

impl Wait<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Lease>, Reason>> {
        if let Poll::Ready(result) = self.waiter.poll(cx) {
            return Poll::Ready(result.map(Some));
        }
        if self.deadline.is_past() {
            return Poll::Ready(Err(Reason::QueueTimeout));
        }
        if self.worker.phase.get() == Phase::Cutting {
            return Poll::Ready(Err(Reason::ShuttingDown));
        }
        if !self.worker.still_queues(self.door, self.full) {
            return Poll::Ready(Ok(None));
        }
        if self.watches_client
            && let Poll::Ready(has_left) = self.client.poll_left(cx)
        {
            if has_left {
                return Poll::Ready(Err(Reason::ClientGone));
            }
            // It has sent more bytes, behind which its end cannot be seen.
            self.watches_client = false;
        }
        Poll::Pending
    }
}
