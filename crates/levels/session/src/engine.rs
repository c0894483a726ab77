use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc as ack};
use std::thread;
use std::time::{Duration, Instant};

use equipoise_basics::{Transport, explain_listen, lock};
use equipoise_core::trace::TraceSink;
use equipoise_core::{Generation, LineFormat, SourcePrefix};
use equipoise_handover::{Inherited, Listening};
use equipoise_tls::Challenges;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot};

use crate::access_log::{AccessLog, LogLines, LogOutput};
use crate::config::Protocol;
use crate::deadline::TICK;
use crate::descriptors::Descriptors;
use crate::door::{Door, LAST_REQUEST};
use crate::handover::{GivenClients, UdpHandover};
use crate::learning::HubThread;
use crate::memory::MemoryBound;
use crate::snapshot::{BackendEvent, FrontDoorView, Snapshot};
use crate::sources::SourceSamples;
use crate::why::Explainer;
use crate::worker::{Phase, Shared, Worker};
use crate::{listener, udp};

/// How long [`Engine::publish`] waits until each thread has installed a snapshot. A thread takes
/// well under a millisecond; one that gets no CPU time installs it later.
const INSTALL_WAIT: Duration = Duration::from_secs(1);

/// Limit of the time that [`Engine::stop`] waits for the last lines of the access log. Its file or
/// pipe may block.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(5);

/// How often a thread closes idle upstream sessions that are past their time.
const SWEEP: Duration = Duration::from_secs(1);

/// How the data plane is started.
pub struct EngineOptions {
    /// Data-plane threads, at least 1.
    pub threads: usize,
    /// The instance's name: `Via`'s and `Proxy-Status`'s pseudonym.
    pub instance: Arc<str>,
    /// Where failing backends are reported; a full channel loses the report, the next failure
    /// repeats it.
    pub events: mpsc::Sender<BackendEvent>,
    /// Where sampled access-log lines go, written by a thread of their own.
    pub access_log: LogOutput,
    /// How those lines are written.
    pub access_log_format: LineFormat,
    /// Where traces of sampled requests go; `None`: no request is sampled.
    pub traces: Option<TraceSink>,
    /// Answers to ACME directories, which front doors give before any other.
    pub challenges: Challenges,
    /// The bound on the process's memory.
    pub memory: MemoryBound,
    /// Listening sockets of an earlier process.
    pub inherited: Inherited,
    /// Front doors accept nothing before [`Engine::begin`].
    pub is_held: bool,
}

/// A front door's address could not be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} (front door `{front_door}`, option `listen`): {source}")]
pub struct BindError {
    /// Its name.
    pub front_door: Arc<str>,
    /// The address asked for.
    pub address: SocketAddr,
    /// Why.
    pub source: io::Error,
}

/// Work that a stop cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Connections and UDP clients that were still being served when the grace period ended.
    pub cut: usize,
}

/// The data plane: its threads, their listeners, and the snapshot that they follow.
pub struct Engine {
    threads: Vec<DataThread>,
    log_lines: LogLines,
    /// The access log's thread has written all lines and ended.
    log_ended: oneshot::Receiver<()>,
    published: Mutex<Published>,
    sources: Arc<SourceSamples>,
    learner: HubThread,
    inherited: Inherited,
    explainer: Explainer,
}

struct DataThread {
    commands: mpsc::UnboundedSender<Command>,
    handle: thread::JoinHandle<()>,
}

#[derive(Default)]
struct Published {
    generation: Option<Generation>,
    open: HashMap<u32, OpenDoor>,
}

struct OpenDoor {
    view: Arc<FrontDoorView>,
    /// Empty once a successor has them.
    sockets: Vec<Arc<OwnedFd>>,
    /// The UDP socket for HTTP/3, if it has one and no successor.
    http3: Option<Arc<OwnedFd>>,
}

/// New sockets of a thread.
#[derive(Default)]
struct Opened {
    /// Listening sockets by front door, each with its index in its group.
    listening: HashMap<u32, Vec<(usize, Arc<OwnedFd>)>>,
    /// UDP sockets for HTTP/3 by front door.
    http3: HashMap<u32, Arc<OwnedFd>>,
}

