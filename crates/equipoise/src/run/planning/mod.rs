//! Planning in this process: what it measures of itself, the controller while a pool asks for one, and doing what is
//! planned.
//!
//! ```text
//! monitor (thread) --utilisation--> reports, each period --> controller --instructions--> weights of pools
//! registry's counters --meter--^                ^-- premises: file and registry
//! ```
//!
//! Without a pool that asks, only the monitor runs, and the history of utilisation is kept. A controller that cannot
//! start stops nothing: pools keep the weights that they have, elastic ones the number of their backends, which are made
//! if they are not there, and `equipoise plan` says why.

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
pub(in crate::run) mod place;
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
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) use self::office::{wire_members, wire_token};

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
use crate::config::Config;
use crate::encryption::peer_tls;
use crate::run::cluster::{OpenStore, Seat};
use crate::run::lock;

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
    /// Elastic pools that the controllers declare.
    declared: Mutex<Declared>,
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
    /// What clients bring to this node, for the controllers.
    sources: Mutex<SourceRates>,
    /// This process among the balancers that share limits.
    balancer: Balancer,
    /// One change at a time.
    changing: tokio::sync::Mutex<()>,
    active: Mutex<Active>,
    /// Since when a controller is to run here, if one is.
    asked_since: Mutex<Option<Instant>>,
    /// That the controller does not run, as it was said last.
    complaint: Mutex<Complaint>,
    began: Instant,
    sampling: monitor::Sampling,
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
            // What an earlier process kept holds from the first request on.
            let now = client.instructions().borrow().clone();
            planner.scalers.obey(now).await;
        }
        match planner.seat {
            Seat::Alone => drop(tokio::spawn(Arc::clone(&planner).rest())),
            _ => drop(tokio::spawn(Arc::clone(&planner).try_again())),
        }
        Ok(planner)
    }

    /// Goes over to this configuration.
    pub(crate) async fn follow(&self, config: &Config) {
        let _one = self.changing.lock().await;
        if self.seat.cluster() != config.cluster.as_ref() {
            tracing::warn!("[cluster] changed: what it says now takes a restart");
        }
        // Whoever reloads wants to know.
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

    /// Whether a controller is to run here.
    fn asks(&self, wish: &Wish) -> bool {
        match &self.seat {
            Seat::Alone => wish.plans_any_pool() || self.scalers.is_ending(),
            Seat::Controller(_) => true,
            Seat::Node(_) => false,
        }
    }

    /// Stops the controller of a machine of its own when the last backends of the last pool that was planned are gone.
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

    /// Whether this process is a member of a cluster.
    pub(crate) fn is_in_cluster(&self) -> bool {
        !matches!(self.seat, Seat::Alone)
    }

    /// Reports from now on that clients bring this.
    pub(crate) fn tell_sources(&self, rates: SourceRates) {
        *lock(&self.sources) = rates;
    }

    /// What is planned of the names that are answered here by load.
    pub(crate) fn shares(&self) -> PlannedShares {
        let newest = self.newest.borrow().clone();
        shares::planned(&self.wish.borrow().planning.names, &newest)
    }

    /// The configuration, with what was made for elastic pools, and with the peers that the cluster has.
    pub(crate) fn with_made(&self, config: &SessionConfig) -> SessionConfig {
        let mut config = self.scalers.with_made(config, &self.wish.borrow());
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
            Active::Failed(why) => {
                let held = self.scalers.held_in_words();
                Err(format!("the controller does not run: {why}{held}"))
            }
            Active::Unasked if self.seat.client().is_some() => {
                Err("this machine is a node of a cluster: ask on a controller's".to_string())
            }
            Active::Unasked => Err("nothing is planned: no pool has weights = \"load\", \
                                    and none is elastic"
                .to_string()),
        }
    }

    /// The store's file, or etcd's endpoints.
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
            None => place::open(&file).await,
        };
        let started = match opened {
            Ok(store) => self.run(store).await,
            Err(error) => Err(error),
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
                        "the controller does not run: {error}. Pools keep the weights that they have; \
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
            // Nodes go to another controller at once.
            if let Some(server) = running.server {
                server.stop().await;
            }
            running.controller.stop().await;
            running.store.close().await;
            self.scalers.forget_edition();
        }
    }

    /// What the cluster API took, refused and dropped, and the bytes that it sent to nodes; `None` without one.
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
