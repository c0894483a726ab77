//! A snapshot on its way to its keeper: sent in acknowledged parts, then committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Incarnation, SliceId};
use crate::message::{Address, Message, SnapshotId, SnapshotPart};
use crate::positions::Positions;
#[cfg(test)]
use crate::worker::Sabotage;
use crate::worker::checkpoint::InFolder;
use crate::worker::{Output, TAIL_BYTES, Worker};

/// A snapshot on its way to a keeper.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) version: SnapshotId,
    /// `None`: no other worker exists, and the snapshot goes to the folder alone.
    pub(super) keeper: Option<Incarnation>,
    pub(super) contained: Positions,
    pub(super) state: Option<Arc<[u8]>>,
    pub(super) folder: InFolder,
    /// Acknowledged bytes, plus one for the head.
    pub(super) came: u64,
    /// Since when all its items are finished.
    pub(super) replied: Option<Duration>,
    /// When a part of it was last sent.
    pub(super) said: Option<Duration>,
}

impl Sending {
    fn length(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.len() as u64)
    }

    fn is_whole(&self) -> bool {
        self.keeper.is_none() || self.came > self.length()
    }

    fn part(&self, slice: SliceId) -> SnapshotPart {
        let at = self.came.saturating_sub(1);
        let (contained, length) = match self.came {
            0 => (self.contained.clone(), self.state.as_ref().map(|_| self.length())),
            _ => (Positions::default(), Some(self.length())),
        };
        let bytes = self.state.as_deref().map_or(&[][..], |state| part_of(state, at));
        SnapshotPart { slice, version: self.version, contained, length, at, bytes: bytes.to_vec() }
    }
}

/// The bytes of `state` from `at` that fit into one message.
pub(in crate::worker) fn part_of(state: &[u8], at: u64) -> &[u8] {
    let from = usize::try_from(at).unwrap_or(usize::MAX).min(state.len());
    let to = from.saturating_add(TAIL_BYTES).min(state.len());
    &state[from..to]
}

impl<T: Clone> Worker<T> {
    /// The keeper's answer.
    pub(in crate::worker) fn on_kept(
        &mut self,
        now: Duration,
        from: Address,
        came: &[(SliceId, SnapshotId, u64)],
        committed: &[(SliceId, SnapshotId)],
    ) {
        let Address::Worker(from) = from else { return };
        for (slice, version, came) in came {
            let tracked = self.checkpoints.slices.get_mut(slice);
            if let Some(sending) = tracked.and_then(|it| it.sending.as_mut())
                && (sending.version, sending.keeper) == (*version, Some(from))
                && sending.came != *came
            {
                (sending.came, sending.said) = (*came, None);
                self.checkpoints.looked = None;
            }
        }
        let mut superseded = Vec::new();
        for (slice, version) in committed {
            let Some(tracked) = self.checkpoints.slices.get_mut(slice) else { continue };
            let is_it =
                |sending: &mut Sending| (sending.version, sending.keeper) == (*version, Some(from));
            let Some(sent) = tracked.sending.take_if(is_it) else { continue };
            let keeper_before = tracked.covered.as_ref().and_then(|before| before.keeper);
            if keeper_before != Some(from) {
                superseded.push((*slice, *version));
            }
            let covered = tracked.count(now, *slice, sent);
            self.out.push_back(Output::Covered(covered));
        }
        if !superseded.is_empty() {
            self.keeper.supersede(&superseded);
            self.move_on(now);
            for other in self.checkpoints.others.clone() {
                if other != from {
                    let (superseded, parts, commits) = (superseded.clone(), vec![], vec![]);
                    let message = Message::Snapshots { parts, commits, superseded };
                    self.send(Address::Worker(other), message);
                }
            }
        }
    }

    /// Sends the snapshot, stores it in the folder, and commits it.
    pub(super) fn tick_sending(
        &mut self,
        now: Duration,
        slice: SliceId,
        sending: &mut Sending,
        mail: &mut BTreeMap<Incarnation, Post>,
    ) {
        let whole = sending.is_whole();
        if whole && !(self.may_commit(now, slice, sending) && self.tick_folder(slice, sending)) {
            return;
        }
        let Some(keeper) = sending.keeper else { return };
        if sending.said.is_some_and(|said| now.saturating_sub(said) < self.config.resend) {
            return;
        }
        sending.said = Some(now);
        let post = mail.entry(keeper).or_default();
        match whole {
            true => post.commits.push((slice, sending.version)),
            false => post.parts.push(sending.part(slice)),
        }
    }

    /// Whether the replies to the items of a snapshot have arrived: those of this worker, and
    /// those of the source of its handover, which may be lost with the last of them.
    fn may_commit(&self, now: Duration, slice: SliceId, sending: &mut Sending) -> bool {
        let Some(owned) = self.owned.get(&slice) else { return false };
        let is_over = self.taking.get(&owned.epoch).is_none_or(|taking| taking.state.is_over());
        if self.unfinished.has_up_to(slice, &sending.contained) {
            sending.replied = None;
            return false;
        }
        let replied = *sending.replied.get_or_insert(now);
        let reply = self.config.reply_is_sure();
        #[cfg(test)]
        let reply = if self.sabotage == Sabotage::CommitUnreplied { Duration::ZERO } else { reply };
        is_over && now.saturating_sub(replied) >= reply
    }

    pub(super) fn send_post(&mut self, keeper: Incarnation, post: Post) {
        let Post { parts, mut commits } = post;
        let mut message = Vec::new();
        let mut bytes = 0;
        let to = Address::Worker(keeper);
        for part in parts {
            if bytes > 0 && bytes + part.bytes.len() > TAIL_BYTES {
                let parts = std::mem::take(&mut message);
                let (commits, superseded) = (std::mem::take(&mut commits), Vec::new());
                self.send(to, Message::Snapshots { parts, commits, superseded });
                bytes = 0;
            }
            bytes += part.bytes.len() + part.contained.len() * POSITION_BYTES;
            message.push(part);
        }
        let superseded = Vec::new();
        self.send(to, Message::Snapshots { parts: message, commits, superseded });
    }
}

/// Approximate bytes of a writer and its position in a message.
const POSITION_BYTES: usize = 16;

/// The messages to one keeper.
#[derive(Debug, Default)]
pub(super) struct Post {
    parts: Vec<SnapshotPart>,
    commits: Vec<(SliceId, SnapshotId)>,
}
