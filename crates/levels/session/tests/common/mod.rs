//! An engine with one front door before sample backends.
#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "each test binary uses its part of this"
)]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use equipoise_core::scheduler::prepare;
use equipoise_core::{Candidate, Generation, LineFormat, SchedulerKind};
use equipoise_session::config::{
    Challenges, FrontDoor, PassiveHealth, PoolOptions, Protocol, Upstream,
};
use equipoise_session::stats::{FrontDoorStats, Sharded};
use equipoise_session::{
    BackendEvent, BackendLive, BackendView, BindError, Engine, EngineOptions, FrontDoorView,
    Limiter, LogOutput, MemoryBound, PoolView, Queue, Reason, RetryBudget, Snapshot, SniTable,
    StopReport,
};
use equipoise_testkit::{Client, HttpBackend, ReservedPort, Response, eventually, free_port};
use tokio::sync::mpsc;

/// Makes two tests of each function named: with exclusive and with multiplexed upstream sessions. A
/// function that is not named is reported as unused.
macro_rules! both_upstreams {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            use equipoise_session::config::Upstream;

            #[test]
            fn exclusive() {
                super::$name(Upstream::Exclusive);
            }

            #[test]
            fn multiplexed() {
                super::$name(Upstream::Multiplexed);
            }
        }
    )*};
}
pub(crate) use both_upstreams;

/// As [`both_upstreams`], and with HTTP/2 to the backends.
macro_rules! every_upstream {
    ($($name:ident),* $(,)?) => {
        $crate::common::both_upstreams! { $($name),* }
        mod http2 {
            $(#[test]
            fn $name() {
                super::$name(equipoise_session::config::Upstream::Http2);
            })*
        }
    };
}
pub(crate) use every_upstream;

/// Name of the engine's instance in these tests.
pub(crate) const INSTANCE: &str = "edge-1";

/// Configuration of a test's proxy.
pub(crate) struct Plan {
    pub(crate) threads: usize,
    pub(crate) front: FrontDoor,
    pub(crate) options: PoolOptions,
    pub(crate) passive: PassiveHealth,
    pub(crate) scheduler: SchedulerKind,
    pub(crate) backends: Vec<SocketAddr>,
    port: ReservedPort,
    access_log: Box<dyn io::Write + Send>,
    pub(crate) access_log_format: LineFormat,
    pub(crate) memory: MemoryBound,
    pub(crate) challenges: Challenges,
}

impl Plan {
    /// One data-plane thread, defaults, round-robin over `backends`.
    pub(crate) fn new(upstream: Upstream, backends: &[SocketAddr]) -> Plan {
        let port = free_port();
        Plan {
            threads: 1,
            front: FrontDoor::new(port.address(), Protocol::Http, "web"),
            options: PoolOptions { upstream, ..PoolOptions::default() },
            passive: PassiveHealth::default(),
            scheduler: SchedulerKind::RoundRobin,
            backends: backends.to_vec(),
            access_log: Box::new(io::sink()),
            access_log_format: LineFormat::TEXT,
            memory: MemoryBound::NONE,
            challenges: Challenges::default(),
            port,
        }
    }

    pub(crate) fn front(mut self, change: impl FnOnce(&mut FrontDoor)) -> Plan {
        change(&mut self.front);
        self
    }

    pub(crate) fn pool(mut self, change: impl FnOnce(&mut PoolOptions)) -> Plan {
        change(&mut self.options);
        self
    }

    pub(crate) fn scheduler(mut self, scheduler: SchedulerKind) -> Plan {
        self.scheduler = scheduler;
        self
    }

    pub(crate) fn access_log(mut self, to: impl io::Write + Send + 'static) -> Plan {
        self.access_log = Box::new(to);
        self
    }

    pub(crate) fn threads(mut self, threads: usize) -> Plan {
        self.threads = threads;
        self
    }

