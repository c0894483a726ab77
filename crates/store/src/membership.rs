use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch as latest};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    Committed, Entry, Expect, HeldLease, Key, KeyError, Listing, Prefix, Revision, Store,
    StoreError, Transaction, Watch,
};

/// Who is there: each member has a key under a lease of its own, which goes when the member does.
#[derive(Clone, Debug)]
pub struct Membership {
    store: Arc<dyn Store>,
    folder: Prefix,
    time_to_live: Duration,
}

/// Why somebody cannot join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The name is no segment of a key.
    #[error("a member cannot be called that")]
    Name(#[from] KeyError),
    /// Somebody else has the name, and keeps it.
    #[error(
        "a member called {name:?} is there already, since revision {since}: give this one another name"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// When the other joined.
        since: Revision,
    },
    /// The store does not do it.
    #[error("cannot join")]
    Store(#[from] StoreError),
}

/// Being a member. Dropping it lets the lease end ([`HeldLease`] says when); [`Member::leave`] goes at once.
#[derive(Debug)]
pub struct Member {
    key: Key,
    value: latest::Sender<Arc<[u8]>>,
    registered: latest::Receiver<bool>,
    task: JoinHandle<()>,
    leave: mpsc::Sender<()>,
}

impl Membership {
    /// Members of the group `name`; one that dies is gone when `time_to_live` is over.
    ///
    /// # Errors
    /// [`KeyError`] if the name is no segment of a key.
    pub fn new(
        store: Arc<dyn Store>,
        name: &str,
        time_to_live: Duration,
    ) -> Result<Membership, KeyError> {
        let folder = Prefix::of(&format!("members/{name}"))?;
        Ok(Membership { store, folder, time_to_live })
    }

    /// Who is there; an entry's name is the member's.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be asked.
    pub async fn members(&self) -> Result<Listing, StoreError> {
        self.store.list(&self.folder).await
    }

    /// Comings and goings after a revision.
    ///
    /// # Errors
    /// As [`Store::watch`].
    pub async fn watch(&self, after: Revision) -> Result<Watch, StoreError> {
        self.store.watch(self.folder.clone(), after).await
    }

    /// Joins as `name`, telling `value`, and stays: a member whose lease is lost, as after a long cut, joins
    /// again by itself.
    ///
    /// A member that died keeps its name until its lease is over, so a restarted one may have to wait for that.
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

    /// Puts the key under the lease; the answer is who has it otherwise.
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
                // Ours already: an update, or an answer that was lost.
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
    /// Where it stands.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Tells something else from now on. It arrives when the store can be reached.
    pub fn tell(&self, value: Arc<[u8]>) {
        self.value.send_replace(value);
    }

    /// Whether others see it, as far as is known here.
    pub fn is_registered(&self) -> bool {
        *self.registered.borrow()
    }

    /// Goes, and waits until the store was told or could not be.
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

/// What the task that stays a member works with.
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
                // What could not be told is told again.
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
