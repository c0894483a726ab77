//! The protocol at the controller: handovers, and the consequences of a lost worker. It has no
//! socket, clock or thread.
//!
//! The balancer decides *which* slices should move. The controller receives a move and carries it
//! out. State that must outlive it is in [`Record`]s. The caller must store each record before it
//! carries out the outputs after it. A controller whose record is refused is no longer the leader,
//! and must send nothing more. A planned move has no record before it ends: the next controller
//! asks the workers for moves in progress (`survey.rs`).

mod assign;
mod done;
mod evidence;
mod forget;
mod handover;
mod hear;
mod keepers;
mod members;
mod record;
mod resize;
mod standby;
mod survey;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

pub use evidence::Connection;
pub use handover::{HandoverAction, HandoverEvent, HandoverState};
pub use members::{Loss, Member};
pub use record::{Intent, Record, Stored};
pub use resize::{ResizeRefused, ResizeWaits};

use crate::by_slice::BySlice;
use crate::config::Config;
use crate::ids::{HandoverId, Incarnation, SliceId, Term, WorkerId};
use crate::message::{Address, Envelope, Message};
use crate::numbering::Numbering;
use crate::positions::Positions;
use crate::repeat::Repeat;
use members::Members;

/// Size of a block of reserved handover numbers.
const NUMBERS: u64 = 1024;

/// A controller without a tick for this many times [`Config::claims`] was paused.
const STILL: u32 = 2;

/// Outputs that the caller has to carry out, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<T> {
    /// Write it to the store, under the fence of the election, with all earlier notes.
    Record(Record),
    /// Write it to the store; later outputs need not wait for it.
    Note(Record),
    /// Send it.
    Send(Envelope<T>),
}

/// Why slices are not moved.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MoveRefused {
    /// The request names no slice.
    #[error("the request names no slice")]
    Nothing,
    /// No such slice.
    #[error("there is no slice {}: `equipoise slice status` says how many there are", .0.0)]
    UnknownSlice(SliceId),
    /// The controller has just begun.
    #[error(
        "the controller has just begun, and some workers have not reported their slices: try again in a second"
    )]
    Surveying,
    /// The slice has no owner.
    #[error("slice {} has no owner yet", .0.0)]
    Unowned(SliceId),
    /// The slice is in a handover that is not over.
    #[error("slice {} is in handover {}, which is {}", .0.0, .1.0, .2)]
    Busy(SliceId, HandoverId, &'static str),
    /// Slices of one handover must have one owner.
    #[error("slices {} and {} have different owners: move them separately", .0.0, .1.0)]
    SeveralOwners(SliceId, SliceId),
    /// A resize is in progress.
    #[error("slices are about to be split or joined: try again in a moment")]
    Resizing,
    /// The worker is not there, is leaving, or owns the slices.
    #[error("worker {} cannot take the slices: {}", .0.0, .1)]
    Target(WorkerId, &'static str),
}

/// A slice in the table.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Its owner.
    pub owner: Option<Incarnation>,
    /// The handover by which the owner received it.
    pub epoch: HandoverId,
    /// The handover in progress.
    pub busy: Option<HandoverId>,
    /// C: positions up to which items are finished or belong to an earlier owner, whatever the
    /// owner claims.
    floor: Option<Arc<Positions>>,
}

/// A handover that is not over.
#[derive(Debug, Clone)]
pub struct Handover {
    /// The slices.
    pub slices: Arc<[SliceId]>,
    /// The source; `None` for an assignment.
    pub source: Option<Incarnation>,
    /// The target.
    pub target: Incarnation,
    /// Its state; for assignments always `Activating`.
    pub state: HandoverState,
    /// When it began.
    pub since: Duration,
    repeat: Repeat,
    positions: Positions,
    settled: bool,
    cut: Option<Arc<Positions>>,
    /// The positions finished before the source had the slices.
    floors: BySlice,
    /// For an assignment: the committed positions.
    after: Option<Positions>,
    /// For an assignment that returns slices to the source of a handover: that handover.
    returns: Option<HandoverId>,
}

/// The controller's side of the protocol.
#[derive(Debug)]
pub struct Controller<T> {
    config: Config,
    term: Term,
    numbering: Numbering,
    resizing: Option<resize::Resizing>,
    last: HandoverId,
    /// Numbers up to this are reserved for this term in the store.
    reserved: HandoverId,
    members: Members,
    table: BTreeMap<SliceId, Row>,
    handovers: BTreeMap<HandoverId, Handover>,
    lines: evidence::Lines,
    standby_said: Duration,
    keepers: keepers::Keepers,
    forgot: Duration,
    /// Time of the last tick.
    ticked: Duration,
    /// Workers have not yet reported all moves of the last controller.
    surveying: bool,
    out: VecDeque<Output<T>>,
    #[cfg(test)]
    pub(crate) sabotage: crate::worker::Sabotage,
}

