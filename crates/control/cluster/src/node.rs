//! A node's side: joins, reports to every controller, follows the instructions of one.

pub(crate) mod credentials;
mod follow;
mod heard;
mod kept;
pub(crate) mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use equipoise_controller::{Edition, Instructions, NodeReport, Tallies};
use hyper::body::Bytes;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::client::{ClientError, Patience, json};
use crate::evicted::Evictions;
use crate::peer::Members;
use crate::token::{JoinToken, NotAToken};
use crate::{ControllerAddress, Name, PeerCredentials, StateFolder};
use credentials::Credentials;
pub(crate) use credentials::load as load_credentials;
pub use heard::HeardTallies;

/// What a node needs to be part of a cluster.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// What it is called.
    pub name: Name,
    /// The controllers, all of them: each gets the reports.
    pub controllers: Vec<ControllerAddress>,
    /// With what it joins, if it has not.
    pub token: Option<TokenSource>,
    /// Where its certificate and key are.
    pub folder: StateFolder,
    /// How long a controller may take.
    pub patience: Patience,
    /// A stream of instructions that is silent for so long is given up; several times a controller's keep-alive.
    pub silence: Duration,
    /// The first pause after all controllers failed, and the longest.
    pub pauses: (Duration, Duration),
    /// Whether instructions are kept in the folder for the next process. Who does nothing by them need not.
    pub keeps: bool,
}

impl NodeOptions {
    /// With the usual times: a controller that hangs is left after 3 s.
    pub fn new(
        name: Name,
        controllers: Vec<ControllerAddress>,
        token: Option<TokenSource>,
        folder: StateFolder,
    ) -> NodeOptions {
        NodeOptions {
            name,
            controllers,
            token,
            folder,
            patience: Patience::default(),
            silence: Duration::from_secs(3),
            pauses: (Duration::from_millis(100), Duration::from_secs(5)),
            keeps: true,
        }
    }
}

/// Where a join token comes from.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// It stands in the configuration.
    Given(JoinToken),
    /// A file has it; read again for each attempt, so that a new one can be put there.
    File(PathBuf),
}

/// Why there is no token to join with.
#[derive(Debug, thiserror::Error)]
pub enum NoToken {
    /// The file is not readable.
    #[error("the join token's file {path} cannot be read")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file has something else.
    #[error("the join token's file {path} has none")]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: NotAToken,
    },
    /// None was given.
    #[error(
        "this node is not in the cluster yet and has no token to join with: make one on a controller (`equipoise cluster token create`) and give it as `cluster.join-token-file`"
    )]
    NotGiven,
}

/// How a node stands to its cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Until when its certificate holds; `None` before it has joined.
    pub certificate_until: Option<SystemTime>,
    /// Why it has not joined, or not renewed.
    pub certificate_problem: Option<String>,
    /// Whose instructions it follows; `None` while there is no controller.
    pub following: Option<String>,
    /// Why it follows nobody, or not the one before.
    pub follow_problem: Option<String>,
    /// The instructions that it goes by.
    pub edition: Option<Edition>,
    /// How long it has gone by them without newer ones.
    pub instructions_age: Option<Duration>,
    /// Whether they are those that an earlier process kept: there have been no newer ones since this one started.
    pub is_kept: bool,
    /// Why they are not kept for the next process.
    pub keep_problem: Option<String>,
    /// Instructions that were older than its own, and were ignored.
    pub stale: u64,
    /// Instructions that it did not understand.
    pub not_understood: u64,
    /// Reports, by controller: each that is configured.
    pub reports: BTreeMap<String, ReportStatus>,
}

impl NodeStatus {
    /// How long ago any controller was last heard; `None` if none was since this process started.
    pub fn heard(&self) -> Option<Duration> {
        self.reports.values().filter_map(|one| one.heard).min()
    }
}

/// How reports to one controller go, and when it was heard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReportStatus {
    /// Those that it took.
    pub taken: u64,
    /// Those that it refused, or that did not arrive.
    pub failed: u64,
    /// Why the last one failed; `None` if it was taken.
    pub problem: Option<String>,
    /// How long ago it was last asked for anything; `None` if it never was.
    pub tried: Option<Duration>,
    /// How long ago anything last came of it, be it a refusal; `None` if nothing ever did.
    pub heard: Option<Duration>,
}

