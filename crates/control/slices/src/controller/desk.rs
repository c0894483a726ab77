//! What the leader knows and decides. No I/O: mail, questions and `now` go in, outputs of the protocol come out.

mod preview;
mod resize;
mod seen;
mod show;
mod standing;

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::Weight;
use equipoise_slice::balance::{Balancer, Move, Round, SliceInput, WorkerInput};
use equipoise_slice::controller::{Controller, HandoverState, Member, Output};
use equipoise_slice::{HandoverId, Numbering, SliceId, Term, WorkerId};
use tokio::sync::oneshot;

use crate::controller::connections::Change;
use crate::controller::desk::seen::Seen;
use crate::controller::desk::standing::Standing;
use crate::controller::kept::{Kept, Resized, Wishes};
use crate::controller::status::{HandoverSteps, HandoverTotals};
use crate::controller::{Ask, AskError, Options};
use equipoise_slice_dds::Payload;
use equipoise_slice_dds::leader::Mail;
use equipoise_slice_dds::worker_id;
use equipoise_slice_dds::{Report, SliceReport, Terms};

/// Slices that are pinned elsewhere are looked for so often, where nothing is balanced.
const PINS: Duration = Duration::from_millis(500);

/// While somebody is to be left without slices, there are rounds so often at least: who leaves does not wait for long.
const DRAINS: Duration = Duration::from_millis(500);

/// Handovers whose times are remembered.
const TIMES_MAX: usize = 4096;

/// The leader's desk.
#[derive(Debug)]
pub(super) struct Desk {
    protocol: Controller<Payload>,
    balancer: Balancer,
    options: Options,
    /// The stream's, as a number.
    topics: u64,
    reports: BTreeMap<WorkerId, Report>,
    /// What was reported since the last round.
    seen: Seen,
    /// How each worker stands, and since when.
    standings: BTreeMap<WorkerId, Standing>,
    /// What operators want.
    wishes: Wishes,
    resized: Resized,
    /// By which numbers slices are pinned, and their loads known.
    numbering: Numbering,
    /// Wishes that are to be answered when they are in the store.
    unanswered: Vec<oneshot::Sender<Result<(), AskError>>>,
    last_round: Option<Duration>,
    round: Round,
    begun: BTreeMap<HandoverId, Begun>,
    times: Vec<HandoverSteps>,
    done: u64,
    totals: HandoverTotals,
}

/// A handover that is under way: since when, and how far it was seen to be.
#[derive(Debug)]
struct Begun {
    at: Duration,
    steps: HandoverSteps,
}

impl Desk {
    pub(super) fn new(
        now: Duration,
        term: Term,
        options: Options,
        topics: u64,
        kept: &Kept,
    ) -> Self {
        let (protocol, slices) = (options.protocol.clone(), options.slices);
        let protocol = Controller::new(now, term, protocol, slices, &kept.stored);
        let numbering = kept.resized.pins.unwrap_or(*protocol.numbering());
        let by_file = options.slices;
        if protocol.numbering().slices != by_file {
            let slices = protocol.numbering().slices;
            tracing::info!(stream = options.name, slices, by_file, "the stream was resized");
        }
        let mut desk = Self {
            numbering,
            protocol,
            balancer: Balancer::new(options.policy.clone()),
            options,
            topics,
            reports: BTreeMap::new(),
            seen: Seen::default(),
            standings: BTreeMap::new(),
            wishes: kept.wishes.clone(),
            resized: kept.resized,
            unanswered: Vec::new(),
            last_round: None,
            round: Round::default(),
            begun: BTreeMap::new(),
            times: Vec::new(),
            done: 0,
            totals: HandoverTotals::default(),
        };
        desk.follow_numbering();
        desk
    }

    pub(super) fn poll(&mut self) -> Option<Output<Payload>> {
        self.protocol.poll()
    }

    pub(super) fn mail(&mut self, now: Duration, mail: Mail) {
        match mail {
            Mail::Envelope(envelope) => self.protocol.message(now, envelope),
            Mail::Report(report) => self.report(report),
            // For clients, and for workers.
            Mail::Again(..)
            | Mail::Keeps(_)
            | Mail::Listens(_)
            | Mail::Covered(..)
            | Mail::Wanted(_)
            | Mail::Lacks(_) => {}
        }
        self.watch_handovers(now);
    }

