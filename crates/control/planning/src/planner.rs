//! The planning side of this process.

mod client_limits;
mod controller;
mod declared;
mod limits;
mod premises;
mod questions;
mod report;
mod unscaled;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use equipoise_cluster::{
    CertificateDesk, CertificateQuestions, Cluster, ClusterServer, Journal, NodeClient,
    PeerCredentials,
};
use equipoise_controller::{Controller, Edition, Instructions, Recorder, SourceRates};
use equipoise_core::AdminState;
use equipoise_monitor::Utilisation;
use equipoise_store::{OpenStore, SealedStore, place};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::declared::Declared;
use self::limits::Balancer;
use crate::complaint::Complaint;
use crate::error::PlanningError;
use crate::follow;
use crate::level::{SessionLevel, Steered};
use crate::monitor;
use crate::peers::Learnt;
use crate::planning_config::PlanningConfig;
use crate::rosters::JoinedBackend;
use crate::scaling::Scalers;
use crate::seat::Seat;
use crate::shares::{self, PlannedShares};

pub use self::declared::ReadDeclaration;
pub use self::questions::{ControllerNow, NoOffice};
pub use self::report::LEAVE_PATIENCE;

/// The input of a planner at its start.
pub struct PlannerOptions {
    /// Name of this instance.
    pub instance: Arc<str>,
    /// The configuration at the start.
    pub config: PlanningConfig,
    /// `[cluster]`; `None`: this machine is alone.
    pub cluster: Option<Cluster>,
    /// The address at which peers reach this node.
    pub front_door: Option<SocketAddr>,
    /// The session level of this process.
    pub level: Arc<dyn SessionLevel>,
    /// Reads elastic pools that the controllers declare.
    pub declarations: Arc<dyn ReadDeclaration>,
    /// For a controller's cluster API: the log of requests, and certificates of front doors for
    /// nodes.
    pub desks: (Arc<dyn Journal>, Arc<dyn CertificateDesk>),
}

