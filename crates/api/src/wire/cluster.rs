//! How an instance stands to its cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A node's part in its cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStanding {
    /// Whose instructions it follows; `null` while no controller can be reached.
    pub following: Option<String>,
    /// Their leader's term; `null` before there were any.
    pub term: Option<u64>,
    /// The plan's generation.
    pub generation: Option<u64>,
    /// How long the node has gone by them without newer ones.
    pub age_seconds: Option<f64>,
    /// How long its certificate holds; `null` before it joined.
    pub certificate_seconds: Option<f64>,
    /// What does not work, one sentence each; empty if all is well.
    pub problems: Vec<String>,
    /// Instructions that were older than its own, and were ignored.
    pub stale: u64,
    /// Instructions that it did not understand, and did not follow.
    pub not_understood: u64,
}
