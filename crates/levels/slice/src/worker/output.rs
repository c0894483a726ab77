//! Outputs of a worker, which its caller carries out.

use std::sync::Arc;

use crate::ids::{Group, HandoverId, SliceId};
use crate::message::{Covered, Envelope, Item};
use crate::numbering::Numbering;
use crate::worker::Checkpoint;
#[cfg(doc)]
use crate::worker::Worker;

/// Outputs that the caller has to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<T> {
    /// Send it.
    Send(Envelope<T>),
    /// Execute it in the application, after all earlier items of its slice; then call
    /// [`Worker::finished`].
    Execute(Item<T>),
    /// A finished item was published again: its reply may be lost. Send the reply again if it is
    /// known.
    Answer(Item<T>),
    /// The slices are cut: take back every item of them that is not started, and call
    /// [`Worker::recalled`] before starting any other of them.
    Recall {
        /// The handover.
        handover: HandoverId,
        /// The slices.
        slices: Arc<[SliceId]>,
    },
    /// The slice is drained: export its state from the application, and call [`Worker::exported`].
    Export {
        /// The handover.
        handover: HandoverId,
        /// The slice.
        slice: SliceId,
    },
    /// Import the slice's state into the application, before the next outputs. `None`: it was lost
    /// with its worker.
    Import {
        /// The slice.
        slice: SliceId,
        /// The exported state.
        state: Option<Vec<u8>>,
    },
    /// Export the slice's state from the application before its next item, and call
    /// [`Worker::snapshotted`]. The slice stays.
    Snapshot {
        /// The slice.
        slice: SliceId,
        /// The number of the snapshot.
        number: u64,
    },
    /// The state of the slice will be replaced by its last checkpoint: drop every task of the slice
    /// that is not started, and do not count the one that is.
    Discard(SliceId),
    /// Tell clients that these items are in a checkpoint.
    Covered(Covered),
    /// Write the checkpoint of the slice to the folder of checkpoints, and call [`Worker::stored`]
    /// when it is there, or when that fails or takes too long.
    Store(SliceId, Checkpoint),
    /// Read the last checkpoint of the slice from the folder, and call [`Worker::loaded`].
    Load {
        /// The slice.
        slice: SliceId,
        /// The epoch for [`Worker::loaded`].
        epoch: HandoverId,
        /// No worker has a checkpoint of the slice.
        is_last: bool,
    },
    /// Open a reader; then call [`Worker::subscribed`], and later [`Worker::settled`].
    Subscribe(Group),
    /// Close the reader.
    Unsubscribe(Group),
    /// The lease expired: start nothing until `Resume`.
    Fence,
    /// The lease is valid again.
    Resume,
    /// The stream was resized: assign waiting items to the new slices of their keys, and use the
    /// new numbering for the worker.
    Renumber(Numbering),
    /// Given up as lost: drop every item that was not started, and send no replies.
    Reset,
}
