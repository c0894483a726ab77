//! Knowledge and decisions of the leader. No I/O: messages, requests and `now` are the input,
//! outputs of the protocol are the output.

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

/// Interval between searches for slices that are not where they are pinned, without balancing.
const PINS: Duration = Duration::from_millis(500);

/// Longest interval between rounds while a worker has to give up slices, so that it does not wait
/// long.
const DRAINS: Duration = Duration::from_millis(500);

/// Limit of handovers with stored durations.
const TIMES_MAX: usize = 4096;

/// The leader's desk.
#[derive(Debug)]
pub(super) struct Desk {
    protocol: Controller<Payload>,
    balancer: Balancer,
    options: Options,
    /// Hash of the stream's topics.
    topics: u64,
    reports: BTreeMap<WorkerId, Report>,
    /// Sums of the reports since the last round.
    seen: Seen,
    /// State of each worker, and its start.
    standings: BTreeMap<WorkerId, Standing>,
    /// Operators' settings.
    wishes: Wishes,
    resized: Resized,
    /// The numbering of pins and of measured loads.
    numbering: Numbering,
    /// Requests that will be answered when the store has them.
    unanswered: Vec<oneshot::Sender<Result<(), AskError>>>,
    last_round: Option<Duration>,
    round: Round,
    begun: BTreeMap<HandoverId, Begun>,
    times: Vec<HandoverSteps>,
    done: u64,
    totals: HandoverTotals,
}

