use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{Store, StoreError};

/// Id of a lease, unique within its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A lease: entries under it exist until it has not been kept alive for `time_to_live`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Id of the lease.
    pub id: LeaseId,
    /// Granted time to live, which may exceed the requested one. etcd has a resolution of seconds,
    /// and a minimum that depends on its election timeout (2 s by default).
    pub time_to_live: Duration,
}

/// A lease that a task keeps alive, with a conservative view of whether it still exists.
///
/// In a shared store, the lease is *held* until the time to live has passed since the last
/// successful keep-alive was **sent**, by this machine's monotonic clock. Thus this side gives up
/// before the store does. Dropping the `HeldLease` ends the task, and the lease expires.
///
/// In a store of this process alone ([`Store::is_shared`]), no other process waits for the end of a
/// lease. Therefore neither a slow disk nor a pause of the process ends it: it is held until it is
/// dropped, released or revoked, or the store is closed.
#[derive(Debug)]
pub struct HeldLease {
    lease: Lease,
    held_until: watch::Receiver<Option<Instant>>,
    store: Arc<dyn Store>,
}

/// Time to live of leases in an unshared store: longer than any process runs.
const UNSHARED_TIME_TO_LIVE: Duration = Duration::from_secs(30 * 365 * 86_400);

impl HeldLease {
    /// Requests a lease, and keeps it alive every third of `time_to_live`.
    ///
    /// # Errors
    /// [`StoreError`] if the store grants no lease.
    pub async fn take(
        store: Arc<dyn Store>,
        time_to_live: Duration,
    ) -> Result<HeldLease, StoreError> {
        let asked = Instant::now();
        let lease = match store.is_shared() {
            true => store.grant(time_to_live).await?,
            false => store.grant(UNSHARED_TIME_TO_LIVE).await?,
        };
        let (until, held_until) = watch::channel(Some(asked + lease.time_to_live));
        let period = lease.time_to_live.min(time_to_live) / 3;
        tokio::spawn(hold(store.clone(), lease, period, until));
        Ok(HeldLease { lease, held_until, store })
    }

    /// Returns the id of the lease.
    pub fn id(&self) -> LeaseId {
        self.lease.id
    }

    /// Returns the time until which the lease is certainly held; `None` once it is lost, which is
    /// permanent.
    pub fn held_until(&self) -> Option<Instant> {
        self.held_until.borrow().filter(|until| *until > Instant::now())
    }

    /// Whether the lease is certainly held now.
    pub fn is_held(&self) -> bool {
        self.held_until().is_some()
    }

    /// Resolves when the lease is no longer certainly held. Cancel-safe.
    pub async fn lost(&mut self) {
        loop {
            let Some(until) = *self.held_until.borrow_and_update() else { return };
            tokio::select! {
                () = sleep_until(until) => return,
                changed = self.held_until.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Ends the lease now and deletes the entries under it.
    ///
    /// # Errors
    /// [`StoreError`] if the store is unreachable. The lease then expires.
    pub async fn release(self) -> Result<(), StoreError> {
        match self.store.revoke(self.lease.id).await {
            Err(StoreError::LeaseEnded(_)) => Ok(()),
            other => other,
        }
    }
}

/// Keeps the lease alive until its holder drops it.
async fn hold(
    store: Arc<dyn Store>,
    lease: Lease,
    period: Duration,
    until: watch::Sender<Option<Instant>>,
) {
    tokio::select! {
        () = until.closed() => {}
        () = keep_alive(&*store, lease, period, &until) => return,
    }
    if !store.is_shared() {
        // In an unshared store the lease would never expire, and would block its keys for the next
        // holder in this process.
        let _ = store.revoke(lease.id).await;
    }
}

/// Renews the lease until it ends, according to the store or the clock.
async fn keep_alive(
    store: &dyn Store,
    lease: Lease,
    period: Duration,
    until: &watch::Sender<Option<Instant>>,
) {
    let mut held_until = until.borrow().expect("a lease starts held");
    let mut next = Instant::now() + period;
    loop {
        sleep_until(next.min(held_until)).await;
        let sent = Instant::now();
        if sent >= held_until {
            break;
        }
        match timeout_at(held_until, store.keep_alive(lease.id)).await {
            Ok(Ok(left)) => {
                held_until = sent + left;
                until.send_replace(Some(held_until));
                next = sent + period;
            }
            Ok(Err(StoreError::LeaseEnded(_) | StoreError::Closed)) | Err(_) => break,
            Ok(Err(error)) => {
                tracing::warn!(lease = %lease.id, %error, "a lease could not be renewed yet");
                next = Instant::now() + period / 4;
            }
        }
    }
    until.send_replace(None);
}