enum Command {
    Install { snapshot: Arc<Snapshot>, opened: Opened, done: ack::Sender<()> },
    Wake,
    Begin { given: Vec<UdpHandover> },
    HandOver { done: oneshot::Sender<Vec<UdpHandover>> },
    Count { done: oneshot::Sender<usize> },
    Stop { grace: Duration, done: oneshot::Sender<usize> },
}

impl Engine {
    /// Starts the threads, with no front door open.
    ///
    /// # Errors
    /// The error of the operating system, if it refuses a thread or an event queue.
    pub fn start(options: EngineOptions) -> io::Result<Engine> {
        let (access_log, log_ended) =
            AccessLog::start(options.access_log, options.access_log_format)?;
        let log_lines = access_log.guest();
        let sources = Arc::new(SourceSamples::new(options.threads.max(1)));
        let shared = Shared {
            instance: options.instance,
            epoch: Instant::now(),
            threads: options.threads.max(1),
            descriptors: Descriptors::of_process(),
            memory: options.memory,
            events: options.events,
            access_log,
            traces: options.traces,
            sources: Arc::clone(&sources),
            challenges: options.challenges,
            is_held: options.is_held,
        };
        let explainer = Explainer {
            epoch: shared.epoch,
            instance: Arc::clone(&shared.instance),
            challenges: shared.challenges.clone(),
        };
        let learner = HubThread::start(shared.threads)?;
        let threads = (0..options.threads.max(1))
            .map(|index| {
                let (commands, queue) = mpsc::unbounded_channel();
                let shared = shared.clone();
                let handle = thread::Builder::new().name(format!("data-{index}")).spawn({
                    let runtime = Builder::new_current_thread();
                    move || run_thread(runtime, index, shared, queue)
                })?;
                Ok(DataThread { commands, handle })
            })
            .collect::<io::Result<_>>()?;
        let published = Mutex::default();
        let inherited = options.inherited;
        Ok(Engine {
            threads,
            log_lines,
            log_ended,
            published,
            sources,
            learner,
            inherited,
            explainer,
        })
    }

    /// How many data-plane threads there are; shards are indexed below it.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Explains where requests and connections go.
    pub fn explainer(&self) -> Explainer {
        self.explainer.clone()
    }

    /// The access log, for lines of another level.
    pub fn log_lines(&self) -> LogLines {
        self.log_lines.clone()
    }

    /// Pieces of work (HTTP requests, TCP connections, UDP clients) by the prefix of the client's
    /// address, since it was asked the last time: an estimate from one in 32, which begins when it
    /// is asked for the first time.
    pub fn take_sources(&self) -> HashMap<SourcePrefix, u64> {
        self.sources.take()
    }

