//! The only task that changes the store. It collects requests, writes them as one batch, and
//! answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use equipoise_basics::lock;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::backup::Backups;
use super::file::{Ledger, Lock};
use super::state::{Staged, Stamp, State};
use crate::error::Outcome;
use crate::{Committed, Lease, LeaseId, Revision, StoreError, Transaction};

/// Maximum number of requests in one batch.
const BATCH_MAX: usize = 256;
/// Delay before expired leases are deleted again after a failed write.
const RETRY: Duration = Duration::from_secs(1);

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

pub(super) enum Request {
    Commit(Transaction, Answer<Committed>),
    Grant(Duration, Answer<Lease>),
    KeepAlive(LeaseId, Answer<Duration>),
    Revoke(LeaseId, Answer<()>),
    /// Ends the task; answers when the file is closed.
    Close(oneshot::Sender<()>),
}

struct Held {
    time_to_live: Duration,
    until: Instant,
}

/// An answer that waits for the write.
enum Waiting {
    Committed(Committed, Answer<Committed>),
    Revoked(Answer<()>),
}

pub(super) struct Actor {
    pub(super) state: Arc<RwLock<State>>,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) revision: watch::Sender<Revision>,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) leases: Leases,
    pub(super) backups: Option<Backups>,
    /// Held until the file is closed.
    pub(super) _lock: Option<Lock>,
}

/// Leases live in memory: they end with the process, as do the tasks that keep them alive.
#[derive(Default)]
pub(super) struct Leases {
    held: BTreeMap<LeaseId, Held>,
    /// Expired leases with entries that may still be in the file.
    ended: BTreeSet<LeaseId>,
    retry_at: Option<Instant>,
    last: u64,
}

impl Leases {
    /// Starts with the leases of an earlier process, all expired.
    pub(super) fn after(ended: BTreeSet<LeaseId>) -> Leases {
        let last = ended.last().map_or(0, |lease| lease.0);
        Leases { held: BTreeMap::new(), ended, retry_at: None, last }
    }

    fn grant(&mut self, time_to_live: Duration, now: Instant) -> Lease {
        let time_to_live = time_to_live.max(Duration::from_millis(1));
        self.last += 1;
        let id = LeaseId(self.last);
        self.held.insert(id, Held { time_to_live, until: now + time_to_live });
        Lease { id, time_to_live }
    }

    fn keep_alive(&mut self, lease: LeaseId, now: Instant) -> Result<Duration, StoreError> {
        let held = self.held.get_mut(&lease).ok_or(StoreError::LeaseEnded(lease))?;
        held.until = now + held.time_to_live;
        Ok(held.time_to_live)
    }

    fn end(&mut self, lease: LeaseId) -> Result<(), StoreError> {
        self.held.remove(&lease).ok_or(StoreError::LeaseEnded(lease))?;
        self.ended.insert(lease);
        Ok(())
    }

    fn end_those_over(&mut self, now: Instant) {
        let over = self.held.extract_if(.., |_, held| held.until <= now);
        self.ended.extend(over.map(|(lease, _)| lease));
    }

    /// Returns the time of the next expiry or retry.
    fn due(&self) -> Option<Instant> {
        let retry = self.retry_at.filter(|_| !self.ended.is_empty());
        self.held.values().map(|held| held.until).chain(retry).min()
    }
}

impl Actor {
    pub(super) async fn run(mut self) {
        loop {
            let copy = self.backups.as_ref().and_then(|it| it.due(self.stamp()));
            let due = self.leases.due().into_iter().chain(copy).min();
            let first = tokio::select! {
                request = self.requests.recv() => match request {
                    Some(request) => Some(request),
                    None => return self.end_copy().await,
                },
                () = async { sleep_until(due.expect("is set")).await }, if due.is_some() => None,
                // Changes during the copy may already be due for the next one, and no request would
                // wake the task.
                () = async { self.backups.as_mut().expect("is set").ended().await },
                    if self.backups.is_some() => None,
            };
            let mut batch = Vec::from_iter(first);
            while batch.len() < BATCH_MAX
                && let Ok(request) = self.requests.try_recv()
            {
                batch.push(request);
            }
            let closing = self.batch(batch).await;
            if let Some(backups) = &mut self.backups {
                backups.turn(&self.state);
            }
            if let Some(closed) = closing {
                self.end_copy().await;
                // Closes the file before the answer, so that the caller may open it again.
                drop(self);
                let _ = closed.send(());
                return;
            }
        }
    }

    fn stamp(&self) -> Stamp {
        self.state.read().unwrap_or_else(PoisonError::into_inner).stamp()
    }

    /// Waits for the current copy: the next process that opens the file makes its own.
    async fn end_copy(&mut self) {
        if let Some(backups) = &mut self.backups {
            backups.end().await;
        }
    }