/// What the tasks share.
pub(crate) struct Inner {
    pub(crate) options: NodeOptions,
    pub(crate) credentials: watch::Sender<Option<Arc<Credentials>>>,
    pub(crate) instructions: watch::Sender<Arc<Instructions>>,
    /// Whom controllers have shut out, as they said last.
    pub(crate) evicted: watch::Sender<Evictions>,
    /// Whether a controller refuses this node as evicted.
    pub(crate) is_evicted: watch::Sender<bool>,
    /// Whether it answers names, and so needs to know what is planned of them.
    pub(crate) wants_names: watch::Sender<bool>,
    /// The newest report that is not there yet for a controller is all that waits for it.
    pub(crate) newest_report: watch::Sender<Option<Bytes>>,
    /// Answers of controllers to reports.
    heard: watch::Sender<HeardTallies>,
    /// Older ones are stale, whatever there is.
    floor: Edition,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    status: NodeStatus,
    received: Option<Received>,
    contacts: BTreeMap<String, Contact>,
    /// Controllers that refused this node as evicted when they were asked last.
    refusing: BTreeSet<ControllerAddress>,
}

/// When a controller was last asked, and heard.
#[derive(Clone, Copy, Default)]
struct Contact {
    tried: Option<Instant>,
    heard: Option<Instant>,
}

/// How old instructions were, and when.
#[derive(Clone, Copy)]
struct Received {
    age: Duration,
    at: Instant,
}

impl Received {
    fn age(self) -> Duration {
        self.age + self.at.elapsed()
    }
}

impl Inner {
    /// With the instructions that an earlier process kept.
    pub(crate) fn new(options: NodeOptions) -> Inner {
        let kept = options.keeps.then(|| kept::load(&options.folder, &options.name)).flatten();
        let mut noted = Noted::default();
        if let Some(kept) = &kept {
            noted.status.edition = Some(kept.instructions.edition());
            noted.status.is_kept = true;
            noted.received = Some(Received { age: kept.age, at: Instant::now() });
        }
        let kept = kept.unwrap_or_default();
        Inner {
            options,
            credentials: watch::Sender::new(None),
            instructions: watch::Sender::new(kept.instructions),
            evicted: watch::Sender::new(Evictions::default()),
            is_evicted: watch::Sender::new(false),
            wants_names: watch::Sender::new(false),
            newest_report: watch::Sender::new(None),
            heard: watch::Sender::default(),
            floor: kept.floor,
            noted: Mutex::new(noted),
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut NodeStatus)) {
        change(&mut self.noted().status);
    }

    /// Notes that a controller is asked now.
    pub(crate) fn note_tried(&self, address: &ControllerAddress) {
        let mut noted = self.noted();
        noted.contacts.entry(address.to_string()).or_default().tried = Some(Instant::now());
    }

    /// Notes what a controller answered to a report.
    pub(crate) fn hear_tallies(&self, address: &ControllerAddress, tallies: Tallies) {
        self.heard.send_modify(|heard| heard.hear(address, Instant::now(), tallies));
    }

    /// Notes that something came of a controller now.
    pub(crate) fn note_heard(&self, address: &ControllerAddress) {
        let mut noted = self.noted();
        noted.contacts.entry(address.to_string()).or_default().heard = Some(Instant::now());
    }

    /// Notes that a controller refused this node, if that is because it was evicted.
    ///
    /// The node is evicted while any controller refuses it. One whose copy of the store lags also refuses a node that joined
    /// again, until it has caught up.
    pub(crate) fn note_refusal(&self, address: &ControllerAddress, error: &ClientError) {
        if !error.is_eviction() {
            return;
        }
        let mut noted = self.noted();
        noted.refusing.insert(address.clone());
        if !self.is_evicted.send_replace(true) {
            let folder = &self.options.folder;
            tracing::error!(
                controller = %address,
                "this node was evicted from the cluster; to let it back: remove {} and {}, give it a token of `equipoise \
                 cluster token create --node {}`, and restart it",
                folder.path_of(crate::StateFile::NodeCertificate).display(),
                folder.path_of(crate::StateFile::NodeKey).display(),
                self.options.name
            );
        }
    }

    /// Notes that a controller lets this node in.
    pub(crate) fn note_let_in(&self, address: &ControllerAddress) {
        let mut noted = self.noted();
        if noted.refusing.remove(address) && noted.refusing.is_empty() {
            self.is_evicted.send_replace(false);
            tracing::info!(controller = %address, "no controller refuses this node any longer");
        }
    }

    /// Notes that this node has a new certificate: refusals were of another.
    pub(crate) fn note_certified(&self) {
        self.noted().refusing.clear();
        self.is_evicted.send_replace(false);
    }

    fn status(&self) -> NodeStatus {
        let noted = self.noted();
        let mut status = noted.status.clone();
        status.instructions_age = noted.received.map(Received::age);
        let ago = |at: Option<Instant>| at.map(|at| at.elapsed());
        for address in &self.options.controllers {
            let address = address.to_string();
            let contact = noted.contacts.get(&address).copied().unwrap_or_default();
            let one = status.reports.entry(address).or_default();
            (one.tried, one.heard) = (ago(contact.tried), ago(contact.heard));
        }
        status
    }

