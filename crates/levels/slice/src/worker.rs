//! The protocol at a worker: what it admits, and how slices come and go. No socket, clock or thread: items, messages and
//! `now` go in, [`Output`]s come out.
//!
//! `now` is the time since any fixed moment, and never goes back. The caller does the outputs in their order.

mod backlog;
mod claims;
mod give;
mod giver_table;
mod giving;
mod memory;
mod ownership;
mod past;
mod reason;
mod recovery;
mod refused;
mod resize;
mod standby;
mod take;
mod taker_table;
mod taking;
mod unfinished;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use giver_table::{GiverAction, GiverEvent, GiverState};
pub use giving::{TAIL_BYTES, TAIL_PART};
pub use reason::{Drops, Reason};
pub use refused::Refused;
pub use taker_table::{TakerAction, TakerEvent, TakerState};

use crate::config::Config;
use crate::ids::{Group, Groups, HandoverId, Life, Process, SliceId, Term, Writer};
use crate::message::{Address, Envelope, Item, Message};
use crate::numbering::Numbering;
use giving::Giving;
use ownership::{Owned, Released};
use taking::{Hole, Taking};
use unfinished::Unfinished;

/// Who has no reply this long after an item was finished, may have lost it.
const ANSWER: Duration = Duration::from_millis(500);

/// Handovers that are over and are remembered, so that late messages about them are answered rightly.
const REMEMBERED: usize = 256;

/// What the worker's surroundings have to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<T> {
    /// Send it.
    Send(Envelope<T>),
    /// Give it to the application, after all earlier ones of its slice; then call [`Worker::finished`].
    Execute(Item<T>),
    /// It was finished, and comes again: its reply may be lost. Send that again, if it is there.
    Answer(Item<T>),
    /// The slices are cut: take back every item of them that is not started, and call [`Worker::recalled`] before anything
    /// else of them is started.
    Recall {
        /// The handover.
        handover: HandoverId,
        /// The slices.
        slices: Arc<[SliceId]>,
    },
    /// The slice is drained: get its state from the application, and call [`Worker::exported`].
    Export {
        /// The handover.
        handover: HandoverId,
        /// The slice.
        slice: SliceId,
    },
    /// Give the application the slice's state, before what follows. `None`: it was lost with its worker.
    Import {
        /// The slice.
        slice: SliceId,
        /// As it was exported.
        state: Option<Vec<u8>>,
    },
    /// Open a reader; then call [`Worker::subscribed`], and [`Worker::settled`] later.
    Subscribe(Group),
    /// Close the reader.
    Unsubscribe(Group),
    /// The lease lapsed: start nothing until `Resume`.
    Fence,
    /// The lease is good again.
    Resume,
    /// Slices have other numbers from now on: file what waits under those of its keys, and name
    /// slices so to the worker.
    Renumber(Numbering),
    /// Given up as lost: forget every item that was not started, and reply to none.
    Reset,
}

/// How far a writer was followed.
#[derive(Debug, Clone, Copy)]
struct Seen {
    first: u64,
    last: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Subscription {
    ready: bool,
    settled: bool,
    /// Since when nothing here needs it.
    idle: Option<Duration>,
}

/// A worker's side of the protocol.
#[derive(Debug)]
pub struct Worker<T> {
    life: Life,
    process: Process,
    refused: Option<Refused>,
    config: Config,
    term: Term,
    numbering: Numbering,
    /// The resize that the controller has announced, and when it did so last.
    announced: Option<(Numbering, Duration)>,
    /// The last resize that its claims said it can take.
    promised: Option<HandoverId>,
    seen: HashMap<Writer, Seen>,
    gone: BTreeMap<Writer, Duration>,
    subscriptions: BTreeMap<Group, Subscription>,
    /// Some subscription may be needed no longer.
    may_be_idle: bool,
    owned: BTreeMap<SliceId, Owned<T>>,
    /// Handovers with a shadow, and its slices in order.
    shadows: Vec<(HandoverId, Arc<[SliceId]>)>,
    /// Slices that were cut and not closed, and in which handover.
    released: HashMap<SliceId, Released>,
    giving: BTreeMap<HandoverId, Giving<T>>,
    taking: BTreeMap<HandoverId, Taking<T>>,
    /// Givings that wait for P, and those with tails to end: what an item may move on.
    watching: BTreeSet<HandoverId>,
    unfinished: Unfinished,
    memory: memory::Memory,
    standby: standby::Standby<T>,
    past: past::Pasts,
    claims: claims::Lease,
    /// Items that came with their slices since that was last asked.
    handed_over: BTreeMap<SliceId, u64>,
    /// The bytes of an item, by which the tail is chunked.
    size: fn(&T) -> usize,
    drops: Drops,
    out: VecDeque<Output<T>>,
    #[cfg(test)]
    pub(crate) sabotage: Sabotage,
}

/// Ways to break it, for tests of the tests.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sabotage {
    #[default]
    None,
    /// Does items that come late, below the cut.
    NoLateDrop,
    /// Cuts at once, without passing P.
    NoPosition,
    /// Does not wait for the tail of writers that matched late.
    NoTail,
    /// Starts before the giver has drained.
    NoHold,
    /// Starts what it recovers as it comes.
    NoRecoveryHold,
    /// Goes on when the lease has lapsed.
    NoFence,
    /// Takes items that come again for new ones.
    TrustAgain,
    /// Claims that what came by the tail is done.
    ClaimTail,
    /// Claims that what its giver had not started is done.
    ClaimBacklog,
    /// Claims that what it handed over unstarted is done.
    ClaimHanded,
    /// Forgets what it handed over, before the controller knows that the taker has it.
    NoClaimed,
    /// Claims as committed what has no reply yet.
    ClaimUnreplied,
    /// Does nothing for what comes again and nobody has.
    NoOrphans,
    /// Does not ask clients for what it recovers.
    NoAsk,
    /// Not the worker's: the store forgets who was given up.
    ForgetLost,
    /// Not the worker's: the store forgets which numbers were given out.
    ForgetNumbers,
    /// Not the worker's: the store forgets which workers there were.
    ForgetHeard,
    /// Not the worker's: the controller does not ask what the last one left under way.
    NoSurvey,
    /// Goes on with what a controller asked for that is none any more.
    NoPromise,
    /// Forgets what it gave away.
    NoPast,
    /// Not the worker's: the controller gives a worker up whose connection closed, without asking
    /// it.
    TrustClose,
    /// Heeds messages that name slices by other numbers.
    HeedsOldNumbers,
    /// Leaves what waits in the queues of the slices that it split or joined.
    NoRefile,
}

