//! A pool's queue: requests that wait for a permit of one of its backends.
//!
//! A queue belongs to the process, not to a thread. Only a request that found no free permit locks
//! it, and a release that sees that a request waits. A waiter announces itself
//! ([`Queue::has_waiting`]) and then looks for a free permit once more; a release frees its permit
//! and then looks for waiters. Both are `SeqCst`, so that at least one of the two sees the other,
//! and no request waits while a permit is free.
//!
//! A permit goes straight to the next waiter ([`Order`]): it is taken in the waiter's name before
//! the waiter wakes, and new arrivals join the queue.
//!
//! In node mode the queue also assigns the known room of peers. Each request waits at the node of
//! its client, and leaves for the application that has room first.

mod order;
mod wait;

use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use slab::Slab;

use self::order::{Order, Place};
use crate::config::{PoolOptions, QueueOptions};
use crate::learning::Hub;
use crate::lease::Lease;
use crate::live::BackendLive;
use crate::permits::Work;
use crate::reason::Reason;
use crate::snapshot::{BackendView, PoolView, Snapshot};
use crate::stats::{Counter, Histogram, Sharded};

pub(crate) use self::order::{Rank, Turn};
pub(crate) use self::wait::{Full, wait};

/// Requests that wait for a permit of a pool's backends, over all threads.
pub struct Queue {
    /// Length of [`State::order`].
    waiting: AtomicUsize,
    state: Mutex<State>,
    /// Counters, one shard per data-plane thread.
    pub stats: Sharded<QueueStats>,
    /// Where finished requests of the pool go, if limits are learned from them.
    hub: OnceLock<Arc<Hub>>,
}

/// Content of a queue at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    pub(crate) waiting: usize,
    /// Age of the oldest request.
    pub(crate) oldest: Duration,
    /// Backends that the requests wait for.
    pub(crate) backends: usize,
}

impl Standing {
    /// Requests for each backend, rounded up.
    pub(crate) fn share(self) -> u32 {
        u32::try_from(self.waiting.div_ceil(self.backends.max(1))).unwrap_or(u32::MAX)
    }
}

/// Counters of a pool's queue.
#[derive(Debug, Default)]
pub struct QueueStats {
    /// Requests that joined the queue.
    pub waited: Counter,
    /// Requests that left the queue without a backend.
    pub unserved: Counter,
    /// Time that each spent in the queue, however that ended.
    pub wait: Histogram,
}

#[derive(Default)]
struct State {
    /// The newest snapshot with the pool, and the pool's index there. Weak: the snapshot owns the
    /// queue.
    snapshot: Weak<Snapshot>,
    pool: usize,
    /// The same snapshot, while requests wait: a reload that removes the pool leaves them its
    /// backends.
    in_use: Option<Arc<Snapshot>>,
    /// The pool of the peers that may do its requests, in node mode.
    peers: Option<usize>,
    /// Keys of `waiters`.
    order: Order<usize>,
    waiters: Slab<Entry>,
    /// The backend at which the search for permits starts, modulo their number.
    turn: usize,
}

struct Entry {
    /// A backend that this request must not use.
    avoid: Option<u32>,
    work: Work,
    /// A peer may do it.
    may_leave: bool,
    waker: Option<Waker>,
    stage: Stage,
}

enum Stage {
    Waiting(Place),
    /// A permit was taken in its name.
    Granted(Grant),
    /// The queue was too long.
    Refused,
    /// It has its lease.
    Over,
}

/// A backend with a permit that was taken for a waiter.
struct Grant {
    work: Work,
    snapshot: Arc<Snapshot>,
    pool: usize,
    slot: usize,
}

impl Grant {
    fn lease(self, thread: usize) -> Lease {
        Lease::of_permit(self.work, Rc::new(self.snapshot), self.pool, self.slot, thread)
    }
}

/// Wakers to call once the queue is unlocked.
type ToWake = Vec<Waker>;

impl Queue {
    /// An empty one, for as many threads.
    pub fn new(threads: usize) -> Arc<Queue> {
        Arc::new(Queue {
            waiting: AtomicUsize::new(0),
            state: Mutex::default(),
            stats: Sharded::new(threads),
            hub: OnceLock::new(),
        })
    }

    /// Passes finished requests to this hub from now on. The first one stays.
    pub(crate) fn attach(&self, hub: &Arc<Hub>) {
        self.hub.get_or_init(|| Arc::clone(hub));
    }

    /// The hub that learns from the pool's requests.
    #[inline]
    pub(crate) fn hub(&self) -> Option<&Arc<Hub>> {
        self.hub.get()
    }

