//! The control side of a running process: its state, and the tasks that keep the levels in step.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use equipoise_acme::Orders;
use equipoise_basics::lock;
use equipoise_cli::logs::Logs;
use equipoise_config::{Config, Loader};
use equipoise_discovery::{Discover, Discovery};
use equipoise_otlp::Exporter;
use equipoise_planes::{
    DataPlane, DnsPlane, HostNames, LEARN_PERIOD, PacketPlane, PacketWish, Seen, SlicePlane, rates,
};
use equipoise_planning::{PlannedShares, Planner};
use equipoise_session::MemoryBound;
use equipoise_session::config::SessionConfig;
use equipoise_session::registry::{PoolState, RegistryHandle};
use equipoise_status::rates::{PERIOD, RateWindow};
use equipoise_status::session::totals;
use equipoise_status::tls::CertificateProblems;
use equipoise_tickets::Tickets;

use crate::run::added::Added;
use crate::run::discovered::with_discovered;
use crate::run::entrance::Entrance;
use crate::run::planning::with_joined;
use crate::run::prepared::Preparing;
use crate::run::reload::Reloads;
use crate::run::tickets::with_tickets;
use crate::run::upgrade::Upgrades;

/// Why a process takes no more work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was asked to stop.
    Stopped,
    /// Another process of this instance does its work.
    Replaced,
}

/// The control side of a running process.
pub(crate) struct Control {
    pub(super) file: PathBuf,
    pub(super) levels: Levels,
    pub(super) logs: Logs,
    pub(super) entrance: Entrance,
    pub(super) started: Instant,
    /// Set once this process takes no more work.
    pub(super) ending: OnceLock<Ending>,
    pub(super) rates: Mutex<RateWindow>,
    pub(super) reloads: Mutex<Reloads>,
    pub(super) upgrades: Upgrades,
    pub(super) data: DataPlane,
    pub(super) certificate_problems: Mutex<CertificateProblems>,
    /// Reads configuration files without holding a lock.
    pub(super) loader: Loader,
    /// Number of reloads that have begun to read.
    pub(super) reloads_begun: AtomicU64,
    /// Reloads that have read a configuration and not switched yet.
    pub(super) preparing: Preparing,
    /// The configuration in force. The lock is held for a switch, so that one switch runs at a
    /// time, and never while a file is read.
    pub(super) config: tokio::sync::Mutex<Config>,
    /// The configuration at the start, for options that take effect only then.
    pub(super) fixed: Config,
}

/// The controlled levels.
pub(crate) struct Levels {
    /// The registry of the session level.
    pub(crate) registry: RegistryHandle,
    pub(crate) packet: PacketPlane,
    pub(crate) dns: Arc<DnsPlane>,
    pub(crate) planner: Arc<Planner>,
    pub(crate) slices: Arc<SlicePlane>,
    /// The certificates that this process obtains itself.
    pub(crate) orders: Orders,
    /// Keys of session tickets.
    pub(crate) tickets: Tickets,
    /// Sources of pools' backends.
    pub(crate) discovery: Discovery,
    /// Backends that operators added.
    pub(crate) added: Added,
    /// Host names of backends.
    pub(crate) hosts: HostNames,
    /// The export of spans.
    pub(crate) spans: Option<Exporter>,
    /// Data-plane threads.
    pub(crate) threads: usize,
    /// The bound on the memory of the process.
    pub(crate) memory: MemoryBound,
}

impl Levels {
    /// Reads the sources and resolves the host names of a configuration, in addition to those that
    /// are known. Waits at most this long for the sources, and again for the names.
    pub(super) async fn learn(&self, config: &Config, patience: Duration) {
        learn(&self.discovery, &self.hosts, config, patience).await;
    }

    /// `config` with the sets of these sources, and the added backends.
    fn with_found(&self, sources: &[Discover], config: SessionConfig) -> SessionConfig {
        self.added.join(with_discovered(&self.discovery, sources, config))
    }
}

/// See [`Levels::learn`]. Returns the session level's configuration with discovered backends and
/// resolved names.
pub(super) async fn learn(
    discovery: &Discovery,
    hosts: &HostNames,
    config: &Config,
    patience: Duration,
) -> SessionConfig {
    discovery.learn(&config.discovery, patience).await;
    let session = with_discovered(discovery, &config.discovery, config.session.clone());
    hosts.learn(&session, patience).await;
    hosts.resolved(session)
}

