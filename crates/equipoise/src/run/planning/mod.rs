//! Planning in this process: what it measures of itself, the controller while a pool asks for one, and doing what is
//! planned.
//!
//! ```text
//! monitor (thread) --utilisation--> reports, each period --> controller --instructions--> weights of pools
//! registry's counters --meter--^                ^-- premises: file and registry
//! ```
//!
//! Without a pool that asks, only the monitor runs, and the history of utilisation is kept. A controller that cannot
//! start stops nothing: pools keep the weights that they have, and `equipoise plan` says why.

mod follow;
mod meter;
mod monitor;
mod operator;
mod peers;
mod place;
mod premises;
mod rosters;
mod scaling;
mod shares;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use equipoise_cluster::ClusterServer;
use equipoise_controller::{
    Controller, ControllerHandle, ControllerOptions, Edition, Instructions, Intake, NodeReport,
    Recorder,
};
use equipoise_core::load::{PerClass, Smoothing};
use equipoise_core::{AdminState, eligibility};
use equipoise_monitor::{Sample, Utilisation};
use equipoise_session::config::{PoolConfig, SessionConfig};
use equipoise_session::dispatch::PeerTls;
use equipoise_session::registry::{BackendState, ClassCounts, RegistryHandle, class_counts};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::meter::{ClassMeter, Counted, Meter};
use self::peers::Learnt;
use self::premises::Here;
use self::scaling::Scalers;
pub(crate) use self::shares::{PlannedShare, PlannedShares};
use crate::config::{Config, Planning};
use crate::encryption::peer_tls;
use crate::run::cluster::{OpenStore, Seat};
use crate::run::lock;

/// What the configuration says of planning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    planning: Planning,
    /// Pools with `weights = "load"`.
    weighed: BTreeSet<String>,
    /// Pools of the packet level.
    forwarded: BTreeSet<String>,
    /// Backends that the file lists, by pool.
    listed: BTreeMap<String, BTreeSet<String>>,
    /// The pool of the local application, if there is a front door in node mode.
    application: Option<Arc<str>>,
}

impl Wish {
    fn of(config: &Config) -> Wish {
        let weighed = config.session.pools.iter().filter(|pool| pool.weights_by_load);
        let weighed = weighed.map(|pool| pool.name.to_string()).collect();
        let forwarded = config.packet.vips.iter().map(|vip| vip.pool.to_string()).collect();
        let pools = config.session.pools.iter();
        let listed = |pool: &PoolConfig| {
            let names = pool.backends.iter().map(|it| it.name.to_string());
            (pool.name.to_string(), names.collect())
        };
        let listed = pools.map(listed).collect();
        let node = config.session.front_doors.iter().find(|door| door.dispatch.is_some());
        let application = node.map(|door| Arc::clone(&door.pool));
        Wish { planning: config.planning.clone(), weighed, forwarded, listed, application }
    }

    /// Whether a pool's weights are planned.
    fn weighs(&self, pool: &str) -> bool {
        self.weighed.contains(pool)
    }

    /// Whether anything of a pool is planned.
    fn plans(&self, pool: &str) -> bool {
        self.weighs(pool) || self.planning.elastic.contains_key(pool)
    }

    /// Names that are answered here by load, with the members that each may resolve to.
    fn names(&self) -> BTreeMap<String, BTreeSet<String>> {
        let names = self.planning.names.iter();
        names.map(|(zone, nodes)| (zone.clone(), nodes.values().cloned().collect())).collect()
    }

    fn asks_for_a_controller(&self) -> bool {
        !self.weighed.is_empty() || !self.planning.elastic.is_empty()
    }
}