    /// Installs `snapshot` in every thread: binds new front doors by [`FrontDoorView::id`], swaps,
    /// then closes removed ones. Established connections stay. When it returns, no new work uses
    /// the older snapshot. A snapshot is ignored unless its generation is newer.
    ///
    /// # Errors
    /// [`BindError`]; then nothing has changed.
    pub fn publish(&self, snapshot: Arc<Snapshot>) -> Result<(), BindError> {
        let mut published = lock(&self.published);
        if published.generation.is_some_and(|newest| newest >= snapshot.generation) {
            return Ok(());
        }
        let mut opened: Vec<Opened> = Vec::new();
        opened.resize_with(self.threads.len(), Opened::default);
        let (mut bound, mut bound_http3) = (HashMap::new(), HashMap::new());
        for door in &snapshot.front_doors {
            let config = &door.config;
            let (address, protocol) = (config.listen, config.protocol);
            let failed = |source, transport| BindError {
                front_door: config.name.clone(),
                address,
                source: explain_listen(source, address, transport),
            };
            let known = published.open.get(&door.id);
            if config.http3.is_some() && known.is_none_or(|known| known.http3.is_none()) {
                let socket = listener::bind_http3(&self.inherited, address)
                    .map_err(|source| failed(source, Transport::Udp))?;
                let socket = Arc::new(socket);
                bound_http3.insert(door.id, Arc::clone(&socket));
                opened[0].http3.insert(door.id, socket);
            }
            if known.is_some() {
                continue;
            }
            let sockets = listener::bind(&self.inherited, address, protocol, self.threads.len());
            let transport = if protocol == Protocol::Udp { Transport::Udp } else { Transport::Tcp };
            let sockets = sockets.map_err(|source| failed(source, transport))?;
            let sockets: Vec<_> = sockets.into_iter().map(Arc::new).collect();
            for (index, socket) in sockets.iter().enumerate() {
                let thread = &mut opened[index % self.threads.len()];
                thread.listening.entry(door.id).or_default().push((index, Arc::clone(socket)));
            }
            bound.insert(door.id, sockets);
        }
        for (at, pool) in snapshot.pools.iter().enumerate() {
            pool.queue.attach(self.learner.hub());
            pool.queue.install(&snapshot, at);
        }
        let (done, installed) = ack::channel();
        for (thread, opened) in self.threads.iter().zip(opened) {
            let command =
                Command::Install { snapshot: snapshot.clone(), opened, done: done.clone() };
            // A thread that has ended serves no client by an old snapshot.
            let _ = thread.commands.send(command);
        }
        drop(done);
        for _ in &self.threads {
            if installed.recv_timeout(INSTALL_WAIT).is_err() {
                break;
            }
        }
        published.generation = Some(snapshot.generation);
        let mut before = std::mem::take(&mut published.open);
        let open = snapshot.front_doors.iter().map(|view| {
            let (kept, kept_http3) = match before.remove(&view.id) {
                Some(OpenDoor { sockets, http3, .. }) => (sockets, http3),
                None => Default::default(),
            };
            let sockets = bound.remove(&view.id).unwrap_or(kept);
            let http3 = bound_http3.remove(&view.id).or(kept_http3);
            let http3 = http3.filter(|_| view.config.http3.is_some());
            (view.id, OpenDoor { view: Arc::clone(view), sockets, http3 })
        });
        published.open = open.collect();
        Ok(())
    }

    /// Has every task look again whether its backend was cut
    /// ([`BackendLive::cut`](crate::BackendLive::cut)).
    pub fn wake(&self) {
        for thread in &self.threads {
            // A thread that has ended has no tasks.
            let _ = thread.commands.send(Command::Wake);
        }
    }

