//! What the API asks, answered by the registry and the configuration file.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use equipoise_api::metrics::{Reading, ReloadReading};
use equipoise_api::wire::cluster::{
    ClusterMembers, ClusterTokens, JoinedNodes, TokenMade, TokenWanted,
};
use equipoise_api::wire::config::{Checked, ConfigState};
use equipoise_api::wire::packet::{FlowAnswer, FlowQuestion, Pin, PinKey, Pins};
use equipoise_api::wire::plan::{HistoryQuestion, NodeHistory, Nodes, PlanStatus, PoolWish};
use equipoise_api::wire::slice::{SliceMove, SliceMoves, SlicePlan, StreamStatus, Streams};
use equipoise_api::wire::{Admin, Changed, LastReload, Phase, Reloaded, Status};
use equipoise_api::{OperateError, Operator};
use equipoise_core::Weight;
use equipoise_session::registry::{ApplyError, RegistryError, RegistryHandle};

use crate::cli::with_causes;
use crate::commands::check;
use crate::config::{self, Config, Loaded, Surroundings};
use crate::run::dns::{self, DnsPlane};
use crate::run::entrance::Entrance;
use crate::run::lock;
use crate::run::logs::Logs;
use crate::run::notify::{Notice, notify};
use crate::run::packet::{PacketPlane, PacketWish};
use crate::run::plane::DataPlane;
use crate::run::planning::Planner;
use crate::run::rates::{PERIOD, RateWindow};
use crate::run::slice::SlicePlane;
use crate::run::sources::{LEARN_PERIOD, Seen};
use crate::run::{packet_reading, reading};

/// The control side of a running process.
pub(crate) struct Control {
    file: PathBuf,
    levels: Levels,
    logs: Logs,
    entrance: Entrance,
    started: Instant,
    stopping: AtomicBool,
    rates: Mutex<RateWindow>,
    reloads: Mutex<Reloads>,
    /// The configuration that runs. Held while it is read anew: one reload at a time.
    config: tokio::sync::Mutex<Config>,
    /// What was said at the start and takes effect only there.
    fixed: Config,
}

/// What is steered.
pub(crate) struct Levels {
    /// Of the session level.
    pub(crate) registry: RegistryHandle,
    pub(crate) packet: PacketPlane,
    pub(crate) dns: DnsPlane,
    pub(crate) planner: Arc<Planner>,
    pub(crate) slices: Arc<SlicePlane>,
    /// Data-plane threads.
    pub(crate) threads: usize,
}

/// How reading the file went.
#[derive(Debug)]
struct Reloads {
    figures: ReloadReading,
    last: Option<LastReload>,
}

impl Control {
    /// The control side of a process that has just taken `config`, read from `file`.
    pub(crate) fn new(
        file: PathBuf,
        config: Config,
        levels: Levels,
        logs: Logs,
        entrance: Entrance,
    ) -> Control {
        let figures = ReloadReading {
            succeeded: 1,
            failed: 0,
            last_succeeded: true,
            last_success_unix_seconds: unix_seconds_now(),
        };
        Control {
            file,
            levels,
            logs,
            entrance,
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            rates: Mutex::default(),
            reloads: Mutex::new(Reloads { figures, last: None }),
            fixed: config.clone(),
            config: tokio::sync::Mutex::new(config),
        }
    }

    /// Takes no more changes from now on.
    pub(crate) fn set_stopping(&self) {
        self.stopping.store(true, Relaxed);
    }

    /// The packet level.
    pub(crate) fn packet(&self) -> &PacketPlane {
        &self.levels.packet
    }

    /// What plans.
    pub(crate) fn planner(&self) -> &Planner {
        &self.levels.planner
    }

    /// Ends the packet level, or leaves it running, as the command line says.
    pub(crate) async fn stop_packet(&self) {
        self.levels.packet.stop().await;
    }

    /// Steps down as the slice level's controller.
    pub(crate) async fn stop_slices(&self) {
        self.levels.slices.stop().await;
    }

    /// Ends the DNS level.
    pub(crate) async fn stop_dns(&self) {
        self.levels.dns.stop().await;
    }

    /// Tells the packet and DNS levels what checks and operators change, until the registry ends.
    pub(crate) async fn follow_pools(self: Arc<Self>) {
        let mut pools = self.levels.registry.pools();
        while pools.changed().await.is_ok() {
            self.sync_levels().await;
        }
    }

