use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_core::concurrency::Tally;
use equipoise_core::load::Reported;
use equipoise_planner::{PlannedLoad, Standing};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{Edition, Instructions, NodeKind, NodeReport, ReportRefused, Roster, SharedBackend};

/// A controller, as whoever serves nodes sees it: the transport between machines, or the same process.
#[async_trait]
pub trait Intake: Send + Sync {
    /// Takes a report of `node`. The caller checks that it is of that node.
    ///
    /// # Errors
    /// [`IntakeError`]; it is counted.
    async fn report(&self, node: &str, report: NodeReport) -> Result<(), IntakeError>;

    /// Tallies of other nodes for the backends that `node` reported tallies for.
    fn tallies(&self, _node: &str) -> Tallies {
        Tallies::new()
    }

    /// Takes the names of all nodes that operators have evicted: they are gone, whatever else is known of them.
    fn shut_out(&self, _nodes: BTreeSet<String>) {}

    /// The newest instructions, blank before there are any, and every newer one. Never goes back to older ones.
    fn instructions(&self) -> watch::Receiver<Arc<Instructions>>;

    /// How the cluster stands, as this controller sees it. Reads memory, asks nobody.
    fn cluster(&self) -> ClusterView;
}

/// Tallies of other balancers by backend; each balancer once for a backend.
pub type Tallies = BTreeMap<SharedBackend, Vec<Tally>>;

/// Why a report was not taken.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// It cannot be believed. The node is there all the same, and is not taken for late.
    #[error(transparent)]
    Refused(#[from] ReportRefused),
    /// This controller is stopping.
    #[error("the controller is stopping: report to another")]
    Stopping,
}

/// How the cluster stands, as one controller sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The controller that says so.
    pub controller: String,
    /// Controllers that are there; empty if the store cannot be asked.
    pub controllers: Vec<String>,
    /// Who leads, as far as is known here.
    pub leader: Option<String>,
    /// Since when: the store's revision, or more if the store was put back from an older copy.
    pub term: Option<u64>,
    /// Whether this one leads.
    pub leads: bool,
    /// The newest instructions; `None` before there are any.
    pub instructions: Option<Edition>,
    /// How long ago they were planned here or read here.
    pub instructions_age: Option<Duration>,
    /// From one plan to the next.
    pub period: Duration,
    /// By name.
    pub members: Vec<MemberView>,
    /// How the store is.
    pub store: StoreView,
    /// Why no plans come, or would not survive; `None` if all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Backends that are made for elastic pools, by pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rosters: BTreeMap<String, Roster>,
}

/// One member of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberView {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// Whether it is heard.
    #[serde(default)]
    pub state: MemberState,
    /// Its equipoise; empty if it has not reported here.
    pub version: String,
    /// Cores that it counts for.
    pub capacity: f64,
    /// Cores that it reports, if it counts for others: a claim is followed by steps and within bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_capacity: Option<f64>,
    /// How it stands in the newest plan; `None` for agents, and before it was planned.
    pub standing: Option<Standing>,
    /// Part of its share that it gets, 0..=1.
    pub presence: Option<f64>,
    /// Whether it has a dispatch level.
    #[serde(default)]
    pub dispatches: bool,
    /// The part of what clients ask of it that it keeps, by the newest plan, 0..=1.
    #[serde(default)]
    pub keep: Option<f64>,
    /// What it said of its resources last.
    pub load: Option<Reported>,
    /// CPU in use of its whole machine by its last report, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_cpu: Option<f64>,
    /// Its load in the coming period, by the newest plan; of agents, for which nothing is planned, by their reports.
    pub planned: Option<PlannedLoad>,
    /// Age of the last report that came here; `None` if none has.
    pub report_age: Option<Duration>,
    /// The instructions that it goes by, by its last report.
    pub applied: Option<Edition>,
    /// The share of clients that each name's answers give it, 0..=1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<String, f64>,
    /// Reports of its own that were refused here.
    pub refused: u64,
}

/// Whether a member is heard, whatever is planned of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// It reports.
    #[default]
    Alive,
    /// Reports are missing.
    Late,
    /// Nothing was heard for long, or the plan goes on without it. It is listed until it is forgotten.
    Gone,
    /// It was shut out, and what is shown of it is of before.
    Evicted,
}

/// Reports missing from which a member is late.
const LATE_PERIODS: u32 = 3;
/// Periods without a report, and the time, from which a member is gone.
const GONE_PERIODS: u32 = 10;
const GONE_MIN: Duration = Duration::from_secs(10);

impl MemberState {
    /// After a silence; `standing` is the plan's word.
    pub(crate) fn after(
        silence: Duration,
        period: Duration,
        standing: Option<Standing>,
    ) -> MemberState {
        if standing == Some(Standing::Gone) || silence > GONE_MIN.max(period * GONE_PERIODS) {
            MemberState::Gone
        } else if silence > period * LATE_PERIODS {
            MemberState::Late
        } else {
            MemberState::Alive
        }
    }

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            MemberState::Alive => "alive",
            MemberState::Late => "late",
            MemberState::Gone => "gone",
            MemberState::Evicted => "evicted",
        }
    }
}

/// How the store is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreView {
    /// For how long nothing has come of it; `None` if all is well.
    pub failing_for: Option<Duration>,
    /// What it said last, while it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What it did not do, so far.
    pub failures: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_makes_a_member_late_and_then_gone() {
        use MemberState::{Alive, Gone, Late};
        let rows = [
            (0, 1000, None, Alive),
            (3000, 1000, None, Alive),
            (3001, 1000, None, Late),
            (10_000, 1000, Some(Standing::Late), Late),
            (10_001, 1000, Some(Standing::Late), Gone),
            // A short period does not make an election of some seconds everybody's end.
            (9000, 250, None, Late),
            (29_000, 5000, None, Late),
            (51_000, 5000, None, Gone),
            // Two observers know better.
            (6000, 1000, Some(Standing::Gone), Gone),
        ];
        for (silence, period, standing, state) in rows {
            let (silence, period) = (Duration::from_millis(silence), Duration::from_millis(period));
            assert_eq!(
                MemberState::after(silence, period, standing),
                state,
                "{silence:?} {period:?}"
            );
        }
    }
}
