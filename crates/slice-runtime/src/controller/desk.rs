//! What the leader knows and decides. No I/O: mail, questions and `now` go in, outputs of the protocol come out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use equipoise_core::Weight;
use equipoise_slice::balance::{Balancer, Move, Round, SliceInput, WorkerInput};
use equipoise_slice::controller::{Controller, HandoverState, Output, Row, Stored};
use equipoise_slice::{HandoverId, Life, SliceId, Term, WorkerId};

use crate::controller::status::{
    HandoverStatus, HandoverTotals, SliceStatus, Status, WorkerStatus,
};
use crate::controller::{Ask, AskError, Options, Planned, PlannedMove};
use crate::mail::{Mail, Report, SliceReport, Terms};
use crate::payload::Payload;
use crate::stream::worker_id;

/// Handovers whose times are remembered.
const TIMES_MAX: usize = 4096;

/// The leader's desk.
#[derive(Debug)]
pub(super) struct Desk {
    protocol: Controller<Payload>,
    balancer: Balancer,
    options: Options,
    reports: BTreeMap<WorkerId, Report>,
    /// What was reported since the last round: busy time of slices, and the time it is of.
    busy: BTreeMap<SliceId, Duration>,
    /// Whom operators want left.
    leaving: BTreeSet<WorkerId>,
    pins: BTreeMap<SliceId, WorkerId>,
    last_round: Option<Duration>,
    round: Round,
    begun: BTreeMap<HandoverId, Duration>,
    times: Vec<Duration>,
    done: u64,
    totals: HandoverTotals,
}

impl Desk {
    pub(super) fn new(now: Duration, term: Term, options: Options, stored: &Stored) -> Self {
        let protocol = Controller::new(now, term, options.protocol.clone(), options.slices, stored);
        Self {
            protocol,
            balancer: Balancer::new(options.policy.clone()),
            options,
            reports: BTreeMap::new(),
            busy: BTreeMap::new(),
            leaving: BTreeSet::new(),
            pins: BTreeMap::new(),
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
            Mail::Report(report) => self.report(report),
        }
        self.watch_handovers(now);
    }

    fn report(&mut self, report: Report) {
        let worker = report.worker();
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
        report.leaving || self.leaving.contains(&report.worker()) || self.problem(report).is_some()
    }

    fn problem(&self, report: &Report) -> Option<String> {
        let Options { slices, protocol, .. } = &self.options;
        report.terms.problem(&Terms {
            slices: *slices,
            order: protocol.order,
            lease: protocol.lease,
        })
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Duration) {
        self.protocol.tick(now);
        self.watch_handovers(now);
        if self.options.round.is_zero() {
            return;
        }
        let due = self.last_round.is_none_or(|last| now.saturating_sub(last) >= self.options.round);
        if due {
            self.last_round = Some(now);
            self.do_round(now);
        }
    }

    fn do_round(&mut self, now: Duration) {
        let (workers, slices) = self.inputs();
        self.busy.clear();
        self.round = self.balancer.round(now, &workers, &slices);
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
        self.begun.insert(id, now);
        Ok(id)
    }

    /// Slices that are pinned to a worker that is here, and are not there.
    fn pinned_elsewhere(&self) -> Vec<Move> {
        let here = |worker: WorkerId| {
            self.protocol.members().any(|m| m.life.worker == worker && m.is_here && !m.lost)
        };
        let elsewhere = |(slice, to): (&SliceId, &WorkerId)| {
            let owner = self.protocol.table().get(slice)?.owner?.worker;
            let step = Move { giver: owner, taker: *to, slices: vec![*slice] };
            (owner != *to && here(*to)).then_some(step)
        };
        self.pins.iter().filter_map(elsewhere).collect()
    }

