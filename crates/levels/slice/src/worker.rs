//! The protocol at a worker: the items that it admits, and how slices come and go. No socket, clock
//! or thread: items, messages and `now` are inputs, [`Output`]s are the results.
//!
//! `now` is the time since any fixed moment, and never goes back. The caller carries out the
//! outputs in order.

mod backlog;
mod checkpoint;
mod claims;
mod give;
mod giving;
mod keeper;
mod memory;
mod ownership;
mod past;
mod reason;
mod recovery;
mod refused;
mod resize;
mod restore;
mod source_table;
mod standby;
mod take;
mod taking;
mod target_table;
mod unfinished;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use checkpoint::{Checkpoint, CheckpointStatus};
pub use giving::{TAIL_BYTES, TAIL_PART};
pub use reason::{Drops, Reason};
pub use refused::Refused;
pub use source_table::{SourceAction, SourceEvent, SourceState};
pub use target_table::{TargetAction, TargetEvent, TargetState};

use crate::config::Config;
use crate::ids::{Group, Groups, HandoverId, Incarnation, Process, SliceId, Term, Writer};
use crate::message::{Address, Covered, Envelope, Item, Message};
use crate::numbering::Numbering;
use giving::Giving;
use ownership::{Owned, Released};
use taking::{Hole, Taking};
use unfinished::Unfinished;

/// A client without a reply this long after an item was finished may have lost it.
const ANSWER: Duration = Duration::from_millis(500);

/// Number of finished handovers that are remembered, to answer late messages about them.
const REMEMBERED: usize = 256;

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

/// The positions received from a writer.
#[derive(Debug, Clone, Copy)]
struct Seen {
    first: u64,
    last: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Subscription {
    ready: bool,
    settled: bool,
    /// Since when it is not needed.
    idle: Option<Duration>,
}

/// A worker's side of the protocol.
#[derive(Debug)]
pub struct Worker<T> {
    incarnation: Incarnation,
    process: Process,
    refused: Option<Refused>,
    config: Config,
    term: Term,
    numbering: Numbering,
    /// The announced resize, and the time of the last announcement.
    announced: Option<(Numbering, Duration)>,
    /// The last resize that its claims accepted.
    promised: Option<HandoverId>,
    seen: HashMap<Writer, Seen>,
    gone: BTreeMap<Writer, Duration>,
    subscriptions: BTreeMap<Group, Subscription>,
    /// Some subscription may not be needed any more.
    may_be_idle: bool,
    owned: BTreeMap<SliceId, Owned<T>>,
    /// Handovers with a shadow, and their slices in order.
    shadows: Vec<(HandoverId, Arc<[SliceId]>)>,
    /// Slices that were cut and not closed.
    released: HashMap<SliceId, Released>,
    giving: BTreeMap<HandoverId, Giving<T>>,
    taking: BTreeMap<HandoverId, Taking<T>>,
    /// Handovers that an item may advance: sources that wait for P, and those with tails to end.
    watching: BTreeSet<HandoverId>,
    unfinished: Unfinished,
    memory: memory::Memory,
    standby: standby::Standby<T>,
    past: past::Pasts,
    claims: claims::Lease,
    checkpoints: checkpoint::Checkpoints,
    keeper: keeper::Keeper,
    restores: restore::Restores,
    /// Number of items that came with their slices, since it was last read.
    handed_over: BTreeMap<SliceId, u64>,
    /// Bytes of an item, by which the tail is split into messages.
    size: fn(&T) -> usize,
    drops: Drops,
    out: VecDeque<Output<T>>,
    #[cfg(test)]
    pub(crate) sabotage: Sabotage,
}

/// Faults to inject, for tests of the tests.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sabotage {
    #[default]
    None,
    /// Executes late items, below the cut.
    NoLateDrop,
    /// Cuts at once, without passing P.
    NoPosition,
    /// Does not wait for the tail of writers that matched late.
    NoTail,
    /// Starts before the source has drained.
    NoHold,
    /// Starts recovered items as they arrive.
    NoRecoveryHold,
    /// Goes on when the lease has expired.
    NoFence,
    /// Treats items that are published again as new ones.
    TrustAgain,
    /// Commits a checkpoint before the replies to its items have arrived.
    CommitUnreplied,
    /// Commits a checkpoint before it is in the folder.
    CommitUnstored,
    /// Does not wait for the answers of all workers that may have a checkpoint.
    NoAskAll,
    /// Counts an item that was started before a state is replaced.
    NoDiscard,
    /// Not the worker's: clients keep nothing that has a reply.
    ForgetReplied,
    /// Claims items that came by the tail as finished.
    ClaimTail,
    /// Claims the unstarted items of its source as finished.
    ClaimBacklog,
    /// Claims items that it handed over unstarted as finished.
    ClaimHanded,
    /// Forgets items that it handed over before the controller knows that the target has them.
    NoClaimed,
    /// Claims items without a reply as committed.
    ClaimUnreplied,
    /// Ignores orphans.
    NoOrphans,
    /// Does not ask clients for the items that it recovers.
    NoAsk,
    /// In the store: forgets the workers that were given up.
    ForgetLost,
    /// In the store: forgets the reserved numbers.
    ForgetNumbers,
    /// In the store: forgets the workers that reported.
    ForgetHeard,
    /// In the controller: does not ask for moves that the last controller left in progress.
    NoSurvey,
    /// Cuts for a controller that has a successor.
    NoPromise,
    /// Forgets the handovers that it finished as the source.
    NoPast,
    /// In the controller: gives a worker up when its connection closes, without a probe.
    TrustClose,
    /// Accepts messages with another numbering.
    HeedsOldNumbers,
    /// Leaves waiting items in the queues of slices that it split or joined.
    NoRefile,
}

