//! Checkpoints at the owner: it sends the state of each slice to another worker, with the positions
//! of the items that the state contains.
//!
//! A *snapshot* is a job between two items of a slice: the application exports the state and keeps
//! it. The owner sends the snapshot in acknowledged parts to its *keeper*, which the controller
//! chose. The owner *commits* it when the replies to its items have arrived (after ten times
//! [`crate::Config::reply`]) and the handover that brought the slice is over. Then it is the
//! checkpoint of the slice, and clients forget its items ([`Covered`]). Until then clients keep
//! every item that is not in the last checkpoint, so a successor can continue from that one:
//! `restore.rs`.
//!
//! # Source
//! Elnozahy, Alvisi, Wang, Johnson, "A survey of rollback-recovery protocols in message-passing
//! systems", 2002: section 2.4, pessimistic logging at the sender. Carbone et al., "State
//! management in Apache Flink", VLDB 2017. Deviates: each slice has checkpoints of its own,
//! since slices share no state.

mod folder;
mod sending;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use folder::Checkpoint;
pub(super) use sending::part_of;
pub use status::CheckpointStatus;

use crate::ids::{HandoverId, Incarnation, SliceId, Writer};
use crate::message::{Covered, SnapshotId};
use crate::positions::Positions;
use crate::worker::{Output, Worker};
use folder::InFolder;
use sending::{Post, Sending};

/// Number of times that slices are examined within the interval of checkpoints.
const LOOKS: u32 = 16;

/// The checkpoints of owned slices.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// The number of the controller's list of workers.
    pub number: u64,
    /// Keeps the checkpoints of this worker.
    standby: Option<Incarnation>,
    /// All other living workers.
    pub others: BTreeSet<Incarnation>,
    slices: BTreeMap<SliceId, Tracked>,
    /// Slices that were given away and are not drained: the epoch of their ownership, and the
    /// positions in their state.
    given: BTreeMap<SliceId, (HandoverId, Positions)>,
    /// The number of the last snapshot.
    last: u64,
    /// When slices were last examined; `None`: examine them now.
    looked: Option<Duration>,
}

/// An owned slice.
#[derive(Debug, Default)]
struct Tracked {
    /// The state contains items at or below these positions, and no others.
    contained: Positions,
    /// Items since the last snapshot.
    items: u64,
    /// When the last snapshot was taken.
    taken: Duration,
    /// Clients wait for a checkpoint.
    wanted: bool,
    /// The number of the snapshot that the application was asked for.
    asked: Option<u64>,
    sending: Option<Sending>,
    /// The last checkpoint, and its keeper.
    covered: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    version: SnapshotId,
    /// `None`: it is in the folder alone.
    keeper: Option<Incarnation>,
    in_folder: bool,
    contained: Positions,
    at: Duration,
    bytes: u64,
}

impl Checkpoints {
    /// Whether nothing happens by the passing of time.
    pub(super) fn is_idle(&self) -> bool {
        self.slices
            .values()
            .all(|it| it.items == 0 && !it.wanted && it.asked.is_none() && it.sending.is_none())
    }

    /// The slice was given away.
    pub(super) fn give(&mut self, slice: SliceId, epoch: HandoverId) {
        if let Some(tracked) = self.slices.remove(&slice) {
            self.given.insert(slice, (epoch, tracked.contained));
        }
    }

    /// The state of a slice that was given away is not needed.
    pub(super) fn forget_given(&mut self, slice: SliceId) {
        self.given.remove(&slice);
    }

    /// The writer will not return.
    pub(super) fn forget(&mut self, writer: Writer) {
        self.slices.values_mut().for_each(|it| it.contained.remove(writer));
    }
}

impl<T: Clone> Worker<T> {
    /// Clients can keep no more items of these slices, and wait for checkpoints.
    pub fn checkpoint_wanted(&mut self, slices: &[SliceId]) {
        for slice in slices {
            if let Some(tracked) = self.checkpoints.slices.get_mut(slice) {
                tracked.wanted = true;
                self.checkpoints.looked = None;
            }
        }
    }

    /// The application has processed an item, and has not started another of its slice.
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

