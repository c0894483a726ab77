//! The DNS level of a running process: an engine while the file has zones, and its input.

mod challenged;
mod grown;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use equipoise_controller::SourceRates;
use equipoise_core::{Eligibility, Generation, Health, eligibility};
use equipoise_dns::config::{DnsConfig, NodeConfig, ZoneConfig};
use equipoise_dns::engine::prepare;
use equipoise_dns::engine::{Engine, EngineOptions, TcpLimits, shards};
use equipoise_dns::{
    NameStatus, NodeState, QueryLog, ResolverLoads, Snapshot, SnapshotInput, Standing, build,
};
use equipoise_handover::{Inherited, Listening};
use equipoise_planner::Standing as Planned;
use equipoise_planning::{PlannedShare, PlannedShares};
use equipoise_session::LogLines;
use equipoise_session::config::Challenges;
use equipoise_session::registry::PoolState;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use self::challenged::Challenged;
use self::grown::Grown;
use crate::sources;

/// Half-life of a load that is no longer observed.
const LOAD_HALF_LIFE: Duration = Duration::from_secs(60);
/// Busiest resolvers that learn the load of the prefix in which they are.
const RESOLVERS_LEARNT: usize = 256;

/// The DNS level. Its engine runs while the file has zones.
pub struct DnsPlane {
    threads: usize,
    /// Secrets of this process.
    secrets: (u64, u64),
    query_log: QueryLog,
    /// The log that `query_log` writes to.
    lines: Option<LogLines>,
    state: Mutex<State>,
    /// Sockets of an earlier process.
    inherited: Inherited,
    /// Answers to an ACME directory.
    challenges: Challenges,
}

/// The running DNS level.
pub struct RunningDns {
    /// Its engine.
    pub engine: Arc<Engine>,
    /// The file's zones and options.
    pub config: DnsConfig,
    /// Lines of the query log that were not written.
    pub unwritten: u64,
}

struct State {
    engine: Option<Arc<Engine>>,
    /// The file's zones and options.
    config: DnsConfig,
    grown: Grown,
    /// The zones with elastic pools, before answers to challenges.
    unchallenged: Vec<Arc<ZoneConfig>>,
    challenged: Challenged,
    /// The zones of the snapshot in force.
    zones: Vec<Arc<ZoneConfig>>,
    generation: Generation,
    /// States of the nodes in the snapshot in force.
    told: Vec<Vec<NodeState>>,
    /// Load of resolvers, from the clients that the session level sees.
    loads: ResolverLoads,
}

impl Default for State {
    fn default() -> State {
        State {
            engine: None,
            config: DnsConfig::default(),
            grown: Grown::default(),
            unchallenged: Vec::new(),
            challenged: Challenged::default(),
            zones: Vec::new(),
            generation: Generation::default(),
            told: Vec::new(),
            loads: ResolverLoads::new(ResolverLoads::CAPACITY, LOAD_HALF_LIFE),
        }
    }
}

impl DnsPlane {
    /// The level without an engine. `threads` is the number of cores to use; answers are logged to
    /// `lines`.
    pub fn new(
        threads: usize,
        lines: Option<LogLines>,
        inherited: Inherited,
        challenges: Challenges,
    ) -> DnsPlane {
        let secrets = (rand::random(), rand::random());
        let log = lines.clone();
        let query_log =
            QueryLog::new(move |fill| log.as_ref().is_some_and(|log| log.write("query", fill)));
        let state = Mutex::default();
        DnsPlane { threads, secrets, query_log, lines, state, inherited, challenges }
    }

