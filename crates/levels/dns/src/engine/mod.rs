//! Sockets and threads of the DNS level.
//!
//! Each core has a thread for datagrams and a thread for connections. The kernel spreads queries
//! over their `SO_REUSEPORT` sockets. A datagram thread blocks in `recvmmsg`, answers the batch and
//! sends it with `sendmmsg`: two system calls for up to 64 queries. Threads share the published
//! snapshot and loads, as `Arc`s that change rarely, and the rate limiter's table. Each thread has
//! its own shard of counters.

mod batch;
mod clock;
mod connections;
mod socket;
mod tcp;
mod udp;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use equipoise_basics::lock;
use equipoise_handover::{Inherited, Listening, SocketName};
use tokio::sync::watch;

use crate::loads::LoadTable;
use crate::now::Now;
use crate::query_log::{QueryLine, QueryLog};
use crate::respond::Published;
use crate::snapshot::Snapshot;
use crate::stats::{Figures, Shard, Transport};
use crate::top::{self, TopResolvers};

pub use socket::BindError;

/// Error of [`Engine::start`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be served.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The kernel refused to start a thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// Limits on TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// Maximum number of connections over all threads. At the limit, the longest idle connection is
    /// closed. A thread without connections may open one more.
    pub connections_max: usize,
    /// Timeout after which a connection without a complete query is closed.
    pub idle: Duration,
}

/// Options of the engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Number of cores; the engine runs two threads for each.
    pub threads: usize,
    /// Limits of connections.
    pub tcp: TcpLimits,
    /// Receives the lines of the query log.
    pub query_log: QueryLog,
    /// Sockets of an earlier process.
    pub inherited: Inherited,
}

/// The running DNS level. [`Engine::stop`] or dropping it ends its threads.
pub struct Engine {
    shared: Arc<Shared>,
    threads: usize,
    listeners: watch::Sender<Arc<Vec<Vec<Arc<std::net::TcpListener>>>>>,
    running: Mutex<Vec<JoinHandle<()>>>,
    inherited: Inherited,
}

/// State that all threads share.
struct Shared {
    /// Increases when `state` changes.
    version: AtomicU64,
    state: Mutex<State>,
    stopping: AtomicBool,
    shards: Vec<CachePadded<Shard>>,
    tops: Vec<Mutex<TopResolvers>>,
    connections: AtomicUsize,
    connections_max: AtomicUsize,
    idle_ms: AtomicU64,
    query_log: QueryLog,
    started: Instant,
}

struct State {
    published: Arc<Published>,
    /// By thread.
    datagrams: Vec<Arc<Vec<Arc<socket2::Socket>>>>,
    bound: Vec<Bound>,
}

/// The sockets of one address: one of each kind per thread.
#[derive(Clone)]
struct Bound {
    /// The configured address; its port may be 0.
    asked: SocketAddr,
    /// The bound address.
    address: SocketAddr,
    datagrams: Vec<Arc<socket2::Socket>>,
    listeners: Vec<Arc<std::net::TcpListener>>,
}

impl Bound {
    /// The sockets by their names.
    fn into_sockets(self) -> [(SocketName, Vec<OwnedFd>); 2] {
        let only = "no other owner exists before the engine has them";
        let datagrams = self.datagrams.into_iter();
        let datagrams = datagrams.map(|it| Arc::into_inner(it).expect(only).into()).collect();
        let listeners = self.listeners.into_iter();
        let listeners = listeners.map(|it| Arc::into_inner(it).expect(only).into()).collect();
        [(SocketName::Datagram(self.asked), datagrams), (SocketName::Stream(self.asked), listeners)]
    }
}

/// Binds the addresses without inherited sockets, and adds these sockets to `inherited`, so that
/// [`Engine::start`] cannot fail for them.
///
/// # Errors
/// [`BindError`].
pub fn prepare(
    inherited: &Inherited,
    addresses: &[SocketAddr],
    threads: usize,
) -> Result<(), BindError> {
    socket::prepare(inherited, addresses, threads.max(1))
}

/// Interval at which a datagram thread checks for changed addresses.
const LOOK: Duration = Duration::from_millis(250);

/// Number of counter shards of an engine with `threads` cores, for
/// [`crate::SnapshotInput::threads`].
pub fn shards(threads: usize) -> usize {
    2 * threads
}

impl Engine {
    /// Binds the addresses and starts the threads.
    ///
    /// # Errors
    /// [`StartError`]; then no address stays bound.
    pub fn start(
        options: EngineOptions,
        listen: &[SocketAddr],
        snapshot: Arc<Snapshot>,
    ) -> Result<Engine, StartError> {
        let threads = options.threads.max(1);
        let bound = socket::bind_all(&options.inherited, listen, &[], threads)?;
        let published = Arc::new(Published { snapshot, loads: Arc::default() });
        let state = State { published, datagrams: by_thread(&bound, threads), bound };
        let listeners = watch::Sender::new(listeners(&state.bound, threads));
        let shared = Arc::new(Shared {
            version: AtomicU64::new(1),
            state: Mutex::new(state),
            stopping: AtomicBool::new(false),
            shards: (0..shards(threads)).map(|_| CachePadded::default()).collect(),
            tops: (0..shards(threads)).map(|_| Mutex::default()).collect(),
            connections: AtomicUsize::new(0),
            connections_max: AtomicUsize::new(options.tcp.connections_max),
            idle_ms: AtomicU64::new(millis(options.tcp.idle)),
            query_log: options.query_log,
            started: Instant::now(),
        });
        let inherited = options.inherited;
        let engine = Engine { shared, threads, listeners, running: Mutex::default(), inherited };
        for thread in 0..threads {
            let shared = Arc::clone(&engine.shared);
            engine.spawn(format!("dns-udp-{thread}"), move || udp::run(&shared, thread))?;
            let (shared, listeners) = (Arc::clone(&engine.shared), engine.listeners.subscribe());
            let shard = threads + thread;
            engine.spawn(format!("dns-tcp-{thread}"), move || {
                tcp::run(&shared, (thread, shard), &listeners);
            })?;
        }
        Ok(engine)
    }

