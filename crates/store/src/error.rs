use std::time::Duration;

use crate::{LeaseId, TransactionError};

/// What went wrong underneath.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No store does this.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// The store is as large as it may be.
    #[error("the store is full: {limit}. Delete what is not needed, or raise the limit")]
    Full {
        /// Which limit, and where it is set.
        limit: String,
    },
    /// The file system has no space.
    #[error(
        "no space left for the store's file {path}: free some; the store goes on by itself then"
    )]
    DiskFull {
        /// The file.
        path: String,
        /// Whether it was written nevertheless.
        outcome: Outcome,
        /// What the kernel said.
        #[source]
        source: Cause,
    },
    /// The disk does not do what it should.
    #[error("cannot write the store's file {path}")]
    Disk {
        /// The file.
        path: String,
        /// Whether it was written nevertheless.
        outcome: Outcome,
        /// What went wrong.
        #[source]
        source: Cause,
    },
    /// The lease has ended, or never was.
    #[error("lease {0} has ended: what was under it is gone; ask for a new one")]
    LeaseEnded(LeaseId),
    /// The store cannot be reached, or has no majority.
    #[error(
        "the store did not answer within {patience:?}: are its members up, and a majority of them?"
    )]
    Unavailable {
        /// How long it was tried.
        patience: Duration,
        /// Whether it was done nevertheless.
        outcome: Outcome,
        /// The last thing that went wrong.
        #[source]
        source: Cause,
    },
    /// The store knows us, or does not, and says no.
    #[error("the store refuses: check user, password, certificate and the role's permissions")]
    Denied(#[source] Cause),
    /// Not among what is expected of it.
    #[error("the store answered with an error")]
    Other(#[source] Cause),
    /// This end was closed.
    #[error("the store is closed")]
    Closed,
}

/// What is known of a write that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was written, nor will be.
    NotDone,
    /// It may have been written, or may yet be. Read before you write again.
    Unknown,
}

impl StoreError {
    /// Whether the write that failed so may be there nevertheless.
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

    /// Whether the same may succeed a little later with nobody changing anything here.
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
