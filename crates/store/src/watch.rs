use async_trait::async_trait;

use crate::{Listing, StoreError, Update};

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A transaction changed something in the folder. Its other changes, if any, are left out.
    Update(Update),
    /// What happened since the last event is no longer known (the history was compacted, or the store is
    /// not the one it was). Replace all that you know of the folder with this; updates go on after it.
    Resync(Listing),
}

/// Changes of a folder, in order, each once. Made by [`crate::Store::watch`].
///
/// It survives lost connections and members by itself. A slow reader costs no memory: it is given a
/// [`WatchEvent::Resync`] once what it has not read is forgotten.
pub struct Watch {
    source: Box<dyn WatchSource>,
}

/// Where a [`Watch`] gets its events.
#[async_trait]
pub(crate) trait WatchSource: Send {
    /// See [`Watch::next`].
    async fn next(&mut self) -> Result<WatchEvent, StoreError>;
}

impl Watch {
    pub(crate) fn new(source: impl WatchSource + 'static) -> Watch {
        Watch { source: Box::new(source) }
    }

    /// Waits for the next event, however long the store is away. Safe to cancel: nothing is lost.
    ///
    /// # Errors
    /// Only those that do not pass: [`StoreError::Closed`], [`StoreError::Denied`].
    pub async fn next(&mut self) -> Result<WatchEvent, StoreError> {
        self.source.next().await
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