    /// Goes by these if they are newer than what there is; whether they were.
    pub(crate) fn offer(&self, offered: Instructions) -> bool {
        let edition = offered.edition();
        let mut before = Edition::default();
        let is_newer = self.instructions.send_if_modified(|current| {
            before = current.edition();
            let is_newer = offered.is_newer_than(current) && edition >= self.floor;
            if is_newer {
                *current = Arc::new(offered);
            }
            is_newer
        });
        let mut noted = self.noted();
        if is_newer {
            noted.received = Some(Received { age: Duration::ZERO, at: Instant::now() });
            noted.status.edition = Some(edition);
            noted.status.is_kept = false;
        } else if edition < before.max(self.floor) {
            noted.status.stale += 1;
            let newer = before.max(self.floor);
            tracing::debug!(%edition, %newer, "stale instructions were ignored");
        }
        is_newer
    }

    /// How old the instructions are.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.noted().received.map(Received::age)
    }

    /// The file that the instructions are of, if an earlier process kept them and none newer have come.
    pub(crate) fn kept_in(&self) -> Option<PathBuf> {
        let is_kept = self.noted().status.is_kept;
        is_kept.then(|| self.options.folder.path_of(crate::StateFile::Instructions))
    }
}

/// A node's part in the cluster, until it is dropped. Losing controllers stops nothing: it keeps the last instructions,
/// says their age, and looks for another.
pub struct NodeClient {
    inner: Arc<Inner>,
    instructions: watch::Receiver<Arc<Instructions>>,
    task: JoinHandle<()>,
}

impl Drop for NodeClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl NodeClient {
    /// Begins to join, to report and to follow, in the background; until then it goes by what an earlier process kept.
    pub fn start(options: NodeOptions) -> NodeClient {
        let inner = Arc::new(Inner::new(options));
        let received = inner.instructions.subscribe();
        let task = tokio::spawn(run(Arc::clone(&inner)));
        NodeClient { inner, instructions: received, task }
    }

    /// Sends this to every controller, in the place of what has not gone yet.
    pub fn report(&self, report: &NodeReport) {
        self.inner.newest_report.send_replace(Some(json(report)));
    }

    /// Tells every controller that this node leaves, and reports no more. Takes no longer than `patience`.
    pub async fn leave(&self, report: &NodeReport, patience: Duration) {
        self.task.abort();
        let Some(credentials) = self.inner.credentials.borrow().clone() else { return };
        let last = json(&NodeReport { leaves: true, ..report.clone() });
        let mut telling = JoinSet::new();
        for address in self.inner.options.controllers.clone() {
            let (inner, credentials) = (Arc::clone(&self.inner), Arc::clone(&credentials));
            telling.spawn(report::report_once(inner, address, credentials, last.clone()));
        }
        let _ = tokio::time::timeout(patience, telling.join_all()).await;
    }

    /// Whether this node answers names: only then it is told what is planned of them.
    pub fn want_names(&self, wanted: bool) {
        self.inner.wants_names.send_if_modified(|now| std::mem::replace(now, wanted) != wanted);
    }

    /// The newest instructions, blank before there are any, with what concerns this node. Never goes back to older ones.
    pub fn instructions(&self) -> watch::Receiver<Arc<Instructions>> {
        self.instructions.clone()
    }

    /// Answers of controllers to reports of shared backends.
    pub fn tallies(&self) -> watch::Receiver<HeardTallies> {
        self.inner.heard.subscribe()
    }

    /// What this node shows to its peers, renewed as it is to controllers, and whom it takes for one: the cluster's other nodes, but for
    /// those of whom a controller has said that they were evicted.
    pub fn peer_credentials(&self) -> PeerCredentials {
        Members::credentials(self.inner.credentials.subscribe(), self.inner.evicted.subscribe())
    }

    /// Whether a controller refuses this node because an operator evicted it.
    pub fn is_evicted(&self) -> watch::Receiver<bool> {
        self.inner.is_evicted.subscribe()
    }

    /// How it stands.
    pub fn status(&self) -> NodeStatus {
        self.inner.status()
    }
}

async fn run(inner: Arc<Inner>) {
    let mut tasks = JoinSet::new();
    for address in inner.options.controllers.clone() {
        tasks.spawn(report::keep_reporting(Arc::clone(&inner), address));
    }
    tasks.spawn(follow::keep_following(Arc::clone(&inner)));
    if inner.options.keeps {
        tasks.spawn(kept::keep(Arc::clone(&inner)));
    }
    tasks.spawn(credentials::keep_certified(inner));
    while tasks.join_next().await.is_some() {}
}

impl std::fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeClient").field("options", &self.inner.options).finish_non_exhaustive()
    }
}