    pub(crate) fn start(self) -> Proxy {
        let (events, failing) = mpsc::channel(1024);
        let engine = Engine::start(EngineOptions {
            threads: self.threads,
            instance: INSTANCE.into(),
            events,
            access_log: LogOutput::Stream(self.access_log),
            access_log_format: self.access_log_format,
            traces: None,
            challenges: self.challenges,
            inherited: Default::default(),
            memory: self.memory,
            is_held: false,
        });
        let mut proxy = Proxy {
            engine: Some(engine.expect("threads can be started")),
            address: self.front.listen,
            backends: Vec::new(),
            fronts: Vec::new(),
            stats: Arc::new(Sharded::new(self.threads)),
            failing,
            options: self.options,
            passive: self.passive,
            scheduler: self.scheduler,
            queue: Queue::new(self.threads),
            retry_budget: Arc::new(RetryBudget::new(Instant::now())),
            threads: self.threads,
            generation: Generation::default(),
            ids: 0,
            named: None,
            _port: self.port,
        };
        for address in self.backends {
            proxy.add_backend(address);
        }
        let stats = proxy.stats.clone();
        proxy.add_front(self.front, stats);
        proxy.publish().expect("the port is reserved");
        proxy
    }
}

/// A running engine with its configuration.
pub(crate) struct Proxy {
    engine: Option<Engine>,
    /// Where the front door listens.
    pub(crate) address: SocketAddr,
    /// The backends of the next snapshot.
    pub(crate) backends: Vec<BackendView>,
    /// The front doors of the next snapshot.
    pub(crate) fronts: Vec<(u32, FrontDoor, Arc<Sharded<FrontDoorStats>>)>,
    /// The first front door's counters.
    pub(crate) stats: Arc<Sharded<FrontDoorStats>>,
    /// Reports of failing backends.
    pub(crate) failing: mpsc::Receiver<BackendEvent>,
    /// The pool's options in the next snapshot.
    pub(crate) options: PoolOptions,
    passive: PassiveHealth,
    scheduler: SchedulerKind,
    /// The queue of the pool.
    pub(crate) queue: Arc<Queue>,
    retry_budget: Arc<RetryBudget>,
    threads: usize,
    generation: Generation,
    ids: u32,
    named: Option<Arc<PoolView>>,
    _port: ReservedPort,
}

impl Proxy {
    /// Before one backend, with defaults.
    pub(crate) fn before(upstream: Upstream, backend: &HttpBackend) -> Proxy {
        Plan::new(upstream, &[backend.address()]).start()
    }

    fn new_id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    /// Adds a backend to the next snapshot.
    pub(crate) fn add_backend(&mut self, address: SocketAddr) {
        let id = self.new_id();
        let live = BackendLive::new(self.threads);
        self.backends.push(BackendView {
            id,
            name: address.to_string().into(),
            address,
            place: Default::default(),
            live,
        });
    }

    /// Adds a front door to the next snapshot.
    pub(crate) fn add_front(&mut self, front: FrontDoor, stats: Arc<Sharded<FrontDoorStats>>) {
        let id = self.new_id();
        self.fronts.push((id, front, stats));
    }

    fn candidates(&self) -> Vec<Candidate> {
        let identity = |b: &BackendView| u64::from(b.address.port());
        self.backends.iter().map(|b| Candidate { identity: identity(b), weight: 1 }).collect()
    }

    /// Publishes the next snapshot.
    pub(crate) fn publish(&mut self) -> Result<(), BindError> {
        self.generation = self.generation.next();
        let pool = PoolView {
            id: 0,
            name: "web".into(),
            generation: self.generation,
            scheduler: prepare(self.scheduler, &self.candidates(), 1),
            needs_response_time: self.scheduler.reads_response_time(),
            awaits_backend: false,
            fails_open: false,
            backends: self.backends.clone(),
            queue: self.queue.clone(),
            retry_budget: self.retry_budget.clone(),
            options: self.options.clone(),
            passive: self.passive.clone(),
        };
        let fronts = self.fronts.iter().map(|(id, config, stats)| {
            let (config, stats) = (config.clone(), stats.clone());
            let in_flight = Arc::default();
            let limiter = Arc::new(Limiter::new(&config.client_limits));
            let sni = Arc::new(SniTable::new(&config.sni, &vec![1; config.sni.len()]));
            Arc::new(FrontDoorView {
                id: *id,
                config,
                pool: 0,
                sni,
                routes: Arc::default(),
                dispatch: None,
                limiter,
                in_flight,
                stats,
            })
        });
        let snapshot = Snapshot {
            generation: self.generation,
            pools: [Arc::new(pool)].into_iter().chain(self.named.clone()).collect(),
            front_doors: fronts.collect(),
        };
        self.engine().publish(Arc::new(snapshot))
    }

