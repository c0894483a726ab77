//! The plan, and the nodes' reports.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;

/// The controller's plan; with `next`, the plan that it would make now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStatus {
    /// Whether this is what would be planned now, and nothing follows from it.
    pub next: bool,
    /// The controller that planned it; `None` before there is a plan.
    pub leader: Option<String>,
    /// When the leader came to the office, as the store counts; with the generation it numbers
    /// plans.
    pub term: u64,
    /// Rises with every plan.
    pub generation: u64,
    /// How long ago it was planned, or came here; `None` before there is a plan.
    pub age_seconds: Option<f64>,
    /// From one plan to the next.
    pub period_seconds: f64,
    /// For how long the store has failed; `None` if it does not.
    pub store_failing_seconds: Option<f64>,
    /// Pools that have weights by load or are elastic.
    pub pools: Vec<PlannedPool>,
    /// Nodes of the cluster.
    pub nodes: Vec<PlannedNode>,
}

/// The plan of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedPool {
    /// Its name.
    pub name: String,
    /// Weights by load; empty if the pool does not ask for them.
    pub weights: Vec<PlannedWeight>,
    /// Its size; `None` if it is not elastic.
    pub scaling: Option<PlannedScaling>,
}

/// A backend's weight by load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedWeight {
    /// The backend.
    pub backend: String,
    /// For the schedulers.
    pub weight: u16,
    /// The learnt capacity beside the other backends', 1 on average.
    pub learnt: f64,
}

/// The planned size of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedScaling {
    /// The mode of scaling.
    pub mode: PlanMode,
    /// How many there are to be, if that is pinned; paused, how many there are to be when that is
    /// taken back.
    pub pinned: Option<u32>,
    /// Backends that are there and wanted.
    pub backends: u32,
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
    /// `hold`, `out`, `in` or `replace`.
    pub action: String,
    /// Out and replace: how many are added.
    pub count: u32,
    /// Out and replace: of which size, if there are sizes.
    pub size: Option<String>,
    /// For `in` and `replace`: the backends to remove.
    pub leaving: Vec<String>,
    /// Why, in words.
    pub reason: String,
    /// Expected demand over the sum of the concurrency limits; above 1 if requests wait.
    pub in_use: Option<f64>,
}

/// The authority over a pool's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanMode {
    /// The planner.
    Auto,
    /// Scaling is stopped; the plan shows what the planner would do. A pin is kept, and can be
    /// restored.
    Paused,
    /// An operator: so many, whatever the load.
    Pinned,
}

/// An operator's override of a pool's size. It survives restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolWish {
    /// The new mode of scaling.
    pub mode: PlanMode,
    /// Pinned: how many backends there are to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Pinned: even at fewer than the pool's `min`, which is otherwise refused with 409.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// The plan of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedNode {
    /// Its name.
    pub name: String,
    /// Whether and how it takes part.
    pub standing: String,
    /// The part of its share that it gets, 0 to 1.
    pub presence: f64,
    /// L1 in the coming period, per cent; `None` before it reported.
    pub l1: Option<f64>,
    /// L2 in the coming period.
    pub l2: Option<f64>,
    /// Whether it would be overloaded if it did all that clients ask of it.
    pub overloaded: bool,
    /// The part of its requests that it keeps, 0 to 1.
    pub keep: f64,
}

/// Members that report here, with their last reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Nodes {
    /// The controller that leads, as far as is known; `None` without one.
    pub leader: Option<String>,
    /// Controllers that are there.
    pub controllers: Vec<String>,
    /// By name.
    pub nodes: Vec<NodeStatus>,
}

/// One node or agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// `node`, or `agent`: it only reports.
    pub kind: String,
    /// `alive`; `late`: reports are missing; `gone`: no report for long, listed until it is
    /// forgotten; `evicted`: its certificates are refused.
    #[serde(default)]
    pub state: String,
    /// Its equipoise; empty if it has not reported.
    pub version: String,
    /// Cores that it may use; a fraction in a quota.
    pub capacity: f64,
    /// Cores that it reports, if it counts for others.
    #[serde(default)]
    pub claimed_capacity: Option<f64>,
    /// The operator's wish for it.
    pub admin: Admin,
    /// How it stands in the plan; `None` for agents, and where nothing is planned.
    pub standing: Option<String>,
    /// The share of clients that each name's answers give it, 0 to 1.
    pub shares: BTreeMap<String, f64>,
    /// CPU in use of `capacity`, per cent; `None` is no signal, here and below.
    pub cpu_percent: Option<f64>,
    /// CPU in use of its whole machine, whoever uses it.
    #[serde(default)]
    pub machine_cpu_percent: Option<f64>,
    /// Memory in use.
    pub memory_percent: Option<f64>,
    /// The busiest interface against its link's speed.
    pub net_percent: Option<f64>,
    /// L1 in the coming period, per cent; `None` before it reported, here and below.
    #[serde(default)]
    pub l1: Option<f64>,
    /// L2 in the coming period.
    #[serde(default)]
    pub l2: Option<f64>,
    /// Part of its clients' requests that it keeps by the plan, 0 to 1; `None` without a dispatch
    /// level.
    #[serde(default)]
    pub keep: Option<f64>,
    /// How long ago it reported; `None` if it never did.
    pub report_age_seconds: Option<f64>,
    /// The plan that it has installed, `TERM.GENERATION`.
    pub applied: Option<String>,
    /// Reports of its own that were refused.
    pub refused_total: u64,
}

/// The requested part of the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistoryQuestion {
    /// How far back, in seconds, at most a day; 300 if absent.
    #[serde(default)]
    #[schemars(range(max = 86_400))]
    pub seconds: Option<u64>,
    /// The length of a step, in seconds, at most a day; 1 if absent.
    #[serde(default)]
    #[schemars(range(max = 86_400))]
    pub step: Option<u64>,
}

/// The recent utilisation of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeHistory {
    /// The node.
    pub node: String,
    /// Oldest first; steps in which it did not report are left out.
    pub points: Vec<HistoryPoint>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPoint {
    /// When it begins, seconds since 1970.
    pub at_unix_seconds: f64,
    /// CPU; `None` is no signal, here and below.
    pub cpu: Option<HistorySpread>,
    /// Memory.
    pub memory: Option<HistorySpread>,
    /// Network.
    pub net: Option<HistorySpread>,
    /// Time in which something waited for a processor (PSI, `some`).
    pub cpu_pressure: Option<HistorySpread>,
    /// The same for memory.
    pub memory_pressure: Option<HistorySpread>,
    /// The same for disks.
    pub io_pressure: Option<HistorySpread>,
}

/// A signal over one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistorySpread {
    /// Its mean, per cent.
    pub mean_percent: f64,
    /// Its largest value, per cent.
    pub max_percent: f64,
    /// Of how many samples.
    pub samples: u32,
}
