//! Follows the evicted keys in the store.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_store::{Change, Entry, StoreError, WatchEvent};
use tokio::sync::watch;

use crate::Tokens;
pub(crate) use crate::evicted::Evictions;
use crate::token::NodeRecord;

/// A task that follows the store, and its results. While the store fails, the last result holds.
pub(crate) fn follow(tokens: Tokens) -> (impl Future<Output = ()>, watch::Receiver<Evictions>) {
    let (tell, told) = watch::channel(Evictions::default());
    let task = async move {
        loop {
            if let Err(error) = follow_once(&tokens, &tell).await {
                tracing::warn!(%error, "cannot follow evictions; keeping the known ones");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    (task, told)
}

async fn follow_once(tokens: &Tokens, tell: &watch::Sender<Evictions>) -> Result<(), StoreError> {
    let (store, folder) = tokens.nodes();
    let listing = store.list(folder).await?;
    let mut known = Known::new();
    listing.entries.iter().for_each(|entry| note(&mut known, entry));
    tell.send_replace(evictions(&known));
    let mut watch = store.watch(folder.clone(), listing.revision).await?;
    loop {
        match watch.next().await? {
            WatchEvent::Resync(listing) => {
                known.clear();
                listing.entries.iter().for_each(|entry| note(&mut known, entry));
            }
            WatchEvent::Update(update) => {
                for change in &update.changes {
                    match change {
                        Change::Put(entry) => note(&mut known, entry),
                        Change::Deleted(key) => drop(known.remove(key.name())),
                    }
                }
            }
        }
        tell.send_if_modified(|told| {
            let now = evictions(&known);
            let differs = *told != now;
            *told = now;
            differs
        });
    }
}

/// Records that have refused keys, by node.
type Known = BTreeMap<String, NodeRecord>;

fn evictions(known: &Known) -> Evictions {
    let keys = |record: &NodeRecord| record.evicted.iter().map(|one| one.key).collect();
    let shut_out = known.iter().filter(|(_, record)| record.is_evicted(record.key));
    Evictions::new(known.iter().map(|(name, record)| (name.clone(), keys(record))).collect())
        .with_shut_out(shut_out.map(|(name, _)| name.clone()).collect())
}

fn note(known: &mut Known, entry: &Entry) {
    let name = entry.key.name().to_string();
    match serde_json::from_slice::<NodeRecord>(&entry.value) {
        Ok(record) if record.evicted.is_empty() => drop(known.remove(&name)),
        Ok(record) => drop(known.insert(name, record)),
        Err(error) => tracing::warn!(key = %entry.key, %error, "cannot decode a node's record"),
    }
}
