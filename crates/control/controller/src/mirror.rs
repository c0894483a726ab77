use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use equipoise_store::{Change, Entry, Key, Prefix, Store, StoreError, WatchEvent};

/// A folder of the store, kept up to date in memory.
pub(crate) struct Mirror {
    store: Arc<dyn Store>,
    folder: Prefix,
    entries: BTreeMap<Key, Entry>,
}

/// Interval between attempts while the store fails.
const RETRY: Duration = Duration::from_secs(1);

impl Mirror {
    pub(crate) fn new(store: Arc<dyn Store>, folder: Prefix) -> Mirror {
        Mirror { store, folder, entries: BTreeMap::new() }
    }

    /// Calls `see` with the content of the folder, now and after every change, for ever. Calls
    /// `failed` with each error of the store.
    pub(crate) async fn run(
        mut self,
        mut see: impl FnMut(&BTreeMap<Key, Entry>),
        mut failed: impl FnMut(&StoreError),
    ) {
        loop {
            if let Err(error) = self.follow(&mut see).await {
                failed(&error);
                if matches!(error, StoreError::Closed) {
                    return;
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn follow(
        &mut self,
        see: &mut impl FnMut(&BTreeMap<Key, Entry>),
    ) -> Result<(), StoreError> {
        let listing = self.store.list(&self.folder).await?;
        let mut watch = self.store.watch(self.folder.clone(), listing.revision).await?;
        self.take(WatchEvent::Resync(listing));
        loop {
            see(&self.entries);
            let event = watch.next().await?;
            self.take(event);
        }
    }

    fn take(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Resync(listing) => {
                let entries = listing.entries.into_iter();
                self.entries = entries.map(|entry| (entry.key.clone(), entry)).collect();
            }
            WatchEvent::Update(update) => {
                for change in update.changes {
                    match change {
                        Change::Put(entry) => drop(self.entries.insert(entry.key.clone(), entry)),
                        Change::Deleted(key) => drop(self.entries.remove(&key)),
                    }
                }
            }
        }
    }
}