impl<T: Clone> Worker<T> {
    /// A worker that owns nothing. It is fenced until the controller has heard of it.
    pub fn new(life: Life, config: Config) -> Self {
        let mut worker = Self {
            life,
            // No other life of this name was begun with this number.
            process: Process { key: life.number, ..Process::default() },
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

    /// The same, in `process`.
    #[must_use]
    pub fn in_process(self, process: Process) -> Self {
        Self { process, ..self }
    }

    /// The stream has this many slices, as far as the worker was told. Without: as many as there
    /// are keys.
    #[must_use]
    pub fn with_slices(self, slices: u32) -> Self {
        Self { numbering: Numbering::new(slices), ..self }
    }

    /// Chunks what it hands over by the bytes of items: see [`TAIL_BYTES`].
    #[must_use]
    pub fn with_size(self, size: fn(&T) -> usize) -> Self {
        Self { size, ..self }
    }

    /// Which life this is. Changes when the controller had given the worker up.
    pub fn life(&self) -> Life {
        self.life
    }

    /// The term of the last controller that it heard.
    pub fn term(&self) -> Term {
        self.term
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Output<T>> {
        self.out.pop_front()
    }

    /// Whether nothing may be started because the lease lapsed.
    pub fn is_fenced(&self) -> bool {
        self.claims.is_fenced()
    }

    /// Its times and bounds.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// By which numbers it names slices.
    pub fn numbering(&self) -> &Numbering {
        &self.numbering
    }

    /// How many slices it owns.
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

    /// The slices of which it takes what clients publish again. They should be asked for it, again and again.
    pub fn recovering(&self) -> impl Iterator<Item = SliceId> {
        let recovering = self.owned.iter().filter(|(_, owned)| owned.recovering.is_some());
        recovering.map(|(slice, _)| *slice)
    }

    /// Handovers that it has a part in and that are not over.
    pub fn handovers(&self) -> usize {
        let giving = self.giving.values().filter(|giving| !giving.state.is_over());
        giving.count() + self.taking.values().filter(|taking| !taking.state.is_over()).count()
    }

    /// Items of `slice` that are admitted and not finished.
    pub fn unfinished(&self, slice: SliceId) -> usize {
        self.unfinished.of_slice(slice)
    }

    /// How many items came with their slices since the last call: they had waited at the slices' last owners.
    pub fn take_handed_over(&mut self) -> BTreeMap<SliceId, u64> {
        std::mem::take(&mut self.handed_over)
    }

    /// What was dropped.
    pub fn drops(&self) -> Drops {
        self.drops
    }

    /// An item came. Items of a writer come in its order, without holes from the first that comes; one that is
    /// published again may come at any time.
    pub fn item(&mut self, now: Duration, mut item: Item<T>) {
        self.claims.change();
        // It may have been read before slices were numbered anew.
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
        // Its return may be noticed after its items.
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

    /// An item that was published before. Whoever saw it then has it, unless it was lost with its worker, or on its way.
    fn again(&mut self, now: Duration, item: Item<T>) {
        let (writer, position) = (item.writer, item.position);
        // Whoever owns the slice by now: nobody else has the reply.
        if self.memory.has_finished(writer, position) {
            self.drops.count(Reason::Duplicate);
            // The reply may have crossed it: if it is lost, the item comes once more.
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

    /// What comes again is done after this: its last owner may stand still for a lease, and have it.
    fn orphan_after(&self) -> Duration {
        self.config.orphan.max(self.config.lease + self.config.margin)
    }

    /// Whether somebody may still have the item whose slice is owned here: its giver, or what waits here for a tail.
    fn may_be_elsewhere(&self, item: &Item<T>) -> bool {
        let Some(owned) = self.owned.get(&item.slice) else { return true };
        let Some(taking) = self.taking.get(&owned.epoch) else { return false };
        if taking.state.is_over() || taking.giver.is_none() {
            return false;
        }
        item.position <= owned.floor.of(item.writer) || !taking.is_known(item.writer)
    }

    /// The application has finished an item, and the reply is on its way: it counts as committed after
    /// [`Config::reply`].
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

    /// The readers of `group` are open and have matched every writer that was known when they were opened, or have
    /// waited for that long enough. What matches later costs a detour, not an item.
    pub fn subscribed(&mut self, now: Duration, group: Group) {
        self.claims.change();
        if let Some(subscription) = self.subscriptions.get_mut(&group) {
            subscription.ready = true;
            self.subscriptions_ready(now);
        }
    }

    /// The readers of `group` have matched every writer that was there when they were opened, and what those wrote
    /// before has arrived wherever it was going: seconds after `subscribed`.
    pub fn settled(&mut self, now: Duration, group: Group) {
        self.claims.change();
        if let Some(subscription) = self.subscriptions.get_mut(&group) {
            subscription.ready = true;
            subscription.settled = true;
            self.subscriptions_ready(now);
            self.subscriptions_settled(now);
        }
    }

    /// The writer is gone, and all that it wrote and that will come has come.
    pub fn writer_gone(&mut self, now: Duration, writer: Writer) {
        self.claims.change();
        self.gone.insert(writer, now);
        self.move_on(now);
    }

    /// A message came. One for another life is ignored, as is one of a controller that has lost its office.
    pub fn message(&mut self, now: Duration, envelope: Envelope<T>) {
        if envelope.to != Address::Worker(self.life) || envelope.term < self.term {
            return;
        }
        if envelope.from == Address::Controller && envelope.term > self.term {
            self.term = envelope.term;
            self.begin_term(now);
        }
        // Both sides repeat messages until they have the same numbers.
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
            Message::Prepare { handover, slices, giver } => {
                self.on_prepare(now, handover, slices, giver);
            }
            Message::Release { handover, slices, taker, positions, settled } => {
                self.on_release(now, handover, slices, taker, positions, settled);
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
            Message::End { handover } => self.taker_event(now, handover, TakerEvent::End),
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
            // What workers say to the controller.
            Message::Ready { .. }
            | Message::Closed { .. }
            | Message::Aborted { .. }
            | Message::Alive { .. }
            | Message::Claims(_) => {}
        }
    }

    /// Time has passed. Call it at least every `config.resend`, or after [`Worker::idle_for`].
    pub fn tick(&mut self, now: Duration) {
        self.tick_lease(now);
        self.tick_giving(now);
        self.tick_taking(now);
        self.tick_recovery(now);
        self.tick_resize(now);
        self.tick_subscriptions(now);
        self.memory.forget(now, self.config.remember, self.orphan_after());
        let forget = self.config.forget;
        let seen = &mut self.seen;
        self.gone.retain(|writer, since| {
            let keep = now.saturating_sub(*since) < forget;
            if !keep {
                seen.remove(writer);
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

    /// An item of an owned slice that nothing stands before. `fresh`: it comes for the first time.
    fn admit(&mut self, mut item: Item<T>, fresh: bool) {
        let Some(owned) = self.owned.get_mut(&item.slice) else { return };
        // Items after it may be done already: it is not handed over. Those that are held are done in order.
        item.again |= owned.held.is_none() && owned.is_recovering(item.writer, item.position);
        match owned.admit(item.writer, item.position, fresh) {
            Ok(()) => {}
            #[cfg(test)]
            Err(Reason::Late) if self.sabotage == Sabotage::NoLateDrop => {}
            Err(reason) => return self.drops.count(reason),
        }
        self.execute(item);
    }

    /// It is this worker's to do.
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

    /// Whether all of `writer` up to `position` has come that will come.
    fn has_reached(&self, writer: Writer, position: u64) -> bool {
        self.last(writer).is_some_and(|last| last >= position) || self.gone.contains_key(&writer)
    }

    fn subscribe(&mut self, group: Group) {
        if let std::collections::btree_map::Entry::Vacant(entry) = self.subscriptions.entry(group) {
            entry.insert(Subscription::default());
            self.out.push_back(Output::Subscribe(group));
        }
    }

    /// Opens readers of the groups by which items of `slice` come.
    fn subscribe_to(&mut self, slice: SliceId) {
        for group in self.numbering.groups_of(slice) {
            self.subscribe(group);
        }
    }

    /// Something may have gone that needed a reader.
    fn unsubscribe_idle(&mut self) {
        self.may_be_idle = true;
    }

    /// Closes readers that nothing here has needed for [`Config::linger`].
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
        let from = Address::Worker(self.life);
        let (term, numbering) = (self.term, self.numbering.epoch);
        self.out.push_back(Output::Send(Envelope { from, to, term, numbering, message }));
    }

    fn send_controller(&mut self, message: Message<T>) {
        self.send(Address::Controller, message);
    }
}
