//! Checkpoints at their keeper.
//!
//! A keeper stores the last checkpoint of a slice until a later one exists elsewhere, and the parts
//! of the next one. When a successor has asked for the checkpoint, the keeper commits no snapshots
//! of earlier owners. Otherwise an owner that was given up and still lives would make clients
//! forget items that the successor lacks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{HandoverId, SliceId};
use crate::message::{Address, Message, SnapshotId, SnapshotPart};
use crate::positions::Positions;
use crate::worker::checkpoint::{Snapshot, part_of};
use crate::worker::{TAIL_BYTES, Worker};

/// Checkpoints of other workers' slices.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    kept: BTreeMap<SliceId, Snapshot>,
    coming: BTreeMap<SliceId, Coming>,
    /// Snapshots of owners before this epoch are not committed.
    fences: BTreeMap<SliceId, HandoverId>,
}

/// A snapshot that arrives in parts.
#[derive(Debug)]
pub(super) struct Coming {
    pub version: SnapshotId,
    contained: Positions,
    length: Option<u64>,
    bytes: Vec<u8>,
}

impl Coming {
    /// Begins with the first part. `None` for a later part.
    pub(super) fn new(part: SnapshotPart) -> Option<Self> {
        let SnapshotPart { version, contained, length, at, bytes, .. } = part;
        (at == 0).then_some(Self { version, contained, length, bytes })
    }

    /// Adds the next part.
    pub(super) fn add(&mut self, part: SnapshotPart) {
        if part.at == self.bytes.len() as u64 && !self.is_whole() {
            self.bytes.extend(part.bytes);
        }
    }

    /// Received bytes, plus one for the head.
    pub(super) fn came(&self) -> u64 {
        self.bytes.len() as u64 + 1
    }

    pub(super) fn is_whole(&self) -> bool {
        self.bytes.len() as u64 >= self.length.unwrap_or(0)
    }

    pub(super) fn snapshot(self) -> Snapshot {
        let Self { version, contained, length, bytes } = self;
        Snapshot {
            version,
            contained,
            state: length.map(|_| Arc::from(bytes)),
            good_from: Duration::ZERO,
        }
    }
}

impl Keeper {
    /// The number of checkpoints, and their bytes.
    pub(super) fn size(&self) -> (usize, u64) {
        let bytes = |snapshot: &Snapshot| snapshot.state.as_ref().map_or(0, |it| it.len() as u64);
        (self.kept.len(), self.kept.values().map(bytes).sum())
    }

    pub(super) fn version(&self, slice: SliceId) -> Option<SnapshotId> {
        self.kept.get(&slice).map(|snapshot| snapshot.version)
    }

    pub(super) fn get(&self, slice: SliceId) -> Option<&Snapshot> {
        self.kept.get(&slice)
    }

    /// Stores a checkpoint of this worker's own.
    pub(super) fn keep(&mut self, slice: SliceId, snapshot: Snapshot) {
        if self.version(slice) < Some(snapshot.version) {
            self.kept.insert(slice, snapshot);
        }
    }

    /// A successor of this epoch continues from the present checkpoint.
    pub(super) fn fence(&mut self, slice: SliceId, epoch: HandoverId) {
        let fence = self.fences.entry(slice).or_default();
        *fence = epoch.max(*fence);
    }

    /// These checkpoints exist elsewhere.
    pub(super) fn supersede(&mut self, versions: &[(SliceId, SnapshotId)]) {
        for (slice, version) in versions {
            if self.kept.get(slice).is_some_and(|kept| kept.version < *version) {
                self.kept.remove(slice);
            }
            if self.coming.get(slice).is_some_and(|coming| coming.version < *version) {
                self.coming.remove(slice);
            }
        }
    }

    /// Handles a part of a snapshot. Returns how much of the snapshot is here.
    fn take(&mut self, part: SnapshotPart) -> u64 {
        let (slice, version) = (part.slice, part.version);
        if self.version(slice).is_some_and(|kept| kept >= version) {
            return u64::MAX;
        }
        match self.coming.get_mut(&slice) {
            Some(coming) if coming.version > version => return 0,
            Some(coming) if coming.version == version => coming.add(part),
            _ => {
                let Some(coming) = Coming::new(part) else { return 0 };
                self.coming.insert(slice, coming);
            }
        }
        self.coming.get(&slice).map_or(0, Coming::came)
    }

    /// Commits a snapshot. Returns whether it is the slice's checkpoint now.
    fn commit(&mut self, slice: SliceId, version: SnapshotId) -> bool {
        if self.version(slice) == Some(version) {
            return true;
        }
        let fence = self.fences.get(&slice).copied().unwrap_or_default();
        let whole = |it: &mut Coming| it.version == version && it.is_whole();
        if version.epoch < fence {
            return false;
        }
        let Some(coming) = self.coming.get_mut(&slice) else { return false };
        if !whole(coming) {
            return false;
        }
        if let Some(coming) = self.coming.remove(&slice) {
            self.kept.insert(slice, coming.snapshot());
        }
        true
    }
}

impl<T: Clone> Worker<T> {
    /// The checkpoint of `slice` that this worker keeps.
    pub fn kept(&self, slice: SliceId) -> Option<SnapshotId> {
        self.keeper.version(slice)
    }