    /// Has what is made for elastic pools join them, and drains who is to leave, and takes over new peers, until the end.
    pub(crate) async fn follow_made(self: Arc<Self>) {
        let mut made = self.levels.planner.made();
        let mut peers = self.levels.planner.peers();
        let mut tls = self.levels.planner.tls();
        // What an earlier process left may be there already, and peers may be known.
        made.mark_changed();
        loop {
            let changed = tokio::select! {
                changed = made.changed() => changed,
                changed = peers.changed() => changed,
                changed = tls.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            if self.accepts_changes().is_err() {
                return;
            }
            let config = self.config.lock().await;
            if let Err(error) = self.join_made(&config).await {
                tracing::error!("what was made or learnt does not join its pool: {error:#}");
            }
        }
    }

    /// Tells the DNS level what is planned of its names, until the end.
    pub(crate) async fn follow_plan(self: Arc<Self>) {
        let mut newest = self.levels.planner.newest();
        // What an earlier process kept is there already.
        newest.mark_changed();
        while newest.changed().await.is_ok() {
            newest.mark_unchanged();
            let pools = self.levels.registry.pools().borrow().clone();
            self.levels.dns.sync(&pools, &self.levels.planner.shares()).await;
        }
    }

    /// Has what is known already join its pools, before there is any traffic.
    pub(crate) async fn join_known(&self) {
        let config = self.config.lock().await;
        if let Err(error) = self.join_made(&config).await {
            tracing::error!("what was made or kept does not join its pool: {error:#}");
        }
    }

    async fn join_made(&self, config: &Config) -> anyhow::Result<()> {
        let session = self.levels.planner.with_made(&config.session);
        let wish = PacketWish { config: config.packet.clone(), pools: session.pools.clone() };
        let pools = self.levels.registry.pools().borrow().clone();
        self.levels.packet.follow(wish, &pools).await?;
        self.levels.registry.apply(session).await?;
        self.levels.planner.drain_leaving().await;
        self.sync_levels().await;
        Ok(())
    }

    async fn sync_levels(&self) {
        let pools = self.levels.registry.pools().borrow().clone();
        self.levels.dns.sync(&pools, &self.levels.planner.shares()).await;
        self.levels.packet.sync(&pools).await;
    }

    /// How long what is in flight may take when the process stops.
    pub(crate) async fn grace(&self) -> Duration {
        self.config.lock().await.operations.grace
    }

    /// Feeds the rates, until the registry ends.
    pub(crate) async fn sample_rates(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Ok(status) = self.levels.registry.status().await else { return };
            lock(&self.rates).add(Instant::now(), reading::totals(&status));
        }
    }

    /// Tells the DNS level, and the cluster, what clients bring, until the data plane ends. In a cluster the DNS level goes by what
    /// all nodes see: which node a resolver's clients came to follows from the answers themselves.
    pub(crate) async fn learn_sources(self: Arc<Self>, data: DataPlane) {
        let mut ticks = tokio::time::interval(LEARN_PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut last, mut seen) = (Instant::now(), Seen::default());
        loop {
            ticks.tick().await;
            let in_cluster = self.levels.planner.is_in_cluster();
            if !in_cluster && !self.levels.dns.runs().await {
                continue;
            }
            let Some(work) = data.take_sources() else { return };
            let now = Instant::now();
            seen.take(&work, now - last);
            last = now;
            let own = seen.told();
            let of_all = self.levels.planner.newest().borrow().sources.clone();
            self.levels.dns.learn(if of_all.is_empty() { &own } else { &of_all }).await;
            if in_cluster {
                self.levels.planner.tell_sources(own);
            }
        }
    }

    async fn load_and_apply(&self) -> Result<Reloaded, Vec<String>> {
        let mut running = self.config.lock().await;
        let file = self.file.clone();
        // Reading may wait for a resolver; traffic, checks and the API do not wait with it.
        let loaded = tokio::task::spawn_blocking(move || config::load(&file)).await;
        let loaded = loaded.map_err(|panic| vec![format!("reading the file failed: {panic}")])?;
        let Loaded { config, warnings } = loaded.map_err(|errors| {
            errors.problems.iter().map(|problem| problem.in_file(&errors.file)).collect::<Vec<_>>()
        })?;
        for warning in &warnings {
            tracing::warn!("{}", warning.in_file(&self.file));
        }
        self.follow_all(&running, &config).await.map_err(|error| vec![with_causes(&error)])?;
        self.logs.set_level(config.operations.log_level);
        self.logs.reopen_access_log();
        self.entrance.follow(&config.operations);
        let reloaded = Reloaded {
            config_file: self.file.display().to_string(),
            front_doors: config.session.front_doors.len(),
            vips: config.packet.vips.len(),
            pools: config.session.pools.len(),
            backends: config.session.pools.iter().map(|pool| pool.backends.len()).sum(),
            need_restart: need_restart(&self.fixed, &config),
        };
        *running = config;
        Ok(reloaded)
    }

