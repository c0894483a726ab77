//! State shared by the tasks of one data-plane thread. No other thread sees it.
#![allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]

mod outcomes;
mod peers;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_basics::OncePerMinute;
use equipoise_core::trace::TraceSink;
use equipoise_core::{Ask, Generation, Loads, Scheduler};
use equipoise_tls::Challenges;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::{Notify, mpsc};

use crate::access_log::{AccessLog, ThreadLog};
use crate::buffer::Buffers;
use crate::config::{PoolOptions, Protocol};
use crate::deadline::Deadlines;
use crate::descriptors::{Descriptors, Lines};
use crate::door::Door;
use crate::handover::{GivenClient, UdpHandover};
use crate::hedge_delay::HedgeDelays;
use crate::http::{Http2Sessions, Logged, MuxSessions, Routed, StreamTasks};
use crate::lease::{Lease, PoolLoads};
use crate::permits::Work;
use crate::queue::Full;
use crate::reason::Reason;
use crate::snapshot::{BackendEvent, FrontDoorView, Readiness, Snapshot};
use crate::sources::{SAMPLE, SourceSamples};
use crate::splice::Pipes;
use crate::udp::Batch;
use crate::upstream::IdleSessions;

pub(crate) use peers::explain_dispatch;

/// Vectors kept for reuse at the most, and how large one may have grown.
const VECS_MAX: usize = 1024;
const VEC_BYTES_MAX: usize = 64 << 10;

/// How far a thread is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Serving.
    Running,
    /// No new work is accepted; work in flight may finish.
    Draining,
    /// Remaining work is cut.
    Cutting,
}

/// Values that every thread receives once, the same for all.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) instance: Arc<str>,
    pub(crate) epoch: Instant,
    pub(crate) threads: usize,
    pub(crate) descriptors: Descriptors,
    pub(crate) events: mpsc::Sender<BackendEvent>,
    pub(crate) access_log: AccessLog,
    pub(crate) traces: Option<TraceSink>,
    pub(crate) sources: Arc<SourceSamples>,
    pub(crate) challenges: Challenges,
    pub(crate) is_held: bool,
}

/// A pool's scheduler on this thread, with the pool's id and the generation it was made for.
type Scheduling = (u32, Generation, Box<dyn Scheduler>);

/// A snapshot, and the index of a pool in it.
type PoolOf = (Rc<Arc<Snapshot>>, usize);

/// The result of picking a backend.
pub(crate) enum Pick {
    /// A backend with room.
    Free(Lease),
    /// No backend has room, requests wait for it already, or the first backend is being made.
    Full(Full),
    /// The pool has no backend that may be picked.
    NoBackend,
}

/// One data-plane thread's state.
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Shared,
    pub(crate) access_log: ThreadLog,
    pub(crate) deadlines: Rc<Deadlines>,
    pub(crate) buffers: Rc<Buffers>,
    pub(crate) pipes: Rc<Pipes>,
    pub(crate) datagrams: OnceCell<Box<RefCell<Batch>>>,
    pub(crate) idle: IdleSessions,
    pub(crate) mux: MuxSessions,
    pub(crate) http2: Http2Sessions,
    pub(crate) streams: StreamTasks,
    pub(crate) hedge_delays: HedgeDelays,
    pub(crate) phase: Cell<Phase>,
    /// Which descriptors each use may have, given the front doors of the snapshot.
    pub(crate) lines: Cell<Lines>,
    snapshot: RefCell<Rc<Arc<Snapshot>>>,
    vecs: RefCell<Vec<Vec<u8>>>,
    /// Records of logged requests, kept for reuse.
    #[allow(
        clippy::vec_box,
        reason = "a connection keeps the box, which costs it a pointer while idle"
    )]
    pub(crate) logged: RefCell<Vec<Box<Logged>>>,
    schedulers: RefCell<Vec<Scheduling>>,
    rng: RefCell<SmallRng>,
    /// Picks until one is sampled by its source.
    unsampled: Cell<u32>,
    distrust_lines: RefCell<OncePerMinute>,
    tasks: Cell<usize>,
    tasks_ended: Notify,
    /// Front doors accept nothing yet.
    held: Cell<bool>,
    begun: Notify,
    /// Clients of a predecessor, until their front doors' tasks take them.
    given: RefCell<Vec<UdpHandover>>,
    /// The first snapshot of a held thread. It has all backends, also those that drain since then,
    /// and that only clients of the predecessor use.
    first: RefCell<Option<Rc<Arc<Snapshot>>>>,
}

