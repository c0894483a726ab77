//! The status for operators.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_slice::controller::{Handover, HandoverState, Member, Row};
use equipoise_slice::worker::CheckpointStatus;
use equipoise_slice::{HandoverId, Incarnation, SliceId, WorkerId};

use crate::controller::desk::Desk;
use crate::controller::status::{
    HandoverStatus, SliceStatus, Status, WorkerCheckpoints, WorkerStatus,
};
use equipoise_slice_dds::{Report, SliceReport};

/// Time for which the status shows a refused process.
const TWIN: Duration = Duration::from_secs(30);

impl Desk {
    /// A worker's name, or its id while it has not reported.
    pub(super) fn name_of(&self, worker: WorkerId) -> String {
        let report = self.reports.get(&worker);
        report.map_or_else(|| format!("{:016x}", worker.0), |report| report.name.clone())
    }

    fn name(&self, incarnation: Incarnation) -> String {
        self.name_of(incarnation.worker)
    }

    /// The status of the stream.
    pub(in crate::controller) fn status(&mut self, now: Duration) -> Status {
        self.watch_standings(now);
        let reported = self.reported();
        let slices = self.protocol.table().iter();
        let open = self.protocol.handovers().iter();
        Status {
            leading: true,
            workers: self.workers(now).into_iter().map(|(_, worker)| worker).collect(),
            slices: slices.map(|(slice, row)| self.slice(now, *slice, row, &reported)).collect(),
            resizing: self.resizing(),
            handovers: open.map(|(id, of)| self.handover(now, *id, of)).collect(),
            hot: self.round.hot.clone(),
            imbalance: self.round.imbalance,
            unread: Vec::new(),
            mail_unreadable: 0,
            connections_strange: 0,
            handovers_done: self.done,
            totals: self.totals.clone(),
            handover_times: self.times.iter().map(|steps| steps.active).collect(),
            handover_steps: self.times.clone(),
        }
    }

    /// All workers, sorted by name.
    pub(super) fn workers(&self, now: Duration) -> Vec<(WorkerId, WorkerStatus)> {
        let all_owned = self.owned();
        let mut workers: Vec<_> = self
            .protocol
            .members()
            .filter(|member| !member.has_left())
            .map(|member| {
                let owned = all_owned.get(&member.incarnation.worker).copied().unwrap_or_default();
                let report = self.reports.get(&member.incarnation.worker);
                let rate = report.map_or(0.0, |report| {
                    let done: u64 = report.slices.iter().map(|slice| slice.done).sum();
                    done as f64 / report.period.as_secs_f64().max(1e-3)
                });
                let (state, reason) = self.state(now, member, owned);
                let status = WorkerStatus {
                    name: self.name(member.incarnation),
                    state,
                    since: self.since(now, member, state),
                    reason,
                    lost: member.lost,
                    leaving: member.leaving,
                    drained: report.is_some_and(|it| self.wishes.leaving.contains(&it.name)),
                    problem: report
                        .and_then(|report| self.problem(report).or_else(|| self.hangs(report)))
                        .or_else(|| twin(now, member))
                        .or_else(|| report.and_then(|it| it.folder_problem.clone())),
                    process: member.is_here.then(|| member.process().clone()),
                    slices: owned.slices,
                    load: owned.load,
                    items_per_second: rate,
                    queued: report.map_or(0, |report| report.queued),
                    in_hand: report.map_or(0, |report| report.in_hand),
                    queue_age: report.map_or(Duration::ZERO, oldest),
                    stalled: report.map_or(Duration::ZERO, |report| report.stalled),
                    done: report.map_or(0, |report| report.done),
                    drops: report.map(|report| report.drops.clone()).unwrap_or_default(),
                    checkpoints: report
                        .and_then(|it| it.checkpoints)
                        .map(|it| self.checkpoints(it)),
                };
                (member.incarnation.worker, status)
            })
            .collect();
        workers.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        workers
    }

    fn checkpoints(&self, of: CheckpointStatus) -> WorkerCheckpoints {
        WorkerCheckpoints {
            keeper: of.keeper.map(|keeper| self.name(keeper)),
            age: of.age,
            items: of.items,
            exposed: u32::try_from(of.exposed).unwrap_or(u32::MAX),
            unstored: of.unstored.map(|slices| u32::try_from(slices).unwrap_or(u32::MAX)),
            bytes: of.bytes,
        }
    }

    fn slice(
        &self,
        now: Duration,
        slice: SliceId,
        row: &Row,
        reported: &BTreeMap<SliceId, SliceReport>,
    ) -> SliceStatus {
        let pinned = self.wishes.pins.get(&slice).cloned();
        let busy = row.busy.and_then(|id| Some((id, self.protocol.handovers().get(&id)?)));
        let blocked = match (row.owner, busy, &pinned) {
            (_, Some((id, of)), _) => Some(format!("in handover {}, {}", id.0, of.state.name())),
            (None, _, _) => Some("no worker owns it".to_string()),
            (_, _, Some(worker)) if self.pinned_to(slice).is_some() => {
                Some(format!("pinned to {worker}"))
            }
            _ => None,
        };
        let reported = reported.get(&slice);
        SliceStatus {
            slice,
            owner: row.owner.map(|incarnation| self.name(incarnation)),
            epoch: row.epoch,
            load: self.balancer.load(slice),
            queued: reported.map_or(0, |of| of.queued),
            queue_age: reported.map_or(Duration::ZERO, |of| of.queue_age),
            pinned,
            blocked,
            blocked_for: busy.map(|(_, of)| now.saturating_sub(of.since)),
            cools: self.balancer.cools(now, slice),
        }
    }

    fn handover(&self, now: Duration, id: HandoverId, of: &Handover) -> HandoverStatus {
        HandoverStatus {
            id,
            source: of.source.map(|source| self.name(source)),
            target: self.name(of.target),
            slices: of.slices.len(),
            state: of.state.name(),
            waits_for: self.waits_for(of),
            since: now.saturating_sub(of.since),
        }
    }

    /// The worker that a handover waits for, and the step.
    fn waits_for(&self, of: &Handover) -> String {
        let target = self.name(of.target);
        let Some(source) = of.source.map(|source| self.name(source)) else {
            return format!("{target} to take over slices without an owner");
        };
        match of.state {
            HandoverState::Preparing => format!("{target} to follow the slices' items"),
            HandoverState::Releasing => {
                format!("{source} to reach the positions of {target}, and to stop")
            }
            HandoverState::AbortingSource { .. } => format!("{source} to keep the slices"),
            HandoverState::AbortingTarget { .. } => format!("{target} to give up the slices"),
            HandoverState::Activating { .. } => format!("{target} to begin with the slices"),
            HandoverState::Settling { source_lost: true } => {
                format!("{target} to process the items that {source} had when it was lost")
            }
            HandoverState::Settling { .. } => {
                format!(
                    "{source} to hand over its waiting items and to finish those it has started"
                )
            }
            HandoverState::Moved
            | HandoverState::Kept
            | HandoverState::Returned
            | HandoverState::Lost => "nothing: it is over".to_string(),
        }
    }
}

/// Waiting time of the oldest item.
fn oldest(report: &Report) -> Duration {
    report.slices.iter().map(|slice| slice.queue_age).max().unwrap_or_default()
}

/// A text about another process with the name of `member`.
fn twin(now: Duration, member: &Member) -> Option<String> {
    let (twin, _) = member.twin.as_ref().filter(|(_, at)| now.saturating_sub(*at) < TWIN)?;
    Some(format!(
        "another process has the same name and was refused: pid {} on {}. Give it another name",
        twin.pid, twin.host
    ))
}
