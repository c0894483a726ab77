//! Tasks of the application.

use crate::ids::{HandoverId, SliceId};
use crate::message::Item;
#[cfg(doc)]
use crate::transport::Driver;
#[cfg(doc)]
use crate::worker::Output;

/// A task of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task<T> {
    /// Process the item; then call [`Driver::finished`].
    Execute(Item<T>),
    /// Import the slice's state. `None`: it was lost.
    Import {
        /// The slice.
        slice: SliceId,
        /// Its state.
        state: Option<Vec<u8>>,
    },
    /// Export the slice's state: [`Driver::exported`].
    Export {
        /// The handover.
        handover: HandoverId,
        /// The slice.
        slice: SliceId,
    },
    /// Give the slice's state, and keep it: [`Driver::exported`].
    Snapshot {
        /// The slice.
        slice: SliceId,
        /// Of [`Output::Snapshot`].
        number: u64,
    },
}

impl<T> Task<T> {
    /// Determines the slice. A state belongs to a whole slice, so it has the first key of the
    /// slice.
    pub(super) fn key(&self) -> u64 {
        match self {
            Self::Execute(item) => item.key,
            Self::Import { slice, .. }
            | Self::Export { slice, .. }
            | Self::Snapshot { slice, .. } => u64::from(slice.0),
        }
    }
}

/// The fencing token of an item: a sink compares it to refuse writes of a worker that was given up
/// and has not noticed yet.
///
/// The epochs of one slice increase from owner to owner, across losses and controllers. In strict
/// order an owner begins when the one before it has ended or is given up. So a sink may refuse
/// every epoch below the largest that it saw of the slice. In [`crate::Order::Free`] the earlier
/// owner may still process items that it had started: there a sink refuses a position of a writer
/// that it has seen.
///
/// # Source
/// Kleppmann, "How to do distributed locking", 2016; Gray, Cheriton, SOSP 1989 (leases).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// The slice.
    pub slice: SliceId,
    /// The handover that gave the slice to the worker.
    pub epoch: HandoverId,
    /// The writer of the item, in the domain.
    pub writer: u64,
    /// The position of the item at its writer. Writer and position identify the item.
    pub position: u64,
}

/// A task that the application started. It may not count any more when it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started<T> {
    pub(super) round: u64,
    pub(super) slice: SliceId,
    pub(super) epoch: HandoverId,
    /// See `Driver::discards`.
    pub(super) discards: u64,
    /// The task.
    pub task: Task<T>,
}

impl<T> Started<T> {
    /// The slice.
    pub fn slice(&self) -> SliceId {
        self.slice
    }

    /// See [`Driver::round`].
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The key of its item: at most one task per key is in progress.
    pub fn key(&self) -> u64 {
        self.task.key()
    }

    /// The token, for an item.
    pub fn token(&self) -> Option<Token> {
        let Task::Execute(item) = &self.task else { return None };
        let (writer, position) = (item.writer.id, item.position);
        Some(Token { slice: self.slice, epoch: self.epoch, writer, position })
    }
}
