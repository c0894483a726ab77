//! States of workers, with their start and their reason.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_slice::WorkerId;
use equipoise_slice::controller::{Connection, Loss, Member};

use crate::controller::desk::Desk;
use crate::controller::status::WorkerState;
use equipoise_slice_dds::Report;

/// State of a worker, and its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    state: WorkerState,
    since: Duration,
}

/// Slices of a worker, and their load.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Owned {
    pub(super) slices: u32,
    /// Load in cores.
    pub(super) load: f64,
}

impl Desk {
    /// Records changes of workers' states.
    pub(super) fn watch_standings(&mut self, now: Duration) {
        let owned = self.owned();
        let of = |worker| owned.get(&worker).copied().unwrap_or_default();
        let state = |member: &Member| {
            let worker = member.incarnation.worker;
            (worker, self.state(now, member, of(worker)).0)
        };
        let states: Vec<_> = self.protocol.members().map(state).collect();
        self.standings.retain(|worker, _| states.iter().any(|(known, _)| known == worker));
        for (worker, state) in states {
            let new = Standing { state, since: now };
            let standing = self.standings.entry(worker).or_insert(new);
            if standing.state != state {
                *standing = new;
            }
        }
    }

    /// Time for which `member` has been in `state`; if it is lost, time since its last message.
    pub(super) fn since(&self, now: Duration, member: &Member, state: WorkerState) -> Duration {
        if state == WorkerState::Lost {
            return now.saturating_sub(member.heard);
        }
        let known = self.standings.get(&member.incarnation.worker);
        let since = known.filter(|known| known.state == state).map_or(now, |known| known.since);
        now.saturating_sub(since)
    }

    /// State of `member`, with a reason if that is not obvious.
    pub(super) fn state(
        &self,
        now: Duration,
        member: &Member,
        owned: Owned,
    ) -> (WorkerState, Option<String>) {
        let worker = member.incarnation.worker;
        let report = self.reports.get(&worker);
        if member.lost {
            return (WorkerState::Lost, Some(why_lost(member).into()));
        }
        if !member.is_here {
            let why = "it has sent nothing since this controller became leader";
            return (WorkerState::Awaited, Some(why.into()));
        }
        let Some(report) = report else {
            return (WorkerState::Joining, Some("it has not reported yet".into()));
        };
        if let Some(problem) = self.problem(report) {
            return (WorkerState::Refused, Some(problem));
        }
        if member.stuck {
            return (WorkerState::Stuck, Some(self.stuck(report)));
        }
        if member.leaving {
            let drained = self.wishes.leaving.contains(&report.name);
            let why = if drained { "drained by an operator" } else { "it is about to end" };
            let left = owned.slices == 0 && report.queued == 0;
            let state = if left { WorkerState::Drained } else { WorkerState::Draining };
            return (state, Some(why.into()));
        }
        let owns = owned.slices > 0;
        let takes =
            self.protocol.handovers().values().any(|open| open.target == member.incarnation);
        let suspicion = self.suspicion(now, member);
        match owns {
            false if takes => (WorkerState::Joining, suspicion),
            false if report.weight == 0 => (WorkerState::Standby, suspicion),
            _ => (WorkerState::Active, suspicion),
        }
    }

    /// Evidence about a silent worker.
    fn suspicion(&self, now: Duration, member: &Member) -> Option<String> {
        let connection = match self.protocol.connection(member.incarnation) {
            Connection::Closed => {
                return Some(
                    "its connection closed; the controller checks whether it is alive".into(),
                );
            }
            Connection::Open => "connection open: its process exists, and may be paused",
            Connection::None => "no connection: it may be paused, cut off or dead",
        };
        let protocol = &self.options.protocol;
        let (silence, until) = (now.saturating_sub(member.heard), protocol.lease + protocol.margin);
        member.suspected.then(|| {
            format!(
                "silent for {:.1} s, {connection}; it loses its slices after {:.1} s",
                silence.as_secs_f64(),
                until.as_secs_f64()
            )
        })
    }

    /// A text about an item that the program has had for a long time while it processes others.
    pub(super) fn hangs(&self, report: &Report) -> Option<String> {
        let oldest = report.oldest.filter(|oldest| oldest.age >= self.balancer.stuck_after())?;
        let what = match oldest.id {
            Some(id) => format!("item {id}"),
            None => "the state".into(),
        };
        let (slice, age) = (oldest.slice.0, oldest.age.as_secs());
        Some(format!(
            "its program has had {what} of slice {slice} for {age} s, and processes nothing else of that slice. If the program \
             hangs, restart the worker: others then process its items"
        ))
    }

    /// A text about a stuck worker and its slices.
    fn stuck(&self, report: &Report) -> String {
        let moved = match self.options.protocol.order.is_strict() {
            true => "no other worker may continue its slices before it has finished",
            false => "it receives no slices, and its own move to others",
        };
        format!(
            "its program has acknowledged nothing for {} s, with {} items in hand and {} queued: {moved}. Restart the worker: \
             others then process its items",
            report.stalled.as_secs(),
            report.in_hand,
            report.queued.saturating_sub(report.in_hand),
        )
    }

    /// Number of slices of each worker, and their load.
    pub(super) fn owned(&self) -> BTreeMap<WorkerId, Owned> {
        let mut owned: BTreeMap<WorkerId, Owned> = BTreeMap::new();
        for (slice, row) in self.protocol.table() {
            if let Some(owner) = row.owner {
                let of = owned.entry(owner.worker).or_default();
                of.slices += 1;
                of.load += self.balancer.load(*slice);
            }
        }
        owned
    }
}

fn why_lost(member: &Member) -> &'static str {
    match member.loss {
        Some(Loss::Closed) => "its connection closed: its process has ended",
        Some(Loss::Silence) => "it was silent until its lease expired",
        None => "it sends nothing",
    }
}
