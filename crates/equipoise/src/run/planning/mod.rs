//! Planning in this process: measures load, runs the controller if the configuration asks for one,
//! and applies plans.
//!
//! ```text
//! monitor (thread) --utilisation--> reports, each period --> controller --instructions--> weights of pools
//! registry's counters --meter--^                ^-- premises: file and registry
//! ```
//!
//! If no pool asks for a controller, only the monitor runs and keeps a history of utilisation. A
//! controller that cannot start does not stop traffic: pools keep their weights, and elastic pools
//! keep their number of backends, which are created again if they are missing. `equipoise plan`
//! shows the reason.

mod complaint;
mod condition;
mod declared;
mod follow;
mod held;
mod limits;
mod meter;
pub(crate) mod monitor;
mod office;
mod operator;
mod peers;
mod premises;
mod report;
mod rosters;
mod saved;
mod scaling;
mod shares;
mod unscaled;
mod views;
mod wish;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use equipoise_cluster::{ClusterServer, Journal, NodeClient};
use equipoise_controller::{
    Controller, ControllerHandle, ControllerOptions, Edition, Instructions, Intake, Recorder,
    SourceRates,
};
use equipoise_core::AdminState;
use equipoise_core::load::Smoothing;
use equipoise_monitor::Utilisation;
use equipoise_session::config::SessionConfig;
use equipoise_session::dispatch::PeerTls;
use equipoise_session::registry::RegistryHandle;
use equipoise_store::{OpenStore, place};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::complaint::Complaint;
use self::declared::Declared;
use self::limits::Balancer;
use self::peers::Learnt;
use self::premises::Here;
pub(in crate::run) use self::report::{LEAVE_PATIENCE, capacity};
use self::scaling::Scalers;
pub(crate) use self::shares::{PlannedShare, PlannedShares};
pub(in crate::run) use self::views::machine;
use self::wish::Wish;
use crate::run::cluster::Seat;
use equipoise_basics::lock;
use equipoise_config::Config;
use equipoise_config::encryption::peer_tls;

/// The planning side of this process.
pub(crate) struct Planner {
    instance: Arc<str>,
    registry: RegistryHandle,
    recorder: Arc<Recorder>,
    period: Duration,
    /// State folder. Like the period, it is fixed until the process ends.
    state: Option<std::path::PathBuf>,
    /// This machine's part in a cluster; fixed until the process ends.
    seat: Seat,
    wish: watch::Sender<Arc<Wish>>,
    /// Elastic pools that the controllers declare.
    declared: Mutex<Declared>,
    scalers: Arc<Scalers>,
    utilisation: watch::Receiver<Option<Utilisation>>,
    applied: watch::Sender<Option<Edition>>,
    /// Peers and secret that the cluster has for this node.
    learnt: watch::Sender<Learnt>,
    /// Certificates for connections between nodes, once known.
    tls: watch::Sender<Option<PeerTls>>,
    /// In a cluster: the newest instructions, from any controller.
    newest: watch::Sender<Arc<Instructions>>,
    /// Backends that drain before their removal, by pool and name.
    leaving: Mutex<BTreeSet<(String, String)>>,
    /// Load that clients bring to this node, for the reports.
    sources: Mutex<SourceRates>,
    /// Identity of this process among the balancers that share limits.
    balancer: Balancer,
    /// Serializes changes of the configuration and of the controller.
    changing: tokio::sync::Mutex<()>,
    active: Mutex<Active>,
    /// When the configuration first asked for a controller that runs here.
    asked_since: Mutex<Option<Instant>>,
    /// Throttles the log of a controller that does not run.
    complaint: Mutex<Complaint>,
    began: Instant,
    sampling: monitor::Sampling,
}

/// The state of the controller in this process.
enum Active {
    Unasked,
    Failed(String),
    Running(Box<RunningController>),
}

