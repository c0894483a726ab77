//! Work for the folder of checkpoints, which the caller of a [`Driver`] does elsewhere: the folder
//! may block.

use std::time::Duration;

use crate::ids::{HandoverId, SliceId};
use crate::message::SnapshotId;
use crate::transport::{Driver, Transport};
use crate::worker::Checkpoint;

/// Work for the folder of checkpoints.
#[derive(Debug, Clone)]
pub enum FolderTask {
    /// See [`crate::worker::Output::Store`].
    Store(SliceId, Checkpoint),
    /// See [`crate::worker::Output::Load`]. The flag: no worker has a checkpoint of the slice.
    Load(SliceId, HandoverId, bool),
}

/// Work for the folder that is done.
#[derive(Debug)]
pub enum FolderDone {
    /// The checkpoint is in the folder, or that failed.
    Stored(SliceId, SnapshotId, bool),
    /// The last checkpoint in the folder, if there is one and it can be read.
    Loaded(SliceId, HandoverId, Option<Checkpoint>),
}

impl<T: Clone, N: Transport<T>> Driver<T, N> {
    /// New work for the folder of checkpoints. [`Driver::folder_done`] must follow for each.
    pub fn folder_tasks(&mut self) -> std::vec::Drain<'_, FolderTask> {
        self.folder.drain(..)
    }

    /// Work for the folder is done.
    ///
    /// # Errors
    /// Errors of the transport.
    pub fn folder_done(&mut self, now: Duration, done: FolderDone) -> Result<(), N::Error> {
        match done {
            FolderDone::Stored(slice, version, is_there) => {
                self.worker.stored(now, slice, version, is_there);
            }
            FolderDone::Loaded(slice, epoch, stored) => {
                self.worker.loaded(now, slice, epoch, stored);
            }
        }
        self.carry_out()
    }
}
