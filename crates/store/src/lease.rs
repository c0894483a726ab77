use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::{Store, StoreError};

/// Which lease. Numbers are the store's; another store's mean nothing to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A promise of the store: what is put under it stays until nobody has kept it alive for `time_to_live`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which.
    pub id: LeaseId,
    /// What was granted, which may be more than was asked: etcd has whole seconds, and a minimum that follows
    /// from its election time-out (2 s with its defaults).
    pub time_to_live: Duration,
}

/// A lease that a task keeps alive, and that knows when it can no longer be sure of it.
///
/// In a store that processes share, it is *held* until the time to live has passed since the last successful
/// keep-alive was **sent**, by this machine's monotonic clock: this side gives up before the store does. The
/// task ends when the `HeldLease` is dropped, and the lease runs out.
///
/// In a store of this process alone ([`Store::is_shared`]), no other process waits for the end of a lease. A
/// slow disk or a pause of the process therefore ends none: it is held until it is dropped, released or
/// revoked, or the store is closed.
#[derive(Debug)]
pub struct HeldLease {
    lease: Lease,
    held_until: watch::Receiver<Option<Instant>>,
    store: Arc<dyn Store>,
}

/// Time to live of leases in a store of one process: longer than any process runs.
const UNSHARED_TIME_TO_LIVE: Duration = Duration::from_secs(30 * 365 * 86_400);

impl HeldLease {
    /// Asks for a lease, and keeps it alive every third of `time_to_live`.
    ///
    /// # Errors
    /// [`StoreError`] if none is granted.
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

    /// Which lease.
    pub fn id(&self) -> LeaseId {
        self.lease.id
    }

    /// Until when it is surely held; `None` once it is lost, for good.
    pub fn held_until(&self) -> Option<Instant> {
        self.held_until.borrow().filter(|until| *until > Instant::now())
    }

    /// Whether it is surely held now.
    pub fn is_held(&self) -> bool {
        self.held_until().is_some()
    }

    /// Returns when it is no longer surely held. Safe to cancel.
    pub async fn lost(&mut self) {
        loop {
            let Some(until) = *self.held_until.borrow_and_update() else { return };
            tokio::select! {
                () = sleep_until(until) => return,
                changed = self.held_until.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Ends it now, with what is under it.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be told; the lease then runs out by itself.
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
        // It would never run out, and would keep its keys from the next holder in this process.
        let _ = store.revoke(lease.id).await;
    }
}

/// Renews until the lease has ended, by the store's word or by the clock.
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