struct RunningController {
    controller: Controller,
    store: OpenStore,
    /// Server for the cluster's nodes, if this controller serves any.
    server: Option<ClusterServer>,
    following: JoinHandle<()>,
    scaling: JoinHandle<()>,
}

/// Periods between writes of an unchanged plan to the embedded store. A crash between two writes
/// loses the progress of weights; a write each period would wear the disk.
const WRITE_PERIODS: u32 = 10;

/// Interval between attempts to start a cluster's controller.
const TRY_AGAIN: Duration = Duration::from_secs(2);

impl Planner {
    /// Starts the monitor, and the controller if the configuration asks for one.
    pub(crate) async fn start(
        config: &Config,
        registry: RegistryHandle,
        journal: Arc<dyn Journal>,
    ) -> anyhow::Result<Arc<Planner>> {
        let period = config.planning.policy.period();
        let sampling = monitor::start(period, config.planning.link_speeds.clone());
        let (sampling, utilisation) = sampling.context("cannot start the monitor's thread")?;
        let instance: Arc<str> = place::plain(&config.instance.name).into();
        let file = place::store_file(config.planning.state.as_deref(), &instance);
        let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let seat = Seat::take(config, &instance, journal)?;
        let is_in_cluster = seat.cluster().is_some();
        let kept = seat.client().map(NodeClient::status).filter(|status| status.is_kept);
        let kept = kept.and_then(|status| status.edition);
        let tls = seat.client().map(|client| peer_tls(client.peer_credentials()));
        let own = Arc::clone(&instance);
        let planner = Arc::new(Planner {
            seat,
            instance,
            registry,
            recorder: Arc::new(Recorder::default()),
            period,
            state: config.planning.state.clone(),
            wish: watch::channel(Arc::default()).0,
            declared: Mutex::default(),
            scalers: Arc::new(Scalers::new(folder, Arc::clone(&own), is_in_cluster, kept)),
            utilisation,
            applied: watch::channel(None).0,
            learnt: watch::channel(Learnt::default()).0,
            tls: watch::channel(tls).0,
            newest: watch::channel(Arc::default()).0,
            leaving: Mutex::default(),
            sources: Mutex::default(),
            balancer: Balancer::new(),
            changing: tokio::sync::Mutex::default(),
            active: Mutex::new(Active::Unasked),
            asked_since: Mutex::default(),
            complaint: Mutex::default(),
            began: Instant::now(),
            sampling,
        });
        if let Some(client) = planner.seat.client() {
            tokio::spawn(planner.follower().follow(client.instructions()));
            let (scalers, newest) = (Arc::clone(&planner.scalers), planner.newest.clone());
            tokio::spawn(follow::evictions(Arc::clone(&scalers), client.is_evicted()));
            tokio::spawn(follow::rosters(scalers, client.instructions(), Some(newest), None));
            tokio::spawn(Arc::clone(&planner).watch_unscaled());
            tokio::spawn(Arc::clone(&planner).watch_declared());
            tokio::spawn(Arc::clone(&planner).follow_balancers());
        }
        tokio::spawn(Arc::clone(&planner).report());
        planner.follow(config).await;
        if let Some(client) = planner.seat.client() {
            // Instructions that an earlier process saved apply from the first request on.
            let now = client.instructions().borrow().clone();
            planner.scalers.obey(now).await;
        }
        match planner.seat {
            Seat::Alone => drop(tokio::spawn(Arc::clone(&planner).rest())),
            _ => drop(tokio::spawn(Arc::clone(&planner).try_again())),
        }
        Ok(planner)
    }