impl Worker {
    pub(crate) fn new(index: usize, shared: Shared) -> Rc<Worker> {
        let held = shared.is_held;
        Rc::new(Worker {
            index,
            access_log: shared.access_log.of_thread(),
            shared,
            deadlines: Deadlines::new(),
            buffers: Rc::default(),
            pipes: Rc::default(),
            datagrams: OnceCell::new(),
            idle: IdleSessions::default(),
            mux: MuxSessions::default(),
            http2: Http2Sessions::default(),
            streams: StreamTasks::default(),
            hedge_delays: HedgeDelays::default(),
            phase: Cell::new(Phase::Running),
            lines: Cell::default(),
            snapshot: RefCell::default(),
            vecs: RefCell::default(),
            logged: RefCell::default(),
            schedulers: RefCell::default(),
            rng: RefCell::new(SmallRng::from_rng(&mut rand::rng())),
            unsampled: Cell::new(0),
            distrust_lines: RefCell::default(),
            tasks: Cell::new(0),
            tasks_ended: Notify::new(),
            held: Cell::new(held),
            begun: Notify::new(),
            given: RefCell::default(),
            first: RefCell::default(),
        })
    }

    /// Installs `snapshot`.
    pub(crate) fn install(&self, snapshot: Arc<Snapshot>) {
        let old = self.schedulers.take().into_iter();
        let mut old: HashMap<_, _> = old.map(|(id, made, kept)| ((id, made), kept)).collect();
        let rng = &mut *self.rng.borrow_mut();
        let schedulers = snapshot.pools.iter().map(|pool| {
            let kept = old.remove(&(pool.id, pool.generation));
            let scheduler = kept.unwrap_or_else(|| pool.scheduler.instance(rng));
            (pool.id, pool.generation, scheduler)
        });
        *self.schedulers.borrow_mut() = schedulers.collect();
        self.idle.sweep(&snapshot, Instant::now());
        self.http2.sweep(&snapshot);
        self.hedge_delays.retain(&snapshot);
        let is_udp = |door: &&Arc<FrontDoorView>| door.config.protocol == Protocol::Udp;
        let udp_doors = snapshot.front_doors.iter().filter(is_udp).count();
        let lines = self.shared.descriptors.divided(self.shared.threads, udp_doors);
        self.pipes.stay_below(lines.sessions);
        self.lines.set(lines);
        let snapshot = Rc::new(snapshot);
        if self.held.get() {
            self.first.borrow_mut().get_or_insert_with(|| snapshot.clone());
        }
        *self.snapshot.borrow_mut() = snapshot;
        // Tasks look whether their backend was cut or their front door closed.
        self.deadlines.wake_all();
    }

    /// Has the front doors accept, with these clients of a predecessor.
    pub(crate) fn begin(&self, given: Vec<UdpHandover>) {
        if given.is_empty() {
            self.first.borrow_mut().take();
        }
        *self.given.borrow_mut() = given;
        self.held.set(false);
        self.begun.notify_waiters();
    }

    /// Resolves when front doors may accept.
    pub(crate) async fn begun(&self) {
        while self.held.get() {
            self.begun.notified().await;
        }
    }

    /// Takes the clients that a predecessor gave for this listening socket, and the snapshot in
    /// which their backends are.
    pub(crate) fn take_given(
        &self,
        door: SocketAddr,
        socket: usize,
    ) -> Option<(Rc<Arc<Snapshot>>, Vec<GivenClient>)> {
        let mut given = self.given.borrow_mut();
        let mut clients = Vec::new();
        given.retain_mut(|one| {
            let is_it = (one.door, one.socket) == (door, socket);
            if is_it {
                clients.append(&mut one.clients);
            }
            !is_it
        });
        let snapshot = self.first.borrow().clone()?;
        if given.is_empty() {
            self.first.borrow_mut().take();
        }
        Some((snapshot, clients))
    }

