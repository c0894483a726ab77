//! Writes to the store while the office continues.

use std::sync::Arc;

use equipoise_store::{Committed, Store, StoreError, Transaction};
use tokio::task::JoinSet;

use crate::controller::office::Deposed;

/// Writes to the store, one transaction at a time, while the office continues.
#[derive(Debug, Default)]
pub(super) struct Pen {
    /// The store lacks a change, and no write of it has started.
    pub(super) noted: bool,
    writing: Option<JoinSet<Result<Committed, StoreError>>>,
}

impl Pen {
    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Starts a write. The caller has waited for the end of the write before.
    pub(super) fn write(&mut self, transaction: Transaction, store: &Arc<dyn Store>) {
        self.noted = false;
        let store = store.clone();
        // The task ends when `Pen` is dropped: a deposed controller leaves no write running.
        let mut task = JoinSet::new();
        task.spawn(async move { store.commit(transaction).await });
        self.writing = Some(task);
    }

    /// Waits for the end of the present write, if there is one.
    pub(super) async fn finish(&mut self) -> Result<(), Deposed> {
        if self.is_writing() { self.written().await } else { Ok(()) }
    }

    /// Waits for the end of the present write; without one, waits for ever. Safe to cancel.
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
