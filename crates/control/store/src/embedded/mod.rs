//! The store of a single machine: a file.
//!
//! The state is small and kept in memory as well: reads never wait, and work while the disk is
//! full. A single task changes it ([`actor`]); requests that arrive during a write form the next
//! batch ([`state`] decides, [`file`] writes). A request is answered after its write is on disk.
//!
//! Beside `PATH` are `PATH.lock` (one process at a time), `PATH.backup` and older copies
//! ([`backup`]), and `PATH.mark` ([`mark`]). A damaged file is refused and left unchanged. With an
//! older copy in its place, the store skips to a revision above all reported ones, so that no
//! revision, and thus no term, is used twice.

mod actor;
mod backup;
mod file;
mod mark;
mod open_error;
mod row;
mod state;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};

use self::actor::{Actor, Leases, Request};
pub use self::backup::Copied;
use self::backup::{Backups, Rhythm};
use self::file::{Content, Ledger, Lock, Medium};
use self::mark::Mark;
pub use self::open_error::OpenError;
use self::state::{Limits, State};
use crate::watch::WatchSource;
use crate::{
    Committed, Entry, Key, Lease, LeaseId, Listing, Prefix, Revision, Store, StoreError,
    Transaction, Watch, WatchEvent,
};

/// Length of the request queue; further requests wait at their callers.
const QUEUE_MAX: usize = 1024;

/// Options of the embedded store.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Path of the file; created if it does not exist.
    pub path: PathBuf,
    /// Maximum size of keys and values, bytes. The store needs the same amount of memory.
    pub size_bytes_max: u64,
    /// Maximum number of changes that watches can resume from.
    pub history_changes_max: usize,
    /// Maximum size of these changes, bytes.
    pub history_bytes_max: u64,
    /// Maximum interval between copies of a changed file. The first intervals are shorter, starting
    /// with a sixtieth.
    pub backup_every: Duration,
    /// Number of changes after which a copy is made earlier, but not before a sixtieth of that
    /// interval.
    pub backup_revisions: u64,
}

impl EmbeddedOptions {
    /// Makes options with 64 MiB, a history of 10,000 changes or 16 MiB, and copies every hour or
    /// after 10,000 changes.
    pub fn new(path: impl Into<PathBuf>) -> EmbeddedOptions {
        EmbeddedOptions {
            path: path.into(),
            size_bytes_max: 64 << 20,
            history_changes_max: 10_000,
            history_bytes_max: 16 << 20,
            backup_every: Duration::from_secs(3600),
            backup_revisions: 10_000,
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            size_bytes_max: self.size_bytes_max,
            history_changes_max: self.history_changes_max,
            history_bytes_max: self.history_bytes_max,
        }
    }
}

/// A [`Store`] in one file.
#[derive(Clone, Debug)]
pub struct Embedded {
    state: Arc<RwLock<State>>,
    requests: mpsc::Sender<Request>,
    revision: watch::Receiver<Revision>,
    restored: Option<Restored>,
}

/// The file was older than the store's last state: it was replaced by a copy, or was newly created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Revision of the file; 0 for a new one.
    pub found: Revision,
    /// Revision of the lost file. Writes after [`Self::found`] are lost.
    pub lost: Revision,
    /// Time of the last write to the file, if it is recorded.
    pub written: Option<SystemTime>,
}

/// Describes the file, in words that follow its name.
impl std::fmt::Display for Restored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.found, self.written) {
            (Revision(0), _) => f.write_str("is a new one in the place of another"),
            (_, Some(written)) => write!(f, "is a copy of {}", open_error::at(written)),
            (_, None) => f.write_str("is an older copy"),
        }
    }
}

/// Number of revisions to skip above the mark, which may be behind after a power cut.
const SKIPPED: u64 = 1 << 20;

