use std::sync::Arc;
use std::time::Duration;

use crate::{
    Committed, Entry, Expect, HeldLease, Key, KeyError, Prefix, Refusal, Revision, Store,
    StoreError, Transaction, WatchEvent,
};

/// Term of a leader. Of two leaders, the one with the larger term is the later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub Revision);

impl std::fmt::Display for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An office that one candidate at a time holds.
///
/// The leader is the candidate with the office's key under its lease. The term is the revision that
/// created this key. A paused leader does not notice that it has been replaced, so leadership alone
/// never justifies a write: [`Leadership::fence`] makes the store reject the writes of a former
/// leader, however late they arrive.
#[derive(Clone, Debug)]
pub struct Election {
    store: Arc<dyn Store>,
    office: Prefix,
    key: Key,
    time_to_live: Duration,
}

/// The current leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Name of the candidate.
    pub name: String,
    /// Term of the leader.
    pub term: Term,
}

/// Leadership of an office. Dropping it lets the lease expire (see [`HeldLease`]);
/// [`Leadership::resign`] vacates the office at once.
#[derive(Debug)]
pub struct Leadership {
    key: Key,
    term: Term,
    lease: HeldLease,
}

impl Election {
    /// Refers to the office `name`. In a shared store, another candidate replaces a dead leader
    /// after `time_to_live`. In a store of one process, the leader leads as long as the store is
    /// open.
    ///
    /// # Errors
    /// [`KeyError`] if the name is not a valid key segment.
    pub fn new(
        store: Arc<dyn Store>,
        name: &str,
        time_to_live: Duration,
    ) -> Result<Election, KeyError> {
        let office = Prefix::of(&format!("election/{name}"))?;
        let key = office.key("leader")?;
        Ok(Election { store, office, key, time_to_live })
    }

    /// Returns the current leader.
    ///
    /// # Errors
    /// [`StoreError`] if the store does not answer.
    pub async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        Ok(self.store.get(&self.key).await?.map(|entry| leader(&entry)))
    }

    /// Waits until `candidate` leads, without a time limit. Keeps trying while the store is
    /// unreachable.
    ///
    /// # Errors
    /// [`StoreError`] for an error that does not go away by waiting.
    pub async fn campaign(&self, candidate: &str) -> Result<Leadership, StoreError> {
        self.campaign_telling(candidate, |error| {
            tracing::warn!(candidate, office = %self.office, %error, "no campaign yet");
        })
        .await
    }

    /// Like [`Self::campaign`]; calls `told` with each error after which it tries again.
    ///
    /// # Errors
    /// As [`Self::campaign`].
    pub async fn campaign_telling(
        &self,
        candidate: &str,
        mut told: impl FnMut(&StoreError) + Send,
    ) -> Result<Leadership, StoreError> {
        loop {
            match self.campaign_once(candidate, &mut told).await {
                Ok(Some(leadership)) => return Ok(leadership),
                Ok(None) => {}
                Err(error) if error.is_passing() => self.wait_after(&error, &mut told).await,
                Err(error) => return Err(error),
            }
        }
    }

    async fn wait_after(&self, error: &StoreError, told: &mut (impl FnMut(&StoreError) + Send)) {
        told(error);
        tokio::time::sleep(self.time_to_live / 10).await;
    }

    /// Campaigns with one lease. Returns `None` if the lease is lost.
    async fn campaign_once(
        &self,
        candidate: &str,
        told: &mut (impl FnMut(&StoreError) + Send),
    ) -> Result<Option<Leadership>, StoreError> {
        let mut lease = HeldLease::take(self.store.clone(), self.time_to_live).await?;
        loop {
            let listing = self.store.list(&self.office).await?;
            let holder = listing.entries.into_iter().find(|entry| entry.key == self.key);
            let term = match holder {
                // An earlier commit succeeded, and its answer was lost.
                Some(entry) if entry.lease == Some(lease.id()) => Term(entry.created),
                Some(_) => {
                    tokio::select! {
                        () = lease.lost() => return Ok(None),
                        vacant = self.until_vacant(listing.revision) => vacant?,
                    }
                    continue;
                }
                None => match self.take_office(candidate, &lease).await {
                    Ok(Committed::Done(revision)) => Term(revision),
                    Ok(Committed::Refused(_)) => continue,
                    Err(StoreError::LeaseEnded(_)) => return Ok(None),
                    Err(error) if error.is_passing() && lease.is_held() => {
                        self.wait_after(&error, told).await;
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            return Ok(Some(Leadership { key: self.key.clone(), term, lease }));
        }
    }

    async fn take_office(
        &self,
        candidate: &str,
        lease: &HeldLease,
    ) -> Result<Committed, StoreError> {
        let take = Transaction::new().require(self.key.clone(), Expect::Absent).put_leased(
            self.key.clone(),
            candidate.as_bytes(),
            lease.id(),
        );
        self.store.commit(take).await
    }

    async fn until_vacant(&self, after: Revision) -> Result<(), StoreError> {
        let mut watch = self.store.watch(self.office.clone(), after).await?;
        loop {
            match watch.next().await? {
                WatchEvent::Resync(listing) if listing.entries.is_empty() => return Ok(()),
                WatchEvent::Resync(_) => {}
                WatchEvent::Update(update) => {
                    let gone = crate::Change::Deleted(self.key.clone());
                    if update.changes.contains(&gone) {
                        return Ok(());
                    }
                }
            }
        }
    }
}

fn leader(entry: &Entry) -> Leader {
    let name = String::from_utf8_lossy(&entry.value).into_owned();
    Leader { name, term: Term(entry.created) }
}

impl Leadership {
    /// Returns the term, which is larger than that of every earlier leader.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Whether this is certainly the leader now, by this machine's clock. Use it to decide whether
    /// to work; writes need [`Leadership::fence`].
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// Resolves when this may no longer be the leader. Cancel-safe.
    pub async fn lost(&mut self) {
        self.lease.lost().await;
    }

    /// Adds the condition that this is still the leader; otherwise the store rejects the
    /// transaction.
    #[must_use]
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        transaction.require(self.key.clone(), Expect::Created(self.term.0))
    }

    /// Whether the fence caused this refusal, rather than another condition.
    pub fn is_fenced_off(&self, refusal: &Refusal) -> bool {
        refusal.key == self.key && refusal.expected == Expect::Created(self.term.0)
    }

    /// Resigns, so that the next leader does not have to wait.
    ///
    /// # Errors
    /// [`StoreError`] if the store is unreachable. The lease then expires.
    pub async fn resign(self) -> Result<(), StoreError> {
        self.lease.release().await
    }
}