/// All of it.
pub(crate) struct Planner {
    instance: Arc<str>,
    registry: RegistryHandle,
    recorder: Arc<Recorder>,
    period: Duration,
    /// Folder and period hold until the process ends.
    state: Option<std::path::PathBuf>,
    /// This machine's part in a cluster; it holds until the process ends, too.
    seat: Seat,
    wish: watch::Sender<Arc<Wish>>,
    scalers: Arc<Scalers>,
    utilisation: watch::Receiver<Option<Utilisation>>,
    applied: watch::Sender<Option<Edition>>,
    /// What the cluster says of this node's peers.
    learnt: watch::Sender<Learnt>,
    /// How this node encrypts what goes between it and its peers, once that is known.
    tls: watch::Sender<Option<PeerTls>>,
    /// In a cluster: the newest instructions, whoever planned them.
    newest: watch::Sender<Arc<Instructions>>,
    /// Backends that drain because they are to leave, by pool and name.
    leaving: Mutex<BTreeSet<(String, String)>>,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
    active: Mutex<Active>,
    _sampling: monitor::Sampling,
}

/// The controller that runs, if one does, or why none does.
enum Active {
    Unasked,
    Failed(String),
    Running(Box<RunningController>),
}

struct RunningController {
    controller: Controller,
    store: OpenStore,
    /// What serves the cluster's nodes, if there is one.
    server: Option<ClusterServer>,
    following: JoinHandle<()>,
    scaling: JoinHandle<()>,
}

/// Glances at what is in flight in a period.
const GLANCES: u32 = 10;
/// Between two glances, at least.
const GLANCE_MIN: Duration = Duration::from_millis(10);
/// Periods between two writes of a plan that says to do the same, with the embedded store: a crash between them forgets
/// how far weights have moved, and a disk is not written every second for ever.
const WRITE_PERIODS: u32 = 10;

/// Between two tries of a cluster's controller to start.
const TRY_AGAIN: Duration = Duration::from_secs(2);

impl Planner {
    /// Starts measuring, and the controller if the configuration asks for one.
    pub(crate) async fn start(
        config: &Config,
        registry: RegistryHandle,
    ) -> anyhow::Result<Arc<Planner>> {
        let period = config.planning.policy.period();
        let sampling = monitor::start(period).context("cannot start the monitor's thread");
        let (sampling, utilisation) = sampling?;
        let instance: Arc<str> = place::plain(&config.instance.name).into();
        let file = place::store_file(config.planning.state.as_deref(), &instance);
        let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let seat = Seat::take(config, &instance)?;
        let member = seat.cluster().map(|_| Arc::clone(&instance));
        let tls = seat.client().map(|client| peer_tls(client.peer_credentials()));
        let planner = Arc::new(Planner {
            seat,
            instance,
            registry,
            recorder: Arc::new(Recorder::default()),
            period,
            state: config.planning.state.clone(),
            wish: watch::channel(Arc::default()).0,
            scalers: Arc::new(Scalers::new(folder, member)),
            utilisation,
            applied: watch::channel(None).0,
            learnt: watch::channel(Learnt::default()).0,
            tls: watch::channel(tls).0,
            newest: watch::channel(Arc::default()).0,
            leaving: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            active: Mutex::new(Active::Unasked),
            _sampling: sampling,
        });
        if let Some(client) = planner.seat.client() {
            tokio::spawn(planner.follower().follow(client.instructions()));
            let (scalers, newest) = (Arc::clone(&planner.scalers), planner.newest.clone());
            tokio::spawn(follow::rosters(scalers, client.instructions(), newest));
        }
        tokio::spawn(Arc::clone(&planner).report());
        planner.follow(config).await;
        tokio::spawn(Arc::clone(&planner).try_again());
        Ok(planner)
    }

