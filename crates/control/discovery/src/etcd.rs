//! The keys below a prefix in etcd. Each value is a backend, as an entry of a list.

use std::time::Duration;

use async_trait::async_trait;
use equipoise_store::{EtcdPlace, OpenStore, Prefix, Watch};
use tokio::time::timeout;

use crate::list::entry;
use crate::source::{Read, Source, SourceError};

/// Longest time without a change until the keys are read again. A watch reports no lost member.
const READ_AGAIN: Duration = Duration::from_secs(10);

/// The keys below a prefix.
pub(crate) struct EtcdSource {
    place: EtcdPlace,
    /// The connection, once one was made.
    store: Option<OpenStore>,
    /// Changes after the last read.
    watch: Option<Watch>,
}

impl EtcdSource {
    pub(crate) fn new(place: EtcdPlace) -> EtcdSource {
        EtcdSource { place, store: None, watch: None }
    }
}

#[async_trait]
impl Source for EtcdSource {
    async fn read(&mut self) -> Result<Read, SourceError> {
        if self.store.is_none() {
            self.store = Some(OpenStore::etcd(&self.place).await?);
        }
        let Some(OpenStore { store, .. }) = &self.store else { return Ok(Read::default()) };
        let listing = store.list(&Prefix::all()).await?;
        let mut backends = Vec::with_capacity(listing.entries.len());
        for it in &listing.entries {
            let text = std::str::from_utf8(&it.value)?;
            backends.push(entry(text, it.key.as_str())?);
        }
        // A watch continues after its last event, so it outlives this read.
        if self.watch.is_none() {
            self.watch = Some(store.watch(Prefix::all(), listing.revision).await?);
        }
        Ok(backends.into())
    }

    async fn changed(&mut self) -> Result<(), SourceError> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        match timeout(READ_AGAIN, watch.next()).await {
            Ok(Err(error)) => {
                self.watch = None;
                Err(error.into())
            }
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }
}