impl Embedded {
    /// Opens or creates the file. Must be called inside a tokio runtime, which then runs the
    /// store's task.
    ///
    /// Deletes entries under leases, because the processes that kept these alive have ended.
    ///
    /// # Errors
    /// [`OpenError`]; then the file is unchanged.
    pub async fn open(options: EmbeddedOptions) -> Result<Embedded, OpenError> {
        let (limits, path) = (options.limits(), options.path);
        let rhythm = Rhythm { every: options.backup_every, revisions: options.backup_revisions };
        let opened = tokio::task::spawn_blocking(move || open_file(&path).map(|file| (path, file)));
        let (path, Opened { lock, content, ledger, restored }) = match opened.await {
            Ok(opened) => opened?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let backups = Backups::new(path, rhythm, content.stamp.revision);
        let store = Embedded::start(limits, content, ledger, Some((lock, backups))).await;
        Ok(Embedded { restored, ..store })
    }

    /// Returns the loss if the file was older than the store's last state.
    pub fn restored(&self) -> Option<Restored> {
        self.restored
    }

    async fn start(
        limits: Limits,
        content: Content,
        ledger: Ledger,
        file: Option<(Lock, Backups)>,
    ) -> Embedded {
        let (lock, backups) = file.unzip();
        let ended = content.entries.iter().filter_map(|entry| entry.lease).collect();
        let state = State::new(limits, content.stamp, content.entries);
        let state = Arc::new(RwLock::new(state));
        let (revision, seen) = watch::channel(content.stamp.revision);
        let (sender, requests) = mpsc::channel(QUEUE_MAX);
        let (ledger, leases) = (Arc::new(Mutex::new(ledger)), Leases::after(ended));
        let mut actor = Actor {
            state: state.clone(),
            ledger,
            revision,
            requests,
            leases,
            backups,
            _lock: lock,
        };
        // Readers never see entries under old leases. If the file cannot be changed now, the task
        // tries again.
        actor.batch(Vec::new()).await;
        tokio::spawn(actor.run());
        Embedded { state, requests: sender, revision: seen, restored: None }
    }

    /// Closes the file. Further requests fail with [`StoreError::Closed`].
    pub async fn close(self) {
        let (answer, closed) = oneshot::channel();
        if self.requests.send(Request::Close(answer)).await.is_ok() {
            let _ = closed.await;
        }
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    fn open_state(&self) -> Result<std::sync::RwLockReadGuard<'_, State>, StoreError> {
        if self.requests.is_closed() {
            return Err(StoreError::Closed);
        }
        Ok(self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Opened {
    lock: Lock,
    content: Content,
    ledger: Ledger,
    restored: Option<Restored>,
}

fn open_file(path: &Path) -> Result<Opened, OpenError> {
    let lock = file::lock(path)?;
    let is_there = path.try_exists().map_err(file::io_error("look for", path))?;
    if !is_there {
        file::create(path)?;
    }
    let mut content = match file::inspect(path) {
        Err(OpenError::Damaged { path, what, .. }) => {
            let backup = backup::newest(&path);
            return Err(OpenError::Damaged { path, what, backup });
        }
        content => content?,
    };
    let mut ledger = open_ledger(path.to_path_buf(), path)?.marked(Mark::of(path));
    let found = content.stamp.revision;
    let lost = mark::read(path).filter(|lost| *lost > found);
    let restored = lost.map(|lost| Restored { found, lost, written: content.written });
    if let Some(restored) = restored {
        content.stamp.revision = Revision(restored.lost.0.saturating_add(SKIPPED));
        let written = ledger.skip_to(content.stamp).map_err(std::io::Error::other);
        written.map_err(file::io_error("write", path))?;
    }
    if is_there && let Err(error) = backup::write(path, &content) {
        // A full disk must not prevent the controller from starting.
        tracing::warn!(%error, "the store's file could not be copied; the older copies stay");
    }
    Ok(Opened { lock, content, ledger, restored })
}

fn open_ledger(medium: impl Medium, path: &Path) -> Result<Ledger, OpenError> {
    Ledger::new(medium).map_err(|error| {
        let path = path.to_path_buf();
        match error {
            redb::Error::DatabaseAlreadyOpen => OpenError::InUse(path),
            redb::Error::Io(source) => OpenError::Io { doing: "open", path, source },
            other => OpenError::Io { doing: "open", path, source: std::io::Error::other(other) },
        }
    })
}

#[async_trait]
impl Store for Embedded {
    /// Only one process at a time may use the file.
    fn is_shared(&self) -> bool {
        false
    }

    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        Ok(self.open_state()?.get(key).cloned())
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, StoreError> {
        Ok(self.open_state()?.list(prefix))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Committed, StoreError> {
        transaction.check()?;
        self.ask(|answer| Request::Commit(transaction, answer)).await
    }

    async fn watch(&self, prefix: Prefix, after: Revision) -> Result<Watch, StoreError> {
        let revision = self.revision.clone();
        Ok(Watch::new(Follower { state: self.state.clone(), prefix, after, revision }))
    }

    async fn grant(&self, time_to_live: Duration) -> Result<Lease, StoreError> {
        self.ask(|answer| Request::Grant(time_to_live, answer)).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        self.ask(|answer| Request::KeepAlive(lease, answer)).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.ask(|answer| Request::Revoke(lease, answer)).await
    }
}

/// Reads the common history at its own pace, so that a slow watch costs nothing.
struct Follower {
    state: Arc<RwLock<State>>,
    prefix: Prefix,
    after: Revision,
    revision: watch::Receiver<Revision>,
}

#[async_trait]
impl WatchSource for Follower {
    async fn next(&mut self) -> Result<WatchEvent, StoreError> {
        loop {
            self.revision.borrow_and_update();
            let (event, seen) = {
                let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
                state.event_after(&self.prefix, self.after)
            };
            self.after = seen;
            if let Some(event) = event {
                return Ok(event);
            }
            self.revision.changed().await.map_err(|_| StoreError::Closed)?;
        }
    }
}
