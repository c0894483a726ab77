//! State shared by the tasks of one data-plane thread. No other thread sees it.
#![allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]

mod client_hashes;
mod outcomes;
mod peers;
mod pick;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use equipoise_basics::OncePerMinute;
use equipoise_core::trace::TraceSink;
use equipoise_core::{Generation, Scheduler};
use equipoise_tls::Challenges;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::{Notify, mpsc};

use crate::access_log::{AccessLog, ThreadLog};
use crate::buffer::Buffers;
use crate::config::Protocol;
use crate::deadline::Deadlines;
use crate::descriptors::{Descriptors, Lines};
use crate::handover::{GivenClient, UdpHandover};
use crate::hedge_delay::HedgeDelays;
use crate::http::{Http2Sessions, Logged, MuxSessions, StreamTasks};
use crate::memory::MemoryBound;
use crate::snapshot::{BackendEvent, FrontDoorView, Snapshot};
use crate::sources::SourceSamples;
use crate::splice::Pipes;
use crate::udp::Batch;
use crate::upstream::IdleSessions;

pub(crate) use client_hashes::ClientHashes;
pub(crate) use peers::explain_dispatch;
pub(crate) use pick::Pick;

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
    pub(crate) memory: MemoryBound,
    pub(crate) events: mpsc::Sender<BackendEvent>,
    pub(crate) access_log: AccessLog,
    pub(crate) traces: Option<TraceSink>,
    pub(crate) sources: Arc<SourceSamples>,
    pub(crate) challenges: Challenges,
    pub(crate) is_held: bool,
}

/// A pool's scheduler on this thread, with the pool's id and the generation it was made for.
type Scheduling = (u32, Generation, Box<dyn Scheduler>);

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
        let buffers = Rc::default();
        Rc::new(Worker {
            index,
            access_log: shared.access_log.of_thread(),
            idle: IdleSessions::new(index, shared.threads, &buffers),
            deadlines: Deadlines::new(shared.memory),
            shared,
            buffers,
            pipes: Rc::default(),
            datagrams: OnceCell::new(),
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

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&self) {
        self.buffers.trim();
        self.vecs.take();
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
