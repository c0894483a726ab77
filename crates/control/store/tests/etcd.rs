//! The etcd store: the common behaviour, with one real member.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod behaviour;
mod support;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use behaviour::{Bench, behaviour};
use equipoise_store::{Etcd, Prefix, Store};
use support::etcd::{Members, connect, patient};
use support::key;

struct Namespace {
    store: Arc<Etcd>,
    endpoint: String,
    _alone: Option<Members>,
}

/// The member that all tests of this file share; it dies with the process.
fn member() -> Option<&'static Members> {
    static MEMBER: OnceLock<Option<Members>> = OnceLock::new();
    MEMBER.get_or_init(|| Members::start(1, "http", &[])).as_ref()
}

async fn patiently(member: &Members, namespace: &str) -> Etcd {
    connect(patient(member.options(namespace))).await
}

async fn namespace() -> Option<Namespace> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let member = member()?;
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let store = Arc::new(patiently(member, &format!("test/{number}")).await);
    Some(Namespace { store, endpoint: member.endpoint(0), _alone: None })
}

/// Starts a separate member, because compaction affects all users of a member.
async fn alone() -> Option<Namespace> {
    let member = Members::start(1, "http", &[])?;
    let store = Arc::new(patiently(&member, "test").await);
    let endpoint = member.endpoint(0);
    Some(Namespace { store, endpoint, _alone: Some(member) })
}

#[async_trait]
impl Bench for Namespace {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn forget_history(&self) {
        let now = self.store.list(&Prefix::all()).await.unwrap().revision;
        let mut client = etcd_client::Client::connect([&self.endpoint], None).await.unwrap();
        client.compact(now.0.cast_signed(), None).await.unwrap();
    }

    fn time_to_live(&self) -> Duration {
        Duration::from_secs(3)
    }
}

behaviour!(namespace);
behaviour!(alone: a_watch_that_missed_forgotten_history_is_told_all_anew);

#[tokio::test]
async fn namespaces_do_not_see_each_other() {
    let Some(member) = member() else { return };
    let one = patiently(member, "apart/one").await;
    let two = patiently(member, "apart/two").await;
    one.put(&key("a/1"), b"one".as_slice().into()).await.unwrap();
    assert_eq!(two.get(&key("a/1")).await.unwrap(), None);
    let around = patiently(member, "apart").await;
    assert_eq!(around.list(&Prefix::all()).await.unwrap().entries.len(), 1);
}

#[tokio::test]
async fn invalid_keys_of_other_programs_in_the_namespace_are_ignored() {
    let Some(member) = member() else { return };
    let store = patiently(member, "shared").await;
    let start = store.put(&key("a/1"), b"ours".as_slice().into()).await.unwrap();
    let mut watch = store.watch(Prefix::all(), start).await.unwrap();
    let mut client = etcd_client::Client::connect([member.endpoint(0)], None).await.unwrap();
    client.put("shared/not a key", "", None).await.unwrap();
    let ours = store.put(&key("a/2"), b"ours".as_slice().into()).await.unwrap();
    assert_eq!(store.list(&Prefix::all()).await.unwrap().entries.len(), 2);
    match behaviour::next(&mut watch).await {
        equipoise_store::WatchEvent::Update(update) => assert_eq!(update.revision, ours),
        other => panic!("{other:?}"),
    }
}
