//! What the store's tests share: folders and processes of their own.
#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

pub(crate) mod etcd;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use equipoise_store::{Key, Prefix, Watch, WatchEvent};

/// A folder of a test's own, gone when it is.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).expect("a test's key")
}

pub(crate) fn folder(text: &str) -> Prefix {
    Prefix::of(text).expect("a test's folder")
}

/// The next event, or the test fails.
pub(crate) async fn next(watch: &mut Watch) -> WatchEvent {
    let event = tokio::time::timeout(etcd::PATIENCE, watch.next()).await;
    event.expect("an event comes").expect("the watch lives")
}
