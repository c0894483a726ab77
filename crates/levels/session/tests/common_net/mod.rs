//! An engine with one front door and one pool, controlled by the test, and sockets to talk to it.
#![allow(dead_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use equipoise_core::scheduler::{Candidate, prepare};
use equipoise_core::{Generation, SchedulerKind, hash};
use equipoise_session::config::{Challenges, FrontDoor, PassiveHealth, PoolOptions, Protocol};
use equipoise_session::stats::{BackendStats, Counter, FrontDoorStats, Sharded};
use equipoise_session::{
    BackendEvent, BackendLive, BackendView, Engine, EngineOptions, FrontDoorView, LogOutput,
    MemoryBound, PoolView, Queue, Reason, RetryBudget, Snapshot, StopReport,
};
use equipoise_testkit::LogBuffer;
use tokio::sync::mpsc;

/// Longest time for anything that must happen, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const THREADS: usize = 2;

pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    pub(crate) stats: Arc<Sharded<FrontDoorStats>>,
    pub(crate) backends: Vec<BackendView>,
    pub(crate) events: mpsc::Receiver<BackendEvent>,
    pub(crate) log: LogBuffer,
    door: FrontDoor,
    options: PoolOptions,
    /// The queue of the pool.
    pub(crate) queue: Arc<Queue>,
    retry_budget: Arc<RetryBudget>,
    generation: u64,
}

/// Options of a test that differ from the defaults.
pub(crate) struct Wishes {
    pub(crate) door: FrontDoor,
    pub(crate) options: PoolOptions,
    pub(crate) challenges: Challenges,
}

impl Rig {
    pub(crate) fn start(
        protocol: Protocol,
        backends: &[SocketAddr],
        wish: impl FnOnce(&mut Wishes),
    ) -> Rig {
        raise_descriptor_limit();
        let address = free_address(protocol);
        let mut wishes = Wishes {
            door: FrontDoor::new(address, protocol, "pool"),
            options: PoolOptions::default(),
            challenges: Challenges::default(),
        };
        wish(&mut wishes);
        let log = LogBuffer::default();
        let (sender, events) = mpsc::channel(100);
        let engine = Engine::start(EngineOptions {
            threads: THREADS,
            instance: "test".into(),
            events: sender,
            access_log: LogOutput::Stream(Box::new(log.clone())),
            access_log_format: Default::default(),
            traces: None,
            challenges: wishes.challenges,
            inherited: Default::default(),
            memory: MemoryBound::NONE,
            is_held: false,
        });
        let backends = backends.iter().enumerate().map(|(id, address)| BackendView {
            id: id as u32,
            name: format!("b{id}").into(),
            address: *address,
            place: Default::default(),
            live: BackendLive::new(THREADS),
        });
        let mut rig = Rig {
            engine: engine.unwrap(),
            address,
            stats: Arc::new(Sharded::new(THREADS)),
            backends: backends.collect(),
            events,
            log,
            queue: Queue::new(THREADS),
            retry_budget: Arc::new(RetryBudget::new(Instant::now())),
            door: wishes.door,
            options: wishes.options,
            generation: 0,
        };
        let all: Vec<usize> = (0..rig.backends.len()).collect();
        rig.publish(&all);
        rig
    }

    /// Publishes a snapshot with these eligible backends.
    pub(crate) fn publish(&mut self, eligible: &[usize]) {
        self.publish_with(eligible, true);
    }