    /// Applies a configuration completely or not at all. Starts the engine with the first zone, and
    /// stops it with the last one. `seen` returns pools and planned shares. It is called when no
    /// other task can change them.
    ///
    /// # Errors
    /// The engine does not start, or an address is not available.
    pub async fn follow(
        &self,
        config: DnsConfig,
        seen: impl FnOnce() -> (Arc<Vec<PoolState>>, PlannedShares),
    ) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        if config.zones.is_empty() {
            state.config = config;
            (state.zones, state.told) = (Vec::new(), Vec::new());
            if let Some(engine) = state.engine.take() {
                spawn_blocking(move || engine.stop()).await?;
            }
            return Ok(());
        }
        let (pools, shares) = seen();
        let served = state.served(&config, &pools, &self.challenges);
        let told = standings(&served, &pools, &shares);
        let tcp = TcpLimits {
            connections_max: config.options.tcp_connections_max,
            idle: config.options.tcp_idle_timeout,
        };
        match state.engine.clone() {
            Some(engine) => {
                let snapshot = self.snapshot(&mut state, &served, &told).await?;
                engine.listen(&config.listen, tcp).context("the DNS level was not changed")?;
                engine.publish(snapshot);
            }
            None => {
                let snapshot = self.snapshot(&mut state, &served, &told).await?;
                let query_log = self.query_log.clone();
                let inherited = self.inherited.clone();
                let options = EngineOptions { threads: self.threads, tcp, query_log, inherited };
                let engine = Engine::start(options, &config.listen, snapshot);
                let engine = engine.context("cannot start the DNS level")?;
                for address in engine.addresses() {
                    tracing::info!("dns on {address}");
                }
                state.engine = Some(Arc::new(engine));
            }
        }
        state.config = config;
        (state.zones, state.told) = (served.zones, told);
        Ok(())
    }

    /// Binds the addresses of `config` for which there are no sockets yet, so that
    /// [`DnsPlane::follow`] cannot fail for them.
    ///
    /// # Errors
    /// An address is not available.
    pub fn prepare(&self, config: &DnsConfig) -> anyhow::Result<()> {
        if !config.zones.is_empty() {
            let prepared = prepare(&self.inherited, &config.listen, self.threads);
            prepared.context("cannot start the DNS level")?;
        }
        Ok(())
    }

    /// Duplicates of the sockets, for a successor.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub async fn listening(&self) -> std::io::Result<Vec<Listening>> {
        let engine = self.state.lock().await.engine.clone();
        engine.map_or_else(|| Ok(Vec::new()), |engine| engine.listening())
    }

    /// Sends the current pools and planned shares to the engine, if they changed. Callers are
    /// serialized around `seen`, so that an older view never replaces a newer one.
    pub async fn sync(&self, seen: impl FnOnce() -> (Arc<Vec<PoolState>>, PlannedShares)) {
        let mut state = self.state.lock().await;
        let Some(engine) = state.engine.clone() else { return };
        let (pools, shares) = seen();
        let config = state.config.clone();
        let served = state.served(&config, &pools, &self.challenges);
        let told = standings(&served, &pools, &shares);
        // If `told` is equal, the number of zones is equal too.
        if told == state.told && state.serves(&served) {
            return;
        }
        let snapshot = match self.snapshot(&mut state, &served, &told).await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                return tracing::error!(
                    event = "dns.failed",
                    "dns: the answers could not be changed: {error:#}"
                );
            }
        };
        let published = engine.published();
        let unserved = |all: &[NameStatus]| -> BTreeSet<String> {
            all.iter().filter(|it| it.fail_open).map(|it| it.name.clone()).collect()
        };
        let before = unserved(&published.snapshot.names_told);
        for name in unserved(&snapshot.names_told).difference(&before) {
            tracing::warn!(event = "dns.unserved", subject = %name,
                "dns: no backend of {name} serves; its answers have backends that do not serve"
            );
        }
        engine.publish(snapshot);
        (state.zones, state.told) = (served.zones, told);
    }

    /// Answers with the present texts of challenges, at the latest when it returns.
    pub async fn answer_challenges(&self) {
        let mut state = self.state.lock().await;
        let Some(engine) = state.engine.clone() else { return };
        let mut config = state.config.clone();
        config.zones.clone_from(&state.unchallenged);
        let served = state.challenged.take(config, &self.challenges.texts());
        if state.serves(&served) {
            return;
        }
        let told = state.told.clone();
        let snapshot = match self.snapshot(&mut state, &served, &told).await {
            Ok(snapshot) => snapshot,
            Err(error) => {
                return tracing::error!(
                    event = "dns.failed",
                    "dns: the answers could not be changed: {error:#}"
                );
            }
        };
        engine.publish(snapshot);
        state.zones = served.zones;
    }

    /// Whether the level has a zone to answer for.
    pub async fn runs(&self) -> bool {
        self.state.lock().await.engine.is_some()
    }

    /// Learns the work per second of the clients of each prefix ([`sources::learn`]), which answers
    /// then take into account.
    pub async fn learn(&self, rates: &SourceRates) {
        let mut state = self.state.lock().await;
        let State { engine: Some(engine), loads, config, .. } = &mut *state else { return };
        let now = Instant::now();
        sources::learn(loads, rates, &engine.top_resolvers(RESOLVERS_LEARNT), now);
        let published = engine.published();
        let (layout, heavy) = (&published.snapshot.layout, config.options.heavy_share);
        let table = loads.table(now, heavy, layout, &published.loads);
        engine.publish_loads(Arc::new(table));
    }

    /// Stops answering queries.
    pub async fn stop(&self) {
        let engine = self.state.lock().await.engine.take();
        if let Some(engine) = engine
            && let Err(error) = spawn_blocking(move || engine.stop()).await
        {
            tracing::error!("the DNS level did not stop in order: {error}");
        }
    }

    /// The engine and its configuration; `None` without a zone.
    pub async fn running(&self) -> Option<RunningDns> {
        let state = self.state.lock().await;
        let unwritten = self.lines.as_ref().map_or(0, LogLines::unwritten);
        Some(RunningDns { engine: state.engine.clone()?, config: state.config.clone(), unwritten })
    }

    /// Builds a snapshot on a blocking thread: a zone may have many records and nodes.
    async fn snapshot(
        &self,
        state: &mut State,
        config: &DnsConfig,
        told: &[Vec<NodeState>],
    ) -> anyhow::Result<Arc<Snapshot>> {
        state.generation = state.generation.next();
        let before = state.engine.as_ref().map(|engine| engine.published());
        let (generation, secrets, threads) = (state.generation, self.secrets, shards(self.threads));
        let (config, told) = (config.clone(), told.to_vec());
        let made = spawn_blocking(move || {
            let before = before.as_ref().map(|before| &*before.snapshot);
            let (config, states) = (&config, &told[..]);
            let input = SnapshotInput { generation, config, states, threads, before, secrets };
            Arc::new(build(&input, &mut rand::rng()))
        });
        made.await.context("cannot build the answers")
    }
}