    /// Handles parts of snapshots, which this worker restores or keeps.
    pub(super) fn on_snapshots(
        &mut self,
        now: Duration,
        from: Address,
        parts: Vec<SnapshotPart>,
        commits: &[(SliceId, SnapshotId)],
        superseded: &[(SliceId, SnapshotId)],
    ) {
        let mut came = Vec::new();
        for part in parts {
            let (slice, version) = (part.slice, part.version);
            if !self.restores.wants(from, slice, version) {
                came.push((slice, version, self.keeper.take(part)));
            } else {
                self.restores.take(part);
            }
        }
        self.keeper.supersede(superseded);
        let mut committed = Vec::new();
        for (slice, version) in commits {
            match self.keeper.commit(*slice, *version) {
                true => committed.push((*slice, *version)),
                // Parts of it are missing, or a successor has asked.
                false => came.push((*slice, *version, self.keeper.came(*slice, *version))),
            }
        }
        if !came.is_empty() || !committed.is_empty() {
            self.send(from, Message::Kept { came, committed });
        }
        self.move_restores(now);
    }

    /// A successor asks for checkpoints.
    pub(super) fn on_ask(
        &mut self,
        now: Duration,
        from: Address,
        epoch: HandoverId,
        slices: Arc<[SliceId]>,
    ) {
        let good = |slice| self.keeper.get(slice).is_none_or(|kept| kept.good_from <= now);
        let (slices, _): (Vec<_>, Vec<_>) = slices.iter().partition(|slice| good(**slice));
        let slices: Arc<[SliceId]> = slices.into();
        let mut versions = Vec::new();
        for slice in slices.iter() {
            self.keeper.fence(*slice, epoch);
            versions.extend(self.keeper.version(*slice).map(|version| (*slice, version)));
        }
        self.send(from, Message::Has { slices, versions });
    }

    /// A successor fetches checkpoints.
    pub(super) fn on_want(&mut self, from: Address, wants: &[(SliceId, SnapshotId, u64)]) {
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for (slice, version, at) in wants {
            let Some(kept) = self.keeper.get(*slice).filter(|kept| kept.version == *version) else {
                continue;
            };
            let state = kept.state.as_deref().map_or(&[][..], |state| part_of(state, *at));
            if bytes > 0 && bytes + state.len() > TAIL_BYTES {
                // The successor repeats the message.
                break;
            }
            bytes += state.len();
            let contained = if *at == 0 { kept.contained.clone() } else { Positions::default() };
            parts.push(SnapshotPart {
                slice: *slice,
                version: *version,
                contained,
                length: kept.state.as_ref().map(|state| state.len() as u64),
                at: *at,
                bytes: state.to_vec(),
            });
        }
        if !parts.is_empty() {
            let (commits, superseded) = Default::default();
            self.send(from, Message::Snapshots { parts, commits, superseded });
        }
    }
}

impl Keeper {
    fn came(&self, slice: SliceId, version: SnapshotId) -> u64 {
        let coming = self.coming.get(&slice).filter(|coming| coming.version == version);
        coming.map_or(0, Coming::came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: SliceId = SliceId(3);

    fn version(epoch: u64, number: u64) -> SnapshotId {
        SnapshotId { epoch: HandoverId(epoch), number }
    }

    fn part(version: SnapshotId, at: u64, bytes: &[u8]) -> SnapshotPart {
        let (contained, length, bytes) = (Positions::default(), Some(4), bytes.to_vec());
        SnapshotPart { slice: SLICE, version, contained, length, at, bytes }
    }

    #[test]
    fn a_snapshot_is_a_checkpoint_when_it_is_whole_and_committed() {
        let mut keeper = Keeper::default();
        assert_eq!(keeper.take(part(version(1, 1), 0, b"ab")), 3);
        assert!(!keeper.commit(SLICE, version(1, 1)), "half of it is here");
        assert_eq!(keeper.take(part(version(1, 1), 0, b"ab")), 3, "a part that comes twice");
        assert_eq!(keeper.take(part(version(1, 1), 2, b"cd")), 5);
        assert_eq!(keeper.version(SLICE), None);
        assert!(keeper.commit(SLICE, version(1, 1)));
        assert_eq!(keeper.get(SLICE).unwrap().state.as_deref(), Some(&b"abcd"[..]));
        assert!(keeper.commit(SLICE, version(1, 1)), "the answer may have been lost");
        // Parts of the next one do not change the last one. Parts of an earlier one are ignored.
        keeper.take(part(version(1, 3), 0, b"efgh"));
        assert_eq!(keeper.take(part(version(1, 2), 0, b"xxxx")), 0);
        assert_eq!(keeper.version(SLICE), Some(version(1, 1)));
    }

    #[test]
    fn snapshots_of_earlier_owners_are_not_committed_after_a_fence() {
        let mut keeper = Keeper::default();
        keeper.take(part(version(1, 1), 0, b"abcd"));
        keeper.fence(SLICE, HandoverId(2));
        assert!(!keeper.commit(SLICE, version(1, 1)));
        keeper.take(part(version(2, 1), 0, b"efgh"));
        assert!(keeper.commit(SLICE, version(2, 1)));
    }

    #[test]
    fn a_checkpoint_is_removed_only_when_a_later_checkpoint_exists_elsewhere() {
        let mut keeper = Keeper::default();
        keeper.take(part(version(1, 4), 0, b"abcd"));
        keeper.commit(SLICE, version(1, 4));
        keeper.supersede(&[(SLICE, version(1, 3))]);
        assert_eq!(keeper.size(), (1, 4));
        keeper.supersede(&[(SLICE, version(2, 1))]);
        assert_eq!(keeper.size(), (0, 0));
    }
}