impl<T: Clone> Controller<T> {
    /// A controller that begins its `term` with the contents of the store. `slices`: the number in
    /// the configuration; if the stream was resized, that in the store counts
    /// ([`Numbering::is_of`]).
    pub fn new(now: Duration, term: Term, config: Config, slices: u32, stored: &Stored) -> Self {
        let numbering = stored.numbering.filter(|stored| stored.is_of(slices));
        let numbering = numbering.unwrap_or_else(|| Numbering::new(slices));
        let slices = numbering.slices;
        let mut controller = Self {
            config,
            term,
            numbering,
            resizing: None,
            last: stored.last,
            reserved: stored.last,
            members: Members::default(),
            table: (0..slices).map(|slice| (SliceId(slice), Row::default())).collect(),
            handovers: BTreeMap::new(),
            lines: evidence::Lines::default(),
            standby_said: now,
            keepers: keepers::Keepers::default(),
            forgot: now,
            ticked: now,
            surveying: true,
            out: VecDeque::new(),
            #[cfg(test)]
            sabotage: crate::worker::Sabotage::None,
        };
        controller.reserve();
        for (worker, number) in &stored.lost {
            controller.members.expect_lost(Incarnation { worker: *worker, number: *number }, now);
        }
        for (worker, number) in &stored.heard {
            controller.members.expect(Incarnation { worker: *worker, number: *number }, now);
        }
        for (slice, (owner, epoch)) in &stored.owners {
            controller.members.expect(*owner, now);
            if let Some(row) = controller.table.get_mut(slice) {
                (row.owner, row.epoch) = (Some(*owner), *epoch);
            }
        }
        for (id, intent) in &stored.open {
            controller.members.expect(intent.target, now);
            let state = HandoverState::Activating { source_lost: false };
            controller.open(now, *id, intent.clone(), state);
        }
        controller.lose_superseded(now);
        controller.end_survey(now);
        controller
    }

    /// The next output.
    pub fn poll(&mut self) -> Option<Output<T>> {
        self.out.pop_front()
    }

    /// Every slice.
    pub fn table(&self) -> &BTreeMap<SliceId, Row> {
        &self.table
    }

    /// Handovers that are not over.
    pub fn handovers(&self) -> &BTreeMap<HandoverId, Handover> {
        &self.handovers
    }

    /// Every worker that has reported or is in the store.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    /// Marks a worker as leaving: no slices are assigned to it, and the balancer moves its slices.
    /// `false`: no such worker.
    pub fn set_leaving(&mut self, worker: WorkerId, leaving: bool) -> bool {
        let member = self.members.current_mut(worker);
        member.map(|member| member.leaving = leaving).is_some()
    }

    /// Marks a worker as stuck, which processes none of its items: it receives no slices unless all
    /// workers are stuck. `false`: no such worker.
    pub fn set_stuck(&mut self, worker: WorkerId, stuck: bool) -> bool {
        let member = self.members.current_mut(worker);
        member.map(|member| member.stuck = stuck).is_some()
    }

    /// Begins to move `slices`, all of one owner, to `target`.
    ///
    /// # Errors
    /// [`MoveRefused`]; then nothing has changed.
    pub fn move_slices(
        &mut self,
        now: Duration,
        slices: &[SliceId],
        target: WorkerId,
    ) -> Result<HandoverId, MoveRefused> {
        let source = self.source_of(slices)?;
        let refused = |why| Err(MoveRefused::Target(target, why));
        let target = match self.members.current(target) {
            None => return refused("it is unknown"),
            Some(member) if member.lost || !member.is_here => return refused("it is not running"),
            Some(member) if member.leaving => return refused("it is leaving"),
            Some(member) if member.stuck => {
                return refused("it is stuck: its program acknowledges no items");
            }
            Some(member) if member.incarnation == source => return refused("it owns them already"),
            Some(member) => member.incarnation,
        };
        let mut slices = self.with_halves(slices.to_vec(), source, target)?;
        slices.sort_unstable();
        slices.dedup();
        let source = Some(source);
        let intent = Intent { slices: slices.into(), source, target, after: None, returns: None };
        Ok(self.begin(now, intent, HandoverState::Preparing))
    }

