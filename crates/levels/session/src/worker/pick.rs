//! Picks backends: from the pool of a front door, a server name, a route or a copy, as the newest
//! snapshot has it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{ClientHashes, Worker};
use crate::door::Door;
use crate::http::Routed;
use crate::lease::{Lease, PoolLoads};
use crate::permits::Work;
use crate::queue::Full;
use crate::reason::Reason;
use crate::snapshot::{Readiness, Snapshot};
use crate::sources::SAMPLE;

/// A snapshot, and the index of a pool in it.
pub(super) type PoolOf = (Rc<Arc<Snapshot>>, usize);

/// The result of picking a backend.
pub(crate) enum Pick {
    /// A backend with room.
    Free(Lease),
    /// No backend has room, requests wait for it already, or the first backend is being made.
    Full(Full),
    /// The pool has no backend that may be picked.
    NoBackend,
}

impl Worker {
    /// Picks a backend of the door's pool for a client, other than `avoid` if there is another.
    pub(crate) fn pick(&self, door: &Door, client: &ClientHashes, avoid: Option<u32>) -> Pick {
        self.pick_by_name(door, None, client, avoid)
    }

    /// As [`Self::pick`], from the pool for this server name.
    pub(crate) fn pick_by_name(
        &self,
        door: &Door,
        server_name: Option<&str>,
        client: &ClientHashes,
        avoid: Option<u32>,
    ) -> Pick {
        let place = self.place_of(door, door.view().pool_for(server_name));
        self.pick_sampled(place, client, avoid, Work::Usual)
    }

    /// As [`Self::pick`], from the pool of the request's route if it has taken one, and with the
    /// permits that this work may take.
    pub(crate) fn pick_for(
        &self,
        work: Work,
        door: &Door,
        routed: Option<&Routed>,
        client: &ClientHashes,
        avoid: Option<u32>,
    ) -> Pick {
        let mut pick = self.pick_sampled(self.place_for(door, routed), client, avoid, work);
        if let Pick::Full(full) = &mut pick {
            full.is_routed = routed.is_some();
        }
        pick
    }

    /// As [`Self::pick_of`], and counts the client's address if it is sampled.
    fn pick_sampled(
        &self,
        place: PoolOf,
        client: &ClientHashes,
        avoid: Option<u32>,
        work: Work,
    ) -> Pick {
        if self.is_sampled() {
            self.shared.sources.count(self.index, client.address);
        }
        self.pick_of(place, client, avoid, Some(work), false)
    }

    /// As [`Self::pick_for`], for a request that fails open: an unhealthy backend is picked if the
    /// pool has no other.
    pub(crate) fn pick_open(
        &self,
        work: Work,
        door: &Door,
        client: &ClientHashes,
        avoid: Option<u32>,
    ) -> Pick {
        self.pick_of(self.place_of(door, door.view().pool), client, avoid, Some(work), true)
    }

    /// Whether a request that no peer can serve may go to unhealthy backends of the door's pool.
    pub(crate) fn may_fail_open(&self, door: &Door) -> bool {
        let (snapshot, pool) = self.place_of(door, door.view().pool);
        snapshot.pools.get(pool).is_some_and(|pool| pool.fails_open)
    }

    /// As [`Self::pick`] for a check of this node by a peer, which holds no permit and never waits
    /// for one.
    pub(crate) fn pick_for_check(
        &self,
        door: &Door,
        client: &ClientHashes,
        avoid: Option<u32>,
    ) -> Pick {
        self.pick_of(self.place_of(door, door.view().pool), client, avoid, None, false)
    }

    /// Whether the request's pool permits one more retry after a failure of this kind. Counts it.
    pub(crate) fn may_retry(&self, door: &Door, routed: Option<&Routed>, reason: Reason) -> bool {
        let (snapshot, at) = self.place_for(door, routed);
        let pool = snapshot.pools.get(at);
        pool.is_some_and(|pool| pool.may_retry(reason, Instant::now()))
    }

    /// Picks a backend of a pool of `snapshot` for the copy of a request. `head` is as it goes to a
    /// backend.
    pub(crate) fn pick_for_copy(
        &self,
        snapshot: &Rc<Arc<Snapshot>>,
        pool: usize,
        head: &[u8],
        mut client: ClientHashes,
    ) -> Pick {
        let place = self.newest_of(snapshot, pool);
        client.read(place.0.pools.get(place.1).map(|pool| &pool.options), head);
        self.pick_of(place, &client, None, Some(Work::Usual), false)
    }

    /// Whether a pool of the door is still the one with the request's queue, and has a backend of
    /// the same kind or awaits one.
    pub(crate) fn still_queues(&self, door: &Door, full: &Full) -> bool {
        let view = door.view();
        let still_queues_at = |(snapshot, pool): PoolOf| {
            let pool = snapshot.pools.get(pool);
            pool.is_some_and(|pool| {
                Arc::ptr_eq(&pool.queue, &full.pool().queue)
                    && (!pool.backends.is_empty() || pool.awaits_backend)
                    && pool.fails_open == full.pool().fails_open
            })
        };
        if full.is_routed {
            return still_queues_at(self.newest_of(&full.snapshot, full.pool));
        }
        let still_queues = |pool: usize| still_queues_at(self.place_of(door, pool));
        still_queues(view.pool) || view.sni.pools().any(still_queues)
    }

    /// How long a request of the door may wait for room.
    pub(crate) fn queue_wait(&self, door: &Door) -> Duration {
        let (snapshot, pool) = self.place_of(door, door.view().pool);
        snapshot.pools.get(pool).map(|pool| pool.options.queue.wait).unwrap_or_default()
    }