impl<T: Clone> Worker<T> {
    /// A worker without slices. It is fenced until the controller has answered its claims.
    pub fn new(incarnation: Incarnation, config: Config) -> Self {
        let mut worker = Self {
            incarnation,
            // No other incarnation of this name has this number.
            process: Process { key: incarnation.number, ..Process::default() },
            refused: None,
            config,
            term: Term::default(),
            numbering: Numbering::new(u32::MAX),
            announced: None,
            promised: None,
            seen: HashMap::new(),
            gone: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            may_be_idle: false,
            owned: BTreeMap::new(),
            shadows: Vec::new(),
            released: HashMap::new(),
            giving: BTreeMap::new(),
            taking: BTreeMap::new(),
            watching: BTreeSet::new(),
            unfinished: Unfinished::default(),
            memory: memory::Memory::default(),
            standby: standby::Standby::default(),
            past: past::Pasts::default(),
            claims: claims::Lease::default(),
            checkpoints: checkpoint::Checkpoints::default(),
            keeper: keeper::Keeper::default(),
            restores: restore::Restores::default(),
            handed_over: BTreeMap::new(),
            size: |_| 0,
            drops: Drops::default(),
            out: VecDeque::new(),
            #[cfg(test)]
            sabotage: Sabotage::None,
        };
        worker.subscribe(Group::BASE);
        worker
    }

    /// The worker with its process set to `process`.
    #[must_use]
    pub fn in_process(self, process: Process) -> Self {
        Self { process, ..self }
    }

    /// The worker with this number of slices. By default each key is a slice.
    #[must_use]
    pub fn with_slices(self, slices: u32) -> Self {
        Self { numbering: Numbering::new(slices), ..self }
    }

    /// The worker with a function for the bytes of an item, by which the tail is split: see
    /// [`TAIL_BYTES`].
    #[must_use]
    pub fn with_size(self, size: fn(&T) -> usize) -> Self {
        Self { size, ..self }
    }

    /// Its incarnation. Changes when the controller has given the worker up.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The term of the last controller that sent a message.
    pub fn term(&self) -> Term {
        self.term
    }

