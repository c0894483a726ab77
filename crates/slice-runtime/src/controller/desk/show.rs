//! How it stands, for people.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_slice::controller::{Member, Row};
use equipoise_slice::{Life, SliceId};

use crate::controller::desk::Desk;
use crate::controller::status::{HandoverStatus, SliceStatus, Status, WorkerStatus};
use crate::mail::{Report, SliceReport};

/// A process that was refused is told of for so long.
const TWIN: Duration = Duration::from_secs(30);

impl Desk {
    fn name(&self, life: Life) -> String {
        let report = self.reports.get(&life.worker);
        report.map_or_else(|| format!("{:016x}", life.worker.0), |report| report.name.clone())
    }

    /// How it stands.
    pub(in crate::controller) fn status(&self, now: Duration) -> Status {
        let reported = self.reported();
        Status {
            leading: true,
            workers: self.workers(now),
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
            mail_unreadable: 0,
            handovers_done: self.done,
            totals: self.totals.clone(),
            handover_times: self.times.iter().map(|steps| steps.active).collect(),
            handover_steps: self.times.clone(),
        }
    }

    fn workers(&self, now: Duration) -> Vec<WorkerStatus> {
        let mut workers: Vec<_> = self
            .protocol
            .members()
            .filter(|member| !member.has_left())
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
                    drained: report.is_some_and(|it| self.wishes.leaving.contains(&it.name)),
                    stuck: member.stuck && !member.lost,
                    problem: report.and_then(|report| self.wrong(now, member, report)),
                    process: member.is_here.then(|| member.process().clone()),
                    slices,
                    load,
                    items_per_second: rate,
                    queued: report.map_or(0, |report| report.queued),
                    in_hand: report.map_or(0, |report| report.in_hand),
                    queue_age: report.map_or(Duration::ZERO, oldest),
                    stalled: report.map_or(Duration::ZERO, |report| report.stalled),
                    pressure: self.balancer.pressure(member.life.worker),
                    done: report.map_or(0, |report| report.done),
                    drops: report.map(|report| report.drops.clone()).unwrap_or_default(),
                }
            })
            .collect();
        workers.sort_by(|a, b| a.name.cmp(&b.name));
        workers
    }

    /// What an operator has to know of a worker.
    fn wrong(&self, now: Duration, member: &Member, report: &Report) -> Option<String> {
        let stuck = member.stuck && !member.lost;
        let stuck = stuck.then(|| {
            let moved = match self.options.protocol.order.is_strict() {
                true => "its slices cannot go on elsewhere before it has",
                false => "it gets no slices, and its own go to others",
            };
            format!(
                "stuck: its program has acknowledged nothing for {} s, with {} items in hand and {} queued: {moved}. Restart it; \
                 others then do what it had",
                report.stalled.as_secs(),
                report.in_hand,
                report.queued.saturating_sub(report.in_hand),
            )
        });
        let twin = member.twin.as_ref().filter(|(_, at)| now.saturating_sub(*at) < TWIN);
        let twin = twin.map(|(twin, _)| {
            format!(
                "another process has the same name and was refused: pid {} on {}. Give it a name of its own",
                twin.pid, twin.host
            )
        });
        self.problem(report).or(stuck).or(twin)
    }

    fn slice(
        &self,
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

/// How long the oldest item waits.
fn oldest(report: &Report) -> Duration {
    report.slices.iter().map(|slice| slice.queue_age).max().unwrap_or_default()
}