impl Control {
    /// The control side of a process that has just applied `config`, read from `file`.
    pub(crate) fn new(
        file: PathBuf,
        config: Config,
        levels: Levels,
        logs: Logs,
        entrance: Entrance,
        (upgrades, data): (Upgrades, DataPlane),
    ) -> Control {
        Control {
            file,
            levels,
            logs,
            entrance,
            started: Instant::now(),
            ending: OnceLock::new(),
            rates: Mutex::default(),
            reloads: Mutex::new(Reloads::begun()),
            upgrades,
            data,
            certificate_problems: Mutex::default(),
            loader: Loader::default(),
            reloads_begun: AtomicU64::new(0),
            preparing: Preparing::default(),
            fixed: config.clone(),
            config: tokio::sync::Mutex::new(config),
        }
    }

    /// Starts the tasks that keep the levels in step.
    pub(crate) fn start_followers(self: &Arc<Self>) {
        tokio::spawn(Arc::clone(self).sample_rates());
        tokio::spawn(Arc::clone(self).follow_pools());
        tokio::spawn(Arc::clone(self).follow_made());
        tokio::spawn(Arc::clone(self).follow_certificates());
        self.start_tickets();
        tokio::spawn(Arc::clone(self).learn_sources());
        tokio::spawn(Arc::clone(self).follow_plan());
    }

    /// Refuses changes from now on. The first reason stays.
    pub(crate) fn set_ending(&self, ending: Ending) {
        let _ = self.ending.set(ending);
    }