    /// The next output.
    pub fn poll(&mut self) -> Option<Output<T>> {
        self.out.pop_front()
    }

    /// Whether nothing may start because the lease expired.
    pub fn is_fenced(&self) -> bool {
        self.claims.is_fenced()
    }

    /// Its durations and bounds.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Its numbering of slices.
    pub fn numbering(&self) -> &Numbering {
        &self.numbering
    }

    /// The number of slices that it owns.
    pub fn slice_count(&self) -> usize {
        self.owned.len()
    }

    /// The slices that it owns.
    pub fn slices(&self) -> impl Iterator<Item = SliceId> {
        self.owned.keys().copied()
    }

    /// The handover that gave it `slice`, if it owns that.
    pub fn epoch(&self, slice: SliceId) -> Option<HandoverId> {
        self.owned.get(&slice).map(|owned| owned.epoch)
    }

    /// The slices for which it accepts items that clients publish again. Clients should be asked
    /// for them repeatedly.
    pub fn recovering(&self) -> impl Iterator<Item = SliceId> {
        let recovering = self.owned.iter().filter(|(_, owned)| owned.recovering.is_some());
        recovering.map(|(slice, _)| *slice)
    }

    /// Number of its handovers that are not over.
    pub fn handovers(&self) -> usize {
        let giving = self.giving.values().filter(|giving| !giving.state.is_over());
        giving.count() + self.taking.values().filter(|taking| !taking.state.is_over()).count()
    }

    /// Items of `slice` that are admitted and not finished.
    pub fn unfinished(&self, slice: SliceId) -> usize {
        self.unfinished.of_slice(slice)
    }

    /// Number of items per slice that came with their slices since the last call: they had waited
    /// at the slices' last owners.
    pub fn take_handed_over(&mut self) -> BTreeMap<SliceId, u64> {
        std::mem::take(&mut self.handed_over)
    }

    /// The numbers of dropped items.
    pub fn drops(&self) -> Drops {
        self.drops
    }

    /// An item arrived. Items of a writer arrive in order, without gaps from the first one on; an
    /// item that is published again may arrive at any time.
    pub fn item(&mut self, now: Duration, mut item: Item<T>) {
        self.claims.change();
        // It may have been read before a resize.
        item.slice = self.numbering.slice_of(item.key);
        let group = item.writer.group;
        if !self.subscriptions.contains_key(&group)
            || (group != Group::BASE && group != Group::of_key(item.key))
        {
            self.drops.count(Reason::NotOwned);
            return;
        }
        let again = item.again;
        #[cfg(test)]
        let again = again && self.sabotage != Sabotage::TrustAgain;
        if again {
            return self.again(now, item);
        }
        // The writer's return may be noticed only after its items.
        self.gone.remove(&item.writer);
        let position = item.position;
        let seen = self.seen.entry(item.writer).or_insert(Seen { first: position, last: 0 });
        if position <= seen.last {
            return self.again(now, item);
        }
        seen.last = position;
        let first = seen.first;
        self.route(now, item, first);
        if !self.watching.is_empty() {
            self.move_on(now);
        }
    }

    /// Handles an item that was published before. Every worker that received it then has it, unless
    /// the worker or the item was lost.
    fn again(&mut self, now: Duration, item: Item<T>) {
        let (writer, position) = (item.writer, item.position);
        if self.replays(now, &item) {
            return self.admit(item, false);
        }
        // No other worker has the reply, even if another owns the slice.
        if self.has_finished(item.slice, writer, position) {
            self.drops.count(Reason::Duplicate);
            // The reply may still be in transit: if it is lost, the item is published once more.
            let then = now.checked_sub(self.config.orphan.min(ANSWER));
            if then.is_some_and(|then| self.memory.has_finished_before(then, writer, position)) {
                self.out.push_back(Output::Answer(item));
            }
            return;
        }
        let Some(owned) = self.owned.get_mut(&item.slice) else {
            return self.drops.count(Reason::NotOwned);
        };
        if self.unfinished.has(item.slice, writer, position) {
            return self.drops.count(Reason::Duplicate);
        }
        if owned.recovers(now, writer, position) {
            return self.admit(item, false);
        }
        let orphan = self.orphan_after();
        #[cfg(test)]
        let orphan = if self.sabotage == Sabotage::NoOrphans { Duration::MAX } else { orphan };
        if self.may_be_elsewhere(&item) || !self.memory.is_orphan(now, writer, position, orphan) {
            return self.drops.count(Reason::Duplicate);
        }
        self.execute_orphan(item);
    }