    /// Goes over to this configuration.
    pub(crate) async fn follow(&self, config: &Config) {
        let _one = self.changing.lock().await;
        if self.seat.cluster() != config.cluster.as_ref() {
            tracing::warn!("[cluster] changed: what it says now takes a restart");
        }
        let wish = Arc::new(Wish::of(config));
        let asks = match &self.seat {
            Seat::Alone => wish.asks_for_a_controller(),
            Seat::Controller(_) => true,
            Seat::Node(_) => false,
        };
        if let Some(client) = self.seat.client() {
            client.want_names(!wish.planning.names.is_empty());
        }
        self.wish.send_replace(Arc::clone(&wish));
        self.scalers.follow(&wish).await;
        let runs = matches!(&*lock(&self.active), Active::Running(_));
        match (asks, runs) {
            (true, false) => self.start_controller().await,
            (false, _) => self.stop_controller().await,
            (true, true) => {}
        }
    }

    /// Steps down, if this process leads.
    pub(crate) async fn stop(&self) {
        let _one = self.changing.lock().await;
        self.stop_controller().await;
    }

    /// Ends what was made for elastic pools and does not outlive this process.
    pub(crate) async fn stop_scalers(&self) {
        self.scalers.stop().await;
    }

    /// In a cluster: the newest instructions, blank before there are any.
    pub(crate) fn newest(&self) -> watch::Receiver<Arc<Instructions>> {
        self.newest.subscribe()
    }

    /// What is planned of the names that are answered here by load.
    pub(crate) fn shares(&self) -> PlannedShares {
        let newest = self.newest.borrow().clone();
        shares::planned(&self.wish.borrow().planning.names, &newest)
    }

    /// The configuration, with what was made for elastic pools, and with the peers that the cluster has.
    pub(crate) fn with_made(&self, config: &SessionConfig) -> SessionConfig {
        let mut config = self.scalers.with_made(config);
        self.learnt.borrow().add_to(&mut config);
        if let Some(tls) = &*self.tls.borrow() {
            peers::encrypt(&mut config, tls);
        }
        config
    }

    /// When it has changed how this node encrypts.
    pub(crate) fn tls(&self) -> watch::Receiver<Option<PeerTls>> {
        self.tls.subscribe()
    }

    /// When what is known of this node's peers has changed.
    pub(crate) fn peers(&self) -> watch::Receiver<Learnt> {
        self.learnt.subscribe()
    }

    fn follower(&self) -> follow::Follower {
        follow::Follower {
            node: Arc::clone(&self.instance),
            registry: self.registry.clone(),
            wish: self.wish.subscribe(),
            applied: self.applied.clone(),
            learnt: self.learnt.clone(),
        }
    }

    /// When what is made for elastic pools has changed.
    pub(crate) fn made(&self) -> watch::Receiver<u64> {
        self.scalers.changes()
    }

    /// Drains who is to leave, once it is in its pool, and gives new work to who is needed again.
    pub(crate) async fn drain_leaving(&self) {
        let leaving: BTreeSet<(String, String)> = self.scalers.draining().into_iter().collect();
        let before = std::mem::replace(&mut *lock(&self.leaving), leaving.clone());
        let wanted = leaving.iter().map(|one| (one, AdminState::Drain));
        // Those that are needed again, of which the pool has those that have not left.
        let again = before.difference(&leaving).map(|one| (one, AdminState::Up));
        for ((pool, backend), admin) in again.chain(wanted) {
            if let Err(error) = self.registry.set_admin(pool, backend, admin).await {
                tracing::debug!(%error, "who is to drain is not there");
            }
        }
    }

    /// The controller that runs here.
    ///
    /// # Errors
    /// Why none does, in words.
    pub(crate) fn controller(&self) -> Result<ControllerHandle, String> {
        match &*lock(&self.active) {
            Active::Running(running) => Ok(running.controller.handle()),
            Active::Failed(why) => Err(format!("the controller does not run: {why}")),
            Active::Unasked if self.seat.client().is_some() => {
                Err("this machine is a node of a cluster: ask on a controller's".to_string())
            }
            Active::Unasked => Err("nothing is planned: no pool has weights = \"load\", \
                                    and none is elastic"
                .to_string()),
        }
    }