    /// Adds the pool that `sni` of front doors names, with one backend, to the next snapshot.
    pub(crate) fn add_named_pool(&mut self, address: SocketAddr) {
        self.named = Some(Arc::new(PoolView {
            id: 1,
            name: "named".into(),
            generation: self.generation,
            scheduler: prepare(self.scheduler, &[Candidate { identity: 1, weight: 1 }], 1),
            needs_response_time: false,
            awaits_backend: false,
            fails_open: false,
            backends: vec![BackendView {
                id: u32::MAX,
                name: "named".into(),
                address,
                place: Default::default(),
                live: BackendLive::new(self.threads),
            }],
            queue: Queue::new(self.threads),
            retry_budget: Arc::new(RetryBudget::new(Instant::now())),
            options: PoolOptions::default(),
            passive: PassiveHealth::default(),
        }));
    }

    /// Publishes a snapshot without pools and front doors.
    pub(crate) fn publish_nothing(&mut self) {
        self.generation = self.generation.next();
        let snapshot = Snapshot { generation: self.generation, ..Snapshot::default() };
        self.engine().publish(Arc::new(snapshot)).expect("nothing is bound");
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("it runs until it is stopped")
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// One exchange on a new connection.
    pub(crate) fn ask(&self, request: impl AsRef<[u8]>) -> Response {
        Client::exchange(self.address, request).expect("a whole response")
    }

    /// Number of refusals and losses for this reason.
    pub(crate) fn drops(&self, reason: Reason) -> u64 {
        self.stats.sum(|s| s.drops[reason as usize].get())
    }

    /// All refusals and losses by name, for messages and totals.
    pub(crate) fn all_drops(&self) -> Vec<(&'static str, u64)> {
        let all = Reason::ALL.iter().map(|r| (r.name(), self.drops(*r)));
        all.filter(|(_, count)| *count > 0).collect()
    }

    /// Checks that exactly these refusals and losses were counted. Waits, as counters may change
    /// after the answer.
    #[track_caller]
    pub(crate) fn assert_drops(&self, expected: &[(Reason, u64)]) {
        let expected: Vec<_> = expected.iter().map(|(r, count)| (r.name(), *count)).collect();
        eventually(|| self.all_drops() == expected);
        assert_eq!(self.all_drops(), expected);
    }

    /// Checks that nothing is counted as in flight any more.
    #[track_caller]
    pub(crate) fn assert_nothing_in_flight(&self) {
        let requests = || self.stats.sum(|s| s.requests_in_flight.get());
        let backends = || -> u32 { self.backends.iter().map(|b| b.live.in_flight()).sum() };
        assert!(
            eventually(|| requests() == 0 && backends() == 0),
            "in flight: {} at the front door, {} at the backends",
            requests(),
            backends()
        );
    }

    pub(crate) fn stop(mut self, grace: Duration) -> StopReport {
        stop(self.engine.take().expect("it is stopped once"), grace)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            stop(engine, Duration::ZERO);
        }
    }
}

fn stop(engine: Engine, grace: Duration) -> StopReport {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(engine.stop(grace))
}

/// `GET target` with a `Host`.
pub(crate) fn get(target: &str) -> String {
    request("GET", target, "")
}

/// A request without a body; `lines` each end in CRLF.
pub(crate) fn request(method: &str, target: &str, lines: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n")
}

/// `POST target` with a body of known length.
pub(crate) fn post(target: &str, body: &str) -> String {
    format!("{}{body}", request("POST", target, &format!("Content-Length: {}\r\n", body.len())))
}

/// `POST target` with one chunk.
pub(crate) fn post_chunked(target: &str, body: &str) -> String {
    let head = request("POST", target, "Transfer-Encoding: chunked\r\n");
    format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}
