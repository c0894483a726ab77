//! Shared code of the store's tests: folders and processes.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

pub(crate) mod etcd;

use equipoise_store::{Key, Prefix, Watch, WatchEvent};

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).expect("a test's key")
}

pub(crate) fn folder(text: &str) -> Prefix {
    Prefix::of(text).expect("a test's folder")
}

/// Returns the next event; fails the test after the timeout.
pub(crate) async fn next(watch: &mut Watch) -> WatchEvent {
    let event = tokio::time::timeout(etcd::PATIENCE, watch.next()).await;
    event.expect("an event comes").expect("the watch lives")
}