    /// The slice level first: it goes back as it came.
    async fn follow_all(&self, before: &Config, after: &Config) -> anyhow::Result<()> {
        self.levels.slices.follow(&after.slices).await?;
        let applied = self.apply(before, after).await;
        if applied.is_err()
            && let Err(error) = self.levels.slices.follow(&before.slices).await
        {
            tracing::error!("the slice level could not go back: {error:#}");
        }
        applied
    }

    /// The packet level goes first: it can go back without losing a flow, and a front door that was closed cannot.
    async fn apply(&self, before: &Config, after: &Config) -> anyhow::Result<()> {
        let wish = |config: &Config| PacketWish {
            config: config.packet.clone(),
            pools: self.levels.planner.with_made(&config.session).pools,
        };
        let pools = self.levels.registry.pools().borrow().clone();
        self.levels.packet.follow(wish(after), &pools).await?;
        let shares = self.levels.planner.shares();
        if let Err(error) = self.levels.dns.follow(after.dns.clone(), &pools, &shares).await {
            if let Err(error) = self.levels.packet.follow(wish(before), &pools).await {
                tracing::error!("the packet level could not go back: {error:#}");
            }
            return Err(error);
        }
        if let Err(error) =
            self.levels.registry.apply(self.levels.planner.with_made(&after.session)).await
        {
            let back = self.levels.dns.follow(before.dns.clone(), &pools, &shares).await;
            if let Err(error) = back {
                tracing::error!("the DNS level could not go back: {error:#}");
            }
            let back = self.levels.packet.follow(wish(before), &pools).await;
            if let Err(error) = back {
                tracing::error!("the packet level could not go back: {error:#}");
            }
            let error: ApplyError = error;
            return Err(error.into());
        }
        self.sync_levels().await;
        self.levels.planner.follow(after).await;
        Ok(())
    }

    fn note_reload(&self, outcome: &Result<Reloaded, Vec<String>>) {
        let now = unix_seconds_now();
        let mut reloads = lock(&self.reloads);
        reloads.figures.last_succeeded = outcome.is_ok();
        match outcome {
            Ok(reloaded) => {
                reloads.figures.succeeded += 1;
                reloads.figures.last_success_unix_seconds = now;
                for option in &reloaded.need_restart {
                    tracing::warn!(
                        "`{option}` has changed and takes effect when equipoise is restarted"
                    );
                }
            }
            Err(errors) => {
                reloads.figures.failed += 1;
                for error in errors {
                    tracing::error!("{error}");
                }
                tracing::error!("not reloaded: the running configuration stays");
            }
        }
        let errors = outcome.as_ref().err().cloned().unwrap_or_default();
        reloads.last =
            Some(LastReload { succeeded: outcome.is_ok(), at_unix_seconds: now, errors });
    }

    async fn changed(&self, pool: &str, backend: &str) -> Result<Changed, OperateError> {
        let status = self.levels.registry.status().await.map_err(refused)?;
        let gone = || OperateError::NotFound(format!("{pool}/{backend} was removed meanwhile"));
        let pool = status.pools.iter().find(|entry| &*entry.name == pool).ok_or_else(gone)?;
        let named = |entry: &&_| is_named(entry, backend);
        let backend = pool.backends.iter().find(named).ok_or_else(gone)?;
        let mut backend = reading::backend(pool, backend, &lock(&self.rates), Instant::now());
        if let Some(packet) = self.packet_status().await {
            packet_reading::add_flows_of(&mut backend, &pool.name, &packet);
        }
        Ok(Changed { pool: pool.name.to_string(), backend })
    }

    fn accepts_changes(&self) -> Result<(), OperateError> {
        match self.phase() {
            Phase::Running => Ok(()),
            Phase::Stopping => Err(OperateError::Stopping),
        }
    }
}

/// A backend goes by its name and by its address.
fn is_named(backend: &equipoise_session::registry::BackendStatus, asked: &str) -> bool {
    &*backend.name == asked || backend.address.to_string() == asked
}

impl Operator for Control {
    fn phase(&self) -> Phase {
        if self.stopping.load(Relaxed) { Phase::Stopping } else { Phase::Running }
    }