    /// Duplicates of the listening sockets, for a successor.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn listening(&self) -> io::Result<Vec<Listening>> {
        let published = lock(&self.published);
        let open = published.open.values();
        let groups = open.flat_map(|door| {
            let config = &door.view.config;
            let http3 = door.http3.as_slice();
            let http3 = (!http3.is_empty()).then(|| (listener::http3_name(config.listen), http3));
            let name = listener::name(config.listen, config.protocol);
            [(name, &door.sockets[..])].into_iter().chain(http3)
        });
        groups
            .map(|(name, sockets)| {
                Listening::duplicate(name, sockets.iter().map(|socket| &**socket))
            })
            .collect()
    }

    /// Has the front doors accept, if the engine was started held. `given` are the clients of UDP
    /// front doors that a predecessor has served.
    pub fn begin(&self, given: Vec<UdpHandover>) {
        let mut of_threads: Vec<Vec<UdpHandover>> =
            self.threads.iter().map(|_| Vec::new()).collect();
        let published = lock(&self.published);
        let is_open = |given: &UdpHandover| {
            let is_it = |door: &OpenDoor| {
                let config = &door.view.config;
                (config.listen, config.protocol) == (given.door, Protocol::Udp)
                    && given.socket < door.sockets.len()
            };
            published.open.values().any(is_it)
        };
        for given in given.into_iter().filter(is_open) {
            of_threads[given.socket % self.threads.len()].push(given);
        }
        for (thread, given) in self.threads.iter().zip(of_threads) {
            // A thread that has ended serves no client.
            let _ = thread.commands.send(Command::Begin { given });
        }
    }

    /// Stops accepting in favour of a successor that has the listening sockets, and returns the
    /// clients of UDP front doors. Other connections continue; [`Engine::stop`] must follow.
    pub fn hand_over(&self) -> impl Future<Output = Vec<UdpHandover>> + Send + use<> {
        for door in lock(&self.published).open.values_mut() {
            door.sockets.clear();
            door.http3 = None;
        }
        let giving = self.ask_all(|done| Command::HandOver { done });
        async {
            let mut all = Vec::new();
            for given in giving {
                all.extend(given.await.unwrap_or_default());
            }
            all
        }
    }

    /// Counts the connections and UDP clients that are being served.
    pub fn work(&self) -> impl Future<Output = usize> + Send + use<> {
        let counting = self.ask_all(|done| Command::Count { done });
        async {
            let mut all = 0;
            for count in counting {
                all += count.await.unwrap_or(0);
            }
            all
        }
    }

    /// Sends a command to each thread. A thread that has ended does not answer.
    fn ask_all<T>(
        &self,
        command: impl Fn(oneshot::Sender<T>) -> Command,
    ) -> Vec<oneshot::Receiver<T>> {
        let ask = |thread: &DataThread| {
            let (done, answer) = oneshot::channel();
            let _ = thread.commands.send(command(done));
            answer
        };
        self.threads.iter().map(ask).collect()
    }

    /// Stops accepting, lets work in flight finish for at most `grace`, cuts the rest, and ends the
    /// threads.
    pub async fn stop(self, grace: Duration) -> StopReport {
        // The threads close their listening sockets; these must not keep them open.
        lock(&self.published).open.clear();
        let ended: Vec<_> = self
            .threads
            .iter()
            .map(|thread| {
                let (done, ended) = oneshot::channel();
                // A thread that has ended has nothing to drain.
                let _ = thread.commands.send(Command::Stop { grace, done });
                ended
            })
            .collect();
        let mut report = StopReport::default();
        for thread in ended {
            report.cut += thread.await.unwrap_or(0);
        }
        for thread in self.threads {
            if thread.handle.join().is_err() {
                tracing::error!("a data-plane thread panicked");
            }
        }
        match tokio::time::timeout(LAST_LINES_WITHIN, self.log_ended).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::error!("the access-log thread panicked"),
            Err(_) => tracing::warn!("the access log blocks; its last lines are lost"),
        }
        report
    }
}

fn run_thread(
    mut runtime: Builder,
    index: usize,
    shared: Shared,
    queue: mpsc::UnboundedReceiver<Command>,
) {
    match runtime.enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime.block_on(control(Worker::new(index, shared), queue)),
        Err(error) => {
            tracing::error!(%error, "cannot create the event loop of a data-plane thread")
        }
    }
}

/// A thread's root task: executes commands until the stop.
async fn control(worker: Rc<Worker>, mut queue: mpsc::UnboundedReceiver<Command>) {
    tokio::task::spawn_local(worker.deadlines.clone().run());
    let mut sweep = tokio::time::interval(SWEEP);
    let mut doors: HashMap<u32, Rc<Door>> = HashMap::new();
    loop {
        let command = tokio::select! {
            command = queue.recv() => command,
            now = sweep.tick() => {
                worker.idle.sweep(&worker.snapshot(), now.into_std());
                worker.mux.sweep();
                if worker.deadlines.is_memory_short() {
                    worker.trim();
                }
                continue;
            }
        };
        match command {
            Some(Command::Install { snapshot, opened, done }) => {
                install(&worker, &mut doors, snapshot, opened);
                // The receiver is dropped if publishing has given up on this thread.
                let _ = done.send(());
            }
            Some(Command::Wake) => worker.deadlines.wake_all(),
            Some(Command::Begin { given }) => worker.begin(given),
            Some(Command::Count { done }) => {
                // The receiver is dropped if the process stops at once.
                let _ = done.send(worker.tasks());
            }
            Some(Command::HandOver { done }) => {
                let given = hand_over(&worker, &doors).await;
                // The receiver is dropped if the process stops at once.
                let _ = done.send(given);
            }
            Some(Command::Stop { grace, done }) => {
                let cut = stop(&worker, &doors, grace).await;
                let _ = done.send(cut);
                return;
            }
            None => {
                stop(&worker, &doors, Duration::ZERO).await;
                return;
            }
        }
    }
}

