//! Checkpoints in messages.

use serde::{Deserialize, Serialize};

use crate::ids::{HandoverId, SliceId};
use crate::positions::Positions;

/// Identifies a checkpoint of a slice. Later ones are larger.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct SnapshotId {
    /// The handover that gave the slice to the owner.
    pub epoch: HandoverId,
    /// Increases with each snapshot of an owner.
    pub number: u64,
}

/// A part of a snapshot: a slice's state between two items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPart {
    /// The slice.
    pub slice: SliceId,
    /// Which snapshot.
    pub version: SnapshotId,
    /// In the first part: the items at or below these positions are in the state, and no others.
    pub contained: Positions,
    /// Bytes of the whole state; `None`: the application has no state.
    pub length: Option<u64>,
    /// The position of `bytes` in the state.
    pub at: u64,
    /// Bytes of the state.
    pub bytes: Vec<u8>,
}

/// Worker to clients: these items of a slice are in a checkpoint. A client that has their replies
/// need not keep them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// The slice.
    pub slice: SliceId,
    /// Items at or below these positions.
    pub contained: Positions,
    /// The checkpoint; `None`: there is no other worker that could keep one.
    pub version: Option<SnapshotId>,
}
