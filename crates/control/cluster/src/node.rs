//! The node's side: joins, reports to every controller, follows the instructions of one.

pub(crate) mod credentials;
mod follow;
mod heard;
mod kept;
mod questions;
pub(crate) mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use equipoise_basics::lock;
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
pub use questions::CertificateQuestions;

/// Options of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The node's name.
    pub name: Name,
    /// All controllers. Each receives the reports.
    pub controllers: Vec<ControllerAddress>,
    /// The join token, for a node that has not joined.
    pub token: Option<TokenSource>,
    /// The folder with its certificate and key.
    pub folder: StateFolder,
    /// Timeouts of requests to a controller.
    pub patience: Patience,
    /// Silence after which a stream of instructions is given up: several times a controller's
    /// keep-alive.
    pub silence: Duration,
    /// The first pause after all controllers failed, and the longest.
    pub pauses: (Duration, Duration),
    /// True to save instructions in the folder for the next process. A member that does not follow
    /// them need not.
    pub keeps: bool,
}

impl NodeOptions {
    /// Options with the usual times: a controller that hangs is left after 3 s.
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

/// The source of a join token.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// The token in the configuration.
    Given(JoinToken),
    /// A file, which is read again for each attempt, so that the token can be replaced.
    File(PathBuf),
}

/// The reason why there is no join token.
#[derive(Debug, thiserror::Error)]
pub enum NoToken {
    /// The file cannot be read.
    #[error("cannot read the join token's file {path}")]
    File {
        /// The file's path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file does not contain a token.
    #[error("the join token's file {path} does not contain a token")]
    Content {
        /// The file's path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: NotAToken,
    },
    /// No token is configured.
    #[error(
        "this node is not in the cluster and has no join token; create one on a controller (`equipoise cluster token create`) and set `cluster.join-token-file`"
    )]
    NotGiven,
}

/// State of a node in its cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeStatus {
    /// End of its certificate's validity; `None` before it has joined.
    pub certificate_until: Option<SystemTime>,
    /// The reason why it has not joined or not renewed.
    pub certificate_problem: Option<String>,
    /// The controller that it follows; `None` while there is none.
    pub following: Option<String>,
    /// The reason why it follows no controller, or changed to another.
    pub follow_problem: Option<String>,
    /// The instructions that it follows.
    pub edition: Option<Edition>,
    /// Time since it received the instructions that it follows.
    pub instructions_age: Option<Duration>,
    /// True if an earlier process saved them, and none newer have arrived since this one started.
    pub is_kept: bool,
    /// The reason why they cannot be saved for the next process.
    pub keep_problem: Option<String>,
    /// Number of instructions that were older than its own and ignored.
    pub stale: u64,
    /// Number of instructions that it could not decode.
    pub not_understood: u64,
    /// Reports by configured controller.
    pub reports: BTreeMap<String, ReportStatus>,
}

impl NodeStatus {
    /// Time since any controller last answered; `None` if none has since this process started.
    pub fn heard(&self) -> Option<Duration> {
        self.reports.values().filter_map(|one| one.heard).min()
    }
}

/// State of the reports to one controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReportStatus {
    /// Number of accepted reports.
    pub taken: u64,
    /// Number of reports that were refused or did not arrive.
    pub failed: u64,
    /// The reason why the last one failed; `None` if it was accepted.
    pub problem: Option<String>,
    /// Time since the last request to it; `None` if there was none.
    pub tried: Option<Duration>,
    /// Time since its last answer, refusals included; `None` if there was none.
    pub heard: Option<Duration>,
}

/// State that the tasks share.
pub(crate) struct Inner {
    pub(crate) options: NodeOptions,
    pub(crate) credentials: watch::Sender<Option<Arc<Credentials>>>,
    pub(crate) instructions: watch::Sender<Arc<Instructions>>,
    /// The evictions that controllers sent last.
    pub(crate) evicted: watch::Sender<Evictions>,
    /// True if a controller refuses this node as evicted.
    pub(crate) is_evicted: watch::Sender<bool>,
    /// True if the node answers names, and so needs the plans of names.
    pub(crate) wants_names: watch::Sender<bool>,
    /// The newest report. It replaces an earlier one that a controller has not received yet.
    pub(crate) newest_report: watch::Sender<Option<Bytes>>,
    /// Answers of controllers to reports.
    heard: watch::Sender<HeardTallies>,
    /// Older instructions are always stale.
    floor: Edition,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    status: NodeStatus,
    received: Option<Received>,
    contacts: BTreeMap<String, Contact>,
    /// Controllers that refused this node as evicted in their last answer.
    refusing: BTreeSet<ControllerAddress>,
}

/// The times of the last request to a controller and of its last answer.
#[derive(Clone, Copy, Default)]
struct Contact {
    tried: Option<Instant>,
    heard: Option<Instant>,
}