impl State {
    /// The zones to serve: those of `config`, with the backends of elastic pools and the answers to
    /// challenges.
    fn served(
        &mut self,
        config: &DnsConfig,
        pools: &[PoolState],
        challenges: &Challenges,
    ) -> DnsConfig {
        let grown = self.grown.take(config, pools);
        self.unchallenged.clone_from(&grown.zones);
        self.challenged.take(grown, &challenges.texts())
    }

    /// Whether the snapshot in force has these zones.
    fn serves(&self, served: &DnsConfig) -> bool {
        let same = |(a, b): (&Arc<ZoneConfig>, &Arc<ZoneConfig>)| Arc::ptr_eq(a, b);
        served.zones.iter().zip(&self.zones).all(same)
    }
}

/// The states of the nodes of each zone.
fn standings(
    config: &DnsConfig,
    pools: &[PoolState],
    shares: &PlannedShares,
) -> Vec<Vec<NodeState>> {
    let zone = |zone: &Arc<ZoneConfig>| {
        let planned = shares.get(&zone.origin.fmt_with_dot().to_string());
        let state = |node: &NodeConfig| {
            let local = standing(node, pools);
            let key = (node.pool.to_string(), node.name.to_string());
            planned.and_then(|it| it.get(&key)).map_or(local, |share| by_plan(local, share))
        };
        zone.nodes.iter().map(state).collect()
    };
    config.zones.iter().map(zone).collect()
}

/// Combines local health and admin state with the plan.
fn by_plan(local: NodeState, planned: &PlannedShare) -> NodeState {
    let standing = match planned.standing {
        _ if local.standing != Standing::Serving || planned.share > 0.0 => local.standing,
        Some(Planned::Draining) => Standing::Draining,
        Some(Planned::Down) => Standing::Down,
        _ => Standing::Unhealthy,
    };
    NodeState { standing, share: planned.share }
}

fn standing(node: &NodeConfig, pools: &[PoolState]) -> NodeState {
    let pool = pools.iter().find(|pool| pool.name == node.pool);
    let backend = pool.and_then(|pool| pool.backends.iter().find(|b| b.name == node.name));
    let Some(backend) = backend else {
        // The registry receives the pool after the DNS level; until then its backends count as new.
        return NodeState { standing: Standing::Serving, share: 1.0 };
    };
    let standing = match eligibility(backend.admin, backend.health, backend.weight) {
        Eligibility::Eligible => Standing::Serving,
        Eligibility::Draining if backend.health == Health::Unhealthy => Standing::DrainingUnhealthy,
        Eligibility::Draining => Standing::Draining,
        Eligibility::Down => Standing::Down,
        Eligibility::Unhealthy => Standing::Unhealthy,
    };
    NodeState { standing, share: backend.weight.get().into() }
}

#[cfg(test)]
mod tests;
