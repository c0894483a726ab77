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
mod items;
mod keeper;
mod memory;
mod output;
mod ownership;
mod past;
mod reason;
mod recovery;
mod refused;
mod resize;
mod restore;
#[cfg(test)]
mod sabotage;
mod source_table;
mod standby;
mod subscriptions;
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
pub use output::Output;
pub use reason::{Drops, Reason};
pub use refused::Refused;
pub use source_table::{SourceAction, SourceEvent, SourceState};
pub use target_table::{TargetAction, TargetEvent, TargetState};

use crate::config::Config;
use crate::ids::{Group, HandoverId, Incarnation, Process, SliceId, Term, Writer};
use crate::message::{Address, Envelope, Message};
use crate::numbering::Numbering;
use giving::Giving;
use items::Seen;
use ownership::{Owned, Released};
#[cfg(test)]
pub(crate) use sabotage::Sabotage;
use subscriptions::Subscription;
use taking::Taking;
use unfinished::Unfinished;

/// Number of finished handovers that are remembered, to answer late messages about them.
const REMEMBERED: usize = 256;

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

    fn send(&mut self, to: Address, message: Message<T>) {
        let from = Address::Worker(self.incarnation);
        let (term, numbering) = (self.term, self.numbering.epoch);
        self.out.push_back(Output::Send(Envelope { from, to, term, numbering, message }));
    }

    fn send_controller(&mut self, message: Message<T>) {
        self.send(Address::Controller, message);
    }
}
