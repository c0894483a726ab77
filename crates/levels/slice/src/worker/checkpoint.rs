//! Checkpoints at the owner: each slice's state goes to another worker, with the items that it
//! contains.
//!
//! A snapshot is a job between two items of a slice: the application exports the state and
//! keeps it. The snapshot goes in acknowledged parts to the *keeper*, the worker that the
//! controller chose. The owner *commits* it when the replies to its items have arrived (ten
//! times [`crate::Config::reply`]) and the handover that brought the slice is over. From then
//! on it is the slice's checkpoint, and clients forget its items ([`Covered`]). Before that the
//! last checkpoint counts, and clients keep every item that is not in it. So a successor can
//! always go on from the last checkpoint: `restore.rs`.
//!
//! # Source
//! Elnozahy, Alvisi, Wang, Johnson, "A survey of rollback-recovery protocols in message-passing
//! systems", 2002: section 2.4, pessimistic logging at the sender. Carbone et al., "State
//! management in Apache Flink", VLDB 2017. Deviates: each slice has checkpoints of its own,
//! since slices share no state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{HandoverId, Life, SliceId, Writer};
use crate::message::{Address, Covered, Message, SnapshotId, SnapshotPart};
use crate::positions::Positions;
#[cfg(test)]
use crate::worker::Sabotage;
use crate::worker::{Output, TAIL_BYTES, Worker};

/// Slices are looked at so many times in the interval between two checkpoints.
const LOOKS: u32 = 16;

/// Where checkpoints go, and those that are under way.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// The number of the list.
    pub number: u64,
    /// Keeps the checkpoints of this worker.
    standby: Option<Life>,
    /// All other workers that live.
    pub others: BTreeSet<Life>,
    slices: BTreeMap<SliceId, Tracked>,
    /// Slices that are given away and not drained: since when they were owned, and what their
    /// state contains.
    given: BTreeMap<SliceId, (HandoverId, Positions)>,
    /// The last snapshot.
    last: u64,
    /// When slices were last looked at; `None`: they are to be looked at now.
    looked: Option<Duration>,
}

/// An owned slice.
#[derive(Debug, Default)]
struct Tracked {
    /// The state contains items at or below these positions, and no others.
    contained: Positions,
    /// Items since the last snapshot.
    items: u64,
    /// When that was taken.
    taken: Duration,
    /// Clients wait for a checkpoint.
    wanted: bool,
    /// The application is asked for the snapshot of this number.
    asked: Option<u64>,
    sending: Option<Sending>,
    /// The last checkpoint, and its keeper.
    covered: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    version: SnapshotId,
    keeper: Life,
    contained: Positions,
    at: Duration,
    bytes: u64,
}

/// A snapshot on its way to a keeper.
#[derive(Debug)]
struct Sending {
    version: SnapshotId,
    keeper: Life,
    contained: Positions,
    state: Option<Vec<u8>>,
    /// Bytes that came, and one more for the head.
    came: u64,
    /// Since when its items have replies.
    replied: Option<Duration>,
    /// When something of it was last sent.
    said: Option<Duration>,
}

/// The checkpoints of a worker, for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckpointStatus {
    /// Owned slices with a checkpoint at the keeper.
    pub slices: usize,
    /// Owned slices with a state and without a checkpoint of this worker at its keeper: a state may
    /// be lost with this worker, or with this one and another.
    pub exposed: usize,
    /// Age of the oldest checkpoint that lacks items, or is not at the keeper.
    pub age: Duration,
    /// Items processed since the last checkpoints of their slices.
    pub items: u64,
    /// Bytes of states in the last checkpoints.
    pub bytes: u64,
    /// The worker that keeps them.
    pub keeper: Option<Life>,
    /// Checkpoints of other workers' slices that are kept here.
    pub kept: usize,
    /// Bytes of states in those.
    pub kept_bytes: u64,
}

impl Checkpoints {
    /// Whether no time moves anything on.
    pub(super) fn is_idle(&self) -> bool {
        self.slices
            .values()
            .all(|it| it.items == 0 && !it.wanted && it.asked.is_none() && it.sending.is_none())
    }

