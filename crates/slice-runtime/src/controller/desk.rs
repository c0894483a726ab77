//! What the leader knows and decides. No I/O: mail, questions and `now` go in, outputs of the protocol come out.

mod preview;
mod show;
mod standing;

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::Weight;
use equipoise_slice::balance::{Balancer, Move, Round, SliceInput, WorkerInput};
use equipoise_slice::controller::{Controller, HandoverState, Output};
use equipoise_slice::{HandoverId, SliceId, Term, WorkerId};
use tokio::sync::oneshot;

use crate::controller::desk::standing::Standing;
use crate::controller::kept::{Kept, Wishes};
use crate::controller::status::{HandoverSteps, HandoverTotals};
use crate::controller::{Ask, AskError, Options};
use crate::mail::{Mail, Report, SliceReport, Terms};
use crate::payload::Payload;
use crate::stream::worker_id;

/// Slices that are pinned elsewhere are looked for so often, where nothing is balanced.
const PINS: Duration = Duration::from_millis(500);

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
    /// How each worker stands, and since when.
    standings: BTreeMap<WorkerId, Standing>,
    /// What was reported since the last round: busy time of slices, and the time it is of.
    busy: BTreeMap<SliceId, Duration>,
    /// What operators want.
    wishes: Wishes,
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
        Self {
            protocol,
            balancer: Balancer::new(options.policy.clone()),
            options,
            topics,
            reports: BTreeMap::new(),
            standings: BTreeMap::new(),
            busy: BTreeMap::new(),
            wishes: kept.wishes.clone(),
            unanswered: Vec::new(),
            last_round: None,
            round: Round::default(),
            begun: BTreeMap::new(),
            times: Vec::new(),
            done: 0,
            totals: HandoverTotals::default(),
        }
    }

    pub(super) fn poll(&mut self) -> Option<Output<Payload>> {
        self.protocol.poll()
    }

    pub(super) fn mail(&mut self, now: Duration, mail: Mail) {
        match mail {
            Mail::Envelope(envelope) => self.protocol.message(now, envelope),
            Mail::Report(report) => self.report(now, report),
        }
        self.watch_handovers(now);
    }

    fn report(&mut self, now: Duration, report: Report) {
        let worker = report.worker();
        self.standings.entry(worker).or_default().progress(now, &report);
        for slice in &report.slices {
            *self.busy.entry(slice.slice).or_default() += slice.busy;
        }
        if let Some(problem) = self.problem(&report)
            && self.reports.get(&worker).is_none_or(|before| before.life != report.life)
        {
            tracing::warn!(stream = self.options.name, worker = report.name, "{problem}");
        }
        let leaving = self.is_to_leave(&report);
        self.protocol.set_leaving(worker, leaving);
        self.reports.insert(worker, report);
    }

    /// By its own wish or an operator's, or because it was started as it should not be.
    fn is_to_leave(&self, report: &Report) -> bool {
        let is_drained = self.wishes.leaving.contains(&report.name);
        report.leaving || is_drained || self.problem(report).is_some()
    }

    fn problem(&self, report: &Report) -> Option<String> {
        let Options { slices, protocol, .. } = &self.options;
        report.terms.problem(&Terms {
            slices: *slices,
            order: protocol.order,
            lease: protocol.lease,
            topics: self.topics,
        })
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Duration) {
        self.protocol.tick(now);
        self.watch_handovers(now);
        // Pins are followed in any case.
        let balances = !self.options.round.is_zero();
        let period = if balances { self.options.round } else { PINS };
        if self.last_round.is_none_or(|last| now.saturating_sub(last) >= period) {
            self.last_round = Some(now);
            self.do_round(now, balances);
        }
    }

    fn do_round(&mut self, now: Duration, balances: bool) {
        let (workers, slices) = self.inputs();
        self.busy.clear();
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

    /// Whom a slice is pinned to, if that worker is there to own it: one that is lost or to be left without slices is not.
    fn pinned_to(&self, slice: SliceId) -> Option<WorkerId> {
        let to = worker_id(self.wishes.pins.get(&slice)?);
        let mut members = self.protocol.members();
        let is_there = members.any(|m| m.life.worker == to && m.is_here && !m.lost && !m.leaving);
        is_there.then_some(to)
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
        let workers: Vec<_> = members
            .map(|member| {
                let id = member.life.worker;
                let weight = self.reports.get(&id).map_or(1, |report| report.weight);
                WorkerInput {
                    id,
                    weight: Weight::new(weight).unwrap_or(Weight::DEFAULT),
                    leaving: member.leaving,
                }
            })
            .collect();
        let waiting = self.reported();
        let inputs: Vec<_> = self
            .protocol
            .table()
            .iter()
            .filter_map(|(slice, row)| {
                let owner = row.owner?.worker;
                Some(SliceInput {
                    id: *slice,
                    owner,
                    blocked: row.busy.is_some() || self.pinned_to(*slice).is_some(),
                    busy: self.busy.get(slice).copied().unwrap_or_default(),
                    queue_age: waiting.get(slice).map_or(Duration::ZERO, |of| of.queue_age),
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
    pub(super) fn wishes_changed(&self, stored: &mut Wishes) -> bool {
        let changed = *stored != self.wishes;
        if changed {
            stored.clone_from(&self.wishes);
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
