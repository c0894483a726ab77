//! The state of a member in its cluster, and operators' requests to a controller.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::NodeStatus;

/// The state of a node or agent in its cluster by its own knowledge, also while no controller
/// answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStanding {
    /// `node`, or `agent` if it only reports.
    #[serde(default)]
    pub kind: String,
    /// The controller that sends its instructions; `null` while no controller can be reached.
    pub following: Option<String>,
    /// Term of the instructions; `null` before the first ones.
    pub term: Option<u64>,
    /// Generation of the instructions.
    pub generation: Option<u64>,
    /// Time since the node installed its newest instructions.
    pub age_seconds: Option<f64>,
    /// Time since the last message of any controller; `null` if none arrived since this process
    /// started.
    #[serde(default)]
    pub heard_seconds: Option<f64>,
    /// The controllers in its file, by address.
    #[serde(default)]
    pub controllers: Vec<ControllerContact>,
    /// Its last measured load; `null` before the first measurement.
    #[serde(default)]
    pub load: Option<OwnLoad>,
    /// Whether the instructions were saved by an earlier process, and no newer ones have arrived
    /// since.
    #[serde(default)]
    pub kept: bool,
    /// Time until its certificate expires; `null` before it joined.
    pub certificate_seconds: Option<f64>,
    /// Problems, one sentence each; empty if there are none.
    pub problems: Vec<String>,
    /// Instructions that were older than the installed ones, and were ignored.
    pub stale: u64,
    /// Instructions that could not be read, and were ignored.
    pub not_understood: u64,
}

/// A node's contact with a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControllerContact {
    /// Its address, as in the node's file.
    pub address: String,
    /// Time since the last request to it; `null` if there was none.
    pub tried_seconds: Option<f64>,
    /// Time since its last answer, refusals included; `null` if there was none.
    pub heard_seconds: Option<f64>,
    /// Reports that it accepted.
    pub reports_taken_total: u64,
    /// Reports that it refused or that did not arrive.
    pub reports_failed_total: u64,
    /// Error of the last report; `null` if it was accepted.
    pub problem: Option<String>,
}

/// The load that a node measured on its own machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnLoad {
    /// Cores that it may use; a fraction in a quota.
    pub capacity: f64,
    /// CPU in use in per cent of `capacity`. `null` means no signal, here and below.
    pub cpu_percent: Option<f64>,
    /// CPU in use of the whole machine, by any program.
    #[serde(default)]
    pub machine_cpu_percent: Option<f64>,
    /// Memory in use, in per cent.
    pub memory_percent: Option<f64>,
    /// Use of the busiest interface, in per cent of its link's speed.
    pub net_percent: Option<f64>,
    /// L1 of these signals, by this machine's coefficients.
    pub l1: Option<f64>,
    /// L2 of these signals.
    pub l2: Option<f64>,
}

/// The cluster, as the answering controller sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterMembers {
    /// The cluster's name.
    pub cluster: String,
    /// Fingerprint of the certificate authority's key.
    pub authority: String,
    /// The answering controller.
    pub controller: String,
    /// The leading controller; `None` without a leader.
    pub leader: Option<String>,
    /// Term of the leader.
    pub term: Option<u64>,
    /// Controllers that are present.
    pub controllers: Vec<String>,
    /// The newest instructions, `TERM.GENERATION`; `None` before there are any.
    pub instructions: Option<String>,
    /// Time since they were planned or arrived here.
    pub instructions_age_seconds: Option<f64>,
    /// Interval between plans.
    pub period_seconds: f64,
    /// Time for which the store has failed; `None` if it works.
    pub store_failing_seconds: Option<f64>,
    /// The store's failure; `None` if it works.
    #[serde(default)]
    pub store_failure: Option<String>,
    /// The reason why there are no plans, or why plans would not survive a failure; `None` if there
    /// is no problem.
    #[serde(default)]
    pub problem: Option<String>,
    /// Members by name.
    pub members: Vec<NodeStatus>,
    /// Backends of elastic pools.
    pub elastic: Vec<MadeBackend>,
    /// Requests that this controller's cluster API accepted, refused and dropped, by name.
    pub counts: BTreeMap<String, u64>,
}

/// A backend of an elastic pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MadeBackend {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// Its desired state: `serve`, `drain` or `leave`.
    pub wanted: String,
    /// Its actual state.
    pub state: String,
    /// The member that creates it.
    pub executor: String,
    /// Its address, once known.
    pub address: Option<String>,
    /// The problem, if there is one.
    pub problem: Option<String>,
}

/// A request for a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenWanted {
    /// Time for which it is accepted, in seconds: 1 to 7776000 (90 days); an hour if absent.
    #[serde(default = "hour")]
    #[schemars(range(min = 1, max = 7_776_000))]
    pub time_to_live_seconds: u64,
    /// Accept it for one machine only.
    #[serde(default)]
    pub single_use: bool,
    /// Accept it for the node of this name only; the node also takes the name over from an earlier
    /// machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"n1")]
    pub node: Option<String>,
}

fn hour() -> u64 {
    3600
}

/// A created join token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenMade {
    /// The token with which machines join. It cannot be shown again.
    pub token: String,
    /// Its entry in the list of tokens.
    pub listed: ClusterToken,
}

impl std::fmt::Debug for TokenMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenMade").field("listed", &self.listed).finish_non_exhaustive()
    }
}

/// A join token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterToken {
    /// Id, which revokes it.
    pub id: String,
    /// Time of its creation, in seconds since 1970.
    pub created_at_unix_seconds: u64,
    /// End of its validity, in seconds since 1970.
    pub expires_at_unix_seconds: u64,
    /// It is accepted for one machine only.
    pub single_use: bool,
    /// It is accepted for the node of this name only.
    pub node: Option<String>,
    /// The node that used it, if it is for single use.
    pub used_by: Option<String>,
}

/// The join tokens, including those that expired in the last week.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterTokens {
    /// Tokens by id.
    pub tokens: Vec<ClusterToken>,
}

/// Nodes that ever joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinedNodes {
    /// Nodes by name.
    pub nodes: Vec<JoinedNode>,
    /// Controllers that are present. They are members without having joined, and cannot be evicted.
    #[serde(default)]
    pub controllers: Vec<String>,
}

/// A node that joined, whether or not it is present now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinedNode {
    /// Its name.
    pub name: String,
    /// Fingerprint of its key.
    pub key: String,
    /// Time at which it joined with this key, in seconds since 1970.
    pub joined_at_unix_seconds: u64,
    /// End of its last certificate, in seconds since 1970.
    pub certificate_until_unix_seconds: u64,
    /// Id of the token with which it joined.
    pub token: String,
    /// Whether it is evicted.
    pub evicted: bool,
}