fn install(
    worker: &Rc<Worker>,
    doors: &mut HashMap<u32, Rc<Door>>,
    snapshot: Arc<Snapshot>,
    mut opened: Opened,
) {
    let views: HashMap<u32, _> = snapshot.front_doors.iter().map(|view| (view.id, view)).collect();
    doors.retain(|id, door| {
        let view = views.get(id).copied();
        match view {
            Some(view) => door.update(view.clone()),
            None => {
                door.take_away(worker.snapshot());
                wake_after(worker, LAST_REQUEST);
            }
        }
        view.is_some()
    });
    let views = snapshot.front_doors.clone();
    worker.install(snapshot);
    for view in views {
        let Some(sockets) = opened.listening.remove(&view.id) else { continue };
        let (id, protocol) = (view.id, view.config.protocol);
        let door = Door::new(view, worker.index);
        doors.insert(id, door.clone());
        for (index, socket) in sockets {
            let (worker, door) = (worker.clone(), door.clone());
            tokio::task::spawn_local(async move {
                let name = door.view().config.name.clone();
                worker.begun().await;
                let served = match protocol {
                    Protocol::Udp => udp::serve(worker, door, (index, socket)).await,
                    Protocol::Tcp | Protocol::Http => listener::accept(worker, door, socket).await,
                };
                if let Err(error) = served {
                    tracing::error!(front_door = %name, %error, "the front door has failed on this thread");
                }
            });
        }
    }
    open_http3(worker, doors, opened.http3);
}

/// Has front doors serve HTTP/3 at these sockets.
#[cfg(feature = "http3")]
fn open_http3(
    worker: &Rc<Worker>,
    doors: &HashMap<u32, Rc<Door>>,
    sockets: HashMap<u32, Arc<OwnedFd>>,
) {
    for (id, socket) in sockets {
        let Some(door) = doors.get(&id).cloned() else { continue };
        let worker = Rc::clone(worker);
        tokio::task::spawn_local(async move {
            let name = door.view().config.name.clone();
            if let Err(error) = crate::http::serve_http3(worker, door, socket).await {
                tracing::error!(front_door = %name, %error, "HTTP/3 of the front door has failed");
            }
        });
    }
}

/// This build has no HTTP/3.
#[cfg(not(feature = "http3"))]
fn open_http3(_: &Rc<Worker>, _: &HashMap<u32, Rc<Door>>, sockets: HashMap<u32, Arc<OwnedFd>>) {
    debug_assert!(sockets.is_empty());
}

/// Wakes the thread's tasks after `time`, and a little later than that.
fn wake_after(worker: &Rc<Worker>, time: Duration) {
    let worker = worker.clone();
    tokio::task::spawn_local(async move {
        tokio::time::sleep(time + TICK).await;
        worker.deadlines.wake_all();
    });
}

/// Leaves the listening sockets to a successor, and returns the clients of UDP front doors.
async fn hand_over(worker: &Rc<Worker>, doors: &HashMap<u32, Rc<Door>>) -> Vec<UdpHandover> {
    let giving: Vec<_> =
        doors.values().map(|door| (door.view().config.listen, door.hand_over())).collect();
    worker.deadlines.wake_all();
    let mut all = Vec::new();
    for (door, sockets) in giving {
        for given in sockets {
            // A front door that has failed on this thread gives nothing.
            if let Ok(GivenClients { socket, clients }) = given.await {
                all.push(UdpHandover { door, socket, clients });
            }
        }
    }
    all
}

async fn stop(worker: &Rc<Worker>, doors: &HashMap<u32, Rc<Door>>, grace: Duration) -> usize {
    let idle = LAST_REQUEST.min(grace);
    for door in doors.values().filter(|door| !door.is_handed_over()) {
        door.close(idle);
    }
    wake_after(worker, idle);
    // Let the accept loops take what their queues hold, so that it is served, not reset.
    tokio::task::yield_now().await;
    worker.enter(Phase::Draining);
    if tokio::time::timeout(grace, worker.idle()).await.is_ok() {
        return 0;
    }
    let cut = worker.tasks();
    worker.enter(Phase::Cutting);
    // Cut tasks only have to be polled once; one that does not end is dropped with the runtime.
    let _ = tokio::time::timeout(Duration::from_secs(1), worker.idle()).await;
    cut
}