    /// Whether the process stops, or was replaced.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.get().is_some()
    }

    /// The packet level.
    pub(crate) fn packet(&self) -> &PacketPlane {
        &self.levels.packet
    }

    /// The planner.
    pub(crate) fn planner(&self) -> &Planner {
        &self.levels.planner
    }

    /// Stops the packet level, or leaves its program running, as the command line says.
    pub(crate) async fn stop_packet(&self) {
        self.levels.packet.stop().await;
    }

    /// Stops the slice level's controller. A leader steps down.
    pub(crate) async fn stop_slices(&self) {
        self.levels.slices.stop().await;
    }

    /// Stops the DNS level.
    pub(crate) async fn stop_dns(&self) {
        self.levels.dns.stop().await;
    }

    /// Passes changes by checks and operators to the packet and DNS levels, until the registry
    /// ends.
    async fn follow_pools(self: Arc<Self>) {
        let mut pools = self.levels.registry.pools();
        while pools.changed().await.is_ok() {
            self.sync_levels().await;
        }
    }

    /// Applies changes of elastic and discovered backends, peers and addresses of host names, until
    /// the process ends.
    async fn follow_made(self: Arc<Self>) {
        let mut made = self.levels.planner.made();
        let mut peers = self.levels.planner.peers();
        let mut tls = self.levels.planner.tls();
        let mut sources = self.levels.discovery.changes();
        let mut addresses = self.levels.hosts.changes();
        // Backends and peers that an earlier process saved may be known already.
        made.mark_changed();
        loop {
            let changed = tokio::select! {
                changed = made.changed() => changed,
                changed = peers.changed() => changed,
                changed = tls.changed() => changed,
                changed = sources.changed() => changed,
                changed = addresses.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            if self.is_ending() {
                return;
            }
            let config = self.config.lock().await;
            if let Err(error) = self.join_made(&config).await {
                tracing::error!(
                    "could not add elastic or discovered backends, or peers, to their pools: {error:#}"
                );
            }
        }
    }

    /// Passes the planned shares of names to the DNS level, until the process ends.
    async fn follow_plan(self: Arc<Self>) {
        let mut newest = self.levels.planner.newest();
        // An earlier process may have saved instructions.
        newest.mark_changed();
        while newest.changed().await.is_ok() {
            newest.mark_unchanged();
            self.levels.dns.sync(|| self.seen()).await;
        }
    }

    /// Adds backends and peers that are known already to their pools, before there is any traffic.
    pub(crate) async fn join_known(&self) {
        let config = self.config.lock().await;
        if let Err(error) = self.join_made(&config).await {
            tracing::error!(
                "could not add saved elastic backends or peers to their pools: {error:#}"
            );
        }
    }

    /// Opens the DNS level: it answers queries from now on.
    pub(crate) async fn open_names(&self) -> anyhow::Result<()> {
        let dns = self.config.lock().await.dns.clone();
        self.levels.dns.follow(dns, || self.seen()).await
    }

    /// The session level's configuration with elastic backends, peers, the sets of these sources,
    /// added backends, resolved addresses and keys of session tickets.
    pub(super) fn session(&self, config: &SessionConfig, sources: &[Discover]) -> SessionConfig {
        let mut joined = with_joined(&self.levels.planner, config);
        with_tickets(&self.levels.tickets, &mut joined);
        self.levels.hosts.resolved(self.levels.with_found(sources, joined))
    }

    /// Follows the sources and host names of this configuration, those that reloads have learnt,
    /// and no others.
    pub(super) fn forget_others(&self, config: &Config) {
        let preparing = self.preparing.configs();
        let configs = || preparing.iter().map(|it| &**it).chain([config]);
        let sources: Vec<_> = configs().flat_map(|it| it.discovery.iter().cloned()).collect();
        self.levels.discovery.forget_others(&sources);
        let session = |it: &Config| self.levels.with_found(&it.discovery, it.session.clone());
        let sessions: Vec<_> = configs().map(session).collect();
        self.levels.hosts.forget_others(&sessions);
    }

    pub(super) async fn join_made(&self, config: &Config) -> anyhow::Result<()> {
        // Sets may have brought or removed host names.
        self.forget_others(config);
        let session = self.session(&config.session, &config.discovery);
        let wish = PacketWish::new(config.packet.clone(), session.pools.clone());
        let pools = self.levels.registry.pools().borrow().clone();
        // A failure of the packet level, such as a missing interface, must not delay the session
        // level.
        let packet = self.levels.packet.follow(wish, &pools).await;
        self.levels.registry.apply(session).await?;
        self.levels.planner.drain_leaving().await;
        self.sync_levels().await;
        packet
    }

    /// The current pools and planned shares.
    pub(super) fn seen(&self) -> (Arc<Vec<PoolState>>, PlannedShares) {
        (self.levels.registry.pools().borrow().clone(), self.levels.planner.shares())
    }

    pub(super) async fn sync_levels(&self) {
        self.levels.dns.sync(|| self.seen()).await;
        let pools = self.levels.registry.pools().borrow().clone();
        self.levels.packet.sync(&pools).await;
    }

    /// Time between a signal to stop and the refusal of new work.
    pub(crate) async fn stop_delay(&self) -> Duration {
        self.config.lock().await.operations.stop_delay
    }

    /// Time for work in flight to finish when the process stops.
    pub(crate) async fn grace(&self) -> Duration {
        self.config.lock().await.operations.grace
    }

    /// Time for clients to finish when the process was replaced.
    pub(crate) async fn upgrade_grace(&self) -> Duration {
        self.config.lock().await.operations.upgrade_grace
    }

    /// Samples the counters from which rates are computed, until the registry ends.
    async fn sample_rates(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Ok(status) = self.levels.registry.status().await else { return };
            lock(&self.rates).add(Instant::now(), totals(&status));
            self.levels.packet.log_left_out();
            self.remove_idle().await;
        }
    }

    /// Sends the clients' load by source to the DNS level and the cluster, until the data plane
    /// ends. In a cluster the DNS level uses the observations of all nodes: the answers themselves
    /// decide which node sees a resolver's clients.
    async fn learn_sources(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(LEARN_PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut last, mut seen) = (Instant::now(), Seen::default());
        loop {
            ticks.tick().await;
            let in_cluster = self.levels.planner.is_in_cluster();
            if !in_cluster && !self.levels.dns.runs().await {
                continue;
            }
            let Some(work) = self.data.take_sources() else { return };
            let over = last.elapsed();
            last += over;
            let own = rates(&work, over);
            let of_all = self.levels.planner.newest().borrow().sources.clone();
            self.levels.dns.learn(if of_all.is_empty() { &own } else { &of_all }).await;
            if in_cluster {
                seen.take(&own, over);
                self.levels.planner.tell_sources(seen.told());
            }
        }
    }
}
