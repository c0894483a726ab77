//! The checkpoints of a worker, for operators.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{Incarnation, SliceId};
use crate::worker::Worker;
use crate::worker::checkpoint::{Checkpoints, Tracked};

/// The checkpoints of a worker, for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckpointStatus {
    /// Owned slices with a checkpoint at the keeper, or, if there is none, in the folder.
    pub slices: usize,
    /// The other owned slices with a state: it may be lost with this worker, or with this one and
    /// another.
    pub exposed: usize,
    /// Owned slices with a state that have no checkpoint in the folder. `None`: there is no folder.
    pub unstored: Option<usize>,
    /// Age of the oldest checkpoint that lacks items, or is not at the keeper.
    pub age: Duration,
    /// Items processed since the last checkpoints of their slices.
    pub items: u64,
    /// Bytes of states in the last checkpoints.
    pub bytes: u64,
    /// The worker that keeps them.
    pub keeper: Option<Incarnation>,
    /// Checkpoints of other workers' slices that are kept here.
    pub kept: usize,
    /// Bytes of states in those.
    pub kept_bytes: u64,
}

impl<T: Clone> Worker<T> {
    /// The status of its checkpoints.
    pub fn checkpoint_status(&self, now: Duration) -> CheckpointStatus {
        let Checkpoints { standby, slices, .. } = &self.checkpoints;
        let covered = || slices.values().filter_map(|it| it.covered.as_ref());
        let is_behind =
            |(slice, it): &(&SliceId, &Tracked)| it.items > 0 || self.lacks_keeper(**slice, it);
        let is_exposed = |(slice, it): &(&SliceId, &Tracked)| {
            let none = it.covered.is_none() && !it.contained.is_empty();
            none || self.lacks_keeper(**slice, it) || !self.is_whole_here(**slice)
        };
        let is_unstored = |it: &&Tracked| {
            let none = it.covered.is_none() && !it.contained.is_empty();
            none || self.lacks_folder(it)
        };
        let age = |(_, it): (&SliceId, &Tracked)| {
            let since = it.covered.as_ref().map_or(it.taken, |covered| covered.at);
            now.saturating_sub(since)
        };
        let (kept, kept_bytes) = self.keeper.size();
        CheckpointStatus {
            slices: covered().filter(|covered| covered.keeper == *standby).count(),
            exposed: slices.iter().filter(is_exposed).count(),
            unstored: (self.config.has_folder())
                .then(|| slices.values().filter(is_unstored).count()),
            age: slices.iter().filter(is_behind).map(age).max().unwrap_or_default(),
            items: slices.values().map(|it| it.items).sum(),
            bytes: covered().map(|covered| covered.bytes).sum(),
            keeper: *standby,
            kept,
            kept_bytes,
        }
    }
}