    /// Time after which an orphan is processed: its last owner may be paused for a lease, and have
    /// it.
    fn orphan_after(&self) -> Duration {
        self.config.orphan.max(self.config.lease + self.config.margin)
    }

    /// Whether an item of an owned slice may be at its source, or wait here for a tail.
    fn may_be_elsewhere(&self, item: &Item<T>) -> bool {
        let Some(owned) = self.owned.get(&item.slice) else { return true };
        let Some(taking) = self.taking.get(&owned.epoch) else { return false };
        if taking.state.is_over() || taking.source.is_none() {
            return false;
        }
        item.position <= owned.floor.of(item.writer) || !taking.is_known(item.writer)
    }

    /// The application has finished an item, and its reply is in transit: it counts as committed
    /// after [`Config::reply`].
    pub fn finished(&mut self, now: Duration, slice: SliceId, writer: Writer, position: u64) {
        if !self.unfinished.finish(now, slice, writer, position) {
            return;
        }
        self.claims.change();
        self.memory.finish(now, writer, position);
        if self.unfinished.of_slice(slice) == 0 {
            self.slice_drained(now, slice);
        }
    }

    /// The readers of `group` are open. They have matched every writer known at their opening, or
    /// have waited for it long enough. Items of later writers come by a detour, and are not lost.
    pub fn subscribed(&mut self, now: Duration, group: Group) {
        self.claims.change();
        if let Some(subscription) = self.subscriptions.get_mut(&group) {
            subscription.ready = true;
            self.subscriptions_ready(now);
        }
    }

    /// The readers of `group` have matched every writer that existed when they were opened, and
    /// earlier items of these writers have arrived at every reader: seconds after `subscribed`.
    pub fn settled(&mut self, now: Duration, group: Group) {
        self.claims.change();
        if let Some(subscription) = self.subscriptions.get_mut(&group) {
            subscription.ready = true;
            subscription.settled = true;
            self.subscriptions_ready(now);
            self.subscriptions_settled(now);
        }
    }

    /// The writer is gone, and all its items that can arrive have arrived.
    pub fn writer_gone(&mut self, now: Duration, writer: Writer) {
        self.claims.change();
        self.gone.insert(writer, now);
        self.move_on(now);
    }

