//! The store of one machine: one file.
//!
//! The state is small, so all of it is also in memory: reads never wait, and go on while the disk is
//! full. One task changes it ([`actor`]): what is asked while it writes is written together next
//! ([`state`] decides, [`file`] writes). An answer comes only when the disk has the write.
//!
//! Beside `PATH` lie `PATH.lock` (one process at a time) and `PATH.backup` (the file as it was when it was
//! last opened). A file that is not what was written is refused, and left as it is.

mod actor;
mod file;
mod row;
mod state;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};

use self::actor::{Actor, Leases, Request};
pub use self::file::OpenError;
use self::file::{Content, Ledger, Lock, Medium};
use self::state::{Limits, State};
use crate::watch::WatchSource;
use crate::{
    Committed, Entry, Key, Lease, LeaseId, Listing, Prefix, Revision, Store, StoreError,
    Transaction, Watch, WatchEvent,
};

/// Requests that wait for the task; more wait at their callers.
const QUEUE_MAX: usize = 1024;

/// Where and how much.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// The file; made if there is none.
    pub path: PathBuf,
    /// Keys and values together, at most. The same again is needed in memory.
    pub size_bytes_max: u64,
    /// Changes that watches can resume from.
    pub history_changes_max: usize,
    /// The same by size.
    pub history_bytes_max: u64,
}

impl EmbeddedOptions {
    /// With 64 MiB, and a history of 10,000 changes or 16 MiB.
    pub fn new(path: impl Into<PathBuf>) -> EmbeddedOptions {
        EmbeddedOptions {
            path: path.into(),
            size_bytes_max: 64 << 20,
            history_changes_max: 10_000,
            history_bytes_max: 16 << 20,
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
}

impl Embedded {
    /// Opens the file, or makes it. Must be called inside a tokio runtime, on which its task then runs.
    ///
    /// What was put under leases is deleted: those who kept them alive went with the process.
    ///
    /// # Errors
    /// [`OpenError`]; the file is unchanged then.
    pub async fn open(options: EmbeddedOptions) -> Result<Embedded, OpenError> {
        let limits = options.limits();
        let opened = tokio::task::spawn_blocking(move || open_file(&options.path));
        let (lock, content, ledger) = match opened.await {
            Ok(opened) => opened?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        Ok(Embedded::start(limits, content, ledger, Some(lock)).await)
    }

    async fn start(
        limits: Limits,
        content: Content,
        ledger: Ledger,
        lock: Option<Lock>,
    ) -> Embedded {
        let ended = content.entries.iter().filter_map(|entry| entry.lease).collect();
        let state = State::new(limits, content.stamp, content.entries);
        let state = Arc::new(RwLock::new(state));
        let (revision, seen) = watch::channel(content.stamp.revision);
        let (sender, requests) = mpsc::channel(QUEUE_MAX);
        let (ledger, leases) = (Arc::new(Mutex::new(ledger)), Leases::after(ended));
        let mut actor =
            Actor { state: state.clone(), ledger, revision, requests, leases, _lock: lock };
        // Nobody sees what was under old leases. If it cannot be deleted now, the task tries again.
        actor.batch(Vec::new()).await;
        tokio::spawn(actor.run());
        Embedded { state, requests: sender, revision: seen }
    }

    /// Closes the file. Whoever still uses the store is told that it is closed.
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

fn open_file(path: &Path) -> Result<(Lock, Content, Ledger), OpenError> {
    let lock = file::lock(path)?;
    let is_there = path.try_exists().map_err(|source| OpenError::Io {
        doing: "look for",
        path: path.to_path_buf(),
        source,
    })?;
    if !is_there {
        file::create(path)?;
    }
    let content = file::inspect(path)?;
    if is_there && let Err(error) = file::back_up(path) {
        // A full disk must not keep the controller from starting.
        tracing::warn!(%error, "the store's file could not be copied; the older copy stays");
    }
    let ledger = open_ledger(path.to_path_buf(), path)?;
    Ok((lock, content, ledger))
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

/// Reads the common history at its own pace, so that slow ones cost nothing.
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