    /// The current content.
    pub(crate) fn standing(&self) -> Standing {
        if !self.has_waiting() {
            return Standing::default();
        }
        let state = self.lock();
        let oldest = state.order.oldest().map_or(Duration::ZERO, |since| since.elapsed());
        let pool = state.in_use.as_ref().and_then(|it| it.pools.get(state.pool));
        let backends = pool.map_or(0, |pool| pool.backends.len());
        Standing { waiting: state.order.len(), oldest, backends }
    }

    /// Requests that wait now.
    pub fn len(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a request waits. A new request then joins the queue, even if it sees a free permit.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Uses this snapshot's view of the pool from now on, and hands out the permits that are free
    /// in it.
    pub(crate) fn install(&self, snapshot: &Arc<Snapshot>, pool: usize) {
        let mut state = self.lock();
        state.use_view(snapshot, pool);
        let to_wake = self.hand_out(&mut state, None);
        drop(state);
        to_wake.into_iter().for_each(Waker::wake);
    }

    /// Hands out permits that are free, as after a limit was raised or a peer announced room.
    pub fn look(&self) {
        if self.has_waiting() {
            let to_wake = self.hand_out(&mut self.lock(), None);
            to_wake.into_iter().for_each(Waker::wake);
        }
    }

    /// Hands out the permits of a backend that has come to have free ones; `slot` is its place in a
    /// recent snapshot.
    #[cold]
    pub(crate) fn freed(&self, slot: usize, backend: &Arc<BackendLive>) {
        let to_wake = self.hand_out(&mut self.lock(), Some((slot, backend)));
        to_wake.into_iter().for_each(Waker::wake);
    }

    /// Stands in the queue until the waiter is dropped. If the queue is too long then, the last in
    /// order is refused.
    ///
    /// `snapshot` is the one in which the request found its pool, at index `pool`, without a free
    /// permit.
    fn join(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        pool: usize,
        rank: Rank,
        avoid: Option<u32>,
        thread: usize,
    ) -> Waiter {
        let now = Instant::now();
        let options = &snapshot.pools[pool].options.queue;
        let mut state = self.lock();
        if state.snapshot.strong_count() == 0 {
            // A reload has removed the pool. Clients of its front doors still have the last
            // snapshot with it.
            state.use_view(snapshot, pool);
        }
        let entry = state.waiters.vacant_entry();
        let key = entry.key();
        let (work, may_leave) = (rank.work(), rank.may_leave);
        entry.insert(Entry { avoid, work, may_leave, waker: None, stage: Stage::Over });
        let place = state.order.join(rank, key);
        state.waiters[key].stage = Stage::Waiting(place);
        self.count(&mut state);
        let mut to_wake = self.hand_out(&mut state, None);
        while state.order.len() > options.length
            && let Some(last) = state.order.pop_last(now, late(options))
        {
            to_wake.extend(state.waiters[last].end(Stage::Refused));
        }
        self.count(&mut state);
        drop(state);
        to_wake.into_iter().for_each(Waker::wake);
        Waiter { queue: self.clone(), key, thread }
    }

    /// Hands free permits to waiting requests, in their order: permits of one backend, or of all in
    /// turn.
    fn hand_out(&self, state: &mut State, freed: Option<(usize, &Arc<BackendLive>)>) -> ToWake {
        let mut to_wake = ToWake::new();
        let Some(snapshot) = state.in_use.clone() else { return to_wake };
        let Some(pool) = snapshot.pools.get(state.pool) else { return to_wake };
        let all = pool.backends.len();
        let (first, count) = match freed {
            None => {
                state.turn = state.turn.wrapping_add(1);
                (state.turn, all)
            }
            Some((hint, backend)) => match slot_of(pool, hint, backend) {
                Some(slot) => (slot, 1),
                None => return to_wake,
            },
        };
        let now = Instant::now();
        let mut any = true;
        while std::mem::take(&mut any) {
            for slot in (0..count).map(|turn| first.wrapping_add(turn) % all) {
                let Some((place, key)) = state.next_for(pool, slot, now) else { continue };
                let work = state.waiters[key].work;
                if !pool.backends[slot].live.permits.try_acquire_for(work) {
                    continue;
                }
                let (snapshot, pool) = (snapshot.clone(), state.pool);
                to_wake.extend(state.grant(&place, key, Grant { work, snapshot, pool, slot }));
                any = true;
            }
        }
        if freed.is_none() {
            to_wake.extend(state.hand_to_peers(&snapshot, &pool.options, now));
        }
        self.count(state);
        to_wake
    }

    /// Notes how many requests wait, after each change.
    fn count(&self, state: &mut State) {
        match state.order.len() {
            0 => state.in_use = None,
            _ if state.in_use.is_none() => state.in_use = state.snapshot.upgrade(),
            _ => {}
        }
        self.waiting.store(state.order.len(), SeqCst);
        // The code below reads permits with weaker loads.
        fence(SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics in between that would leave it half changed.
        lock(&self.state)
    }
}

impl State {
    /// Goes over to this snapshot's view of the pool.
    fn use_view(&mut self, snapshot: &Arc<Snapshot>, pool: usize) {
        self.snapshot = Arc::downgrade(snapshot);
        self.pool = pool;
        self.in_use = (self.order.len() > 0).then(|| snapshot.clone());
        let doors = snapshot.front_doors.iter().filter(|door| door.pool == pool);
        self.peers = doors.filter_map(|door| door.peers()).next();
    }

    /// The next request that takes a permit of the backend in `slot`.
    fn next_for(&self, pool: &PoolView, slot: usize, now: Instant) -> Option<(Place, usize)> {
        let backend = pool.backends[slot].id;
        let is_only = pool.backends.len() == 1;
        let takes = |key: &usize| is_only || self.waiters[*key].avoid != Some(backend);
        let (permits, late) = (&pool.backends[slot].live.permits, late(&pool.options.queue));
        let [usual, light] = [Work::Usual, Work::Light].map(|work| !permits.is_full_for(work));
        let has_room = |work| if work == Work::Light { light } else { usual };
        let next = self.order.next_of(has_room, now, late, takes);
        next.map(|(place, key)| (place, *key))
    }

    /// Hands requests that may leave to peers that are known to have room.
    fn hand_to_peers(
        &mut self,
        snapshot: &Arc<Snapshot>,
        options: &PoolOptions,
        now: Instant,
    ) -> ToWake {
        let mut to_wake = ToWake::new();
        let Some(at) = self.peers else { return to_wake };
        let Some(peers) = snapshot.pools.get(at) else { return to_wake };
        for (slot, peer) in peers.backends.iter().enumerate() {
            while peer.live.permits.free().is_some_and(|free| free > 0) {
                let takes = |key: &usize| self.waiters[*key].may_leave;
                let next = self.order.next_where(now, late(&options.queue), takes);
                let Some((place, key)) = next.map(|(place, key)| (place, *key)) else {
                    return to_wake;
                };
                if !peer.live.permits.try_acquire() {
                    break;
                }
                let (work, snapshot) = (Work::Usual, snapshot.clone());
                let grant = Grant { work, snapshot, pool: at, slot };
                to_wake.extend(self.grant(&place, key, grant));
            }
        }
        to_wake
    }

    /// Gives a request the permit that was taken in its name; the answer is the waker to call.
    fn grant(&mut self, place: &Place, key: usize, grant: Grant) -> Option<Waker> {
        self.order.leave(place);
        self.waiters[key].end(Stage::Granted(grant))
    }
}

/// The age of the oldest request from which on the newest is first: half of the time that a request
/// may wait.
fn late(options: &QueueOptions) -> Duration {
    options.wait / 2
}

/// The backend's slot in the pool, if it may still be picked. Its id may have changed.
fn slot_of(pool: &PoolView, hint: usize, backend: &Arc<BackendLive>) -> Option<usize> {
    let is_it = |view: &BackendView| Arc::ptr_eq(&view.live, backend);
    match pool.backends.get(hint) {
        Some(view) if is_it(view) => Some(hint),
        _ => pool.backends.iter().position(is_it),
    }
}

impl Entry {
    /// Takes it out of the order; the answer is the waker to call.
    fn end(&mut self, stage: Stage) -> Option<Waker> {
        self.stage = stage;
        self.waker.take()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.len()).finish_non_exhaustive()
    }
}

/// A place in a queue. Dropped, it leaves the queue, and gives on a permit that came in the same
/// moment.
struct Waiter {
    queue: Arc<Queue>,
    key: usize,
    thread: usize,
}

impl Waiter {
    /// Ready with the lease, or with the reason of a refusal.
    fn poll(&self, cx: &Context<'_>) -> Poll<Result<Lease, Reason>> {
        let mut state = self.queue.lock();
        let entry = &mut state.waiters[self.key];
        match std::mem::replace(&mut entry.stage, Stage::Over) {
            Stage::Waiting(place) => {
                entry.stage = Stage::Waiting(place);
                match &mut entry.waker {
                    Some(known) => known.clone_from(cx.waker()),
                    None => entry.waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            Stage::Granted(grant) => {
                drop(state);
                Poll::Ready(Ok(grant.lease(self.thread)))
            }
            Stage::Refused | Stage::Over => Poll::Ready(Err(Reason::QueueFull)),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        let entry = state.waiters.remove(self.key);
        if let Stage::Waiting(place) = &entry.stage {
            state.order.leave(place);
            self.queue.count(&mut state);
        }
        drop(state);
        if let Stage::Granted(grant) = entry.stage {
            // The lease's end hands the permit on, but to this queue only if the backend is its
            // own.
            drop(grant.lease(self.thread));
            self.queue.look();
        }
    }
}

#[cfg(test)]
mod tests;
