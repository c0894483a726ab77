use std::time::Duration;

use crate::{LeaseId, TransactionError};

/// Underlying error.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The transaction violates a limit of every store.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// The store has reached its size limit.
    #[error("the store is full: {limit}. Delete what is not needed, or raise the limit")]
    Full {
        /// The limit, and where it is set.
        limit: String,
    },
    /// The file system has no space left.
    #[error(
        "no space left for the store's file {path}: free some; the store goes on by itself then"
    )]
    DiskFull {
        /// Path of the file.
        path: String,
        /// Whether the write may have been done.
        outcome: Outcome,
        /// Error of the system call.
        #[source]
        source: Cause,
    },
    /// Writing to the disk failed.
    #[error("cannot write the store's file {path}")]
    Disk {
        /// Path of the file.
        path: String,
        /// Whether the write may have been done.
        outcome: Outcome,
        /// Underlying error.
        #[source]
        source: Cause,
    },
    /// The lease has ended or never existed.
    #[error("lease {0} has ended: what was under it is gone; ask for a new one")]
    LeaseEnded(LeaseId),
    /// The store is unreachable or has no majority.
    #[error(
        "the store did not answer within {patience:?}: are its members up, and a majority of them?"
    )]
    Unavailable {
        /// Time for which the request was tried.
        patience: Duration,
        /// Whether the write may have been done.
        outcome: Outcome,
        /// The last error.
        #[source]
        source: Cause,
    },
    /// The store denied access.
    #[error("the store refuses: check user, password, certificate and the role's permissions")]
    Denied(#[source] Cause),
    /// Any other error of the store.
    #[error("the store answered with an error")]
    Other(#[source] Cause),
    /// This end of the store was closed.
    #[error("the store is closed")]
    Closed,
}

/// Knowledge about a failed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The write was not and will not be done.
    NotDone,
    /// The write may have been done, or may still be done. Read before writing again.
    Unknown,
}

impl StoreError {
    /// Returns whether a write that failed with this error may have been done.
    pub fn outcome(&self) -> Outcome {
        match self {
            StoreError::DiskFull { outcome, .. }
            | StoreError::Disk { outcome, .. }
            | StoreError::Unavailable { outcome, .. } => *outcome,
            StoreError::Other(_) | StoreError::Closed => Outcome::Unknown,
            StoreError::Transaction(_)
            | StoreError::Full { .. }
            | StoreError::LeaseEnded(_)
            | StoreError::Denied(_) => Outcome::NotDone,
        }
    }

    /// Whether the request may succeed later without any change on this side.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            StoreError::DiskFull { .. }
                | StoreError::Disk { .. }
                | StoreError::Full { .. }
                | StoreError::Unavailable { .. }
        )
    }
}