    /// As [`Rig::publish`], with or without the front door.
    pub(crate) fn publish_with(&mut self, eligible: &[usize], open: bool) {
        self.generation += 1;
        let backends: Vec<_> = eligible.iter().map(|at| self.backends[*at].clone()).collect();
        let candidates: Vec<_> = backends
            .iter()
            .map(|b| Candidate { identity: hash::identity(b.address), weight: 1 })
            .collect();
        let pool = PoolView {
            id: 0,
            name: "pool".into(),
            generation: Generation(self.generation),
            scheduler: prepare(SchedulerKind::RoundRobin, &candidates, 0),
            needs_response_time: false,
            awaits_backend: false,
            fails_open: false,
            backends,
            queue: self.queue.clone(),
            retry_budget: self.retry_budget.clone(),
            options: self.options.clone(),
            passive: PassiveHealth::default(),
        };
        let door = FrontDoorView {
            id: 7,
            config: self.door.clone(),
            pool: 0,
            sni: Arc::default(),
            routes: Arc::default(),
            dispatch: None,
            limiter: Arc::default(),
            in_flight: Arc::default(),
            stats: self.stats.clone(),
        };
        let snapshot = Snapshot {
            generation: Generation(self.generation),
            pools: vec![Arc::new(pool)],
            front_doors: if open { vec![Arc::new(door)] } else { Vec::new() },
        };
        self.engine.publish(Arc::new(snapshot)).unwrap();
    }

    /// Sets a backend down: not eligible, and its connections are cut.
    pub(crate) fn down(&mut self, backend: usize) {
        self.backends[backend].live.cut.store(true, Relaxed);
        let others: Vec<usize> = (0..self.backends.len()).filter(|at| *at != backend).collect();
        self.publish(&others);
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        patient(stream)
    }

    pub(crate) fn count(&self, of: impl Fn(&FrontDoorStats) -> &Counter) -> u64 {
        self.stats.sum(|shard| of(shard).get())
    }

    pub(crate) fn drops(&self, reason: Reason) -> u64 {
        self.count(|stats| &stats.drops[reason as usize])
    }

    pub(crate) fn backend_count(&self, at: usize, of: impl Fn(&BackendStats) -> &Counter) -> u64 {
        self.backends[at].live.stats.sum(|shard| of(shard).get())
    }

    pub(crate) fn failures(&self, at: usize, reason: Reason) -> u64 {
        self.backend_count(at, |stats| &stats.failures[reason as usize])
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.backends.iter().map(|backend| backend.live.in_flight()).sum()
    }

    /// Waits until nothing is open, then checks that the counters agree.
    pub(crate) fn settle(&self) {
        until("all is closed", || self.count(|stats| &stats.connections_open) == 0);
        until("no backend has anything in flight", || self.in_flight() == 0);
        for at in 0..self.backends.len() {
            until("no session is open", || {
                self.backend_count(at, |stats| &stats.sessions_open) == 0
            });
        }
    }

    pub(crate) fn stop(self, grace: Duration) -> (StopReport, LogBuffer) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        (runtime.block_on(self.engine.stop(grace)), self.log)
    }
}

/// Polls until the condition holds; for counters of other threads.
#[track_caller]
pub(crate) fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// An address on a loopback network of this test only, so that no other socket takes the port
/// before the engine binds it.
fn free_address(protocol: Protocol) -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Relaxed).to_be_bytes();
    let process = (std::process::id() % 250) as u8 + 2;
    let ip = IpAddr::V4(Ipv4Addr::new(127, process, high, low));
    match protocol {
        Protocol::Udp => std::net::UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap(),
        _ => TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap(),
    }
}

/// An address that refuses connections: nothing listens there, and nothing else can bind it.
pub(crate) fn refusing() -> SocketAddr {
    free_address(Protocol::Tcp)
}

/// A TCP backend that serves each connection on a thread of its own.
pub(crate) fn backend(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let serve = serve.clone();
            thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(move || serve(patient(stream)))
                .unwrap();
        }
    });
    address
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Closes with RST.
pub(crate) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Whether reading fails with a reset (and not with an end, a time-out or data).
pub(crate) fn is_reset(stream: &mut TcpStream) -> bool {
    use std::io::Read;
    let read = stream.read(&mut [0; 1]);
    matches!(read, Err(error) if error.kind() == io::ErrorKind::ConnectionReset)
}

fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a pointer to a valid rlimit.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}