    async fn start_controller(&self) {
        let file = place::store_file(self.state.as_deref(), &self.instance);
        let etcd = self.seat.etcd();
        let opened = match etcd {
            Some(etcd) => OpenStore::etcd(etcd).await,
            None => place::open(&file).await,
        };
        let started = match opened {
            Ok(store) => self.run(store).await,
            Err(error) => Err(error),
        };
        let active = match started {
            Ok(running) => {
                let store =
                    etcd.map_or_else(|| file.display().to_string(), |it| it.endpoints.join(", "));
                tracing::info!(store, "controller");
                Active::Running(Box::new(running))
            }
            Err(error) => {
                let what_next = match self.seat {
                    Seat::Controller(_) => "it is tried again every few seconds",
                    _ => "reload when this is mended",
                };
                tracing::error!(
                    "the controller does not run: {error:#}. Pools keep the weights that they have; \
                     {what_next}"
                );
                Active::Failed(format!("{error:#}"))
            }
        };
        *lock(&self.active) = active;
    }

    /// A cluster's controller whose store was away at the start, or whose address was in use.
    async fn try_again(self: Arc<Self>) {
        while let Seat::Controller(_) = self.seat {
            tokio::time::sleep(TRY_AGAIN).await;
            let _one = self.changing.lock().await;
            let failed = matches!(&*lock(&self.active), Active::Failed(_));
            if failed {
                self.start_controller().await;
            }
        }
    }

    async fn run(&self, store: OpenStore) -> anyhow::Result<RunningController> {
        let source = Arc::new(Here::new(
            self.registry.clone(),
            self.wish.subscribe(),
            Arc::clone(&self.scalers),
        ));
        let options = ControllerOptions {
            smoothing: Smoothing { period: self.period, ..Smoothing::default() },
            // Other controllers and their nodes go by what is written.
            write_every: match self.seat.etcd() {
                Some(_) => Duration::ZERO,
                None => self.period * WRITE_PERIODS,
            },
            ..ControllerOptions::new(&*self.instance)
        };
        let recorder = Arc::clone(&self.recorder);
        let shared = Arc::clone(&store.store);
        let controller = Controller::start(options, shared.clone(), source, recorder)?;
        let intake = Arc::new(controller.handle());
        let server = match self.seat.serve(&self.instance, shared, intake).await {
            Ok(server) => server,
            Err(error) => {
                controller.stop().await;
                store.close().await;
                return Err(error);
            }
        };
        if let Some(server) = &server {
            self.tls.send_replace(Some(peer_tls(server.peer_credentials())));
        }
        let instructions = controller.handle().instructions();
        let following = tokio::spawn(self.follower().follow(instructions));
        let (handle, scalers) = (controller.handle(), Arc::clone(&self.scalers));
        let scaling = match &self.seat {
            Seat::Alone => tokio::spawn(follow::steps(handle, scalers)),
            _ => {
                let newest = self.newest.clone();
                tokio::spawn(follow::rosters(scalers, handle.instructions(), newest))
            }
        };
        Ok(RunningController { controller, store, server, following, scaling })
    }

    async fn stop_controller(&self) {
        let active = std::mem::replace(&mut *lock(&self.active), Active::Unasked);
        if let Active::Running(running) = active {
            running.following.abort();
            running.scaling.abort();
            // Nodes go to another controller at once.
            if let Some(server) = running.server {
                server.stop().await;
            }
            running.controller.stop().await;
            running.store.close().await;
        }
    }