    /// The slice is given away.
    pub(super) fn give(&mut self, slice: SliceId, epoch: HandoverId) {
        if let Some(tracked) = self.slices.remove(&slice) {
            self.given.insert(slice, (epoch, tracked.contained));
        }
    }

    /// The state of a slice that was given away is not needed.
    pub(super) fn forget_given(&mut self, slice: SliceId) {
        self.given.remove(&slice);
    }

    /// The writer is gone for good.
    pub(super) fn forget(&mut self, writer: Writer) {
        self.slices.values_mut().for_each(|it| it.contained.remove(writer));
    }
}

impl Sending {
    fn length(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.len() as u64)
    }

    fn is_whole(&self) -> bool {
        self.came > self.length()
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

/// As much of `state` from `at` on as goes into one message.
pub(super) fn part_of(state: &[u8], at: u64) -> &[u8] {
    let from = usize::try_from(at).unwrap_or(usize::MAX).min(state.len());
    let to = from.saturating_add(TAIL_BYTES).min(state.len());
    &state[from..to]
}

impl<T: Clone> Worker<T> {
    /// How its checkpoints are.
    pub fn checkpoint_status(&self, now: Duration) -> CheckpointStatus {
        let Checkpoints { standby, slices, .. } = &self.checkpoints;
        let covered = || slices.values().filter_map(|it| it.covered.as_ref());
        let is_behind =
            |(slice, it): &(&SliceId, &Tracked)| it.items > 0 || self.lacks_keeper(**slice, it);
        let is_exposed = |(slice, it): &(&SliceId, &Tracked)| {
            let none = it.covered.is_none() && !it.contained.is_empty();
            none || self.lacks_keeper(**slice, it) || !self.is_whole_here(**slice)
        };
        let age = |(_, it): (&SliceId, &Tracked)| {
            let since = it.covered.as_ref().map_or(it.taken, |covered| covered.at);
            now.saturating_sub(since)
        };
        let (kept, kept_bytes) = self.keeper.size();
        CheckpointStatus {
            slices: covered().filter(|covered| Some(covered.keeper) == *standby).count(),
            exposed: slices.iter().filter(is_exposed).count(),
            age: slices.iter().filter(is_behind).map(age).max().unwrap_or_default(),
            items: slices.values().map(|it| it.items).sum(),
            bytes: covered().map(|covered| covered.bytes).sum(),
            keeper: *standby,
            kept,
            kept_bytes,
        }
    }

    /// Clients keep as much as they may of these slices, and wait for checkpoints.
    pub fn checkpoint_wanted(&mut self, slices: &[SliceId]) {
        for slice in slices {
            if let Some(tracked) = self.checkpoints.slices.get_mut(slice) {
                tracked.wanted = true;
                self.checkpoints.looked = None;
            }
        }
    }

    /// The application has processed an item, and is at no other of its slice.
    pub fn processed(&mut self, slice: SliceId, writer: Writer, position: u64) {
        let Some(config) = self.config.checkpoints() else { return };
        if let Some((_, contained)) = self.checkpoints.given.get_mut(&slice) {
            return contained.raise(writer, position);
        }
        let Some(tracked) = self.checkpoints.slices.get_mut(&slice) else { return };
        tracked.contained.raise(writer, position);
        tracked.items += 1;
        if tracked.items == config.items {
            self.checkpoints.looked = None;
        }
    }

    /// The application gave a slice's state: the answer to [`Output::Snapshot`].
    pub fn snapshotted(
        &mut self,
        now: Duration,
        slice: SliceId,
        number: u64,
        state: Option<Vec<u8>>,
    ) {
        let epoch = self.epoch(slice);
        let Some(tracked) = self.checkpoints.slices.get_mut(&slice) else { return };
        let Some(epoch) = epoch.filter(|_| tracked.asked == Some(number)) else { return };
        (tracked.asked, tracked.items, tracked.taken) = (None, 0, now);
        let Some(keeper) = self.checkpoints.standby else {
            tracked.items = 1;
            return;
        };
        tracked.sending = Some(Sending {
            version: SnapshotId { epoch, number },
            keeper,
            contained: tracked.contained.clone(),
            state,
            came: 0,
            replied: None,
            said: None,
        });
        self.checkpoints.looked = None;
    }

    /// Where checkpoints go. `standby`: `None` leaves it as it is.
    pub(super) fn on_keepers(
        &mut self,
        now: Duration,
        number: u64,
        standby: Option<Option<Life>>,
        others: Vec<Life>,
    ) {
        if number < self.checkpoints.number {
            return;
        }
        self.checkpoints.number = number;
        self.checkpoints.others = others.into_iter().collect();
        if let Some(standby) = standby
            && self.checkpoints.standby != standby
        {
            self.checkpoints.standby = standby;
            self.checkpoints.looked = None;
        }
        self.move_restores(now);
    }

    /// The keeper's answer.
    pub(super) fn on_kept(
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
                && (sending.version, sending.keeper) == (*version, from)
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
                |sending: &mut Sending| (sending.version, sending.keeper) == (*version, from);
            let Some(sent) = tracked.sending.take_if(is_it) else { continue };
            let bytes = sent.length();
            let contained = sent.contained;
            let version = sent.version;
            let kept = Kept { version, keeper: from, contained: contained.clone(), at: now, bytes };
            let before = tracked.covered.replace(kept);
            if before.is_none_or(|before| before.keeper != from) {
                superseded.push((*slice, version));
            }
            tracked.wanted = false;
            let covered = Covered { slice: *slice, contained, version: Some(version) };
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

    /// A slice is owned from now on, with a state that contains this. `items`: of those it has
    /// so many that may be in no checkpoint.
    pub(super) fn track(
        &mut self,
        now: Duration,
        slice: SliceId,
        contained: Positions,
        items: u64,
    ) {
        if self.config.checkpoints().is_some() {
            let tracked = Tracked { contained, items, taken: now, ..Tracked::default() };
            self.checkpoints.slices.insert(slice, tracked);
        }
    }

    /// A slice that was given away is drained. As long as this worker lives, its state is as
    /// good as a checkpoint; the taker may be the keeper of the last one.
    pub(super) fn keep_given(&mut self, now: Duration, slice: SliceId, state: Option<&[u8]>) {
        let Some((epoch, contained)) = self.checkpoints.given.remove(&slice) else { return };
        let version = SnapshotId { epoch, number: u64::MAX };
        let state = state.map(Arc::from);
        let good_from = now + self.config.reply_is_sure();
        self.keeper.keep(slice, Snapshot { version, contained, state, good_from });
    }

    /// Slices were taken: their state will contain what is at or below the cut, but for what
    /// the giver had not started.
    pub(super) fn track_taken(&mut self, now: Duration, handover: HandoverId) {
        if self.config.checkpoints().is_none() {
            return;
        }
        let Some(taking) = self.taking.get(&handover) else { return };
        let (cut, backlog, slices) =
            (taking.cut.clone(), taking.backlog.clone(), taking.slices.clone());
        for slice in slices.iter() {
            let groups = self.numbering.groups(&[*slice]);
            let own = cut.iter().filter(|(writer, _)| groups.contains(writer.group));
            let mut contained: Positions = own.collect();
            for of in backlog.iter().filter(|of| of.slice == *slice) {
                contained.set(of.writer, of.after.min(contained.of(of.writer)));
            }
            // The keeper of the last owner may be another.
            self.track(now, *slice, contained, 1);
        }
    }

    /// Whether the last checkpoint is to be somewhere else, soon.
    fn lacks_keeper(&self, slice: SliceId, tracked: &Tracked) -> bool {
        match &tracked.covered {
            Some(covered) => Some(covered.keeper) != self.checkpoints.standby,
            // It is here, and would be lost with the state.
            None => self.keeper.version(slice).is_some(),
        }
    }

    /// Whether the slice may be given away: if this worker were lost as the source, the target
    /// would need a checkpoint that is not here.
    pub(super) fn is_safe_to_give(&self, slice: SliceId) -> bool {
        let Some(tracked) = self.checkpoints.slices.get(&slice) else { return true };
        let keeper = tracked.covered.as_ref().map(|covered| covered.keeper);
        tracked.contained.is_empty() || keeper.is_some() && keeper == self.checkpoints.standby
    }

    /// Takes snapshots that are due, and sends and commits those that are taken.
    pub(super) fn tick_checkpoints(&mut self, now: Duration) {
        let Some(config) = self.config.checkpoints() else { return };
        let period = (config.every / LOOKS).min(self.config.resend);
        let looked = self.checkpoints.looked;
        if self.is_fenced() || looked.is_some_and(|at| now.saturating_sub(at) < period) {
            return;
        }
        self.checkpoints.looked = Some(now);
        self.move_restores(now);
        let slices = std::mem::take(&mut self.checkpoints.slices);
        let mut mail: BTreeMap<Life, Post> = BTreeMap::new();
        self.checkpoints.slices = slices
            .into_iter()
            .map(|(slice, mut tracked)| {
                if self.is_whole_here(slice) {
                    self.tick_slice(now, slice, &mut tracked, &mut mail);
                }
                (slice, tracked)
            })
            .collect();
        for (keeper, post) in mail {
            self.send_post(keeper, post);
        }
    }

    /// Whether the slice's state is here, and its items are processed in order.
    fn is_whole_here(&self, slice: SliceId) -> bool {
        let Some(owned) = self.owned.get(&slice) else { return false };
        match &owned.recovering {
            // A replay is in order, too.
            Some(recovering) => recovering.replays() && !self.restores.has(slice),
            None => owned.held.is_none(),
        }
    }

    fn tick_slice(
        &mut self,
        now: Duration,
        slice: SliceId,
        tracked: &mut Tracked,
        mail: &mut BTreeMap<Life, Post>,
    ) {
        let Some(config) = self.config.checkpoints() else { return };
        let standby = self.checkpoints.standby;
        if tracked.sending.take_if(|it| Some(it.keeper) != standby).is_some() {
            tracked.items += 1;
        }
        if let Some(sending) = &mut tracked.sending {
            return self.tick_sending(now, slice, sending, mail);
        }
        if standby.is_none() {
            // No worker could go on with the state. Clients are to go on.
            if std::mem::take(&mut tracked.wanted) {
                let contained = tracked.contained.clone();
                self.out.push_back(Output::Covered(Covered { slice, contained, version: None }));
            }
            return;
        }
        if tracked.wanted
            && tracked.items == 0
            && let Some(covered) = &tracked.covered
        {
            // A client may have missed it.
            tracked.wanted = false;
            let (contained, version) = (covered.contained.clone(), Some(covered.version));
            return self.out.push_back(Output::Covered(Covered { slice, contained, version }));
        }
        let is_old = now.saturating_sub(tracked.taken) >= config.every;
        let is_due =
            tracked.items > 0 && (is_old || tracked.wanted || tracked.items >= config.items);
        if tracked.asked.is_none() && (is_due || self.lacks_keeper(slice, tracked)) {
            self.checkpoints.last += 1;
            let number = self.checkpoints.last;
            tracked.asked = Some(number);
            self.out.push_back(Output::Snapshot { slice, number });
        }
    }

    fn tick_sending(
        &self,
        now: Duration,
        slice: SliceId,
        sending: &mut Sending,
        mail: &mut BTreeMap<Life, Post>,
    ) {
        let whole = sending.is_whole();
        if whole && !self.may_commit(now, slice, sending) {
            return;
        }
        if sending.said.is_some_and(|said| now.saturating_sub(said) < self.config.resend) {
            return;
        }
        sending.said = Some(now);
        let post = mail.entry(sending.keeper).or_default();
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

    fn send_post(&mut self, keeper: Life, post: Post) {
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

/// Of a writer and a position in a message, about.
const POSITION_BYTES: usize = 16;

/// Mail to one keeper.
#[derive(Debug, Default)]
struct Post {
    parts: Vec<SnapshotPart>,
    commits: Vec<(SliceId, SnapshotId)>,
}

/// A checkpoint, as its keeper has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub version: SnapshotId,
    pub contained: Positions,
    pub state: Option<Arc<[u8]>>,
    /// Other workers get it from then on: replies to its items may be on their way before.
    pub good_from: Duration,
}