    /// The application exported the state of a slice, as [`Output::Snapshot`] asked.
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
        let (keeper, has_folder) = (self.checkpoints.standby, self.config.has_folder());
        if keeper.is_none() && !has_folder {
            tracked.items = 1;
            return;
        }
        tracked.sending = Some(Sending {
            version: SnapshotId { epoch, number },
            keeper,
            contained: tracked.contained.clone(),
            state: state.map(Arc::from),
            folder: if has_folder { InFolder::NotYet } else { InFolder::No },
            came: 0,
            replied: None,
            said: None,
        });
        self.checkpoints.looked = None;
    }

    /// Sets the living workers and the keeper. `standby`: `None` does not change the keeper.
    pub(super) fn on_keepers(
        &mut self,
        now: Duration,
        number: u64,
        standby: Option<Option<Incarnation>>,
        others: Vec<Incarnation>,
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

    /// A slice is owned from now on, with `contained` in its state. `items`: the number of these
    /// items that may be in no checkpoint.
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

    /// A slice that was given away is drained. Its state serves as a checkpoint while this worker
    /// lives, as the target may be the keeper of the last one.
    pub(super) fn keep_given(&mut self, now: Duration, slice: SliceId, state: Option<&[u8]>) {
        let Some((epoch, contained)) = self.checkpoints.given.remove(&slice) else { return };
        let version = SnapshotId { epoch, number: u64::MAX };
        let state = state.map(Arc::from);
        let good_from = now + self.config.reply_is_sure();
        self.keeper.keep(slice, Snapshot { version, contained, state, good_from });
    }

    /// Slices were taken: their state will contain the items at or below the cut, except those that
    /// the source had not started.
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
            // The last owner may have another keeper.
            self.track(now, *slice, contained, 1);
        }
    }

    /// Whether the last checkpoint is not at the keeper, or, if there is none, not in the folder.
    fn lacks_keeper(&self, slice: SliceId, tracked: &Tracked) -> bool {
        match &tracked.covered {
            Some(covered) => match self.checkpoints.standby {
                Some(keeper) => covered.keeper != Some(keeper),
                None => !covered.in_folder,
            },
            // A checkpoint that is here would be lost with the state.
            None => self.keeper.version(slice).is_some(),
        }
    }

    /// Whether the last checkpoint is missing from the folder, because that failed.
    fn lacks_folder(&self, tracked: &Tracked) -> bool {
        self.config.has_folder() && tracked.covered.as_ref().is_some_and(|it| !it.in_folder)
    }

    /// Whether the slice may be given away: if this worker were lost as the source, the target
    /// would need a checkpoint that is not here.
    pub(super) fn is_safe_to_give(&self, slice: SliceId) -> bool {
        let Some(tracked) = self.checkpoints.slices.get(&slice) else { return true };
        let keeper = tracked.covered.as_ref().and_then(|covered| covered.keeper);
        tracked.contained.is_empty() || keeper.is_some() && keeper == self.checkpoints.standby
    }

    /// Takes due snapshots, and sends and commits those that were taken.
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
        let mut mail: BTreeMap<Incarnation, Post> = BTreeMap::new();
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
            // A replay is in order as well.
            Some(recovering) => recovering.replays() && !self.restores.has(slice),
            None => owned.held.is_none(),
        }
    }

    fn tick_slice(
        &mut self,
        now: Duration,
        slice: SliceId,
        tracked: &mut Tracked,
        mail: &mut BTreeMap<Incarnation, Post>,
    ) {
        let Some(config) = self.config.checkpoints() else { return };
        let standby = self.checkpoints.standby;
        if tracked.sending.take_if(|it| it.keeper != standby).is_some() {
            tracked.items += 1;
        }
        if let Some(sending) = &mut tracked.sending {
            return self.tick_sending(now, slice, sending, mail);
        }
        if standby.is_none() && !config.folder {
            // No other worker exists, and clients should not wait.
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
            // A client may have missed the message.
            tracked.wanted = false;
            let (contained, version) = (covered.contained.clone(), Some(covered.version));
            return self.out.push_back(Output::Covered(Covered { slice, contained, version }));
        }
        let is_old = now.saturating_sub(tracked.taken) >= config.every;
        let is_due =
            tracked.items > 0 && (is_old || tracked.wanted || tracked.items >= config.items);
        let lacks_keeper = standby.is_some() && self.lacks_keeper(slice, tracked);
        let lacks_folder = is_old && self.lacks_folder(tracked);
        if tracked.asked.is_none() && (is_due || lacks_keeper || lacks_folder) {
            self.checkpoints.last += 1;
            let number = self.checkpoints.last;
            tracked.asked = Some(number);
            self.out.push_back(Output::Snapshot { slice, number });
        }
    }
}

impl Tracked {
    /// The snapshot is the last checkpoint now.
    fn count(&mut self, now: Duration, slice: SliceId, sent: Sending) -> Covered {
        let Sending { version, keeper, contained, state, folder, .. } = sent;
        self.covered = Some(Kept {
            version,
            keeper,
            in_folder: folder == InFolder::Yes,
            contained: contained.clone(),
            at: now,
            bytes: state.map_or(0, |state| state.len() as u64),
        });
        self.wanted = false;
        Covered { slice, contained, version: Some(version) }
    }
}

/// A checkpoint at its keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub version: SnapshotId,
    pub contained: Positions,
    pub state: Option<Arc<[u8]>>,
    /// From then on other workers receive it: before, replies to its items may be in transit.
    pub good_from: Duration,
}