    /// A message arrived. One for another incarnation or from an earlier controller is ignored.
    pub fn message(&mut self, now: Duration, envelope: Envelope<T>) {
        if envelope.to != Address::Worker(self.incarnation) || envelope.term < self.term {
            return;
        }
        if envelope.from == Address::Controller && envelope.term > self.term {
            self.term = envelope.term;
            self.begin_term(now);
        }
        // Both sides repeat messages until they have the same numbering.
        #[cfg(test)]
        let heeds_all = self.sabotage == Sabotage::HeedsOldNumbers;
        #[cfg(not(test))]
        let heeds_all = false;
        if envelope.message.names_slices()
            && envelope.numbering != self.numbering.epoch
            && !heeds_all
        {
            return;
        }
        if !matches!(envelope.message, Message::Grant { .. }) {
            self.claims.change();
        }
        match envelope.message {
            Message::Prepare { handover, slices, source } => {
                self.on_prepare(now, handover, slices, source);
            }
            Message::Release { handover, slices, target, positions, settled } => {
                self.on_release(now, handover, slices, target, positions, settled);
            }
            Message::Cut { handover, positions, backlog } => {
                self.on_cut(now, handover, positions, backlog);
            }
            Message::Active { handover, progress, .. } => self.on_active(now, handover, &progress),
            Message::Drained { handover, slices } => self.on_drained(now, handover, slices),
            Message::Tail { handover, first, entries } => {
                self.on_tail(now, handover, first, entries);
            }
            Message::Abort { handover } => self.on_abort(now, handover),
            Message::Assign { handover, slices, after } => {
                self.on_assign(now, handover, slices, after);
            }
            Message::Recover { handover, after } => self.on_recover(now, handover, &after),
            Message::End { handover } => self.target_event(now, handover, TargetEvent::End),
            Message::Grant { number } => self.granted(now, number),
            Message::Expel { last } => self.expelled(now, last),
            Message::Refuse { last, holder, heard } => {
                self.on_refuse(now, last, holder, heard);
            }
            Message::Probe { number } => self.send_controller(Message::Alive { number }),
            Message::Standby { committed } => self.on_standby(&committed),
            Message::Resize { numbering, now: takes_effect } => {
                self.on_resize(now, numbering, takes_effect);
            }
            // Messages of workers to the controller.
            Message::Ready { .. }
            | Message::Closed { .. }
            | Message::Aborted { .. }
            | Message::Alive { .. }
            | Message::Claims(_) => {}
            message => self.checkpoint_message(now, envelope.from, message),
        }
    }

    /// Handles a message about checkpoints.
    fn checkpoint_message(&mut self, now: Duration, from: Address, message: Message<T>) {
        match message {
            Message::Keepers { number, standby, others } => {
                self.on_keepers(now, number, Some(standby), others);
            }
            Message::Restore { handover, slices, number, others } => {
                self.on_restore(now, handover, slices, number, others);
            }
            Message::Snapshots { parts, commits, superseded } => {
                self.on_snapshots(now, from, parts, &commits, &superseded);
            }
            Message::Kept { came, committed } => self.on_kept(now, from, &came, &committed),
            Message::Ask { epoch, slices } => self.on_ask(now, from, epoch, slices),
            Message::Has { slices, versions } => self.on_has(now, from, &slices, &versions),
            Message::Want { wants } => self.on_want(from, &wants),
            _ => {}
        }
    }

    /// Handles the passing of time. Call it at least every `config.resend`, or after
    /// [`Worker::idle_for`].
    pub fn tick(&mut self, now: Duration) {
        self.tick_lease(now);
        self.tick_giving(now);
        self.tick_taking(now);
        self.tick_recovery(now);
        self.tick_resize(now);
        self.tick_checkpoints(now);
        self.tick_subscriptions(now);
        self.memory.forget(now, self.config.remember, self.orphan_after());
        let forget = self.config.forget;
        let (seen, checkpoints) = (&mut self.seen, &mut self.checkpoints);
        self.gone.retain(|writer, since| {
            let keep = now.saturating_sub(*since) < forget;
            if !keep {
                seen.remove(writer);
                checkpoints.forget(*writer);
            }
            keep
        });
    }

    fn route(&mut self, now: Duration, item: Item<T>, first: u64) {
        if self.standby.is_on() && !self.owned.contains_key(&item.slice) {
            self.stand_by(&item);
        }
        if let Some(owned) = self.owned.get(&item.slice) {
            let epoch = owned.epoch;
            #[cfg(test)]
            if self.sabotage == Sabotage::NoTail {
                return self.admit(item, true);
            }
            if let Some(taking) = self.taking.get_mut(&epoch) {
                match taking.hole(&item, first) {
                    Hole::None => {}
                    Hole::Waits => return,
                    Hole::Asks => return self.say_active(now, epoch),
                }
            }
            self.hears(&item);
            self.admit(item, true);
        } else if let Some(handover) = self.shadow_of(item.slice) {
            self.shadow(now, handover, item);
        } else if let Some(handover) = self.released.get(&item.slice).map(|it| it.handover) {
            self.release(now, handover, item);
        } else {
            self.drops.count(Reason::NotOwned);
        }
    }

