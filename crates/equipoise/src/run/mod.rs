//! `equipoise run`: starts a process from a configuration file, and runs it until its end.

mod added;
mod agent;
mod certificates;
mod changes;
mod control;
mod discovered;
mod entrance;
mod limits;
mod node_certificates;
mod notify;
mod operator;
mod planning;
mod prepared;
mod reload;
mod replace;
mod spans;
mod tickets;
mod upgrade;

pub(crate) use agent::agent;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::Context;
use equipoise_acme::{CertificateSharing, ClusterMember, NodeDesk, Orders};
use equipoise_api::audit::Audit;
use equipoise_api::listen::{ApiTcp, ApiUnix};
use equipoise_api::{Api as ApiService, serve_tcp, serve_unix};
use equipoise_cli::logs::Logs;
use equipoise_config::{self as config, Config, Loaded, Operations};
use equipoise_discovery::Discovery;
use equipoise_handover::{BackendState, Inherited, Listening, activated};
use equipoise_otlp::Exporter;
use equipoise_packet::engine::Leave;
use equipoise_planes::{DataPlane, DnsPlane, HostNames, PacketPlane, PacketWish, SlicePlane};
use equipoise_planning::Planner;
use equipoise_session::config::{Challenges, SessionConfig};
use equipoise_session::registry::{Registry, RegistryOptions};
use equipoise_session::{Engine, EngineOptions, FLEET_SEED, MemoryBound, StopReport};
use equipoise_tickets::Tickets;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::run::added::Added;
use crate::run::control::{Control, Ending, Levels, learn};
use crate::run::entrance::Entrance;
use crate::run::node_certificates::{Desk, Questions};
use crate::run::notify::{Notice, notify};
use crate::run::upgrade::predecessor::Predecessor;
use crate::run::upgrade::{Request, Upgrades, Upgrading};

/// Runs as `file` configures, until the process is stopped. Takes over from the process that has
/// started this one for an upgrade.
pub(crate) async fn run(file: &Path, leave: Leave) -> anyhow::Result<ExitCode> {
    let mut predecessor = Predecessor::of_environment().await?;
    match Running::begin(file, leave, &mut predecessor).await {
        Ok(running) => running.until_stopped().await,
        Err(error) => {
            if let Some(predecessor) = predecessor {
                predecessor.fail(&error).await;
            }
            Err(error)
        }
    }
}

/// A running process.
pub(crate) struct Running {
    signals: Signals,
    plane: DataPlane,
    control: Arc<Control>,
    api: Api,
    audit: Arc<Audit>,
    requests: mpsc::Receiver<Request>,
}

/// Time for which the start waits for sources of backends, and for host names. Later answers
/// join their pools later.
const NAMES_WITHIN: Duration = Duration::from_secs(2);

/// Queued events of failing backends for the registry. A lost event is repeated by the next
/// failure.
const EVENTS_WAITING: usize = 1024;

impl Running {
    /// Loads the file, opens all levels, and reports readiness.
    pub(crate) async fn start(file: &Path, leave: Leave) -> anyhow::Result<Running> {
        Running::begin(file, leave, &mut None).await
    }