    /// Applies a new configuration.
    pub(crate) async fn follow(&self, config: &Config) {
        let _one = self.changing.lock().await;
        if self.seat.cluster() != config.cluster.as_ref() {
            tracing::warn!("[cluster] changed: restart equipoise to apply it");
        }
        // After a reload, the operator needs to see the error again.
        lock(&self.complaint).is_over();
        let wish = Arc::new(self.with_declared(Wish::of(config)).await);
        if let Some(client) = self.seat.client() {
            client.want_names(wish.answers);
        }
        if self.wish.borrow().planning.link_speeds != wish.planning.link_speeds {
            self.sampling.set_link_speeds(wish.planning.link_speeds.clone());
        }
        self.wish.send_replace(Arc::clone(&wish));
        self.scalers.follow(&wish).await;
        let asks = self.asks(&wish);
        let since = lock(&self.asked_since).filter(|_| asks);
        *lock(&self.asked_since) = since.or_else(|| asks.then(Instant::now));
        let runs = matches!(&*lock(&self.active), Active::Running(_));
        match (asks, runs) {
            (true, false) => self.start_controller().await,
            (false, _) => self.stop_controller().await,
            (true, true) => {}
        }
    }

    /// Whether a controller should run here.
    fn asks(&self, wish: &Wish) -> bool {
        match &self.seat {
            Seat::Alone => wish.plans_any_pool() || self.scalers.is_ending(),
            Seat::Controller(_) => true,
            Seat::Node(_) => false,
        }
    }

    /// Stops the controller of a single machine once the last elastic pool is removed from the file
    /// and its backends are gone.
    async fn rest(self: Arc<Self>) {
        let mut changes = self.scalers.changes();
        while changes.changed().await.is_ok() {
            let _one = self.changing.lock().await;
            let wish = self.wish.borrow().clone();
            if !self.asks(&wish) {
                self.stop_controller().await;
            }
        }
    }

    /// Stops the controller. A leader steps down first.
    pub(crate) async fn stop(&self) {
        let _one = self.changing.lock().await;
        self.stop_controller().await;
    }

    /// Stops the scalers, which end the backends that do not outlive this process.
    pub(crate) async fn stop_scalers(&self) {
        self.scalers.stop().await;
    }

    /// In a cluster: the newest instructions. They are blank before the first ones arrive.
    pub(crate) fn newest(&self) -> watch::Receiver<Arc<Instructions>> {
        self.newest.subscribe()
    }

    /// Whether this process is a member of a cluster.
    pub(crate) fn is_in_cluster(&self) -> bool {
        !matches!(self.seat, Seat::Alone)
    }

    /// Sets the load of clients that the following reports include.
    pub(crate) fn tell_sources(&self, rates: SourceRates) {
        *lock(&self.sources) = rates;
    }

    /// Planned shares of the names that this process answers by load.
    pub(crate) fn shares(&self) -> PlannedShares {
        let newest = self.newest.borrow().clone();
        shares::planned(&self.wish.borrow().planning.names, &newest)
    }

    /// The configuration with the backends of elastic pools and the peers of the cluster.
    pub(crate) fn with_made(&self, config: &SessionConfig) -> SessionConfig {
        let mut config = self.scalers.with_made(config, &self.wish.borrow());
        self.learnt.borrow().add_to(&mut config);
        if let Some(tls) = &*self.tls.borrow() {
            peers::encrypt(&mut config, tls);
        }
        config
    }

    /// Changes of the certificates for connections between nodes.
    pub(crate) fn tls(&self) -> watch::Receiver<Option<PeerTls>> {
        self.tls.subscribe()
    }

    /// Changes of this node's peers and their secret.
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

    /// Changes of the backends of elastic pools.
    pub(crate) fn made(&self) -> watch::Receiver<u64> {
        self.scalers.changes()
    }

    /// Drains backends that will be removed, and enables those that are needed again.
    pub(crate) async fn drain_leaving(&self) {
        let leaving: BTreeSet<(String, String)> = self.scalers.draining().into_iter().collect();
        let before = std::mem::replace(&mut *lock(&self.leaving), leaving.clone());
        let wanted = leaving.iter().map(|one| (one, AdminState::Drain));
        // Backends that are needed again, as far as the pool still has them.
        let again = before.difference(&leaving).map(|one| (one, AdminState::Up));
        for ((pool, backend), admin) in again.chain(wanted) {
            if let Err(error) = self.registry.set_admin(pool, backend, admin).await {
                tracing::debug!(%error, "cannot drain: the backend does not exist");
            }
        }
    }

