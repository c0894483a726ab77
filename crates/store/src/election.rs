use std::sync::Arc;
use std::time::Duration;

use crate::{
    Committed, Entry, Expect, HeldLease, Key, KeyError, Prefix, Refusal, Revision, Store,
    StoreError, Transaction, WatchEvent,
};

/// Of two leaders, the one with the larger term came later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub Revision);

impl std::fmt::Display for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An office that one candidate at a time holds.
///
/// The leader is who has put the office's key under its lease; the term is the revision at which that key
/// was made. A leader that was paused does not know that it is none any more, so being leader is never
/// enough to write: [`Leadership::fence`] makes the store itself refuse what a former leader writes, however
/// late it arrives.
#[derive(Clone, Debug)]
pub struct Election {
    store: Arc<dyn Store>,
    office: Prefix,
    key: Key,
    time_to_live: Duration,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// What the candidate calls itself.
    pub name: String,
    /// Since when.
    pub term: Term,
}

/// Being leader. Dropping it lets the lease end ([`HeldLease`] says when); [`Leadership::resign`] makes room at once.
#[derive(Debug)]
pub struct Leadership {
    key: Key,
    term: Term,
    lease: HeldLease,
}

impl Election {
    /// The office `name`. In a shared store a leader that dies is replaced when `time_to_live` is over; in a store
    /// of one process the leader leads for as long as the store is open.
    ///
    /// # Errors
    /// [`KeyError`] if the name is no segment of a key.
    pub fn new(
        store: Arc<dyn Store>,
        name: &str,
        time_to_live: Duration,
    ) -> Result<Election, KeyError> {
        let office = Prefix::of(&format!("election/{name}"))?;
        let key = office.key("leader")?;
        Ok(Election { store, office, key, time_to_live })
    }

    /// Who leads now.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be asked.
    pub async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        Ok(self.store.get(&self.key).await?.map(|entry| leader(&entry)))
    }

    /// Waits until `candidate` leads, however long that takes. While the store cannot be reached, it waits on.
    ///
    /// # Errors
    /// [`StoreError`], if waiting does not help.
    pub async fn campaign(&self, candidate: &str) -> Result<Leadership, StoreError> {
        self.campaign_telling(candidate, |error| {
            tracing::warn!(candidate, office = %self.office, %error, "no campaign yet");
        })
        .await
    }

    /// The same; `told` hears of each failure after which it waits on.
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

    /// With one lease: to the office, or until that lease is lost.
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
                // Our own, from a commit whose answer was lost.
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
    /// Larger than that of every leader before.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Whether this is surely the leader now, by this machine's clock. For deciding whether to work; writes
    /// need [`Leadership::fence`].
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// Returns when this may no longer be the leader. Safe to cancel.
    pub async fn lost(&mut self) {
        self.lease.lost().await;
    }

    /// The same transaction, which the store refuses unless this is still the leader.
    #[must_use]
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        transaction.require(self.key.clone(), Expect::Created(self.term.0))
    }

    /// Whether it was the fence that refused, and not a condition of one's own.
    pub fn is_fenced_off(&self, refusal: &Refusal) -> bool {
        refusal.key == self.key && refusal.expected == Expect::Created(self.term.0)
    }

    /// Steps down, so that the next need not wait.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be told; the lease then runs out.
    pub async fn resign(self) -> Result<(), StoreError> {
        self.lease.release().await
    }
}
