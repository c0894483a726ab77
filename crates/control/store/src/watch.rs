use async_trait::async_trait;

use crate::{Listing, StoreError, Update};

/// Event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A transaction changed keys of the folder. Its changes outside the folder are omitted.
    Update(Update),
    /// The changes since the last event are unknown: the history was compacted, or the store was
    /// replaced (a member of etcd that is behind looks the same). Replace all knowledge of the
    /// folder by this listing; updates continue after it.
    Resync(Listing),
}

/// Changes of a folder, in order, each once. Made by [`crate::Store::watch`].
///
/// A watch survives lost connections and members. A slow reader costs no memory: it gets a
/// [`WatchEvent::Resync`] when unread changes are no longer in the history.
pub struct Watch {
    source: Box<dyn WatchSource>,
}

/// Source of a [`Watch`]'s events.
#[async_trait]
pub(crate) trait WatchSource: Send {
    /// See [`Watch::next`].
    async fn next(&mut self) -> Result<WatchEvent, StoreError>;
}

impl Watch {
    pub(crate) fn new(source: impl WatchSource + 'static) -> Watch {
        Watch { source: Box::new(source) }
    }

    /// Waits for the next event, however long the store is unreachable. Cancel-safe: no event is
    /// lost.
    ///
    /// # Errors
    /// Only permanent errors: [`StoreError::Closed`], [`StoreError::Denied`].
    pub async fn next(&mut self) -> Result<WatchEvent, StoreError> {
        self.source.next().await
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