/// An open handover, with its start and the steps so far.
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
            Mail::Report(report) => self.report(*report),
            // These are for clients and workers.
            Mail::Again(..)
            | Mail::Keeps(_)
            | Mail::Listens(_)
            | Mail::Covered(..)
            | Mail::Wanted(_)
            | Mail::Lacks(_) => {}
        }
        self.watch_handovers(now);
    }

    /// Handles a change of a worker's connection.
    pub(super) fn connection(&mut self, now: Duration, change: Change) {
        match change {
            Change::Connected(incarnation) => self.protocol.connected(incarnation),
            Change::Disconnected(incarnation) => self.protocol.disconnected(now, incarnation),
            Change::Without(incarnation) => self.protocol.without_connection(incarnation),
        }
    }

    fn report(&mut self, mut report: Report) {
        let worker = report.worker();
        if report.numbering != self.protocol.numbering().epoch {
            // The slices of a report with another numbering cannot be used.
            report.slices.clear();
            report.oldest = None;
        }
        let owner = |slice| self.protocol.table().get(&slice).and_then(|row| row.owner);
        self.seen.add(&report, self.reports.get(&worker), owner);
        if let Some(problem) = self.problem(&report)
            && self
                .reports
                .get(&worker)
                .is_none_or(|before| before.incarnation != report.incarnation)
        {
            tracing::warn!(
                event = "slice.worker-problem",
                subject = self.options.name,
                stream = self.options.name,
                worker = report.name,
                "{problem}"
            );
        }
        let leaving = self.is_to_leave(&report);
        self.protocol.set_leaving(worker, leaving);
        self.protocol.set_stuck(worker, self.is_stuck(&report));
        self.reports.insert(worker, report);
    }

    /// Whether the worker has to give up its slices: it leaves, an operator drains it, or its
    /// settings are wrong.
    fn is_to_leave(&self, report: &Report) -> bool {
        let is_drained = self.wishes.leaving.contains(&report.name);
        report.leaving || is_drained || self.problem(report).is_some()
    }

    /// Whether the application has had items for a long time and has finished none.
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
            folder: protocol.has_folder(),
        };
        report.terms.problem(&ours, self.protocol.numbering())
    }

    /// Handles the passage of time.
    pub(super) fn tick(&mut self, now: Duration) {
        self.protocol.tick(now);
        self.follow_numbering();
        self.watch_handovers(now);
        self.forget();
        // Pinned slices move also without balancing.
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

    /// Whether a worker still owns slices that it has to give up.
    fn is_being_left(&self) -> bool {
        let leaving = self.protocol.members().filter(|m| m.leaving && m.is_here && !m.lost);
        let leaving: Vec<_> = leaving.map(|member| member.incarnation).collect();
        let mut owners = self.protocol.table().values().filter_map(|row| row.owner);
        !leaving.is_empty() && owners.any(|owner| leaving.contains(&owner))
    }

    /// Removes the reports of forgotten workers.
    fn forget(&mut self) {
        let protocol = &self.protocol;
        if self.reports.len() > protocol.members().count() {
            self.reports
                .retain(|worker, _| protocol.members().any(|m| m.incarnation.worker == *worker));
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
            // The next round finds slices that cannot move now.
            if let Err(error) = self.begin(now, &step.slices, step.target) {
                tracing::debug!(%error, "slices do not move now");
            }
        }
    }

    fn begin(
        &mut self,
        now: Duration,
        slices: &[SliceId],
        target: WorkerId,
    ) -> Result<HandoverId, AskError> {
        let id = self.protocol.move_slices(now, slices, target)?;
        self.begun.insert(id, Begun { at: now, steps: HandoverSteps::default() });
        Ok(id)
    }

    /// The worker that a slice is pinned to, if it can own the slice now: it is present, and not
    /// lost, stuck or leaving.
    fn pinned_to(&self, slice: SliceId) -> Option<WorkerId> {
        let to = worker_id(self.wishes.pins.get(&slice)?);
        let mut members = self.protocol.members();
        let owns = |m: &Member| m.is_here && !(m.lost || m.leaving || m.stuck);
        members.any(|m| m.incarnation.worker == to && owns(m)).then_some(to)
    }

    /// Moves of pinned slices to their workers, if those can own them.
    fn pinned_elsewhere(&self) -> Vec<Move> {
        let elsewhere = |slice: &SliceId| {
            let (owner, to) =
                (self.protocol.table().get(slice)?.owner?.worker, self.pinned_to(*slice)?);
            let step = Move { source: owner, target: to, slices: vec![*slice] };
            (owner != to).then_some(step)
        };
        self.wishes.pins.keys().filter_map(elsewhere).collect()
    }

    /// Workers, and the measurements of their slices since the last round.
    fn inputs(&self) -> (Vec<WorkerInput>, Vec<SliceInput>) {
        let members = self.protocol.members().filter(|m| m.is_here && !m.lost);
        // In stricter orders, no other worker may continue a slice while its last owner has an item
        // of it in hand.
        let is_left = !self.options.protocol.order.is_strict();
        let workers: Vec<_> = members
            .map(|member| {
                let id = member.incarnation.worker;
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
                    in_handover: row.busy.is_some(),
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

    /// The owners' reports about their slices.
    fn reported(&self) -> BTreeMap<SliceId, SliceReport> {
        let owner = |slice: SliceId| self.protocol.table().get(&slice).and_then(|row| row.owner);
        let of_owner = self.reports.values().flat_map(|report| {
            let incarnation = report.incarnation;
            report.slices.iter().filter(move |of| owner(of.slice) == Some(incarnation))
        });
        of_owner.map(|of| (of.slice, *of)).collect()
    }

    /// Handles a request of an operator.
    pub(super) fn ask(&mut self, now: Duration, ask: Ask) {
        // The caller may no longer wait for the answer.
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
            // The office handles it.
            Ask::Stop => {}
            Ask::Plan(answer) => {
                let _ = answer.send(Ok(self.preview(now)));
            }
        }
    }

    fn known(&self, worker: &str) -> Result<WorkerId, AskError> {
        let id = worker_id(worker);
        let known = self.protocol.members().any(|member| member.incarnation.worker == id);
        known.then_some(id).ok_or_else(|| AskError::UnknownWorker(worker.to_string()))
    }

    /// Returns `to`, unless one of `slices` is pinned to another worker. Also the pin of an absent
    /// worker counts.
    fn unpinned(&self, slices: &[SliceId], to: WorkerId) -> Result<WorkerId, AskError> {
        let pinned = |slice: &SliceId| Some((*slice, self.wishes.pins.get(slice)?));
        let elsewhere = slices.iter().filter_map(pinned).find(|(_, pin)| worker_id(pin) != to);
        elsewhere.map_or(Ok(to), |(slice, worker)| {
            Err(AskError::Pinned { slice, worker: worker.clone() })
        })
    }

    fn leave(&mut self, worker: String, leaving: bool) -> Result<(), AskError> {
        // The drain of a worker that has ended can be undone.
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

    /// Whether the store has other settings than the present ones. If so, copies these to `stored`.
    pub(super) fn wishes_changed(&self, stored: &mut Kept) -> bool {
        let changed = stored.wishes != self.wishes || stored.resized != self.resized;
        if changed {
            stored.wishes.clone_from(&self.wishes);
            stored.resized = self.resized;
        }
        changed
    }

    /// Answers the requests that are in the store now.
    pub(super) fn answer(&mut self) {
        for answer in self.unanswered.drain(..) {
            // The caller may no longer wait for the answer.
            let _ = answer.send(Ok(()));
        }
    }

    /// Refuses the requests that may not be in the store.
    pub(super) fn refuse(&mut self) {
        for answer in self.unanswered.drain(..) {
            let _ = answer.send(Err(AskError::NotLeading));
        }
    }

    /// Records the durations of handovers.
    fn watch_handovers(&mut self, now: Duration) {
        let (open, table) = (self.protocol.handovers(), self.protocol.table());
        let (mut times, mut ended) = (Vec::new(), Vec::new());
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
            // A handover that has ended without owning slices was called off.
            ended.push((*id, passed));
            if state.is_some() || table.values().any(|row| row.epoch == *id) {
                let cut = if steps.cut.is_zero() { passed } else { steps.cut };
                times.push(HandoverSteps { cut, active: passed, ..*steps });
                self.totals.moved(passed);
            } else {
                self.totals.called_off += 1;
            }
            false
        });
        ended.into_iter().for_each(|(id, took)| self.emit(id, took));
        self.done += times.len() as u64;
        self.times.extend(times);
        let excess = self.times.len().saturating_sub(TIMES_MAX);
        self.times.drain(..excess);
    }
    /// Emits the event of the end of a handover.
    fn emit(&self, id: HandoverId, took: Duration) {
        let moved = self.protocol.table().iter().filter(|(_, row)| row.epoch == id);
        let (slices, owners): (Vec<_>, Vec<_>) =
            moved.map(|(slice, it)| (slice.0, it.owner)).unzip();
        let subject = &self.options.name;
        let Some(owner) = owners.into_iter().flatten().next() else {
            tracing::info!(target: "event", event = "slice.not-moved", subject, "a handover was called off");
            return;
        };
        let name = self.reports.get(&owner.worker).map_or("a worker", |report| &report.name);
        tracing::info!(
            target: "event",
            event = "slice.moved",
            subject,
            "slices {slices:?} moved to {name} in {took:.0?}"
        );
    }
}
