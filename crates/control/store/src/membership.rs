use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch as latest};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    Committed, Entry, Expect, HeldLease, Key, KeyError, Listing, Prefix, Revision, Store,
    StoreError, Transaction, Watch,
};

/// List of live members: each has a key under its own lease, which is deleted when the member dies.
#[derive(Clone, Debug)]
pub struct Membership {
    store: Arc<dyn Store>,
    folder: Prefix,
    time_to_live: Duration,
}

/// Reason why a member cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The name is not a valid key segment.
    #[error("a member cannot be called that")]
    Name(#[from] KeyError),
    /// Another member has the name.
    #[error(
        "a member called {name:?} is there already, since revision {since}: give this one another name"
    )]
    NameTaken {
        /// Name of the member.
        name: String,
        /// Revision at which the other member joined.
        since: Revision,
    },
    /// The store failed.
    #[error("cannot join")]
    Store(#[from] StoreError),
}

/// Membership of a group. Dropping it lets the lease expire (see [`HeldLease`]); [`Member::leave`]
/// leaves at once.
#[derive(Debug)]
pub struct Member {
    key: Key,
    value: latest::Sender<Arc<[u8]>>,
    registered: latest::Receiver<bool>,
    task: JoinHandle<()>,
    leave: mpsc::Sender<()>,
}

impl Membership {
    /// Refers to the members of the group `name`. A dead member is removed after `time_to_live`.
    ///
    /// # Errors
    /// [`KeyError`] if the name is not a valid key segment.
    pub fn new(
        store: Arc<dyn Store>,
        name: &str,
        time_to_live: Duration,
    ) -> Result<Membership, KeyError> {
        let folder = Prefix::of(&format!("members/{name}"))?;
        Ok(Membership { store, folder, time_to_live })
    }

    /// Lists the members; the name of an entry is that of the member.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer.
    pub async fn members(&self) -> Result<Listing, StoreError> {
        self.store.list(&self.folder).await
    }

    /// Watches the members after a revision.
    ///
    /// # Errors
    /// As [`Store::watch`].
    pub async fn watch(&self, after: Revision) -> Result<Watch, StoreError> {
        self.store.watch(self.folder.clone(), after).await
    }

    /// Joins as `name` with `value`, and remains a member: after losing its lease, for example in a
    /// long network partition, it joins again automatically.
    ///
    /// A dead member keeps its name until its lease expires, so a restarted member may have to
    /// wait.
    ///
    /// # Errors
    /// [`JoinError`].
    pub async fn join(&self, name: &str, value: Arc<[u8]>) -> Result<Member, JoinError> {
        let key = self.folder.key(name)?;
        let lease = HeldLease::take(self.store.clone(), self.time_to_live).await?;
        let give_up = Instant::now() + self.time_to_live * 3 / 2 + Duration::from_secs(1);
        while let Some(other) = self.register(&key, &value, &lease).await? {
            if Instant::now() >= give_up {
                let _ = lease.release().await;
                return Err(JoinError::NameTaken { name: name.into(), since: other.created });
            }
            let mut watch = self.store.watch(self.folder.clone(), other.modified).await?;
            let _ = timeout_at(give_up, watch.next()).await;
        }
        let (value, wanted) = latest::channel(value);
        let (seen, registered) = latest::channel(true);
        let (leave, leaving) = mpsc::channel(1);
        let stay = Stay { membership: self.clone(), key: key.clone(), wanted, seen };
        let task = tokio::spawn(stay.run(lease, leaving));
        Ok(Member { key, value, registered, task, leave })
    }

    /// Puts the key under the lease. Returns the entry of another holder if there is one.
    async fn register(
        &self,
        key: &Key,
        value: &Arc<[u8]>,
        lease: &HeldLease,
    ) -> Result<Option<Entry>, StoreError> {
        let put = |expect| {
            Transaction::new().require(key.clone(), expect).put_leased(
                key.clone(),
                value.clone(),
                lease.id(),
            )
        };
        let mut expect = Expect::Absent;
        loop {
            let refusal = match self.store.commit(put(expect)).await? {
                Committed::Done(_) => return Ok(None),
                Committed::Refused(refusal) => refusal,
            };
            match refusal.found {
                // The entry is already ours: this is an update, or the answer to an earlier write
                // was lost.
                Some(entry) if entry.lease == Some(lease.id()) => {
                    expect = Expect::Modified(entry.modified);
                }
                Some(entry) => return Ok(Some(entry)),
                None => expect = Expect::Absent,
            }
        }
    }
}

impl Member {
    /// Returns the member's key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Replaces the member's value. The write happens when the store is reachable.
    pub fn tell(&self, value: Arc<[u8]>) {
        self.value.send_replace(value);
    }

    /// Whether other members see this one, according to the last write.
    pub fn is_registered(&self) -> bool {
        *self.registered.borrow()
    }

    /// Leaves, and waits until the store has the change or has failed.
    pub async fn leave(mut self) {
        let _ = self.leave.send(()).await;
        let _ = (&mut self.task).await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// State of the task that maintains the membership.
struct Stay {
    membership: Membership,
    key: Key,
    wanted: latest::Receiver<Arc<[u8]>>,
    seen: latest::Sender<bool>,
}

impl Stay {
    async fn run(mut self, first: HeldLease, mut leaving: mpsc::Receiver<()>) {
        let mut lease = Some(first);
        let pause = self.membership.time_to_live / 10;
        loop {
            let Some(mut held) = lease.take() else {
                tokio::select! {
                    _ = leaving.recv() => return,
                    taken = self.join_again() => lease = taken,
                }
                if lease.is_none() {
                    sleep(pause).await;
                }
                continue;
            };
            tokio::select! {
                _ = leaving.recv() => {
                    let _ = held.release().await;
                    return;
                }
                () = held.lost() => {
                    tracing::warn!(member = %self.key, "the lease is lost; joining again");
                    self.seen.send_replace(false);
                    continue;
                }
                changed = self.wanted.changed() => if changed.is_err() { return },
            }
            if !self.register(&held).await {
                // Repeats the write that failed.
                self.wanted.mark_changed();
                sleep(pause).await;
            }
            lease = Some(held);
        }
    }

    async fn join_again(&mut self) -> Option<HeldLease> {
        let Membership { store, time_to_live, .. } = &self.membership;
        let lease = HeldLease::take(store.clone(), *time_to_live).await.ok()?;
        self.register(&lease).await.then(|| {
            self.seen.send_replace(true);
            lease
        })
    }

    async fn register(&mut self, lease: &HeldLease) -> bool {
        let value = self.wanted.borrow_and_update().clone();
        match self.membership.register(&self.key, &value, lease).await {
            Ok(None) => true,
            Ok(Some(other)) => {
                tracing::warn!(member = %self.key, since = %other.created, "another has the name");
                false
            }
            Err(error) => {
                tracing::warn!(member = %self.key, %error, "could not tell the store");
                false
            }
        }
    }
}