    fn spawn(&self, name: String, body: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let thread =
            std::thread::Builder::new().name(name).spawn(body).map_err(StartError::Thread)?;
        lock(&self.running).push(thread);
        Ok(())
    }

    /// Publishes a snapshot; threads use it from the next batch. Returns `false` if the current one
    /// is as new or newer.
    pub fn publish(&self, snapshot: Arc<Snapshot>) -> bool {
        let mut state = lock(&self.shared.state);
        if snapshot.generation <= state.published.snapshot.generation {
            return false;
        }
        let loads = Arc::clone(&state.published.loads);
        self.shared.replace(&mut state, Published { snapshot, loads });
        true
    }

    /// Publishes the loads of resolvers; threads use them from the next batch.
    pub fn publish_loads(&self, loads: Arc<LoadTable>) {
        let mut state = lock(&self.shared.state);
        let snapshot = Arc::clone(&state.published.snapshot);
        self.shared.replace(&mut state, Published { snapshot, loads });
    }

    /// Returns the published snapshot and loads.
    pub fn published(&self) -> Arc<Published> {
        Arc::clone(&lock(&self.shared.state).published)
    }

    /// Changes the addresses, all or none. Addresses that stay keep their sockets and the datagrams
    /// queued there.
    ///
    /// # Errors
    /// [`BindError`]; then nothing changes.
    pub fn listen(&self, addresses: &[SocketAddr], tcp: TcpLimits) -> Result<(), BindError> {
        let mut state = lock(&self.shared.state);
        state.bound = socket::bind_all(&self.inherited, addresses, &state.bound, self.threads)?;
        state.datagrams = by_thread(&state.bound, self.threads);
        self.shared.connections_max.store(tcp.connections_max, Ordering::Relaxed);
        self.shared.idle_ms.store(millis(tcp.idle), Ordering::Relaxed);
        self.shared.version.fetch_add(1, Ordering::Release);
        self.listeners.send_replace(listeners(&state.bound, self.threads));
        Ok(())
    }

    /// Returns the bound addresses in the order of the configuration.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        lock(&self.shared.state).bound.iter().map(|bound| bound.address).collect()
    }

    /// Returns duplicates of the sockets, for a successor.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn listening(&self) -> io::Result<Vec<Listening>> {
        let state = lock(&self.shared.state);
        let mut all = Vec::new();
        for bound in &state.bound {
            let datagrams =
                bound.datagrams.iter().map(|socket| socket.as_fd().try_clone_to_owned());
            let listeners =
                bound.listeners.iter().map(|socket| socket.as_fd().try_clone_to_owned());
            let (datagrams, listeners) =
                (datagrams.collect::<io::Result<_>>()?, listeners.collect::<io::Result<_>>()?);
            all.push(Listening { name: SocketName::Datagram(bound.asked), sockets: datagrams });
            all.push(Listening { name: SocketName::Stream(bound.asked), sockets: listeners });
        }
        Ok(all)
    }

    /// Returns the sums of the counters over all threads.
    pub fn figures(&self) -> Figures {
        Figures::sum(self.shared.shards.iter().map(|shard| &**shard))
    }

    /// Returns the number of open TCP connections.
    pub fn connections_open(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns the `most` resolvers with the most queries, with estimated counts. Counts halve
    /// every ten minutes.
    pub fn top_resolvers(&self, most: usize) -> Vec<(IpAddr, u64)> {
        let now = Now::new(Duration::ZERO, self.shared.started.elapsed());
        let tables = self.shared.tops.iter().map(|top| lock(top).clone());
        top::merged(tables, most, top::epoch(now.ticks))
    }

    /// Stops all threads. Open connections may send a last query. Datagrams queued in sockets are
    /// lost, unless a successor has the sockets too.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        lock(&self.shared.state).bound.clear();
        self.listeners.send_replace(Arc::default());
        for thread in std::mem::take(&mut *lock(&self.running)) {
            // The thread has already logged its panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn by_thread(bound: &[Bound], threads: usize) -> Vec<Arc<Vec<Arc<socket2::Socket>>>> {
    (0..threads)
        .map(|thread| {
            let own = bound.iter().flat_map(|b| b.datagrams.iter().skip(thread).step_by(threads));
            Arc::new(own.cloned().collect())
        })
        .collect()
}

fn listeners(bound: &[Bound], threads: usize) -> Arc<Vec<Vec<Arc<std::net::TcpListener>>>> {
    let of = |thread: usize| {
        let own = bound.iter().flat_map(|b| b.listeners.iter().skip(thread).step_by(threads));
        own.cloned().collect()
    };
    Arc::new((0..threads).map(of).collect())
}

impl Shared {
    /// Writes a line to the query log, or counts it as dropped.
    #[cold]
    fn log(&self, stats: &Shard, (client, transport): (IpAddr, Transport), answer: &[u8]) {
        if !self.query_log.write(&QueryLine { client, transport, answer }) {
            stats.log_dropped.add(1);
        }
    }

    fn replace(&self, state: &mut State, published: Published) {
        state.published = Arc::new(published);
        self.version.fetch_add(1, Ordering::Release);
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms.load(Ordering::Relaxed))
    }
}