/// An age of instructions, and the time of that age.
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
    /// Begins with the instructions that an earlier process saved.
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
        lock(&self.noted)
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut NodeStatus)) {
        change(&mut self.noted().status);
    }

    /// Notes a request to a controller.
    pub(crate) fn note_tried(&self, address: &ControllerAddress) {
        let mut noted = self.noted();
        noted.contacts.entry(address.to_string()).or_default().tried = Some(Instant::now());
    }

    /// Notes the tallies in a controller's answer.
    pub(crate) fn hear_tallies(&self, address: &ControllerAddress, tallies: Tallies) {
        self.heard.send_modify(|heard| heard.hear(address, Instant::now(), tallies));
    }

    /// Notes an answer of a controller.
    pub(crate) fn note_heard(&self, address: &ControllerAddress) {
        let mut noted = self.noted();
        noted.contacts.entry(address.to_string()).or_default().heard = Some(Instant::now());
    }

    /// Notes that a controller refused this node, if it refused it as evicted.
    ///
    /// The node counts as evicted while any controller refuses it. A controller with a store that
    /// lags also refuses a node that joined again, until it has caught up.
    pub(crate) fn note_refusal(&self, address: &ControllerAddress, error: &ClientError) {
        if !error.is_eviction() {
            return;
        }
        let mut noted = self.noted();
        noted.refusing.insert(address.clone());
        if !self.is_evicted.send_replace(true) {
            let folder = &self.options.folder;
            tracing::error!(event = "cluster.evicted",
                controller = %address,
                "this node was evicted from the cluster; to let it return, remove {} and {}, give it a token of `equipoise \
                 cluster token create --node {}`, and restart it",
                folder.path_of(crate::StateFile::NodeCertificate).display(),
                folder.path_of(crate::StateFile::NodeKey).display(),
                self.options.name
            );
        }
    }

    /// Notes that a controller accepts this node.
    pub(crate) fn note_let_in(&self, address: &ControllerAddress) {
        let mut noted = self.noted();
        if noted.refusing.remove(address) && noted.refusing.is_empty() {
            self.is_evicted.send_replace(false);
            tracing::info!(event = "cluster.readmitted", controller = %address, "no controller refuses this node any longer");
        }
    }

    /// Notes that this node has a new certificate: earlier refusals concerned another one.
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

    /// Installs these instructions if they are newer. Returns whether they were.
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

    /// The age of the instructions.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.noted().received.map(Received::age)
    }

    /// The file of the present instructions, if an earlier process saved them and none newer have
    /// arrived.
    pub(crate) fn kept_in(&self) -> Option<PathBuf> {
        let is_kept = self.noted().status.is_kept;
        is_kept.then(|| self.options.folder.path_of(crate::StateFile::Instructions))
    }
}

/// A node's membership in the cluster, until it is dropped. Without controllers it keeps the last
/// instructions, reports their age, and looks for another controller.
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
    /// Starts to join, report and follow in the background, with the instructions that an earlier
    /// process saved.
    pub fn start(options: NodeOptions) -> NodeClient {
        let inner = Arc::new(Inner::new(options));
        let received = inner.instructions.subscribe();
        let task = tokio::spawn(run(Arc::clone(&inner)));
        NodeClient { inner, instructions: received, task }
    }

    /// Sends this report to every controller. It replaces an earlier one that was not sent yet.
    pub fn report(&self, report: &NodeReport) {
        self.inner.newest_report.send_replace(Some(json(report)));
    }

    /// Stops reporting, without an announcement.
    pub fn stop_reports(&self) {
        self.task.abort();
    }

    /// Announces to every controller that this node leaves, and stops reporting. Takes at most
    /// `patience`.
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

    /// Sets whether this node answers names. Only then it receives their plans.
    pub fn want_names(&self, wanted: bool) {
        self.inner.wants_names.send_if_modified(|now| std::mem::replace(now, wanted) != wanted);
    }

    /// The newest instructions with this node's plan, blank before the first. They never go back to
    /// older ones.
    pub fn instructions(&self) -> watch::Receiver<Arc<Instructions>> {
        self.instructions.clone()
    }

    /// Answers of controllers to reports of shared backends.
    pub fn tallies(&self) -> watch::Receiver<HeardTallies> {
        self.inner.heard.subscribe()
    }

    /// The node's credentials towards peers, renewed as towards controllers, and the check of
    /// peers: all other nodes of the cluster, except those that a controller has reported as
    /// evicted.
    pub fn peer_credentials(&self) -> PeerCredentials {
        Members::credentials(self.inner.credentials.subscribe(), self.inner.evicted.subscribe())
    }

    /// Asks the controllers for certificates of front doors.
    pub fn certificate_questions(&self) -> CertificateQuestions {
        CertificateQuestions::new(Arc::clone(&self.inner))
    }

    /// True if a controller refuses this node because an operator evicted it.
    pub fn is_evicted(&self) -> watch::Receiver<bool> {
        self.inner.is_evicted.subscribe()
    }

    /// The node's state.
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