    /// A worker's connection changed.
    pub(super) fn connection(&mut self, now: Duration, change: Change) {
        match change {
            Change::Connected(life) => self.protocol.connected(life),
            Change::Disconnected(life) => self.protocol.disconnected(now, life),
            Change::Without(life) => self.protocol.without_connection(life),
        }
    }

    fn report(&mut self, mut report: Report) {
        let worker = report.worker();
        if report.numbering != self.protocol.numbering().epoch {
            // By other numbers it says nothing of slices.
            report.slices.clear();
            report.oldest = None;
        }
        let owner = |slice| self.protocol.table().get(&slice).and_then(|row| row.owner);
        self.seen.add(&report, self.reports.get(&worker), owner);
        if let Some(problem) = self.problem(&report)
            && self.reports.get(&worker).is_none_or(|before| before.life != report.life)
        {
            tracing::warn!(stream = self.options.name, worker = report.name, "{problem}");
        }
        let leaving = self.is_to_leave(&report);
        self.protocol.set_leaving(worker, leaving);
        self.protocol.set_stuck(worker, self.is_stuck(&report));
        self.reports.insert(worker, report);
    }

    /// By its own wish or an operator's, or because it was started as it should not be.
    fn is_to_leave(&self, report: &Report) -> bool {
        let is_drained = self.wishes.leaving.contains(&report.name);
        report.leaving || is_drained || self.problem(report).is_some()
    }

    /// It has had items for long, and has finished none.
    fn is_stuck(&self, report: &Report) -> bool {
        report.stalled >= self.balancer.stuck_after()
    }

    fn problem(&self, report: &Report) -> Option<String> {
        let Options { slices, protocol, .. } = &self.options;
        let ours = Terms {
            slices: *slices,
            order: protocol.order,
            lease: protocol.lease,
            topics: self.topics,
            checkpoints: protocol.checkpoints().is_some(),
        };
        report.terms.problem(&ours, self.protocol.numbering())
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Duration) {
        self.protocol.tick(now);
        self.follow_numbering();
        self.watch_handovers(now);
        self.forget();
        // Pins are followed in any case.
        let balances = !self.options.round.is_zero();
        let mut period = if balances { self.options.round } else { PINS };
        if period > DRAINS && self.is_being_left() {
            period = DRAINS;
        }
        if self.last_round.is_none_or(|last| now.saturating_sub(last) >= period) {
            self.last_round = Some(now);
            self.do_round(now, balances);
        }
    }

    /// Whether a worker has slices that is to have none.
    fn is_being_left(&self) -> bool {
        let leaving = self.protocol.members().filter(|m| m.leaving && m.is_here && !m.lost);
        let leaving: Vec<_> = leaving.map(|member| member.life).collect();
        let mut owners = self.protocol.table().values().filter_map(|row| row.owner);
        !leaving.is_empty() && owners.any(|owner| leaving.contains(&owner))
    }

    /// Reports of workers that are forgotten.
    fn forget(&mut self) {
        let protocol = &self.protocol;
        if self.reports.len() > protocol.members().count() {
            self.reports.retain(|worker, _| protocol.members().any(|m| m.life.worker == *worker));
        }
    }

    fn do_round(&mut self, now: Duration, balances: bool) {
        let (workers, slices) = self.inputs();
        self.seen = Seen::default();
        if balances {
            self.round = self.balancer.round(now, &workers, &slices);
        }
        let pinned = self.pinned_elsewhere();
        for step in pinned.into_iter().chain(self.round.moves.clone()) {
            // What cannot be moved now is found again in the next round.
            if let Err(error) = self.begin(now, &step.slices, step.taker) {
                tracing::debug!(%error, "slices stay where they are");
            }
        }
    }

    fn begin(
        &mut self,
        now: Duration,
        slices: &[SliceId],
        taker: WorkerId,
    ) -> Result<HandoverId, AskError> {
        let id = self.protocol.move_slices(now, slices, taker)?;
        self.begun.insert(id, Begun { at: now, steps: HandoverSteps::default() });
        Ok(id)
    }