    /// As [`Running::start`], in the place of a predecessor. It is left if it has to hear of a
    /// failure.
    async fn begin(
        file: &Path,
        leave: Leave,
        predecessor: &mut Option<Predecessor>,
    ) -> anyhow::Result<Running> {
        let inherited = predecessor.as_ref().map(|predecessor| predecessor.inherited.clone());
        let inherited = inherited.unwrap_or_else(activated);
        let Loaded { config, warnings } = config::load(file)?;
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let logs = Logs::start(config.operations.log_level, config.operations.log_format)?;
        warnings.iter().for_each(|warning| tracing::warn!("{}", warning.in_file(&file)));
        // A signal from here on is queued, and handled when the start is complete.
        let signals = Signals::install().context("cannot handle signals")?;
        raise_open_files();
        // The API comes first: the lock of its socket prevents a second process from sharing the
        // ports of the first.
        let listening = ApiListening::open(&config.operations, &inherited).await?;
        let entrance = Entrance::open(&config.operations)?;
        let (discovery, hosts) = (sources(&config), HostNames::new());
        let mut session = learn(&discovery, &hosts, &config, NAMES_WITHIN).await;
        let tickets = tickets::of_process(&mut session)?;
        let challenges = Challenges::default();
        let sockets = (inherited.clone(), predecessor.is_some());
        let plane = Plane::start(&config, &logs, challenges.clone(), sockets)?;
        let applied = plane.registry.apply(session.clone()).await;
        applied.context("cannot open the front doors")?;
        let packet = PacketPlane::new(config.instance.name.clone(), run_folder(), leave);
        let lines = plane.data.log_lines();
        let dns = DnsPlane::new(plane.threads, lines, inherited.clone(), challenges.clone());
        let dns = Arc::new(dns);
        let (before, added) = of_before(predecessor, &dns, &config, &tickets).await?;
        if !before.is_empty() || !added.is_empty() {
            session = plane.continue_with(&before, added.join(session), &hosts).await?;
        }
        let seen = plane.registry.pools().borrow().clone();
        packet.follow(PacketWish::new(config.packet.clone(), session.pools), &seen).await?;
        let desk = NodeDesk::new();
        let desks = (entrance.journal(), Desk::new(&desk, &tickets) as Arc<_>);
        let planner = planning::start(&config, plane.registry.clone(), desks).await?;
        let slices = SlicePlane::new(&config);
        slices.follow(&config.slices).await?;
        tokio::spawn(Arc::clone(&slices).try_again());
        let orders = orders(challenges, &dns, &planner, desk);
        orders.follow(config.acme.clone());
        let levels = Levels {
            registry: plane.registry,
            packet,
            dns,
            planner,
            slices,
            orders,
            tickets,
            discovery,
            added,
            hosts,
            spans: plane.spans,
            threads: plane.threads,
            memory: plane.memory,
        };
        let (upgrades, requests) = Upgrades::new(listening.sockets()?, inherited);
        let upgrades = (upgrades, plane.data.clone());
        let control = Control::new(file, config, levels, logs, entrance.clone(), upgrades);
        let control = Arc::new(control);
        control.join_known().await;
        control.await_pools(&before).await;
        // Names open only now: names over elastic pools would answer before that they do not exist,
        // and resolvers would cache this.
        control.open_names().await?;
        control.start_followers();
        let audit = Arc::clone(&entrance.audit);
        match predecessor.take() {
            Some(predecessor) => control.take_over(predecessor).await?,
            None => notify(Notice::Ready),
        }
        control.upgrades.close_unused();
        let api = listening.serve(&control, entrance);
        log_ready(plane.threads);
        Ok(Running { signals, plane: plane.data, control, api, audit, requests })
    }

    /// Handles signals until one requests a stop; then finishes the work in flight.
    pub(crate) async fn until_stopped(mut self) -> anyhow::Result<ExitCode> {
        let mut upgrade = None;
        loop {
            tokio::select! {
                asked = self.signals.next() => match asked {
                    Asked::Reload => {
                        let service = self.api.service.clone();
                        tokio::spawn(async move {
                            // The outcome is logged.
                            let _ = service.reload_by_signal("SIGHUP").await;
                        });
                    }
                    Asked::Upgrade => match self.control.upgrades.by_signal() {
                        Some(request) => {
                            upgrade = Some(Upgrading::begin(&self.control, request));
                        }
                        None => tracing::warn!("SIGUSR2 ignored: an upgrade is in progress"),
                    },
                    Asked::Stop => break,
                },
                Some(request) = self.requests.recv() => {
                    upgrade = Some(Upgrading::begin(&self.control, request));
                }
                replaced = Upgrading::ended(&mut upgrade, &self.control) => {
                    if let Some((successor, reply)) = replaced {
                        return self.retire(successor, reply).await;
                    }
                }
            }
        }
        self.control.set_ending(Ending::Stopped);
        if let Some(upgrade) = upgrade {
            upgrade.give_up().await;
        }
        self.control.upgrades.forget_api();
        notify(Notice::Stopping);
        self.control.planner().stop().await;
        self.control.stop_slices().await;
        self.wait_for_routers().await;
        self.control.stop_packet().await;
        self.control.stop_dns().await;
        let grace = self.control.grace().await;
        tracing::info!(
            ?grace,
            event = "process.stopping",
            "stopping: finishing the work in flight"
        );
        let engine = self.plane.take().context("the data plane was stopped twice")?;
        let StopReport { cut } = tokio::select! {
            report = engine.stop(grace) => report,
            () = self.signals.stop_again() => {
                tracing::warn!("stopped at once by a second signal");
                self.audit.finish(LAST_LINES_WITHIN);
                return Ok(ExitCode::FAILURE);
            }
        };
        self.control.finish_spans().await;
        self.control.planner().stop_scalers().await;
        self.control.planner().leave().await;
        if cut > 0 {
            tracing::warn!(cut, "the grace period is over: the remaining work was cut");
        }
        self.api.stop().await;
        self.audit.finish(LAST_LINES_WITHIN);
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }

    /// Serves on for the delay of a stop, or until a second signal.
    async fn wait_for_routers(&mut self) {
        let delay = self.control.stop_delay().await;
        if !delay.is_zero() {
            tracing::info!(?delay, "stopping: still accepting new work");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.signals.stop_again() => {}
            }
        }
    }
}

/// The orders of certificates. The controllers of a cluster share them; a node may take them from
/// the controllers.
fn orders(
    challenges: Challenges,
    dns: &Arc<DnsPlane>,
    planner: &Planner,
    desk: Arc<NodeDesk>,
) -> Orders {
    let name = Arc::clone(planner.name());
    let sharing = match (planner.sealed(), planner.certificate_questions()) {
        (Some(store), _) => CertificateSharing::Member(ClusterMember { name, store, desk }),
        (None, Some(questions)) => CertificateSharing::Node(Box::new(Questions(questions))),
        (None, None) => CertificateSharing::Alone,
    };
    Orders::start(challenges, Arc::new(certificates::Names(Arc::clone(dns))), sharing)
}

fn raise_open_files() {
    match limits::raise_open_files() {
        Ok(limit) => tracing::debug!(limit, "open files"),
        Err(error) => tracing::warn!(%error, "could not raise the limit of open files"),
    }
}

fn log_ready(threads: usize) {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), threads, event = "process.ready", "ready");
}

/// The states of a predecessor's backends, and the backends that operators added: those that it
/// passes on, otherwise those that an earlier process kept.
async fn of_before(
    predecessor: &mut Option<Predecessor>,
    dns: &DnsPlane,
    config: &Config,
    tickets: &Tickets,
) -> anyhow::Result<(Vec<BackendState>, Added)> {
    let Some(predecessor) = predecessor else { return Ok((Vec::new(), Added::kept(config))) };
    dns.prepare(&config.dns)?;
    predecessor.prepared(config, tickets).await
}

/// Sources of backends, with the sets of an earlier process.
fn sources(config: &Config) -> Discovery {
    Discovery::new(config.planning.state.as_deref(), &config.instance.name)
}

/// Folder of the packet level's files that outlive the process.
fn run_folder() -> PathBuf {
    // systemd sets this with `RuntimeDirectory=equipoise`.
    let given = std::env::var_os("RUNTIME_DIRECTORY").filter(|name| !name.is_empty());
    given.map_or_else(|| "/run/equipoise".into(), PathBuf::from)
}

/// The data plane, with the registry that controls it.
struct Plane {
    data: DataPlane,
    registry: equipoise_session::registry::RegistryHandle,
    spans: Option<Exporter>,
    threads: usize,
    memory: MemoryBound,
}