    /// Each period: what this node does and sees, for the controller or at least for the history.
    async fn report(self: Arc<Self>) {
        let mut utilisation = self.utilisation.clone();
        let (mut meter, mut classes) = (Meter::default(), ClassMeter::default());
        let mut glances = tokio::time::interval((self.period / GLANCES).max(GLANCE_MIN));
        glances.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let newest = self.newest.subscribe();
        let seen = self.seat.look_out(&self.instance, newest, self.period);
        loop {
            let controller = self.controller().ok();
            let reports = controller.is_some() || self.seat.client().is_some();
            tokio::select! {
                changed = utilisation.changed() => if changed.is_err() { return },
                _ = glances.tick(), if reports => {
                    meter.glance(&self.counted());
                    continue;
                }
            }
            let Some(used) = utilisation.borrow_and_update().clone() else { continue };
            if !reports {
                self.recorder.record(&self.instance, Sample::from(&used));
                continue;
            }
            let wish = self.wish.borrow().clone();
            self.scalers.let_go(&self.registry, &wish).await;
            let place = self.seat.place().await;
            let requests = self.requests();
            let report = NodeReport {
                dispatches: wish.application.as_ref().is_some_and(|pool| self.serves(pool)),
                classes: classes.settle(Instant::now(), &requests),
                version: env!("CARGO_PKG_VERSION").into(),
                capacity: cores(),
                load: NodeReport::load_of(&used),
                pools: self.scalers.sized(meter.settle(Instant::now(), &self.counted())),
                applied: *self.applied.borrow(),
                making: self.scalers.making(),
                drained: self.scalers.drained(&self.registry, &wish),
                names: wish.names(),
                reachable: seen.as_ref().map(|seen| seen.borrow().clone()).unwrap_or_default(),
                ..place
            };
            if let Some(client) = self.seat.client() {
                client.report(&report);
            }
            self.tell_peers(&report);
            let Some(controller) = controller else { continue };
            if let Err(error) = controller.report(&self.instance, report).await {
                tracing::debug!(%error, "the controller did not take this node's report");
            }
        }
    }

    /// To the cluster's other controllers.
    fn tell_peers(&self, report: &NodeReport) {
        if let Active::Running(running) = &*lock(&self.active)
            && let Some(server) = &running.server
        {
            server.tell_peers(report);
        }
    }

    /// Requests by class so far, where this node dispatches.
    fn requests(&self) -> PerClass<ClassCounts> {
        let view = self.registry.stats();
        let doors: Vec<_> = view.front_doors.iter().map(|door| class_counts(&door.stats)).collect();
        PerClass::from_fn(|class| {
            let sum = |of: fn(&ClassCounts) -> u64| doors.iter().map(|door| of(&door[class])).sum();
            ClassCounts {
                arrived: sum(|it| it.arrived),
                delegated: sum(|it| it.delegated),
                given: sum(|it| it.given),
                refused: sum(|it| it.refused),
                taken: sum(|it| it.taken),
                bytes: sum(|it| it.bytes),
            }
        })
    }

    /// What the cluster API took, refused and dropped.
    fn served(&self) -> Vec<(String, u64)> {
        match &*lock(&self.active) {
            Active::Running(running) => {
                running.server.iter().flat_map(ClusterServer::counts).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether requests can be done here: a node without its application would look idle, and be delegated to.
    fn serves(&self, application: &str) -> bool {
        let pools = self.registry.pools().borrow().clone();
        let pool = pools.iter().find(|pool| &*pool.name == application);
        pool.is_some_and(|pool| {
            let fit = |it: &BackendState| eligibility(it.admin, it.health, it.weight).is_eligible();
            pool.backends.iter().any(fit)
        })
    }

    /// The counters of the backends of pools that are planned.
    fn counted(&self) -> Vec<Counted> {
        let (view, wish) = (self.registry.stats(), self.wish.borrow().clone());
        let mut counted = Vec::new();
        for pool in view.pools.iter().filter(|pool| wish.plans(&pool.name)) {
            for backend in &pool.backends {
                let time = backend.live.stats.histogram(|shard| &shard.response_time);
                counted.push(Counted {
                    pool: pool.name.clone(),
                    backend: backend.name.clone(),
                    in_flight: backend.live.in_flight.load(std::sync::atomic::Ordering::Relaxed),
                    answers: time.counts.iter().sum(),
                    answer_time: Duration::from_micros(time.sum_us),
                });
            }
        }
        counted
    }
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}
