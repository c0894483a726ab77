//! The store of several machines: etcd.
//!
//! Every key is below the namespace. Reads are linearizable. A request is tried on one member after
//! another until its timeout. A write is retried only if it was certainly not done.

mod convert;
mod failure;
mod follow;
mod options;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, Error};
use tokio::time::{Instant, sleep, timeout_at};

use self::convert::Names;
use self::failure::{Verdict, judge, unavailable};
pub use self::options::{ConnectError, EtcdOptions, EtcdTls, EtcdUser};
use crate::{
    Committed, Entry, Key, Lease, LeaseId, Listing, Outcome, Prefix, Revision, Store, StoreError,
    Transaction, Watch,
};

/// Delay between attempts of a request.
const PAUSE: Duration = Duration::from_millis(20);

/// A [`Store`] in etcd.
#[derive(Clone)]
pub struct Etcd {
    client: Client,
    names: Arc<Names>,
    patience: Duration,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Whether a retry after an unknown outcome does harm.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// Reads and idempotent requests.
    Harmless,
    /// Writes.
    Harmful,
}

impl Etcd {
    /// Connects and reads once, so that configuration errors show at once.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(options: EtcdOptions) -> Result<Etcd, ConnectError> {
        let names = Arc::new(Names::new(options.check()?));
        let (patience, end) = (options.patience, Instant::now() + options.patience);
        let endpoints = options.endpoints.join(", ");
        let unusable = |source| ConnectError::Unusable { endpoints: endpoints.clone(), source };
        let mut last = None;
        // With a user, connecting already contacts a member.
        let client = loop {
            let connecting = Client::connect(&options.endpoints, Some(options.to_client()));
            let error = match timeout_at(end, connecting).await {
                Ok(Ok(client)) => break client,
                Ok(Err(Error::TransportError(error))) if options.user.is_none() => {
                    return Err(ConnectError::SetUp(Box::new(error)));
                }
                Ok(Err(error)) => error,
                Err(_) => return Err(unusable(unavailable(patience, Outcome::NotDone, last))),
            };
            match judge(error, None) {
                (Verdict::GiveUp(error), _) => return Err(unusable(error)),
                (Verdict::TryAgain(_), error) => last = Some(error),
            }
            sleep(PAUSE).await;
        };
        let etcd = Etcd { client, names, patience };
        let probe = Key::new("probe")?;
        etcd.get(&probe).await.map_err(unusable)?;
        Ok(etcd)
    }

    /// Retries until success, a permanent error or the timeout.
    async fn attempt<T, F>(
        &self,
        repeat: Repeat,
        lease: Option<LeaseId>,
        mut request: impl FnMut(Client) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let end = Instant::now() + self.patience;
        let mut last = None;
        loop {
            let Ok(answer) = timeout_at(end, request(self.client.clone())).await else {
                return Err(unavailable(self.patience, Outcome::Unknown, last));
            };
            let error = match answer {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let (outcome, error) = match judge(error, lease) {
                (Verdict::GiveUp(error), _) => return Err(error),
                (Verdict::TryAgain(outcome), error) => (outcome, error),
            };
            let stop = repeat == Repeat::Harmful && outcome == Outcome::Unknown;
            if stop || Instant::now() + PAUSE >= end {
                return Err(unavailable(self.patience, outcome, Some(error)));
            }
            last = Some(error);
            sleep(PAUSE).await;
        }
    }

    /// Lists a folder.
    async fn list_folder(&self, prefix: &Prefix) -> Result<Listing, StoreError> {
        let folder = self.names.folder(prefix);
        let answer = self
            .attempt(Repeat::Harmless, None, |client| {
                let folder = folder.clone();
                let options = etcd_client::GetOptions::new().with_prefix();
                async move { client.kv_client().get(folder, Some(options)).await }
            })
            .await?;
        self.names.listing(&answer)
    }
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        let name = self.names.key(key);
        let answer = self
            .attempt(Repeat::Harmless, None, |client| {
                let name = name.clone();
                async move { client.kv_client().get(name, None).await }
            })
            .await?;
        Ok(answer.kvs().first().and_then(|kv| self.names.entry(kv)))
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, StoreError> {
        self.list_folder(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Committed, StoreError> {
        transaction.check()?;
        let txn = self.names.transaction(&transaction);
        let lease = transaction.writes().iter().find_map(|write| match write {
            crate::Write::Put { lease, .. } => *lease,
            crate::Write::Delete { .. } => None,
        });
        let answer = self
            .attempt(Repeat::Harmful, lease, |client| {
                let txn = txn.clone();
                async move { client.kv_client().txn(txn).await }
            })
            .await?;
        self.names.committed(&transaction, &answer)
    }

    async fn watch(&self, prefix: Prefix, after: Revision) -> Result<Watch, StoreError> {
        Ok(Watch::new(follow::Follower::new(self.clone(), prefix, after)))
    }

    async fn grant(&self, time_to_live: Duration) -> Result<Lease, StoreError> {
        let seconds = time_to_live.as_millis().div_ceil(1000).clamp(1, 1 << 20) as i64;
        // A lease granted by an attempt whose answer was lost expires.
        let answer = self
            .attempt(Repeat::Harmless, None, |client| async move {
                client.lease_client().grant(seconds, None).await
            })
            .await?;
        Ok(Lease {
            id: convert::lease_id(answer.id()),
            time_to_live: convert::seconds(answer.ttl()),
        })
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        // The client does not report the remaining time with its first answer, so this sends a
        // keep-alive.
        self.attempt(Repeat::Harmless, Some(lease), |client| async move {
            let id = convert::lease_number(lease);
            let (mut keeper, mut answers) = client.lease_client().keep_alive(id).await?;
            keeper.keep_alive().await?;
            match answers.message().await? {
                Some(answer) if answer.ttl() > 0 => Ok(convert::seconds(answer.ttl())),
                _ => Err(Error::LeaseKeepAliveError("lease not found".to_string())),
            }
        })
        .await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.attempt(Repeat::Harmless, Some(lease), |client| async move {
            client.lease_client().revoke(convert::lease_number(lease)).await
        })
        .await
        .map(drop)
    }
}
