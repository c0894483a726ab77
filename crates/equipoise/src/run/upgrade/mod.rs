//! Replaces the running process by a new one of the same program, without closing a connection.
//!
//! The running process starts its program again with its own arguments ([`attempt`]). The new one
//! takes the sockets over and gets ready ([`predecessor`]), and only then the old one stops
//! accepting and serves its clients to their end ([`retire`]). Whatever fails before that leaves
//! the running process as it was.

pub(super) mod attempt;
pub(super) mod predecessor;
mod release;
pub(super) mod retire;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_api::OperateError;
use equipoise_api::wire::packet::PacketStatus;
use equipoise_api::wire::{ReplacedProcess, Upgrade, Upgraded};
use equipoise_basics::lock;
use equipoise_handover::{Departing, Inherited, Listening, Replaced, SocketName};
use tokio::sync::{RwLock, mpsc, oneshot};
use tokio::task::JoinHandle;

use self::attempt::{Successor, attempt};
use crate::run::control::Control;
use crate::run::notify::{Notice, notify};

/// Time for the new process to get ready, if the request states none, and the longest that it may
/// state. The answer to the request waits for it.
const WITHIN: Duration = Duration::from_secs(25);

/// A request for an upgrade, with the place for its outcome. A signal has no such place.
pub(crate) struct Request {
    pub(super) within: Duration,
    pub(super) reply: Option<Reply>,
}

pub(super) type Reply = oneshot::Sender<Result<Upgraded, OperateError>>;

/// An upgrade in progress.
pub(super) struct Upgrading {
    task: JoinHandle<Result<Successor, String>>,
    goes_on: oneshot::Sender<()>,
    reply: Option<Reply>,
}

impl Upgrading {
    /// Starts the new process.
    pub(super) fn begin(control: &Arc<Control>, request: Request) -> Upgrading {
        let Request { within, reply } = request;
        notify(Notice::Reloading);
        let (goes_on, until) = oneshot::channel();
        let task = tokio::spawn(attempt(Arc::clone(control), within, until));
        Upgrading { task, goes_on, reply }
    }

    /// Waits for the end of the upgrade, if there is one. Returns the successor, and the place for
    /// the outcome. After a failure, which is reported, this process continues.
    pub(super) async fn ended(
        slot: &mut Option<Upgrading>,
        control: &Control,
    ) -> Option<(Successor, Option<Reply>)> {
        let Some(upgrading) = slot else { return std::future::pending().await };
        let outcome = (&mut upgrading.task).await;
        let reply = slot.take().and_then(|mut upgrading| upgrading.reply.take());
        let error = match outcome {
            Ok(Ok(successor)) => return Some((successor, reply)),
            Ok(Err(error)) => error,
            Err(panic) => panic.to_string(),
        };
        notify(Notice::Ready);
        tracing::error!(
            event = "upgrade.failed",
            "upgrade failed: {error}; this process continues"
        );
        control.upgrades.end();
        if let Some(reply) = reply {
            let text = format!(
                "the upgrade failed, and process {} continues: {error}",
                std::process::id()
            );
            // The client may have gone.
            let _ = reply.send(Err(OperateError::Refused(text)));
        }
        None
    }

    /// Ends the new process, because this one has to stop.
    pub(super) async fn give_up(self) {
        drop(self.goes_on);
        if let Ok(Ok(successor)) = self.task.await {
            successor.process.kill().await;
        }
        tracing::info!(event = "upgrade.failed", "upgrade given up: a stop was requested");
    }
}

/// The state of upgrades, for requests.
pub(crate) struct Upgrades {
    requests: mpsc::Sender<Request>,
    /// The new process is getting ready.
    is_under_way: AtomicBool,
    /// Held for reading by those that read the configuration file, this process or a new one, and
    /// for writing while the API replaces it.
    file: Arc<RwLock<()>>,
    /// Duplicates of the API's sockets.
    api: Mutex<Vec<Listening>>,
    /// Processes that this one has replaced.
    replaced: Mutex<Vec<(Replaced, Departing)>>,
    /// Sockets from before the start that no level has taken yet.
    inherited: Inherited,
    /// The last status of the packet level. Its program goes on while neither process has the
    /// engine.
    packet: Mutex<Option<PacketStatus>>,
}