    /// Processes a batch. Returns the answer channel of a request to close.
    pub(super) async fn batch(&mut self, batch: Vec<Request>) -> Option<oneshot::Sender<()>> {
        let recovered = self.recover().await;
        let now = Instant::now();
        self.leases.end_those_over(now);
        let mut closing = None;
        let (staged, waiting) = {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            let mut staged = Staged::on(&state);
            let mut waiting = Vec::new();
            for lease in &self.leases.ended {
                staged.end_lease(&state, *lease);
            }
            for request in batch {
                match request {
                    Request::Commit(transaction, answer) => {
                        let alive = |lease| self.leases.held.contains_key(&lease);
                        match staged.add(&state, &transaction, alive) {
                            Ok(committed) => waiting.push(Waiting::Committed(committed, answer)),
                            Err(error) => drop(answer.send(Err(error))),
                        }
                    }
                    Request::Grant(time, answer) => {
                        let _ = answer.send(Ok(self.leases.grant(time, now)));
                    }
                    Request::KeepAlive(lease, answer) => {
                        let _ = answer.send(self.leases.keep_alive(lease, now));
                    }
                    Request::Revoke(lease, answer) => match self.leases.end(lease) {
                        Ok(()) => {
                            staged.end_lease(&state, lease);
                            waiting.push(Waiting::Revoked(answer));
                        }
                        Err(error) => drop(answer.send(Err(error))),
                    },
                    Request::Close(answer) => closing = Some(answer),
                }
            }
            (staged, waiting)
        };
        let written = match recovered {
            _ if staged.is_empty() => Ok(()),
            Ok(()) => self.write(staged).await,
            Err(failure) => Err(failure),
        };
        self.after_write(waiting, &written);
        closing
    }

    fn after_write(&mut self, waiting: Vec<Waiting>, written: &Result<(), Failure>) {
        match written {
            Ok(()) => self.leases.ended.clear(),
            Err(_) => self.leases.retry_at = Some(Instant::now() + RETRY),
        }
        for waiting in waiting {
            match (waiting, written) {
                // A refusal is valid whether or not the rest was written.
                (Waiting::Committed(refused @ Committed::Refused(_), answer), _) => {
                    let _ = answer.send(Ok(refused));
                }
                (Waiting::Committed(done, answer), Ok(())) => drop(answer.send(Ok(done))),
                (Waiting::Revoked(answer), Ok(())) => drop(answer.send(Ok(()))),
                (Waiting::Committed(_, answer), Err(failure)) => {
                    let _ = answer.send(Err(failure.to_error()));
                }
                (Waiting::Revoked(answer), Err(failure)) => {
                    let _ = answer.send(Err(failure.to_error()));
                }
            }
        }
    }

    /// Recovers from a failed write: opens the file again, and adopts that write if the file has
    /// it.
    async fn recover(&mut self) -> Result<(), Failure> {
        let known = self.stamp();
        let found = self.with_ledger(move |ledger| match ledger.is_failed() {
            false => Ok(None),
            true => ledger.recover(known).map_err(|error| Failure::of(ledger, &error, NOT_DONE)),
        });
        if let Some(late) = found.await? {
            self.adopt(late);
        }
        Ok(())
    }

    async fn write(&mut self, staged: Staged) -> Result<(), Failure> {
        let known = self.stamp();
        let (staged, written, late) = self
            .with_ledger(move |ledger| {
                let written = ledger.write(&staged);
                let late = written.as_ref().is_err().then(|| ledger.recover(known));
                let written = written.map_err(|error| {
                    let outcome = if matches!(late, Some(Ok(None))) { NOT_DONE } else { UNKNOWN };
                    Failure::of(ledger, &error, outcome)
                });
                (staged, written, late.and_then(Result::ok).flatten())
            })
            .await;
        match (&written, late) {
            (Ok(()), _) => self.adopt(staged),
            // The file has the write, but the disk may not. Callers get an unknown outcome, and the
            // store continues with the contents of the file.
            (Err(_), Some(late)) => self.adopt(late),
            (Err(_), None) => {}
        }
        written
    }

    fn adopt(&mut self, staged: Staged) {
        let revision = staged.stamp().revision;
        self.state.write().unwrap_or_else(PoisonError::into_inner).adopt(staged);
        self.revision.send_replace(revision);
    }

    /// Runs `work` on a thread where waiting for the disk blocks no task.
    async fn with_ledger<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Ledger) -> T + Send + 'static,
    ) -> T {
        let ledger = self.ledger.clone();
        let done = tokio::task::spawn_blocking(move || work(&mut lock(&ledger)));
        match done.await {
            Ok(answer) => answer,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

const NOT_DONE: Outcome = Outcome::NotDone;
const UNKNOWN: Outcome = Outcome::Unknown;

/// A failed write, reported to all requests of the batch.
pub(super) struct Failure {
    path: String,
    disk_is_full: bool,
    outcome: Outcome,
    text: String,
}

impl Failure {
    fn of(ledger: &Ledger, error: &redb::Error, outcome: Outcome) -> Failure {
        let disk_is_full = matches!(error, redb::Error::Io(error)
            if matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded));
        let (path, text) = (ledger.name(), error.to_string());
        tracing::warn!(%path, error = %text, ?outcome, "the store's file could not be written");
        Failure { path, disk_is_full, outcome, text }
    }

    fn to_error(&self) -> StoreError {
        let (path, outcome, source) = (self.path.clone(), self.outcome, self.text.clone().into());
        if self.disk_is_full {
            StoreError::DiskFull { path, outcome, source }
        } else {
            StoreError::Disk { path, outcome, source }
        }
    }
}