/// The planning side of this process.
pub struct Planner {
    instance: Arc<str>,
    level: Arc<dyn SessionLevel>,
    declarations: Arc<dyn ReadDeclaration>,
    recorder: Arc<Recorder>,
    period: Duration,
    /// State folder. Like the period, it is fixed until the process ends.
    state: Option<PathBuf>,
    /// This machine's part in a cluster; fixed until the process ends.
    seat: Seat,
    wish: watch::Sender<Arc<PlanningConfig>>,
    /// Elastic pools that the controllers declare.
    declared: Mutex<Declared>,
    scalers: Arc<Scalers>,
    utilisation: watch::Receiver<Option<Utilisation>>,
    applied: watch::Sender<Option<Edition>>,
    /// Peers and secret that the cluster has for this node.
    learnt: watch::Sender<Learnt>,
    /// Certificates for connections between nodes, once known.
    tls: watch::Sender<Option<PeerCredentials>>,
    /// The store of a cluster's controller while it is open, for certificates.
    sealed: watch::Sender<Option<Arc<SealedStore>>>,
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

impl Planner {
    /// Starts the monitor, and the controller if the configuration asks for one.
    ///
    /// # Errors
    /// [`PlanningError::Monitor`], [`PlanningError::Name`]. A controller that does not start is no
    /// error: [`Planner::controller`] has the reason.
    pub async fn start(options: PlannerOptions) -> Result<Arc<Planner>, PlanningError> {
        let PlannerOptions {
            instance,
            config: wish,
            cluster,
            front_door,
            level,
            declarations,
            desks,
        } = options;
        let period = wish.planning.policy.period();
        let sampling = monitor::start(period, wish.planning.link_speeds.clone());
        let (sampling, utilisation) = sampling.map_err(PlanningError::Monitor)?;
        let instance: Arc<str> = place::plain(&instance).into();
        let file = place::store_file(wish.planning.state.as_deref(), &instance);
        let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let seat = Seat::take(cluster.clone(), front_door, &instance, desks)?;
        let is_in_cluster = seat.cluster().is_some();
        let kept = seat.client().map(NodeClient::status).filter(|status| status.is_kept);
        let kept = kept.and_then(|status| status.edition);
        let tls = seat.client().map(NodeClient::peer_credentials);
        let own = Arc::clone(&instance);
        let planner = Arc::new(Planner {
            seat,
            instance,
            level,
            declarations,
            recorder: Arc::new(Recorder::default()),
            period,
            state: wish.planning.state.clone(),
            wish: watch::channel(Arc::default()).0,
            declared: Mutex::default(),
            scalers: Arc::new(Scalers::new(folder, Arc::clone(&own), is_in_cluster, kept)),
            utilisation,
            applied: watch::channel(None).0,
            learnt: watch::channel(Learnt::default()).0,
            tls: watch::channel(tls).0,
            sealed: watch::channel(None).0,
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
        planner.follow(wish).await;
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
    pub async fn follow(&self, wish: PlanningConfig) {
        let _one = self.changing.lock().await;
        // After a reload, the operator needs to see the error again.
        lock(&self.complaint).is_over();
        let wish = Arc::new(self.with_declared(wish).await);
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

    /// Stops the controller. A leader steps down first.
    pub async fn stop(&self) {
        let _one = self.changing.lock().await;
        self.stop_controller().await;
    }

    /// Stops the scalers, which end the backends that do not outlive this process.
    pub async fn stop_scalers(&self) {
        self.scalers.stop().await;
    }

    /// In a cluster: the newest instructions. They are blank before the first ones arrive.
    pub fn newest(&self) -> watch::Receiver<Arc<Instructions>> {
        self.newest.subscribe()
    }

    /// Whether this process is a member of a cluster.
    pub fn is_in_cluster(&self) -> bool {
        !matches!(self.seat, Seat::Alone)
    }

    /// Sets the load of clients that the following reports include.
    pub fn tell_sources(&self, rates: SourceRates) {
        *lock(&self.sources) = rates;
    }

    /// Planned shares of the names that this process answers by load.
    pub fn shares(&self) -> PlannedShares {
        let newest = self.newest.borrow().clone();
        shares::planned(&self.wish.borrow().planning.names, &newest)
    }

    /// Elastic backends that have joined a pool.
    pub fn joined(&self, pool: &str) -> Vec<JoinedBackend> {
        self.scalers.made(pool)
    }

    /// Certificates for connections between nodes, once known, and their changes.
    pub fn tls(&self) -> watch::Receiver<Option<PeerCredentials>> {
        self.tls.subscribe()
    }

    /// The name of this process in the store and in the cluster.
    pub fn name(&self) -> &Arc<str> {
        &self.instance
    }

    /// The store in which the cluster's controllers share certificates, while it is open. `None`:
    /// this machine is no controller of a cluster.
    pub fn sealed(&self) -> Option<watch::Receiver<Option<Arc<SealedStore>>>> {
        matches!(self.seat, Seat::Controller(_)).then(|| self.sealed.subscribe())
    }

    /// Asks the controllers for certificates; `None`: this machine is no node of a cluster.
    pub fn certificate_questions(&self) -> Option<CertificateQuestions> {
        self.seat.client().map(NodeClient::certificate_questions)
    }

    /// Changes of this node's peers and their secret.
    pub fn peers(&self) -> watch::Receiver<Learnt> {
        self.learnt.subscribe()
    }

    fn follower(&self) -> follow::Follower {
        follow::Follower {
            node: Arc::clone(&self.instance),
            level: Arc::clone(&self.level) as Arc<dyn Steered>,
            wish: self.wish.subscribe(),
            applied: self.applied.clone(),
            learnt: self.learnt.clone(),
        }
    }

    /// Changes of the backends of elastic pools.
    pub fn made(&self) -> watch::Receiver<u64> {
        self.scalers.changes()
    }

    /// Drains backends that will be removed, and enables those that are needed again.
    pub async fn drain_leaving(&self) {
        let leaving: BTreeSet<(String, String)> = self.scalers.draining().into_iter().collect();
        let before = std::mem::replace(&mut *lock(&self.leaving), leaving.clone());
        let wanted = leaving.iter().map(|one| (one, AdminState::Drain));
        // Backends that are needed again, as far as the pool still has them.
        let again = before.difference(&leaving).map(|one| (one, AdminState::Up));
        for ((pool, backend), admin) in again.chain(wanted) {
            if let Err(error) = self.level.set_admin(pool, backend, admin).await {
                tracing::debug!(%error, "cannot drain: the backend does not exist");
            }
        }
    }
}