    /// What a round would move now.
    fn preview(&self, now: Duration) -> Planned {
        let (workers, slices) = self.inputs();
        let round = self.balancer.clone().round(now, &workers, &slices);
        let pinned = self.pinned_elsewhere();
        let name = |worker: WorkerId| {
            let report = self.reports.get(&worker);
            report.map_or_else(|| format!("{:016x}", worker.0), |report| report.name.clone())
        };
        let of = |step: Move, pinned: bool| PlannedMove {
            giver: name(step.giver),
            taker: name(step.taker),
            load: step.slices.iter().map(|slice| self.balancer.load(*slice)).sum(),
            slices: step.slices,
            pinned,
        };
        let pinned = pinned.into_iter().map(|step| of(step, true));
        Planned {
            moves: pinned.chain(round.moves.into_iter().map(|step| of(step, false))).collect(),
            hot: round.hot,
            imbalance: round.imbalance,
        }
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
                    blocked: row.busy.is_some() || self.pins.contains_key(slice),
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
                let begun = self.known(&worker).and_then(|to| self.begin(now, &slices, to));
                let _ = answer.send(begun);
            }
            Ask::Leave(worker, leaving, answer) => {
                let _ = answer.send(self.known(&worker).map(|id| self.leave(id, leaving)));
            }
            Ask::Pin(slice, worker, answer) => {
                let _ = answer.send(self.pin(slice, worker));
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

    fn leave(&mut self, worker: WorkerId, leaving: bool) {
        match leaving {
            true => self.leaving.insert(worker),
            false => self.leaving.remove(&worker),
        };
        let wants = self.reports.get(&worker).is_some_and(|report| self.is_to_leave(report));
        self.protocol.set_leaving(worker, leaving || wants);
    }

    fn pin(&mut self, slice: SliceId, worker: Option<String>) -> Result<(), AskError> {
        if !self.protocol.table().contains_key(&slice) {
            let unknown = equipoise_slice::controller::MoveRefused::UnknownSlice(slice);
            return Err(unknown.into());
        }
        match worker {
            Some(worker) => self.pins.insert(slice, self.known(&worker)?),
            None => self.pins.remove(&slice),
        };
        Ok(())
    }

    /// Notes how long handovers take.
    fn watch_handovers(&mut self, now: Duration) {
        let (open, table) = (self.protocol.handovers(), self.protocol.table());
        let mut times = Vec::new();
        self.begun.retain(|id, begun| {
            let state = open.get(id).map(|handover| handover.state);
            if state.is_some_and(|state| !matches!(state, HandoverState::Settling { .. })) {
                return true;
            }
            // One that is gone and owns nothing was called off.
            if state.is_some() || table.values().any(|row| row.epoch == *id) {
                let time = now.saturating_sub(*begun);
                self.totals.moved(time);
                times.push(time);
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

    fn name(&self, life: Life) -> String {
        let report = self.reports.get(&life.worker);
        report.map_or_else(|| format!("{:016x}", life.worker.0), |report| report.name.clone())
    }

    /// How it stands.
    pub(super) fn status(&self, now: Duration) -> Status {
        let reported = self.reported();
        Status {
            leading: true,
            workers: self.workers(),
            slices: self
                .protocol
                .table()
                .iter()
                .map(|(slice, row)| self.slice(*slice, row, &reported))
                .collect(),
            handovers: self
                .protocol
                .handovers()
                .iter()
                .map(|(id, of)| HandoverStatus {
                    id: *id,
                    giver: of.giver.map(|giver| self.name(giver)),
                    taker: self.name(of.taker),
                    slices: of.slices.len(),
                    state: of.state.name(),
                    since: now.saturating_sub(of.since),
                })
                .collect(),
            hot: self.round.hot.clone(),
            imbalance: self.round.imbalance,
            handovers_done: self.done,
            totals: self.totals.clone(),
            handover_times: self.times.clone(),
        }
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        let mut workers: Vec<_> = self
            .protocol
            .members()
            .map(|member| {
                let owned = self.protocol.table().iter();
                let owned = owned.filter(|(_, row)| row.owner == Some(member.life));
                let (slices, load) = owned.fold((0, 0.0), |(count, load), (slice, _)| {
                    (count + 1, load + self.balancer.load(*slice))
                });
                let report = self.reports.get(&member.life.worker);
                let rate = report.map_or(0.0, |report| {
                    let done: u64 = report.slices.iter().map(|slice| slice.done).sum();
                    done as f64 / report.period.as_secs_f64().max(1e-3)
                });
                WorkerStatus {
                    name: self.name(member.life),
                    lost: member.lost,
                    leaving: member.leaving,
                    drained: self.leaving.contains(&member.life.worker),
                    problem: report.and_then(|report| self.problem(report)),
                    slices,
                    load,
                    items_per_second: rate,
                    queued: report.map_or(0, |report| report.queued),
                    done: report.map_or(0, |report| report.done),
                    drops: report.map(|report| report.drops.clone()).unwrap_or_default(),
                }
            })
            .collect();
        workers.sort_by(|a, b| a.name.cmp(&b.name));
        workers
    }

    fn slice(
        &self,
        slice: SliceId,
        row: &Row,
        reported: &BTreeMap<SliceId, SliceReport>,
    ) -> SliceStatus {
        let pinned = self.pins.get(&slice).map(|worker| {
            self.reports
                .get(worker)
                .map_or_else(|| format!("{:016x}", worker.0), |r| r.name.clone())
        });
        let busy = row.busy.and_then(|id| Some((id, self.protocol.handovers().get(&id)?)));
        let blocked = match (row.owner, busy, &pinned) {
            (_, Some((id, of)), _) => Some(format!("in handover {}, {}", id.0, of.state.name())),
            (None, _, _) => Some("no worker owns it".to_string()),
            (_, _, Some(worker)) => Some(format!("pinned to {worker}")),
            _ => None,
        };
        SliceStatus {
            slice,
            owner: row.owner.map(|life| self.name(life)),
            epoch: row.epoch,
            load: self.balancer.load(slice),
            queued: reported.get(&slice).map_or(0, |of| of.queued),
            pinned,
            blocked,
        }
    }
}
