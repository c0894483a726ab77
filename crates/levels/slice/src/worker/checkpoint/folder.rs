//! The folder as a second place of checkpoints.
//!
//! A snapshot is written to the folder when its items have their replies, and before its keeper
//! commits it: the keeper refuses snapshots of an owner that was given up, so clients then still
//! keep the items. If no other worker exists, the folder is the only place. If the folder fails, a
//! checkpoint counts at its keeper alone, so that clients do not wait; the owner tries again with
//! the next one.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::SliceId;
use crate::message::{Covered, SnapshotId};
use crate::positions::Positions;
#[cfg(test)]
use crate::worker::Sabotage;
use crate::worker::checkpoint::{Sending, Snapshot};
use crate::worker::{Output, Worker};

/// A checkpoint in the folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its version.
    pub version: SnapshotId,
    /// The positions in the state.
    pub contained: Positions,
    /// The state. `None`: the application has none.
    pub state: Option<Arc<[u8]>>,
}

impl From<Checkpoint> for Snapshot {
    fn from(Checkpoint { version, contained, state }: Checkpoint) -> Self {
        Self { version, contained, state, good_from: Duration::ZERO }
    }
}

/// The progress of a snapshot on its way to the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InFolder {
    /// Not all replies to its items have arrived.
    NotYet,
    Writing,
    Yes,
    /// There is no folder, or it failed.
    No,
}

impl<T: Clone> Worker<T> {
    /// Begins to write the snapshot, if that is due. Returns whether the folder is done with it.
    pub(super) fn tick_folder(&mut self, slice: SliceId, sending: &mut Sending) -> bool {
        match sending.folder {
            InFolder::Yes | InFolder::No => return true,
            #[cfg(test)]
            InFolder::Writing if self.sabotage == Sabotage::CommitUnstored => return true,
            InFolder::Writing => {}
            InFolder::NotYet => {
                sending.folder = InFolder::Writing;
                let (version, contained) = (sending.version, sending.contained.clone());
                let checkpoint = Checkpoint { version, contained, state: sending.state.clone() };
                self.out.push_back(Output::Store(slice, checkpoint));
            }
        }
        false
    }

    /// [`Output::Store`] is done. `is_there`: the checkpoint is in the folder.
    pub fn stored(&mut self, now: Duration, slice: SliceId, version: SnapshotId, is_there: bool) {
        let Some(tracked) = self.checkpoints.slices.get_mut(&slice) else { return };
        let is_it = |sending: &mut Sending| {
            sending.version == version && sending.folder == InFolder::Writing
        };
        let Some(mut sent) = tracked.sending.take_if(is_it) else { return };
        self.checkpoints.looked = None;
        (sent.folder, sent.said) = (if is_there { InFolder::Yes } else { InFolder::No }, None);
        let covered = match (sent.keeper, is_there) {
            (Some(_), _) => {
                tracked.sending = Some(sent);
                return;
            }
            (None, true) => tracked.count(now, slice, sent),
            (None, false) => {
                // As without a folder and another worker: clients should not wait.
                tracked.items += 1;
                if !std::mem::take(&mut tracked.wanted) {
                    return;
                }
                Covered { slice, contained: tracked.contained.clone(), version: None }
            }
        };
        self.out.push_back(Output::Covered(covered));
    }
}
