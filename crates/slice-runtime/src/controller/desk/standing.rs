//! How workers stand, since when, and why.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_slice::WorkerId;
use equipoise_slice::controller::Member;

use crate::controller::desk::Desk;
use crate::controller::status::WorkerState;
use crate::mail::Report;

/// Where items wait, and none was done for this long and for four of the longest that one took before, the worker is said
/// to be stuck.
const STUCK: Duration = Duration::from_secs(5);

/// How a worker stands.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// And since when.
    state: Option<(WorkerState, Duration)>,
    done: u64,
    /// When it was seen to have done something, or to have nothing to do.
    progressed: Duration,
    /// The longest between two items that it did while others waited.
    longest: Duration,
}

/// What a worker owns.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Owned {
    pub(super) slices: u32,
    /// In cores.
    pub(super) load: f64,
}

impl Standing {
    /// Heeds what the worker says of itself.
    pub(super) fn progress(&mut self, now: Duration, report: &Report) {
        if report.done != self.done || report.queued == 0 {
            if report.queued > 0 && self.done > 0 && report.done > self.done {
                self.longest = self.longest.max(now.saturating_sub(self.progressed));
            }
            (self.done, self.progressed) = (report.done, now);
        }
    }

    fn is_stuck(&self, now: Duration) -> bool {
        let idle = now.saturating_sub(self.progressed);
        idle >= STUCK && idle >= 4 * self.longest
    }
}

impl Desk {
    /// Notes when workers' states change.
    pub(super) fn watch_standings(&mut self, now: Duration) {
        let owned = self.owned();
        let of = |worker| owned.get(&worker).copied().unwrap_or_default();
        let state = |member: &Member| {
            let worker = member.life.worker;
            (worker, self.state(now, member, of(worker)).0)
        };
        let states: Vec<_> = self.protocol.members().map(state).collect();
        self.standings.retain(|worker, _| states.iter().any(|(known, _)| known == worker));
        for (worker, state) in states {
            let standing = self.standings.entry(worker).or_default();
            if standing.state.is_none_or(|(before, _)| before != state) {
                standing.state = Some((state, now));
            }
        }
    }

    /// For how long `member` has been in `state`.
    pub(super) fn since(&self, now: Duration, member: &Member, state: WorkerState) -> Duration {
        if state == WorkerState::Lost {
            return now.saturating_sub(member.heard);
        }
        let known = self.standings.get(&member.life.worker).and_then(|it| it.state);
        let since = known.filter(|(known, _)| *known == state).map_or(now, |(_, since)| since);
        now.saturating_sub(since)
    }

    /// How `member` stands, and why, where that is not plain.
    pub(super) fn state(
        &self,
        now: Duration,
        member: &Member,
        owned: Owned,
    ) -> (WorkerState, Option<String>) {
        let worker = member.life.worker;
        let report = self.reports.get(&worker);
        if member.lost {
            return (WorkerState::Lost, Some("nothing is heard of it".into()));
        }
        if !member.is_here {
            let why = "it has not been heard since this controller leads";
            return (WorkerState::Awaited, Some(why.into()));
        }
        let Some(report) = report else {
            return (WorkerState::Joining, Some("it has not reported yet".into()));
        };
        if let Some(problem) = self.problem(report) {
            return (WorkerState::Refused, Some(problem));
        }
        if let Some(why) = self.stuck(now, report) {
            return (WorkerState::Stuck, Some(why));
        }
        if member.leaving {
            let drained = self.wishes.leaving.contains(&report.name);
            let why = if drained { "drained by an operator" } else { "it is about to end" };
            let left = owned.slices == 0;
            let state = if left { WorkerState::Drained } else { WorkerState::Draining };
            return (state, Some(why.into()));
        }
        let owns = owned.slices > 0;
        let takes = self.protocol.handovers().values().any(|open| open.taker == member.life);
        match owns {
            false if takes => (WorkerState::Joining, None),
            false if report.weight == 0 => (WorkerState::Standby, None),
            _ => (WorkerState::Active, None),
        }
    }

    /// Why it is stuck, if it is.
    fn stuck(&self, now: Duration, report: &Report) -> Option<String> {
        let standing = self.standings.get(&report.worker())?;
        let waiting = (report.queued > 0 && standing.is_stuck(now)).then_some(report.queued)?;
        let idle = now.saturating_sub(standing.progressed).as_secs();
        Some(format!("{waiting} items wait, and its program has done none for {idle} s"))
    }

    /// How many slices each worker owns, and their load.
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