    /// Whom a slice is pinned to, if that worker is there to own it: one that is lost, stuck or to be left without slices
    /// is not.
    fn pinned_to(&self, slice: SliceId) -> Option<WorkerId> {
        let to = worker_id(self.wishes.pins.get(&slice)?);
        let mut members = self.protocol.members();
        let owns = |m: &Member| m.is_here && !(m.lost || m.leaving || m.stuck);
        members.any(|m| m.life.worker == to && owns(m)).then_some(to)
    }

    /// Slices that are pinned to a worker that is there, and are not there.
    fn pinned_elsewhere(&self) -> Vec<Move> {
        let elsewhere = |slice: &SliceId| {
            let (owner, to) =
                (self.protocol.table().get(slice)?.owner?.worker, self.pinned_to(*slice)?);
            let step = Move { giver: owner, taker: to, slices: vec![*slice] };
            (owner != to).then_some(step)
        };
        self.wishes.pins.keys().filter_map(elsewhere).collect()
    }

    /// Workers, and what was measured of their slices since the last round.
    fn inputs(&self) -> (Vec<WorkerInput>, Vec<SliceInput>) {
        let members = self.protocol.members().filter(|m| m.is_here && !m.lost);
        // In a stricter order a slice cannot go on anywhere while its last owner has an item of it in hand.
        let is_left = !self.options.protocol.order.is_strict();
        let workers: Vec<_> = members
            .map(|member| {
                let id = member.life.worker;
                let report = self.reports.get(&id);
                let weight = report.map_or(1, |report| report.weight);
                WorkerInput {
                    id,
                    weight: Weight::new(weight).unwrap_or(Weight::DEFAULT),
                    leaving: member.leaving || (member.stuck && is_left),
                    takes: !member.stuck,
                }
            })
            .collect();
        let waiting = self.reported();
        let inputs: Vec<_> = self
            .protocol
            .table()
            .iter()
            .filter_map(|(slice, row)| {
                let owner = row.owner?;
                let of = self.seen.of(*slice, owner);
                Some(SliceInput {
                    id: *slice,
                    owner: owner.worker,
                    blocked: row.busy.is_some() || self.pinned_to(*slice).is_some(),
                    observed: self.seen.time(owner),
                    arrived: of.arrived,
                    done: of.done,
                    busy: of.busy,
                    queued: waiting.get(slice).map_or(0, |of| of.queued),
                })
            })
            .collect();
        (workers, inputs)
    }

    /// What owners say of their slices.
    fn reported(&self) -> BTreeMap<SliceId, SliceReport> {
        let owner = |slice: SliceId| self.protocol.table().get(&slice).and_then(|row| row.owner);
        let of_owner = self.reports.values().flat_map(|report| {
            let life = report.life;
            report.slices.iter().filter(move |of| owner(of.slice) == Some(life))
        });
        of_owner.map(|of| (of.slice, *of)).collect()
    }

    /// Answers an operator.
    pub(super) fn ask(&mut self, now: Duration, ask: Ask) {
        // Who asked may have gone.
        match ask {
            Ask::Move(slices, worker, answer) => {
                let free = self.known(&worker).and_then(|to| self.unpinned(&slices, to));
                let _ = answer.send(free.and_then(|to| self.begin(now, &slices, to)));
            }
            Ask::Resize(slices, answer) => {
                let resized = self.resize(slices);
                self.answer_later(resized, answer);
            }
            Ask::Leave(worker, leaving, answer) => {
                let left = self.leave(worker, leaving);
                self.answer_later(left, answer);
            }
            Ask::Pin(slice, worker, answer) => {
                let pinned = self.pin(slice, worker);
                self.answer_later(pinned, answer);
            }
            // The office's.
            Ask::Stop => {}
            Ask::Plan(answer) => {
                let _ = answer.send(Ok(self.preview(now)));
            }
        }
    }

    fn known(&self, worker: &str) -> Result<WorkerId, AskError> {
        let id = worker_id(worker);
        let known = self.protocol.members().any(|member| member.life.worker == id);
        known.then_some(id).ok_or_else(|| AskError::UnknownWorker(worker.to_string()))
    }

