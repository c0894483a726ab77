use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Committed, Entry, Expect, Key, Lease, LeaseId, Listing, Prefix, Revision, StoreError,
    Transaction, Watch,
};

/// Persistent storage of the controller. Both implementations pass the same tests
/// (`tests/behaviour`).
///
/// Reads see every write that was acknowledged before they began. A failed write reports whether it
/// may have been done: [`StoreError::outcome`].
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Whether other processes may use the store at the same time, and take over when this one
    /// dies.
    fn is_shared(&self) -> bool {
        true
    }

    /// Returns the current entry of `key`.
    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError>;

    /// Returns all entries of a folder, at one revision.
    async fn list(&self, prefix: &Prefix) -> Result<Listing, StoreError>;

    /// Performs a transaction at one revision, or not at all.
    async fn commit(&self, transaction: Transaction) -> Result<Committed, StoreError>;

    /// Watches the changes of a folder after a revision, for example that of a [`Listing`].
    async fn watch(&self, prefix: Prefix, after: Revision) -> Result<Watch, StoreError>;

    /// Grants a lease of at least this duration.
    async fn grant(&self, time_to_live: Duration) -> Result<Lease, StoreError>;

    /// Renews a lease. Returns its time to live.
    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError>;

    /// Ends a lease now and deletes the entries under it.
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError>;

    /// Puts a value unconditionally.
    async fn put(&self, key: &Key, value: Arc<[u8]>) -> Result<Revision, StoreError> {
        let put = Transaction::new().put(key.clone(), value);
        self.commit(put).await.map(unconditional)
    }

    /// Puts a value if the key is as expected.
    async fn compare_and_put(
        &self,
        key: &Key,
        expect: Expect,
        value: Arc<[u8]>,
    ) -> Result<Committed, StoreError> {
        let put = Transaction::new().require(key.clone(), expect).put(key.clone(), value);
        self.commit(put).await
    }

    /// Deletes `key` if it exists.
    async fn delete(&self, key: &Key) -> Result<Revision, StoreError> {
        self.commit(Transaction::new().delete(key.clone())).await.map(unconditional)
    }
}

fn unconditional(committed: Committed) -> Revision {
    match committed {
        Committed::Done(revision) => revision,
        Committed::Refused(refusal) => unreachable!("there was no condition to refuse: {refusal}"),
    }
}
