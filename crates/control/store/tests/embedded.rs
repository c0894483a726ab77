//! The embedded store: the common behaviour, and that of its file.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod behaviour;
mod support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use behaviour::{Bench, behaviour};
use equipoise_store::{Embedded, EmbeddedOptions, OpenError, Store, StoreError, Transaction};
use equipoise_testkit::Folder;
use support::key;

struct File {
    store: Arc<Embedded>,
    _folder: Folder,
}

const HISTORY: usize = 1000;

async fn file() -> Option<File> {
    let folder = Folder::new("embedded");
    let mut options = EmbeddedOptions::new(folder.path("state"));
    options.history_changes_max = HISTORY;
    let store = Arc::new(Embedded::open(options).await.unwrap());
    Some(File { store, _folder: folder })
}

#[async_trait]
impl Bench for File {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn forget_history(&self) {
        for round in 0..=HISTORY / 50 {
            let many = (0..50).fold(Transaction::new(), |t, i| {
                t.put(key(&format!("noise/{i}")), round.to_string().into_bytes())
            });
            behaviour::done(self.store.commit(many).await.unwrap());
        }
    }

    fn time_to_live(&self) -> Duration {
        // A busy disk may take a second for a write.
        Duration::from_secs(3)
    }
}

behaviour!(file);
behaviour!(file: a_watch_that_missed_forgotten_history_is_told_all_anew);

async fn open(folder: &Folder) -> Result<Embedded, OpenError> {
    Embedded::open(EmbeddedOptions::new(folder.path("state"))).await
}

#[tokio::test]
async fn put_entries_survive_reopening_the_store() {
    let folder = Folder::new("restart");
    let mut expected = Vec::new();
    for round in 0..3 {
        let store = open(&folder).await.unwrap();
        for (name, entry) in &expected {
            assert_eq!(&store.get(name).await.unwrap(), entry);
        }
        let name = key(&format!("a/{round}"));
        store.put(&name, vec![round; 100].into()).await.unwrap();
        expected.push((name.clone(), store.get(&name).await.unwrap()));
        store.close().await;
    }
}

#[tokio::test]
async fn leased_entries_are_removed_when_the_store_reopens() {
    let folder = Folder::new("leases");
    let store = open(&folder).await.unwrap();
    let lease = store.grant(Duration::from_secs(600)).await.unwrap().id;
    let under = Transaction::new().put_leased(key("a/1"), *b"x", lease).put(key("a/2"), *b"y");
    behaviour::done(store.commit(under).await.unwrap());
    store.close().await;
    let store = open(&folder).await.unwrap();
    assert_eq!(store.get(&key("a/1")).await.unwrap(), None);
    assert!(store.get(&key("a/2")).await.unwrap().is_some());
    let fresh = store.grant(Duration::from_secs(600)).await.unwrap().id;
    assert_ne!(fresh, lease, "an old lease's number means nothing");
}

#[tokio::test]
async fn a_second_open_of_the_same_file_is_refused() {
    let folder = Folder::new("lock");
    let store = open(&folder).await.unwrap();
    assert!(matches!(open(&folder).await, Err(OpenError::InUse(_))));
    store.close().await;
    open(&folder).await.unwrap();
}

#[tokio::test]
async fn a_closed_store_fails_requests_and_watches_with_an_error() {
    let folder = Folder::new("closed");
    let store = open(&folder).await.unwrap();
    let mut watch = store.watch(behaviour::folder("a"), Default::default()).await.unwrap();
    store.clone().close().await;
    assert!(matches!(store.get(&key("a/1")).await, Err(StoreError::Closed)));
    assert!(matches!(
        store.put(&key("a/1"), b"x".as_slice().into()).await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(watch.next().await, Err(StoreError::Closed)));
}

#[tokio::test]
async fn a_full_store_refuses_puts_unless_a_delete_makes_room() {
    let folder = Folder::new("full");
    let mut options = EmbeddedOptions::new(folder.path("state"));
    options.size_bytes_max = 10_000;
    let store = Embedded::open(options).await.unwrap();
    store.put(&key("a/1"), vec![0; 6000].into()).await.unwrap();
    let error = store.put(&key("a/2"), vec![0; 6000].into()).await.unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(error.to_string().contains("10000"), "{error}");
    let swap = Transaction::new().delete(key("a/1")).put(key("a/2"), vec![0; 6000]);
    behaviour::done(store.commit(swap).await.unwrap());
}