    async fn status(&self) -> Result<Status, OperateError> {
        let status = self.levels.registry.status().await.map_err(refused)?;
        let packet = self.packet_status().await.map(|mut packet| {
            packet_reading::without_zeros(&mut packet);
            packet
        });
        let dns = self.levels.dns.status().await.map(|mut dns| {
            dns::without_zeros(&mut dns);
            dns
        });
        let view = self.levels.registry.stats();
        let now = Instant::now();
        let rates = lock(&self.rates);
        let doors = status.front_doors.iter().map(|door| {
            reading::front_door(door, reading::accept_pauses(&view, door), &rates, now)
        });
        let mut pools: Vec<_> =
            status.pools.iter().map(|pool| reading::pool(pool, &rates, now)).collect();
        if let Some(packet) = &packet {
            packet_reading::add_flows(&mut pools, packet);
        }
        Ok(Status {
            instance: self.fixed.instance.name.to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            phase: self.phase(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            threads: self.levels.threads,
            config_file: self.file.display().to_string(),
            last_reload: lock(&self.reloads).last.clone(),
            rates_over_seconds: rates.span(now).as_secs_f64(),
            front_doors: doors.collect(),
            pools,
            packet,
            cluster: self.levels.planner.standing(),
            dns,
            streams: self.levels.slices.summary(),
        })
    }

    async fn metrics(&self) -> Result<Reading, OperateError> {
        let status = self.levels.registry.status().await.map_err(refused)?;
        let view = self.levels.registry.stats();
        let packet = self.packet_status().await;
        let dns = self.levels.dns.status().await;
        Ok(Reading {
            version: env!("CARGO_PKG_VERSION").into(),
            instance: self.fixed.instance.name.to_string(),
            threads: self.levels.threads,
            reload: lock(&self.reloads).figures,
            access: self.entrance.reading(),
            front_doors: view
                .front_doors
                .iter()
                .map(|door| reading::front_door_figures(door, &status))
                .collect(),
            pools: status.pools.iter().map(|pool| reading::pool_figures(pool, &view)).collect(),
            packet,
            machine: self.levels.planner.machine(),
            planning: self.levels.planner.reading(),
            dns,
            streams: self.levels.slices.reading(),
        })
    }

    async fn set_admin(
        &self,
        pool: &str,
        backend: &str,
        admin: Admin,
    ) -> Result<Changed, OperateError> {
        self.accepts_changes()?;
        let admin = reading::admin_state(admin);
        self.levels.registry.set_admin(pool, backend, admin).await.map_err(refused)?;
        self.sync_levels().await;
        self.changed(pool, backend).await
    }

    async fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: u16,
    ) -> Result<Changed, OperateError> {
        self.accepts_changes()?;
        let weight =
            Weight::new(weight).map_err(|error| OperateError::WeightOutOfRange(error.0))?;
        self.levels.registry.set_weight(pool, backend, weight).await.map_err(refused)?;
        self.sync_levels().await;
        self.changed(pool, backend).await
    }

    async fn config(&self) -> Result<ConfigState, OperateError> {
        let figures = lock(&self.reloads).figures;
        Ok(ConfigState {
            file: self.file.display().to_string(),
            generation: figures.succeeded,
            loaded_at_unix_seconds: figures.last_success_unix_seconds,
        })
    }

    fn config_schema(&self) -> serde_json::Value {
        config::schema::schema()
    }

    async fn check_config(&self, toml: Option<String>) -> Result<Checked, OperateError> {
        let file = self.file.clone();
        // Reading may wait for a resolver.
        let checked = tokio::task::spawn_blocking(move || match toml {
            Some(text) => {
                let name = Path::new("(sent)");
                check::checked(name, &config::parse(&text, name, &Surroundings::here()))
            }
            None => check::checked(&file, &config::load(&file)),
        });
        checked.await.map_err(|panic| OperateError::Failed(format!("checking failed: {panic}")))
    }

    async fn reload(&self) -> Result<Reloaded, OperateError> {
        self.accepts_changes()?;
        notify(Notice::Reloading);
        let outcome = self.load_and_apply().await;
        notify(Notice::Ready);
        self.note_reload(&outcome);
        outcome.map_err(|errors| OperateError::ReloadFailed {
            config_file: self.file.display().to_string(),
            errors,
        })
    }

    async fn plan(&self, next: bool) -> Result<PlanStatus, OperateError> {
        self.levels.planner.plan(next)
    }