    /// `to`, unless one of `slices` is pinned to another worker: whether that one is there or not, an operator wants it so.
    fn unpinned(&self, slices: &[SliceId], to: WorkerId) -> Result<WorkerId, AskError> {
        let pinned = |slice: &SliceId| Some((*slice, self.wishes.pins.get(slice)?));
        let elsewhere = slices.iter().filter_map(pinned).find(|(_, pin)| worker_id(pin) != to);
        elsewhere.map_or(Ok(to), |(slice, worker)| {
            Err(AskError::Pinned { slice, worker: worker.clone() })
        })
    }

    fn leave(&mut self, worker: String, leaving: bool) -> Result<(), AskError> {
        // Of one that is gone a wish may be left to take back.
        let id = match self.known(&worker) {
            Err(_) if !leaving && self.wishes.leaving.contains(&worker) => worker_id(&worker),
            known => known?,
        };
        match leaving {
            true => self.wishes.leaving.insert(worker),
            false => self.wishes.leaving.remove(&worker),
        };
        let wants = self.reports.get(&id).is_some_and(|report| self.is_to_leave(report));
        self.protocol.set_leaving(id, leaving || wants);
        Ok(())
    }

    fn pin(&mut self, slice: SliceId, worker: Option<String>) -> Result<(), AskError> {
        if !self.protocol.table().contains_key(&slice) {
            let unknown = equipoise_slice::controller::MoveRefused::UnknownSlice(slice);
            return Err(unknown.into());
        }
        if let Some(worker) = worker {
            self.known(&worker)?;
            self.wishes.pins.insert(slice, worker);
        } else {
            self.wishes.pins.remove(&slice).ok_or(AskError::NotPinned(slice))?;
        }
        Ok(())
    }

    fn answer_later(
        &mut self,
        wish: Result<(), AskError>,
        answer: oneshot::Sender<Result<(), AskError>>,
    ) {
        match wish {
            Ok(()) => self.unanswered.push(answer),
            Err(_) => drop(answer.send(wish)),
        }
    }

    /// Whether the store has other wishes than there are: then it is told these.
    pub(super) fn wishes_changed(&self, stored: &mut Kept) -> bool {
        let changed = stored.wishes != self.wishes || stored.resized != self.resized;
        if changed {
            stored.wishes.clone_from(&self.wishes);
            stored.resized = self.resized;
        }
        changed
    }

    /// What was wished is in the store.
    pub(super) fn answer(&mut self) {
        for answer in self.unanswered.drain(..) {
            // Who asked may have gone.
            let _ = answer.send(Ok(()));
        }
    }

    /// What was wished may not be in the store.
    pub(super) fn refuse(&mut self) {
        for answer in self.unanswered.drain(..) {
            let _ = answer.send(Err(AskError::NotLeading));
        }
    }

    /// Notes how long handovers take.
    fn watch_handovers(&mut self, now: Duration) {
        let (open, table) = (self.protocol.handovers(), self.protocol.table());
        let mut times = Vec::new();
        self.begun.retain(|id, Begun { at, steps }| {
            let passed = now.saturating_sub(*at);
            let state = open.get(id).map(|handover| handover.state);
            if let Some(state) = state
                && !matches!(state, HandoverState::Settling { .. })
            {
                let is_ready = !matches!(state, HandoverState::Preparing);
                let is_cut = matches!(state, HandoverState::Activating { .. });
                for (step, has_come) in [(&mut steps.ready, is_ready), (&mut steps.cut, is_cut)] {
                    if has_come && step.is_zero() {
                        *step = passed;
                    }
                }
                return true;
            }
            // One that is gone and owns nothing was called off.
            if state.is_some() || table.values().any(|row| row.epoch == *id) {
                let cut = if steps.cut.is_zero() { passed } else { steps.cut };
                times.push(HandoverSteps { cut, active: passed, ..*steps });
                self.totals.moved(passed);
            } else {
                self.totals.called_off += 1;
            }
            false
        });
        self.done += times.len() as u64;
        self.times.extend(times);
        let excess = self.times.len().saturating_sub(TIMES_MAX);
        self.times.drain(..excess);
    }
}