impl Plane {
    fn start(
        config: &Config,
        logs: &Logs,
        challenges: Challenges,
        (inherited, is_held): (Inherited, bool),
    ) -> anyhow::Result<Plane> {
        let threads = match config.instance.threads {
            0 => available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let (failing, events) = mpsc::channel(EVENTS_WAITING);
        let (traces, spans) = spans::start(config)?.unzip();
        let memory = limits::memory_bound(config);
        let engine = Engine::start(EngineOptions {
            threads,
            instance: config.instance.name.clone(),
            events: failing,
            access_log: logs.access_log(&config.operations.access_log, &config.instance.name)?,
            access_log_format: config.operations.access_format,
            traces,
            challenges,
            memory,
            inherited,
            is_held,
        });
        let data = DataPlane::new(engine.context("cannot start the data plane's threads")?);
        let options =
            RegistryOptions { threads, scheduler_seed: FLEET_SEED, jitter_seed: rand::random() };
        let (owner, registry) = Registry::new(options, data.clone(), events);
        tokio::spawn(owner.run());
        Ok(Plane { data, registry, spans, threads, memory })
    }

    /// Adds the backends that operators added before, and takes over the states of a predecessor's.
    /// Returns `session` with resolved names.
    async fn continue_with(
        &self,
        states: &[BackendState],
        session: SessionConfig,
        hosts: &HostNames,
    ) -> anyhow::Result<SessionConfig> {
        hosts.learn(&session, NAMES_WITHIN).await;
        let session = hosts.resolved(session);
        self.registry.apply(session.clone()).await.context("cannot add the added backends")?;
        self.registry.inherit(states.to_vec()).await?;
        Ok(session)
    }
}

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Reload,
    Upgrade,
    Stop,
}

/// The signals that this process handles.
#[derive(Debug)]
struct Signals {
    hangup: Signal,
    upgrade: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn install() -> std::io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.hangup.recv() => Asked::Reload,
            _ = self.upgrade.recv() => Asked::Upgrade,
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
        }
    }

    async fn stop_again(&mut self) {
        while self.next().await != Asked::Stop {}
    }
}

/// The API's open listeners.
struct ApiListening {
    unix: ApiUnix,
    tcp: Option<ApiTcp>,
    socket: PathBuf,
}

impl ApiListening {
    async fn open(operations: &Operations, inherited: &Inherited) -> anyhow::Result<ApiListening> {
        let unix = ApiUnix::open(&operations.api_socket, inherited)?;
        let tcp = match operations.api_listen {
            Some(address) => Some(ApiTcp::open(address, inherited).await?),
            None => None,
        };
        Ok(ApiListening { unix, tcp, socket: operations.api_socket.clone() })
    }

    /// Duplicates of the sockets.
    fn sockets(&self) -> std::io::Result<Vec<Listening>> {
        let mut all = Vec::from(self.unix.listening()?);
        if let Some(tcp) = &self.tcp {
            all.push(tcp.listening()?);
        }
        Ok(all)
    }

    fn serve(self, control: &Arc<Control>, entrance: Entrance) -> Api {
        let tls = entrance.tls;
        let service = ApiService::new(
            Arc::clone(control),
            entrance.gate,
            entrance.audit,
            control.logs.journal(),
        );
        let (stop, stopping) = watch::channel(());
        let stopped = || {
            let mut stopping = stopping.clone();
            // Dropping the sender also ends the wait.
            async move { drop(stopping.changed().await) }
        };
        let mut tasks = JoinSet::new();
        let ownership = self.unix.ownership();
        ownership.store(true, Relaxed);
        tracing::info!(socket = %self.socket.display(), "API");
        tasks.spawn(serve_unix(self.unix, service.clone(), stopped()));
        if let Some(tcp) = self.tcp {
            if let Ok(address) = tcp.local_addr() {
                let scheme = if tls.in_force().is_some() { "https" } else { "http" };
                tracing::info!(
                    "API on {scheme}://{address}, metrics on {scheme}://{address}/metrics"
                );
            }
            tasks.spawn(serve_tcp(tcp.with_tls(tls), service.clone(), stopped()));
        }
        Api { service, stop, tasks, ownership }
    }
}

/// The running API.
struct Api {
    service: ApiService<Control>,
    stop: watch::Sender<()>,
    tasks: JoinSet<std::io::Result<()>>,
    /// Whether the end of this process removes the unix socket.
    ownership: Arc<AtomicBool>,
}

/// Longest time that the end waits for the last lines of the audit log.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(5);

/// Time for responses that the API is still sending at the end.
const API_GRACE: Duration = Duration::from_secs(1);

impl Api {
    async fn stop(mut self) {
        drop(self.stop);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(API_GRACE, all).await.is_err() {
            tracing::debug!("API connections were cut");
        }
    }
}