    /// The `Retry-After` for clients of an unusable pool.
    pub(crate) fn retry_after(&self, door: &Door, routed: Option<&Routed>) -> Duration {
        let (snapshot, pool) = self.place_for(door, routed);
        snapshot.pools.get(pool).map(|pool| pool.options.retry_after).unwrap_or_default()
    }

    /// Where a pool is that the door's view names by its index. The view of a door that a reload
    /// took away names pools of the snapshot that it was closed with; in a newer one others may
    /// stand there, so that the pool is looked for by its id. One that went with the door is as it
    /// was then.
    #[inline]
    pub(super) fn place_of(&self, door: &Door, pool: usize) -> PoolOf {
        match door.kept() {
            None => (self.snapshot(), pool),
            Some(kept) => self.newest_of(&kept, pool),
        }
    }

    /// Where the pool of a request is: that of its route, or else the door's.
    #[inline]
    fn place_for(&self, door: &Door, routed: Option<&Routed>) -> PoolOf {
        match routed {
            None => self.place_of(door, door.view().pool),
            Some(routed) => self.newest_of(&routed.snapshot, routed.pool),
        }
    }

    /// Where a pool of `snapshot` is in the newest one. A pool that is gone is as it was then.
    #[inline]
    fn newest_of(&self, snapshot: &Rc<Arc<Snapshot>>, pool: usize) -> PoolOf {
        let newest = self.snapshot();
        let id = snapshot.pools.get(pool).map(|view| view.id);
        let is_it = |at: &usize| newest.pools.get(*at).map(|view| view.id) == id;
        let moved = || newest.pools.iter().position(|view| Some(view.id) == id);
        match Some(pool).filter(is_it).or_else(moved) {
            Some(at) => (newest, at),
            None => (snapshot.clone(), pool),
        }
    }

    /// The snapshot in which the view of a door names pools.
    pub(crate) fn snapshot_of(&self, door: &Door) -> Rc<Arc<Snapshot>> {
        door.kept().unwrap_or_else(|| self.snapshot())
    }

    pub(super) fn pick_of(
        &self,
        (snapshot, pool): PoolOf,
        client: &ClientHashes,
        avoid: Option<u32>,
        work: Option<Work>,
        fails_open: bool,
    ) -> Pick {
        let Some(view) = snapshot.pools.get(pool) else { return Pick::NoBackend };
        match view.readiness(work.is_some(), fails_open) {
            Readiness::Ready => {}
            Readiness::Waits => return Pick::Full(Full { snapshot, pool, is_routed: false }),
            Readiness::NoBackend => return Pick::NoBackend,
        }
        if let Some(lease) = self.sticky_lease(&snapshot, pool, client, avoid, work) {
            return Pick::Free(lease);
        }
        let mut schedulers = self.schedulers.borrow_mut();
        let rng = &mut *self.rng.borrow_mut();
        let mut of_the_gone;
        let made_for = (view.id, view.generation);
        let scheduler = match schedulers.get_mut(pool) {
            Some((id, made, scheduler)) if (*id, *made) == made_for => scheduler,
            // Of a pool that went with its door, for the few clients that this one still has.
            _ => {
                of_the_gone = view.scheduler.instance(rng);
                &mut of_the_gone
            }
        };
        let loads = PoolLoads::new(view, self.shared.epoch).of(work);
        let avoid = avoid.and_then(|id| view.backends.iter().position(|b| b.id == id));
        let slot = scheduler.pick(&mut client.ask(avoid, &loads, rng));
        let Some(work) = work else {
            let lease = slot.map(|slot| Lease::without_permit(&snapshot, pool, slot, self.index));
            return lease.map_or(Pick::NoBackend, Pick::Free);
        };
        // Another thread may have taken the last permit since. The queue then looks at all
        // backends.
        let acquire = |slot| Lease::acquire_for(work, &snapshot, pool, slot, self.index);
        match slot.and_then(acquire) {
            Some(lease) => Pick::Free(lease),
            None => Pick::Full(Full { snapshot, pool, is_routed: false }),
        }
    }

    /// The backend that the request's cookie names, if it may be picked and has room.
    fn sticky_lease(
        &self,
        snapshot: &Rc<Arc<Snapshot>>,
        pool: usize,
        client: &ClientHashes,
        avoid: Option<u32>,
        work: Option<Work>,
    ) -> Option<Lease> {
        let view = &snapshot.pools[pool];
        let slot = view.sticky_slot(client.sticky)?;
        if avoid == Some(view.backends[slot].id) {
            return None;
        }
        Lease::acquire_for(work?, snapshot, pool, slot, self.index)
    }

    /// Reads the parts of a request by which its pool picks a backend. `head` is as it goes to a
    /// backend.
    pub(crate) fn read_affinity(
        &self,
        door: &Door,
        routed: Option<&Routed>,
        head: &[u8],
        hashes: &mut ClientHashes,
    ) {
        let (snapshot, pool) = self.place_for(door, routed);
        hashes.read(snapshot.pools.get(pool).map(|pool| &pool.options), head);
    }

    /// Returns true once in [`SAMPLE`] times, on average, at random distances, so that no rhythm of
    /// clients escapes.
    #[inline]
    fn is_sampled(&self) -> bool {
        use rand::RngExt;
        let left = self.unsampled.get();
        let next = left.checked_sub(1);
        self.unsampled
            .set(next.unwrap_or_else(|| self.rng.borrow_mut().random_range(0..2 * SAMPLE - 1)));
        next.is_none()
    }
}