    fn source_of(&self, slices: &[SliceId]) -> Result<Incarnation, MoveRefused> {
        if self.surveying {
            return Err(MoveRefused::Surveying);
        }
        let mut source: Option<(SliceId, Incarnation)> = None;
        for slice in slices {
            let row = self.table.get(slice).ok_or(MoveRefused::UnknownSlice(*slice))?;
            if let Some(handover) = row.busy {
                let state = self.handovers.get(&handover).map_or("over", |h| h.state.name());
                return Err(MoveRefused::Busy(*slice, handover, state));
            }
            let owner = row.owner.filter(|owner| !self.members.is_lost(*owner));
            let owner = owner.ok_or(MoveRefused::Unowned(*slice))?;
            match source {
                Some((first, of)) if of != owner => {
                    return Err(MoveRefused::SeveralOwners(first, *slice));
                }
                _ => source = Some((*slice, owner)),
            }
        }
        source.map(|(_, incarnation)| incarnation).ok_or(MoveRefused::Nothing)
    }

    /// Handles the passing of time. Call it at least every `config.resend`.
    pub fn tick(&mut self, now: Duration) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.ticked, now));
        if passed >= STILL * self.config.claims {
            // Claims may have been sent in this time.
            self.members.allow(now, passed, self.config.claims);
        }
        self.tick_evidence(now, passed);
        self.members.suspect(now, self.config.suspicion());
        let silence = self.config.lease + self.config.margin;
        for incarnation in self.members.give_up(now, silence) {
            self.lost(now, incarnation);
        }
        self.end_survey(now);
        let patience = self.config.patience;
        let impatient = self.handovers.iter().filter(|(_, open)| {
            matches!(open.state, HandoverState::Preparing | HandoverState::Releasing)
                && now.saturating_sub(open.since) >= patience
        });
        for handover in impatient.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.event(now, handover, HandoverEvent::TimedOut);
        }
        let resend = self.config.resend;
        let due = self.handovers.iter().filter(|(_, open)| open.repeat.is_due(now, resend));
        for handover in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.say(now, handover);
        }
        self.assign_unowned(now);
        self.tick_resize(now);
        self.tick_standby(now);
        self.tick_keepers(now);
        self.tick_forget(now);
    }

    /// Loses incarnations in use that have a later one of the same worker.
    fn lose_superseded(&mut self, now: Duration) {
        let owners = self.table.values().filter_map(|row| row.owner);
        let parties = self.handovers.values().flat_map(|h| h.source.into_iter().chain([h.target]));
        let lost: std::collections::BTreeSet<_> = owners
            .chain(parties)
            .filter(|incarnation| self.members.is_lost(*incarnation))
            .collect();
        for incarnation in lost {
            self.lost(now, incarnation);
        }
    }

    /// Handles the loss of an incarnation: its handovers go on without it.
    fn lost(&mut self, now: Duration, incarnation: Incarnation) {
        self.out.push_back(Output::Record(Record::Lost(incarnation)));
        let open = self
            .handovers
            .iter()
            .filter(|(_, h)| h.source == Some(incarnation) || h.target == incarnation);
        for handover in open.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(open) = self.handovers.get(&handover) else { continue };
            if open.source.is_none() {
                self.target_lost(now, handover);
            } else if open.source == Some(incarnation) {
                self.event(now, handover, HandoverEvent::SourceLost);
            } else {
                self.event(now, handover, HandoverEvent::TargetLost);
            }
        }
        self.assign_unowned(now);
    }

    /// Begins a handover. An assignment is recorded before the worker receives it; a planned move
    /// is not.
    fn begin(&mut self, now: Duration, intent: Intent, state: HandoverState) -> HandoverId {
        let id = self.number();
        if intent.source.is_none() {
            self.out.push_back(Output::Record(Record::Opened(id, intent.clone())));
        }
        self.open(now, id, intent, state);
        id
    }

    /// A number that no handover ever had.
    fn number(&mut self) -> HandoverId {
        self.last = HandoverId(self.last.0 + 1);
        if self.last >= self.reserved {
            self.reserve();
        }
        self.last
    }

    fn reserve(&mut self) {
        self.reserved = HandoverId(self.last.0 + NUMBERS);
        self.out.push_back(Output::Record(Record::Numbers(self.reserved)));
    }

    fn open(&mut self, now: Duration, id: HandoverId, intent: Intent, state: HandoverState) {
        self.open_at(now, id, intent, state, None);
    }

    /// Opens a handover, with its cut if there is one already.
    fn open_at(
        &mut self,
        now: Duration,
        id: HandoverId,
        intent: Intent,
        state: HandoverState,
        cut: Option<Arc<Positions>>,
    ) {
        let Intent { slices, source, target, after, returns } = intent;
        let floors = self.floors_of(&slices);
        for slice in slices.iter() {
            if let Some(row) = self.table.get_mut(slice) {
                row.busy = Some(id);
            }
        }
        let open = Handover {
            slices,
            source,
            target,
            state,
            since: now,
            repeat: Repeat::new(now),
            positions: Positions::default(),
            settled: false,
            cut,
            floors,
            after,
            returns,
        };
        self.handovers.insert(id, open);
        self.say(now, id);
    }

    /// Applies one event by the state table.
    fn event(&mut self, now: Duration, handover: HandoverId, event: HandoverEvent) {
        let Some(open) = self.handovers.get_mut(&handover) else { return };
        let (next, actions) = open.state.on(event);
        let before = std::mem::replace(&mut open.state, next);
        for action in actions {
            match action {
                HandoverAction::Own => self.own(handover),
            }
        }
        if next.is_over() {
            self.over(now, handover);
        } else if next != before {
            let settles = next == HandoverState::Settling { source_lost: false };
            let least = if settles { 4 * self.config.claims } else { Duration::ZERO };
            if let Some(open) = self.handovers.get_mut(&handover) {
                open.repeat.first(now);
                open.repeat.wait_at_least(least);
            }
            self.say(now, handover);
        }
    }

    /// Makes the target the owner of the slices.
    fn own(&mut self, handover: HandoverId) {
        let Some(open) = self.handovers.get(&handover) else { return };
        let owned = Record::Owned(handover, open.target, open.slices.clone());
        self.out.push_back(match open.source {
            Some(_) => Output::Note(owned),
            None => Output::Record(owned),
        });
        let floor = open.cut.clone().or_else(|| open.after.clone().map(Arc::new));
        // Items that it had before it gave the slices away are still its own, and it may be
        // processing them.
        let before = open.returns.is_some().then(|| open.floors.clone());
        for slice in open.slices.iter() {
            if let Some(row) = self.table.get_mut(slice) {
                (row.owner, row.epoch) = (Some(open.target), handover);
                row.floor = floor.clone();
            }
        }
        for (slices, floor) in before.iter().flat_map(BySlice::parts) {
            self.set_floor(slices, floor);
        }
    }

    /// Sets the positions finished for these slices, whatever their owner claims.
    fn set_floor(&mut self, slices: &[SliceId], floor: &Arc<Positions>) {
        for slice in slices {
            if let Some(row) = self.table.get_mut(slice) {
                row.floor = Some(floor.clone());
            }
        }
    }

    /// Sends the message of the handover's state to the worker that has to answer it.
    fn say(&mut self, now: Duration, handover: HandoverId) {
        let Some(open) = self.handovers.get_mut(&handover) else { return };
        open.repeat.again(now);
        let (slices, target) = (open.slices.clone(), open.target);
        let Some(source) = open.source else {
            let after = open.after.clone();
            // The folder may have states of new slices, from before the store was lost.
            let has_state = after.is_some() || self.config.has_folder();
            if has_state && self.config.checkpoints().is_some() {
                return self.say_restore(target, handover, slices);
            }
            return self.send(target, Message::Assign { handover, slices, after });
        };
        match open.state {
            HandoverState::Preparing => {
                self.send(target, Message::Prepare { handover, slices, source });
            }
            // A source that has cut or closed answers with that; only the source knows which items
            // it has not started.
            HandoverState::Releasing
            | HandoverState::Activating { source_lost: false }
            | HandoverState::Settling { source_lost: false } => {
                let (positions, settled) = (open.positions.clone(), open.settled);
                let release = Message::Release { handover, slices, target, positions, settled };
                self.send(source, release);
            }
            HandoverState::AbortingSource { .. } => self.send(source, Message::Abort { handover }),
            HandoverState::AbortingTarget { .. } => self.send(target, Message::Abort { handover }),
            HandoverState::Activating { source_lost: true } => {
                let positions = open.cut.as_deref().cloned().unwrap_or_default();
                self.send(target, Message::Cut { handover, positions, backlog: Vec::new() });
            }
            HandoverState::Settling { source_lost: true }
                if self.config.checkpoints().is_some() =>
            {
                self.say_restore(target, handover, slices);
            }
            HandoverState::Settling { source_lost: true } => {
                let Some(open) = self.handovers.get(&handover) else { return };
                let after = self.done_by_source(handover, open);
                self.send(target, Message::Recover { handover, after });
            }
            HandoverState::Moved
            | HandoverState::Kept
            | HandoverState::Returned
            | HandoverState::Lost => {}
        }
    }

    fn send(&mut self, to: Incarnation, message: Message<T>) {
        let to = Address::Worker(to);
        let (from, term, numbering) = (Address::Controller, self.term, self.numbering.epoch);
        let envelope = Envelope { from, to, term, numbering, message };
        self.out.push_back(Output::Send(envelope));
    }
}