impl Upgrades {
    /// The state of a process with these sockets, and the requests that it will get.
    pub(crate) fn new(
        api: Vec<Listening>,
        inherited: Inherited,
    ) -> (Upgrades, mpsc::Receiver<Request>) {
        let (requests, received) = mpsc::channel(1);
        let upgrades = Upgrades {
            requests,
            is_under_way: AtomicBool::new(false),
            file: Arc::default(),
            api: Mutex::new(api),
            replaced: Mutex::default(),
            inherited,
            packet: Mutex::default(),
        };
        (upgrades, received)
    }

    /// Whether changes would be lost, because a new process is getting ready.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_under_way.load(Relaxed)
    }

    /// Has the process upgrade, and waits for the outcome.
    pub(crate) async fn ask(&self, how: Upgrade) -> Result<Upgraded, OperateError> {
        let within = match how.within_seconds {
            None => WITHIN,
            Some(seconds) if (0.1..=WITHIN.as_secs_f64()).contains(&seconds) => {
                Duration::from_secs_f64(seconds)
            }
            Some(seconds) => {
                return Err(OperateError::Refused(format!(
                    "within_seconds is {seconds}; accepted: 0.1 to {}",
                    WITHIN.as_secs()
                )));
            }
        };
        if self.is_under_way.swap(true, Relaxed) {
            return Err(OperateError::Conflict(
                "an upgrade is in progress; wait for its end, which the log reports".into(),
            ));
        }
        let (reply, outcome) = oneshot::channel();
        let request = Request { within, reply: Some(reply) };
        if self.requests.send(request).await.is_err() {
            return Err(OperateError::Stopping);
        }
        outcome.await.unwrap_or(Err(OperateError::Stopping))
    }

    /// The request of a signal; `None` if an upgrade is in progress.
    pub(super) fn by_signal(&self) -> Option<Request> {
        let is_first = !self.is_under_way.swap(true, Relaxed);
        is_first.then_some(Request { within: WITHIN, reply: None })
    }

    /// The lock of the configuration file.
    pub(super) fn file(&self) -> Arc<RwLock<()>> {
        Arc::clone(&self.file)
    }

    fn end(&self) {
        self.is_under_way.store(false, Relaxed);
        self.note_packet(None);
    }

    /// Notes the status of the packet level before its engine stops.
    fn note_packet(&self, status: Option<PacketStatus>) {
        *lock(&self.packet) = status;
    }

    /// The last status of a packet level that was handed over.
    pub(crate) fn packet(&self) -> Option<PacketStatus> {
        lock(&self.packet).clone()
    }

    /// Closes this process's duplicates of the API's sockets.
    pub(super) fn forget_api(&self) {
        lock(&self.api).clear();
    }

    /// Closes the sockets from before the start that the configuration does not have any more.
    pub(super) fn close_unused(&self) {
        for name in self.inherited.close() {
            tracing::info!(
                ?name,
                "closed an inherited socket, which the configuration does not have"
            );
            if let SocketName::Unix(path) = name {
                // Only a convenience: the next process at this path would replace it.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Notes the processes that this one has replaced, directly or through another one.
    pub(super) fn note_replaced(&self, replaced: Vec<(Replaced, Departing)>) {
        lock(&self.replaced).extend(replaced);
    }

    /// The replaced processes that still serve clients.
    pub(crate) fn replaced(&self) -> Vec<ReplacedProcess> {
        let mut all = lock(&self.replaced);
        all.retain(|(_, departing)| departing.connections().is_some());
        let shown = all.iter().filter_map(|(Replaced { pid, since_unix_seconds }, departing)| {
            let connections = departing.connections()?;
            let since_unix_seconds = *since_unix_seconds;
            Some(ReplacedProcess { pid: *pid, since_unix_seconds, connections })
        });
        shown.collect()
    }
}

fn unix_seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
