use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of a member.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Balances: it is in names and shares, and follows instructions.
    #[default]
    Node,
    /// Only reports: a machine that runs backends.
    Agent,
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeKind::Node => "node",
            NodeKind::Agent => "agent",
        })
    }
}
