//! A controller that receives changes of the store late.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_cluster::{NodeClient, StateFile};
use equipoise_store::{
    Committed, Entry, Key, Lease, LeaseId, Listing, Prefix, Revision, Store, StoreError,
    Transaction, Watch,
};
use tokio::sync::Semaphore;

use crate::bed::{Bed, count, eventually, name, report, until};

/// A store that reports no change before `open` has permits.
#[derive(Debug)]
struct Lagging {
    store: Arc<dyn Store>,
    open: Arc<Semaphore>,
}

#[async_trait]
impl Store for Lagging {
    async fn get(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.store.get(key).await
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, StoreError> {
        self.store.list(prefix).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Committed, StoreError> {
        self.store.commit(transaction).await
    }

    async fn watch(&self, prefix: Prefix, after: Revision) -> Result<Watch, StoreError> {
        drop(self.open.acquire().await);
        self.store.watch(prefix, after).await
    }

    async fn grant(&self, time_to_live: Duration) -> Result<Lease, StoreError> {
        self.store.grant(time_to_live).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        self.store.keep_alive(lease).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.revoke(lease).await
    }
}

#[tokio::test]
async fn a_node_that_joined_again_is_evicted_no_longer_than_a_controller_refuses_it() {
    let bed = Bed::new().await;
    let (one, desk) = bed.controller().await;
    let client = bed.joined("a", &[&one]).await;
    bed.operator(&one).evict(&name("a")).await.unwrap();
    eventually("it is evicted", || {
        client.report(&report());
        *client.is_evicted().borrow()
    })
    .await;
    drop(client);
    let before = desk.reported().len();

    // The other controller has seen the eviction, and sees no later change.
    let open = Arc::new(Semaphore::new(0));
    let store = Arc::new(Lagging { store: Arc::clone(&bed.store), open: Arc::clone(&open) });
    let (two, _) = bed.controller_over(store, |_| ()).await;
    let state = bed.state("a");
    std::fs::remove_file(state.path_of(StateFile::NodeCertificate)).unwrap();
    let token = bed.token(true, Some("a")).await;
    let back = NodeClient::start(bed.options("a", &[&one, &two], Some(token)));
    until(&back, |status| status.certificate_until.is_some()).await;
    let mut evicted = back.is_evicted();
    eventually("one takes its reports and the other refuses it", || {
        back.report(&report());
        desk.reported().len() > before
            && count(&two, "refused_evicted") > 0
            && *evicted.borrow_and_update()
    })
    .await;

    open.add_permits(1);
    eventually("no controller refuses it", || {
        back.report(&report());
        !*evicted.borrow_and_update()
    })
    .await;
}