    pub(crate) fn snapshot(&self) -> Rc<Arc<Snapshot>> {
        self.snapshot.borrow().clone()
    }

    /// Moves towards the end; tasks look at the phase when woken.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.set(self.phase.get().max(phase));
        self.deadlines.wake_all();
    }

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
    fn place_of(&self, door: &Door, pool: usize) -> PoolOf {
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

    fn pick_of(
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

    /// An empty byte vector, with room from an earlier use.
    pub(crate) fn take_vec(&self) -> Vec<u8> {
        self.vecs.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives a vector back for reuse.
    pub(crate) fn give_vec(&self, mut vec: Vec<u8>) {
        let mut vecs = self.vecs.borrow_mut();
        if vec.capacity() <= VEC_BYTES_MAX && vecs.len() < VECS_MAX {
            vec.clear();
            vecs.push(vec);
        }
    }

    /// A random number.
    pub(crate) fn random(&self) -> u64 {
        use rand::RngExt;
        self.rng.borrow_mut().random()
    }

    /// A random id of a span, or a half of one of a trace.
    pub(crate) fn random_id(&self) -> [u8; 8] {
        use rand::RngExt;
        // Zero stands for none.
        self.rng.borrow_mut().random_range(1..=u64::MAX).to_be_bytes()
    }

    /// A random number in `0.0..1.0`, for sampling.
    pub(crate) fn sample(&self) -> f64 {
        use rand::RngExt;
        self.rng.borrow_mut().random()
    }

    /// Counts a task until the guard is dropped; the thread's end waits for it.
    pub(crate) fn task(self: &Rc<Self>) -> TaskGuard {
        self.tasks.set(self.tasks.get() + 1);
        TaskGuard(self.clone())
    }

    /// Number of tasks that serve clients.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.get()
    }

    /// Resolves when no task is left.
    pub(crate) async fn idle(&self) {
        while self.tasks.get() > 0 {
            self.tasks_ended.notified().await;
        }
    }
}

/// Keeps a task counted.
pub(crate) struct TaskGuard(Rc<Worker>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.tasks.set(self.0.tasks.get() - 1);
        if self.0.tasks.get() == 0 {
            self.0.tasks_ended.notify_one();
        }
    }
}

/// The hashes that a scheduler may use, computed once per connection.
#[derive(Clone, Copy)]
pub(crate) struct ClientHashes {
    address: IpAddr,
    flow: u64,
    pub(crate) source: u64,
    /// The hash of the part of the request that `hash-by` of its pool names.
    pub(crate) key: Option<u64>,
    /// The value of the request's sticky cookie.
    pub(crate) sticky: Option<u64>,
}

impl ClientHashes {
    pub(crate) fn new(client: SocketAddr, local: SocketAddr) -> ClientHashes {
        use equipoise_core::hash;
        ClientHashes {
            address: client.ip(),
            flow: hash::flow_hash(client, local, crate::FLEET_SEED),
            source: hash::source_hash(client.ip(), crate::FLEET_SEED),
            key: None,
            sticky: None,
        }
    }

    /// Reads the parts of a request by which its pool, with these options, picks a backend. `head`
    /// is as it goes to a backend.
    pub(crate) fn read(&mut self, options: Option<&PoolOptions>, head: &[u8]) {
        self.key = options.and_then(|options| options.hash_by.hash(head));
        let cookie = options.and_then(|options| options.sticky.as_ref());
        self.sticky = cookie.and_then(|cookie| cookie.value(head));
    }

    /// The input of a scheduler's pick for this client.
    #[inline]
    pub(crate) fn ask<'a>(
        &self,
        avoid: Option<usize>,
        loads: &'a dyn Loads,
        rng: &'a mut dyn rand::Rng,
    ) -> Ask<'a> {
        let source_hash = self.key.unwrap_or(self.source);
        Ask { flow_hash: self.flow, source_hash, avoid, loads, rng }
    }
}
