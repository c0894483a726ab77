//! How an instance stands to its cluster, and what a controller's operators ask of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::NodeStatus;

/// A node's or an agent's part in its cluster, as it knows it: also while no controller answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStanding {
    /// `node`, or `agent`: it only reports.
    #[serde(default)]
    pub kind: String,
    /// The controller that sends its instructions; `null` while no controller can be reached.
    pub following: Option<String>,
    /// Their leader's term; `null` before there were any.
    pub term: Option<u64>,
    /// The plan's generation.
    pub generation: Option<u64>,
    /// Time since the node installed its newest instructions.
    pub age_seconds: Option<f64>,
    /// Time since the last message of any controller; `null` if none arrived since this process
    /// started.
    #[serde(default)]
    pub heard_seconds: Option<f64>,
    /// The controllers that its file names, by address.
    #[serde(default)]
    pub controllers: Vec<ControllerContact>,
    /// Its own load, as it was measured last; `null` before that.
    #[serde(default)]
    pub load: Option<OwnLoad>,
    /// Whether an earlier process kept them, and no newer ones have come since this one started.
    #[serde(default)]
    pub kept: bool,
    /// How long its certificate holds; `null` before it joined.
    pub certificate_seconds: Option<f64>,
    /// Problems, one sentence each; empty if there are none.
    pub problems: Vec<String>,
    /// Instructions that were older than its own, and were ignored.
    pub stale: u64,
    /// Instructions that it did not understand, and did not follow.
    pub not_understood: u64,
}

/// How a node gets on with a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControllerContact {
    /// Its address, as in the node's file.
    pub address: String,
    /// How long ago it was last asked for anything; `null` if it never was.
    pub tried_seconds: Option<f64>,
    /// How long ago it last answered, be it by a refusal; `null` if it never did.
    pub heard_seconds: Option<f64>,
    /// Reports that it took.
    pub reports_taken_total: u64,
    /// Reports that it refused, or that did not arrive.
    pub reports_failed_total: u64,
    /// Why the last one failed; `null` if it was taken.
    pub problem: Option<String>,
}

/// The load that a node measured on its own machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnLoad {
    /// Cores that it may use; a fraction in a quota.
    pub capacity: f64,
    /// CPU in use of `capacity`, per cent; `null` is no signal, here and below.
    pub cpu_percent: Option<f64>,
    /// CPU in use of the whole machine, whoever uses it.
    #[serde(default)]
    pub machine_cpu_percent: Option<f64>,
    /// Memory in use.
    pub memory_percent: Option<f64>,
    /// The busiest interface against its link's speed.
    pub net_percent: Option<f64>,
    /// L1 of that, by this machine's coefficients.
    pub l1: Option<f64>,
    /// L2 of that.
    pub l2: Option<f64>,
}

/// The cluster, as the controller that answers sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterMembers {
    /// The cluster's name.
    pub cluster: String,
    /// The fingerprint of its certificate authority's key.
    pub authority: String,
    /// The controller that answers.
    pub controller: String,
    /// The controller that leads; `None` without a leader.
    pub leader: Option<String>,
    /// The leader's term.
    pub term: Option<u64>,
    /// Controllers that are there.
    pub controllers: Vec<String>,
    /// The newest instructions, `TERM.GENERATION`; `None` before there are any.
    pub instructions: Option<String>,
    /// Since they were planned, or came here.
    pub instructions_age_seconds: Option<f64>,
    /// From one plan to the next.
    pub period_seconds: f64,
    /// For how long nothing has come of the store; `None` if it works.
    pub store_failing_seconds: Option<f64>,
    /// How the store fails; `None` if it works.
    #[serde(default)]
    pub store_failure: Option<String>,
    /// Why no plans come, or would not survive a failure; `None` if all is well.
    #[serde(default)]
    pub problem: Option<String>,
    /// By name.
    pub members: Vec<NodeStatus>,
    /// Backends that members make for elastic pools.
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
    /// How far it is.
    pub state: String,
    /// The member that makes it.
    pub executor: String,
    /// Where it listens, once that is known.
    pub address: Option<String>,
    /// The problem, if there is one.
    pub problem: Option<String>,
}

/// A join token that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenWanted {
    /// How long it is accepted: 1 s to 90 days; an hour if absent.
    #[serde(default = "hour")]
    #[schemars(range(min = 1, max = 7_776_000))]
    pub time_to_live_seconds: u64,
    /// For one machine only.
    #[serde(default)]
    pub single_use: bool,
    /// For the node of this name only; it also takes the name over from a machine that had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"n1")]
    pub node: Option<String>,
}

fn hour() -> u64 {
    3600
}

/// A join token that was made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenMade {
    /// The token with which a machine joins; it cannot be shown again.
    pub token: String,
    /// As it is listed.
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
    /// By which it is revoked.
    pub id: String,
    /// When it was made, seconds since 1970.
    pub created_at_unix_seconds: u64,
    /// Until when it is accepted, seconds since 1970.
    pub expires_at_unix_seconds: u64,
    /// For one machine only.
    pub single_use: bool,
    /// For the node of this name only.
    pub node: Option<String>,
    /// The node that used it, if it is for a single use.
    pub used_by: Option<String>,
}

/// The join tokens that there are, those that expired in the last week included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterTokens {
    /// By id.
    pub tokens: Vec<ClusterToken>,
}

/// Nodes that ever joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinedNodes {
    /// By name.
    pub nodes: Vec<JoinedNode>,
    /// Controllers that are there: they are members without having joined, and cannot be shut out.
    #[serde(default)]
    pub controllers: Vec<String>,
}

/// A node that joined, whether or not it is there now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinedNode {
    /// Its name.
    pub name: String,
    /// The fingerprint of its key.
    pub key: String,
    /// When it joined with it, seconds since 1970.
    pub joined_at_unix_seconds: u64,
    /// The end of its last certificate, seconds since 1970.
    pub certificate_until_unix_seconds: u64,
    /// The id of the token with which it joined.
    pub token: String,
    /// Whether it was shut out.
    pub evicted: bool,
}
