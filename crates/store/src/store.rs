use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Committed, Entry, Expect, Key, Lease, LeaseId, Listing, Prefix, Revision, StoreError,
    Transaction, Watch,
};

/// Where the controller keeps what must outlive it. Both implementations pass the same tests
/// (`tests/behaviour`).
///
/// Reads see every write that was acknowledged before they began. A write that fails says whether it may be
/// there nevertheless: [`StoreError::outcome`].
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Whether other processes may use the store at the same time, and take over when this one dies.
    fn is_shared(&self) -> bool {
        true
    }

    /// What `key` has now.
    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError>;

    /// All that is in a folder, at one revision.
    async fn list(&self, prefix: &Prefix) -> Result<Listing, StoreError>;

    /// Does all of it at one revision, or nothing.
    async fn commit(&self, transaction: Transaction) -> Result<Committed, StoreError>;

    /// Every change of a folder that was made after a revision, such as a [`Listing`]'s.
    async fn watch(&self, prefix: Prefix, after: Revision) -> Result<Watch, StoreError>;

    /// A new lease, of at least this time.
    async fn grant(&self, time_to_live: Duration) -> Result<Lease, StoreError>;

    /// Starts the lease's time anew; how long that is.
    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError>;

    /// Ends the lease now, and deletes what is under it.
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError>;

    /// Gives `key` this value, whatever it had.
    async fn put(&self, key: &Key, value: Arc<[u8]>) -> Result<Revision, StoreError> {
        let put = Transaction::new().put(key.clone(), value);
        self.commit(put).await.map(unconditional)
    }

    /// Gives `key` this value if it is as expected.
    async fn compare_and_put(
        &self,
        key: &Key,
        expect: Expect,
        value: Arc<[u8]>,
    ) -> Result<Committed, StoreError> {
        let put = Transaction::new().require(key.clone(), expect).put(key.clone(), value);
        self.commit(put).await
    }

    /// Deletes `key`, if it is there.
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
