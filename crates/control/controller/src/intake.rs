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

/// The controller's interface to a transport of reports and instructions, which is the network or
/// the same process.
#[async_trait]
pub trait Intake: Send + Sync {
    /// Takes a report. The caller has verified that it comes from `node`.
    ///
    /// # Errors
    /// [`IntakeError`]; it is counted.
    async fn report(&self, node: &str, report: NodeReport) -> Result<(), IntakeError>;

    /// Tallies of other nodes for the backends that `node` reported tallies for.
    fn tallies(&self, _node: &str) -> Tallies {
        Tallies::new()
    }

    /// Sets the names of all nodes that operators have evicted. They count as gone in every case.
    fn shut_out(&self, _nodes: BTreeSet<String>) {}

    /// The newest instructions, and every newer one. Blank before the first; they never go back to
    /// older ones.
    fn instructions(&self) -> watch::Receiver<Arc<Instructions>>;

    /// The state of the cluster as this controller sees it. It reads only memory.
    fn cluster(&self) -> ClusterView;
}

/// Tallies of other balancers by backend, one per balancer.
pub type Tallies = BTreeMap<SharedBackend, Vec<Tally>>;

/// The reason why a report was not taken.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The report is not credible. It still counts as a sign of life.
    #[error(transparent)]
    Refused(#[from] ReportRefused),
    /// This controller is stopping.
    #[error("the controller is stopping; report to another controller")]
    Stopping,
}

/// The state of the cluster as one controller sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterView {
    /// The name of this controller.
    pub controller: String,
    /// Controllers that are present; empty if the store does not answer.
    pub controllers: Vec<String>,
    /// The leader, as far as this controller knows.
    pub leader: Option<String>,
    /// The leader's term: the store's revision at its election, or more if the store was restored
    /// from an older copy.
    pub term: Option<u64>,
    /// True if this controller leads.
    pub leads: bool,
    /// The newest instructions; `None` before the first.
    pub instructions: Option<Edition>,
    /// Time since they were planned or read here.
    pub instructions_age: Option<Duration>,
    /// Time between two plans.
    pub period: Duration,
    /// The members, in the order of their names.
    pub members: Vec<MemberView>,
    /// State of the store.
    pub store: StoreView,
    /// The reason why plans do not arrive or would not survive a restart; `None` if there is no
    /// problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Backends of elastic pools, by pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rosters: BTreeMap<String, Roster>,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberView {
    /// The member's name.
    pub name: String,
    /// Node or agent.
    pub kind: NodeKind,
    /// State by its reports.
    #[serde(default)]
    pub state: MemberState,
    /// Its version of equipoise; empty if it has not reported here.
    pub version: String,
    /// Its capacity in the plan, in cores.
    pub capacity: f64,
    /// The capacity that it reports, if it differs: the plan follows a claim in steps and within
    /// limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_capacity: Option<f64>,
    /// Its standing in the newest plan; `None` for agents, and before the first plan with it.
    pub standing: Option<Standing>,
    /// The part of its full share that it gets, 0..=1.
    pub presence: Option<f64>,
    /// True if it has a dispatch level.
    #[serde(default)]
    pub dispatches: bool,
    /// The part of its clients' requests that it keeps by the newest plan, 0..=1.
    #[serde(default)]
    pub keep: Option<f64>,
    /// The part of the delegated requests of all nodes that it takes by the newest plan, 0..=1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes: Option<f64>,
    /// The load of its resources in its last report.
    pub load: Option<Reported>,
    /// CPU utilisation of its whole machine in its last report, in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_cpu: Option<f64>,
    /// Its load in the coming period: of nodes by the newest plan, of agents by their reports.
    pub planned: Option<PlannedLoad>,
    /// Age of its last report here; `None` if there is none.
    pub report_age: Option<Duration>,
    /// The instructions that it follows, by its last report.
    pub applied: Option<Edition>,
    /// The share of clients that it gets from the answers of each name, 0..=1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shares: BTreeMap<String, f64>,
    /// Number of its reports that were refused here.
    pub refused: u64,
}

/// State of a member by its reports, independent of the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// It reports.
    #[default]
    Alive,
    /// Reports are missing.
    Late,
    /// It has been silent for long, or the plan excludes it. It is listed until it is forgotten.
    Gone,
    /// An operator evicted it. The rest of its entry is older than that.
    Evicted,
}

/// Missing reports from which a member is late.
const LATE_PERIODS: u32 = 3;
/// Periods and time without a report from which a member is gone.
const GONE_PERIODS: u32 = 10;
const GONE_MIN: Duration = Duration::from_secs(10);

impl MemberState {
    /// The state after a silence. `standing` comes from the plan.
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

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            MemberState::Alive => "alive",
            MemberState::Late => "late",
            MemberState::Gone => "gone",
            MemberState::Evicted => "evicted",
        }
    }
}

/// State of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreView {
    /// How long the store has failed; `None` if it works.
    pub failing_for: Option<Duration>,
    /// The last error, while it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Number of failed requests.
    pub failures: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_members_state_follows_its_silence_and_the_planned_standing() {
        use MemberState::{Alive, Gone, Late};
        let rows = [
            (0, 1000, None, Alive),
            (3000, 1000, None, Alive),
            (3001, 1000, None, Late),
            (10_000, 1000, Some(Standing::Late), Late),
            (10_001, 1000, Some(Standing::Late), Gone),
            // With a short period, members are not gone after an election of some seconds.
            (9000, 250, None, Late),
            (29_000, 5000, None, Late),
            (51_000, 5000, None, Gone),
            // Two observers have evidence.
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
