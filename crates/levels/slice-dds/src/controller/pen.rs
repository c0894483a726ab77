//! Writing to the store while the office goes on.

use std::sync::Arc;

use equipoise_store::{Committed, Store, StoreError, Transaction};
use tokio::task::JoinSet;

use crate::controller::office::Deposed;

/// Writes to the store, one thing after the other, while the office goes on.
#[derive(Debug, Default)]
pub(super) struct Pen {
    /// Something is to be written that is not under way.
    pub(super) noted: bool,
    writing: Option<JoinSet<Result<Committed, StoreError>>>,
}

impl Pen {
    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Begins; what was under way has been finished.
    pub(super) fn write(&mut self, transaction: Transaction, store: &Arc<dyn Store>) {
        self.noted = false;
        let store = store.clone();
        // Dropped with this: one that is deposed leaves nothing that writes.
        let mut task = JoinSet::new();
        task.spawn(async move { store.commit(transaction).await });
        self.writing = Some(task);
    }

    /// Waits for what is under way.
    pub(super) async fn finish(&mut self) -> Result<(), Deposed> {
        if self.is_writing() { self.written().await } else { Ok(()) }
    }

    /// Returns when something is written that was under way; if nothing is, never. Safe to cancel.
    pub(super) async fn written(&mut self) -> Result<(), Deposed> {
        let Some(task) = &mut self.writing else { return std::future::pending().await };
        let ended = task.join_next().await;
        self.writing = None;
        match ended {
            None => Ok(()),
            Some(Ok(Ok(Committed::Done(_)))) => Ok(()),
            Some(Ok(Ok(Committed::Refused(_)))) => Err(Deposed::FencedOff),
            Some(Ok(Err(error))) => Err(error.into()),
            Some(Err(ended)) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Deposed::Lease),
            },
        }
    }
}
