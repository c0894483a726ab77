//! Follows in the store whose keys operators have shut out.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_store::{Change, Entry, StoreError, WatchEvent};
use tokio::sync::watch;

pub(crate) use crate::evicted::Evictions;
use crate::token::NodeRecord;
use crate::{Fingerprint, Tokens};

/// A task that follows the store, and what it knows. While the store is away, what was known holds.
pub(crate) fn follow(tokens: Tokens) -> (impl Future<Output = ()>, watch::Receiver<Evictions>) {
    let (tell, told) = watch::channel(Evictions::default());
    let task = async move {
        loop {
            if let Err(error) = follow_once(&tokens, &tell).await {
                tracing::warn!(%error, "evictions cannot be followed; those known hold");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    (task, told)
}

async fn follow_once(tokens: &Tokens, tell: &watch::Sender<Evictions>) -> Result<(), StoreError> {
    let (store, folder) = tokens.nodes();
    let listing = store.list(folder).await?;
    let mut known = BTreeMap::new();
    listing.entries.iter().for_each(|entry| note(&mut known, entry));
    tell.send_replace(Evictions::new(known.clone()));
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
            let differs = *told.by_node() != known;
            if differs {
                *told = Evictions::new(known.clone());
            }
            differs
        });
    }
}

fn note(known: &mut BTreeMap<String, Vec<Fingerprint>>, entry: &Entry) {
    let name = entry.key.name().to_string();
    match serde_json::from_slice::<NodeRecord>(&entry.value) {
        Ok(record) if record.evicted.is_empty() => drop(known.remove(&name)),
        Ok(record) => {
            known.insert(name, record.evicted.into_iter().map(|one| one.key).collect());
        }
        Err(error) => tracing::warn!(key = %entry.key, %error, "the node's record is unreadable"),
    }
}