    /// The controller of this process.
    ///
    /// # Errors
    /// The reason why none runs.
    pub(crate) fn controller(&self) -> Result<ControllerHandle, String> {
        match &*lock(&self.active) {
            Active::Running(running) => Ok(running.controller.handle()),
            Active::Failed(why) => {
                let held = self.scalers.held_in_words();
                Err(format!("the controller does not run: {why}{held}"))
            }
            Active::Unasked if self.seat.client().is_some() => {
                Err("this machine is a node of a cluster: run the command on a controller"
                    .to_string())
            }
            Active::Unasked => Err("nothing is planned here: no pool has weights = \"load\" and \
                                    none has a [pool.elastic] table"
                .to_string()),
        }
    }

    /// The store's file, or the endpoints of etcd.
    fn store_name(&self) -> String {
        match self.seat.etcd() {
            Some(etcd) => etcd.endpoints.join(", "),
            None => place::store_file(self.state.as_deref(), &self.instance).display().to_string(),
        }
    }

    async fn start_controller(&self) {
        let file = place::store_file(self.state.as_deref(), &self.instance);
        let etcd = self.seat.etcd();
        let opened = match etcd {
            Some(etcd) => OpenStore::etcd(etcd).await,
            None => OpenStore::embedded(&file).await,
        };
        let started = match opened {
            Ok(store) => self.run(store).await,
            Err(error) => Err(error.into()),
        };
        let active = match started {
            Ok(running) => {
                lock(&self.complaint).is_over();
                let store = self.store_name();
                tracing::info!(store, "controller");
                self.scalers.let_scale();
                Active::Running(Box::new(running))
            }
            Err(error) => {
                let what_next = self.what_next();
                let error = format!("{error:#}");
                if let Some(again) = lock(&self.complaint).comes(&error, self.began.elapsed()) {
                    tracing::error!(
                        again,
                        "the controller does not run: {error}. Pools keep their weights; \
                         {what_next}"
                    );
                }
                if let Seat::Alone = self.seat {
                    let wish = self.wish.borrow().clone();
                    self.scalers.hold(&wish).await;
                }
                Active::Failed(error)
            }
        };
        *lock(&self.active) = active;
    }

    /// Retries the start of a cluster's controller after its store or address was not available.
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
            // Other controllers and their nodes follow the plan in the shared store.
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
        let (newest, alone) = match &self.seat {
            Seat::Alone => (None, Some(handle.clone())),
            _ => (Some(self.newest.clone()), None),
        };
        let scaling = tokio::spawn(follow::rosters(scalers, handle.instructions(), newest, alone));
        Ok(RunningController { controller, store, server, following, scaling })
    }

    async fn stop_controller(&self) {
        self.scalers.let_scale();
        let active = std::mem::replace(&mut *lock(&self.active), Active::Unasked);
        if let Active::Running(running) = active {
            running.following.abort();
            running.scaling.abort();
            // The nodes connect to another controller at once.
            if let Some(server) = running.server {
                server.stop().await;
            }
            running.controller.stop().await;
            running.store.close().await;
            self.scalers.forget_edition();
        }
    }

    /// Counts of requests to the cluster API (accepted, refused, dropped), and bytes sent to nodes.
    /// `None` if this process has no such API.
    fn served(&self) -> Option<(Vec<(String, u64)>, u64)> {
        match &*lock(&self.active) {
            Active::Running(running) => {
                let server = running.server.as_ref()?;
                Some((server.counts().into_iter().collect(), server.sent_bytes()))
            }
            _ => None,
        }
    }
}
