//! The plan, and the nodes' reports.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;

/// Query for a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanQuestion {
    /// Show the next plan instead.
    #[serde(default)]
    pub next: bool,
}

/// The controller's plan or, with `next`, the next plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStatus {
    /// Whether this is the next plan, which is not applied.
    pub next: bool,
    /// The controller that made the plan; `None` before there is a plan.
    pub leader: Option<String>,
    /// Number of the leadership, as the store counts. Term and generation together number plans.
    pub term: u64,
    /// Rises with every plan.
    pub generation: u64,
    /// Time since it was made or arrived here; `None` before there is a plan.
    pub age_seconds: Option<f64>,
    /// Interval between plans.
    pub period_seconds: f64,
    /// Time for which the store has failed; `None` if it works.
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
    /// The weight for the schedulers.
    pub weight: u16,
    /// The learned capacity relative to the other backends; 1 on average.
    pub learnt: f64,
}

/// The planned size of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedScaling {
    /// The mode of scaling.
    pub mode: PlanMode,
    /// The pinned number of backends. In a paused pool, the number that applies when the pause
    /// ends.
    pub pinned: Option<u32>,
    /// Existing backends that are wanted.
    pub backends: u32,
    /// Smallest number of backends.
    pub min: u32,
    /// Largest number of backends.
    pub max: u32,
    /// `hold`, `out`, `in` or `replace`.
    pub action: String,
    /// For `out` and `replace`: the number of backends to add.
    pub count: u32,
    /// For `out` and `replace`: their size, if there are sizes.
    pub size: Option<String>,
    /// For `in` and `replace`: the backends to remove.
    pub leaving: Vec<String>,
    /// The reason in words.
    pub reason: String,
    /// Expected demand divided by the sum of the concurrency limits; above 1 if requests wait.
    pub in_use: Option<f64>,
}

/// How a pool's size is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlanMode {
    /// The planner decides.
    Auto,
    /// Scaling is stopped. The plan shows what the planner would do. A pin is kept, and can be
    /// restored.
    Paused,
    /// An operator has set the number, independent of the load.
    Pinned,
}

/// An operator's override of a pool's size. It survives restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolWish {
    /// The new mode of scaling.
    pub mode: PlanMode,
    /// For `pinned`: the number of backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// For `pinned`: accept fewer than the pool's `min`, which is otherwise refused with 409.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// The plan of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedNode {
    /// Its name.
    pub name: String,
    /// Its state in the plan.
    pub standing: String,
    /// The part of its share that it receives, 0 to 1.
    pub presence: f64,
    /// L1 in the next period, in per cent; `None` before it reported.
    pub l1: Option<f64>,
    /// L2 in the next period, in per cent.
    pub l2: Option<f64>,
    /// Whether it would be overloaded if it served all requests of its clients.
    pub overloaded: bool,
    /// The share of its requests that it keeps, 0 to 1.
    pub keep: f64,
}

/// Members that report here, with their last reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Nodes {
    /// The leading controller, as far as known; `None` without one.
    pub leader: Option<String>,
    /// Controllers that are present.
    pub controllers: Vec<String>,
    /// Members by name.
    pub nodes: Vec<NodeStatus>,
}

/// One node or agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// `node`, or `agent` if it only reports.
    pub kind: String,
    /// `alive`; `late`: reports are missing; `gone`: no report for long, listed until it is
    /// forgotten; `evicted`: its certificates are refused.
    #[serde(default)]
    pub state: String,
    /// Its version of equipoise; empty if it has not reported.
    pub version: String,
    /// Cores that it may use; a fraction in a quota.
    pub capacity: f64,
    /// Cores that it reports, if they differ from `capacity`.
    #[serde(default)]
    pub claimed_capacity: Option<f64>,
    /// Admin state: the operator's wish.
    pub admin: Admin,
    /// Its state in the plan; `None` for agents, and without a plan.
    pub standing: Option<String>,
    /// Its share of clients in each name's answers, 0 to 1.
    pub shares: BTreeMap<String, f64>,
    /// CPU in use in per cent of `capacity`. `None` means no signal, here and below.
    pub cpu_percent: Option<f64>,
    /// CPU in use of its whole machine, by any program.
    #[serde(default)]
    pub machine_cpu_percent: Option<f64>,
    /// Memory in use, in per cent.
    pub memory_percent: Option<f64>,
    /// Use of the busiest interface, in per cent of its link's speed.
    pub net_percent: Option<f64>,
    /// L1 in the next period, in per cent; `None` before it reported, here and below.
    #[serde(default)]
    pub l1: Option<f64>,
    /// L2 in the next period, in per cent.
    #[serde(default)]
    pub l2: Option<f64>,
    /// Share of its clients' requests that it keeps by the plan, 0 to 1; `None` without a dispatch
    /// level.
    #[serde(default)]
    pub keep: Option<f64>,
    /// Share of the requests that nodes delegate which it takes by the plan, 0 to 1; `None` if it
    /// takes none.
    #[serde(default)]
    pub takes: Option<f64>,
    /// Time since its last report; `None` if there was none.
    pub report_age_seconds: Option<f64>,
    /// The installed plan, `TERM.GENERATION`.
    pub applied: Option<String>,
    /// Reports of this member that were refused.
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
    /// Steps, oldest first. Steps without a report are left out.
    pub points: Vec<HistoryPoint>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPoint {
    /// Start of the step, in seconds since 1970.
    pub at_unix_seconds: f64,
    /// CPU. `None` means no signal, here and below.
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
    /// CPU as the controller expected it one report before.
    #[serde(default)]
    pub cpu_forecast: Option<HistorySpread>,
}

/// A signal over one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistorySpread {
    /// Its mean, per cent.
    pub mean_percent: f64,
    /// Its largest value, per cent.
    pub max_percent: f64,
    /// Number of samples.
    pub samples: u32,
}