    /// Admits an item of an owned slice that has no gap before it. `fresh`: it arrives for the
    /// first time.
    fn admit(&mut self, mut item: Item<T>, fresh: bool) {
        let Some(owned) = self.owned.get_mut(&item.slice) else { return };
        // Items after it may be finished already, so it is not handed over. Held items are
        // processed in order.
        item.again |= owned.held.is_none() && owned.is_recovering(item.writer, item.position);
        match owned.admit(item.writer, item.position, fresh) {
            Ok(()) => {}
            #[cfg(test)]
            Err(Reason::Late) if self.sabotage == Sabotage::NoLateDrop => {}
            Err(reason) => return self.drops.count(reason),
        }
        self.execute(item);
    }

    /// The item is this worker's to process.
    fn execute(&mut self, item: Item<T>) {
        let Some(owned) = self.owned.get_mut(&item.slice) else { return };
        self.unfinished.add(&item);
        match owned.held {
            Some(_) => self.hold(item),
            None => self.out.push_back(Output::Execute(item)),
        }
    }

    fn last(&self, writer: Writer) -> Option<u64> {
        self.seen.get(&writer).map(|seen| seen.last)
    }

    /// Whether all items of `writer` up to `position` that can arrive have arrived.
    fn has_reached(&self, writer: Writer, position: u64) -> bool {
        self.last(writer).is_some_and(|last| last >= position) || self.gone.contains_key(&writer)
    }

    fn subscribe(&mut self, group: Group) {
        if let std::collections::btree_map::Entry::Vacant(entry) = self.subscriptions.entry(group) {
            entry.insert(Subscription::default());
            self.out.push_back(Output::Subscribe(group));
        }
    }

    /// Opens readers of the groups that carry items of `slice`.
    fn subscribe_to(&mut self, slice: SliceId) {
        for group in self.numbering.groups_of(slice) {
            self.subscribe(group);
        }
    }

    /// A reader may not be needed any more.
    fn unsubscribe_idle(&mut self) {
        self.may_be_idle = true;
    }

    /// Closes readers that were not needed for [`Config::linger`].
    fn tick_subscriptions(&mut self, now: Duration) {
        if !self.may_be_idle {
            return;
        }
        let mut needed = Groups::default();
        let slices = self.owned.keys().chain(self.released.keys()).copied();
        let slices = slices.chain(self.standby.slices());
        let groups = slices
            .flat_map(|slice| self.numbering.groups_of(slice))
            .chain(self.taking.values().filter(|t| t.is_coming()).flat_map(|t| t.groups.iter()))
            .chain([Group::BASE]);
        groups.for_each(|group| needed.insert(group));
        self.may_be_idle = false;
        let mut over = Vec::new();
        for (group, subscription) in &mut self.subscriptions {
            if needed.contains(*group) {
                subscription.idle = None;
                continue;
            }
            let since = *subscription.idle.get_or_insert(now);
            if now.saturating_sub(since) >= self.config.linger {
                over.push(*group);
            } else {
                self.may_be_idle = true;
            }
        }
        for group in over {
            self.subscriptions.remove(&group);
            self.seen.retain(|writer, _| writer.group != group);
            self.gone.retain(|writer, _| writer.group != group);
            self.out.push_back(Output::Unsubscribe(group));
        }
    }

    fn send(&mut self, to: Address, message: Message<T>) {
        let from = Address::Worker(self.incarnation);
        let (term, numbering) = (self.term, self.numbering.epoch);
        self.out.push_back(Output::Send(Envelope { from, to, term, numbering, message }));
    }

    fn send_controller(&mut self, message: Message<T>) {
        self.send(Address::Controller, message);
    }
}