    async fn wish(&self, pool: &str, wish: PoolWish) -> Result<PlanStatus, OperateError> {
        self.accepts_changes()?;
        self.levels.planner.wish(pool, wish).await
    }

    async fn nodes(&self) -> Result<Nodes, OperateError> {
        Ok(self.levels.planner.nodes())
    }

    async fn set_node_admin(&self, node: &str, admin: Admin) -> Result<Nodes, OperateError> {
        self.accepts_changes()?;
        self.levels.planner.set_node_admin(node, reading::admin_state(admin)).await
    }

    async fn node_history(
        &self,
        node: &str,
        question: HistoryQuestion,
    ) -> Result<NodeHistory, OperateError> {
        self.levels.planner.history(node, question)
    }

    async fn cluster_members(&self) -> Result<ClusterMembers, OperateError> {
        self.levels.planner.cluster_members()
    }

    async fn cluster_tokens(&self) -> Result<ClusterTokens, OperateError> {
        self.levels.planner.cluster_tokens().await
    }

    async fn create_token(&self, wanted: TokenWanted) -> Result<TokenMade, OperateError> {
        self.accepts_changes()?;
        self.levels.planner.create_token(wanted).await
    }

    async fn revoke_token(&self, id: &str) -> Result<(), OperateError> {
        self.accepts_changes()?;
        self.levels.planner.revoke_token(id).await
    }

    async fn joined_nodes(&self) -> Result<JoinedNodes, OperateError> {
        self.levels.planner.joined_nodes().await
    }

    async fn evict_node(&self, node: &str) -> Result<(), OperateError> {
        self.accepts_changes()?;
        self.levels.planner.evict_node(node).await
    }

    async fn explain_flow(&self, question: FlowQuestion) -> Result<FlowAnswer, OperateError> {
        self.flow(&question).await
    }

    async fn pins(&self) -> Result<Pins, OperateError> {
        self.all_pins().await
    }

    async fn add_pin(&self, pin: Pin) -> Result<Pin, OperateError> {
        self.accepts_changes()?;
        self.set_pin(&pin, false).await
    }

    async fn move_pin(&self, pin: Pin) -> Result<Pin, OperateError> {
        self.accepts_changes()?;
        self.set_pin(&pin, true).await
    }

    async fn remove_pin(&self, pin: PinKey) -> Result<Pins, OperateError> {
        self.accepts_changes()?;
        self.drop_pin(&pin).await
    }

    async fn streams(&self) -> Result<Streams, OperateError> {
        self.levels.slices.status().await
    }

    async fn slice_plan(&self, stream: &str) -> Result<SlicePlan, OperateError> {
        self.levels.slices.plan(stream).await
    }

    async fn move_slices(&self, stream: &str, wish: SliceMove) -> Result<SliceMoves, OperateError> {
        self.accepts_changes()?;
        self.levels.slices.move_slices(stream, &wish).await
    }

    async fn drain_worker(
        &self,
        stream: &str,
        worker: &str,
        drained: bool,
    ) -> Result<StreamStatus, OperateError> {
        self.accepts_changes()?;
        self.levels.slices.drain(stream, worker, drained).await
    }

    async fn pin_slice(
        &self,
        stream: &str,
        slice: u32,
        worker: Option<String>,
    ) -> Result<StreamStatus, OperateError> {
        self.accepts_changes()?;
        self.levels.slices.pin(stream, slice, worker).await
    }
}

/// What differs and is only read at the start.
fn need_restart(fixed: &Config, now: &Config) -> Vec<String> {
    let (before, after) = (&fixed.operations, &now.operations);
    [
        ("instance.name", fixed.instance.name == now.instance.name),
        ("instance.threads", fixed.instance.threads == now.instance.threads),
        ("api.socket", before.api_socket == after.api_socket),
        ("api.listen", before.api_listen == after.api_listen),
        ("log.format", before.log_format == after.log_format),
        ("flows", fixed.packet.flows == now.packet.flows),
        ("load.period", fixed.planning.policy.period() == now.planning.policy.period()),
        ("controller.state", fixed.planning.state == now.planning.state),
        ("log.access-log", before.access_log == after.access_log),
    ]
    .into_iter()
    .filter(|(_, same)| !same)
    .map(|(option, _)| option.to_owned())
    .collect()
}

fn refused(error: RegistryError) -> OperateError {
    match error {
        RegistryError::Stopped => OperateError::Stopping,
        unknown => OperateError::NotFound(unknown.to_string()),
    }
}

fn unix_seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
