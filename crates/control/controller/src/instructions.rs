use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use equipoise_planner::{Permits, Plan};
use serde::{Deserialize, Serialize};

use crate::sources::SourceRates;
use crate::{NodeKind, Roster};

/// Which instructions: of two, the later term is newer, and in one term the larger generation. A leader that comes to
/// the office has a later term than all before it, so whatever a former leader still sends is older.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(deny_unknown_fields)]
pub struct Edition {
    /// The store's revision at which their leader came to the office, or a later one where more was told before.
    pub term: u64,
    /// The plan's.
    pub generation: u64,
}

/// What the controller sends, to every node the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instructions {
    /// Their leader's term.
    pub term: u64,
    /// The plan's generation.
    pub generation: u64,
    /// The leader, as it calls itself.
    pub leader: String,
    /// From one plan to the next; a node's instructions are old after a few of these.
    pub period: Duration,
    /// The members, as far as others need to know them.
    pub members: BTreeMap<String, Enrolled>,
    /// What to do.
    pub plan: Plan,
    /// Backends that are made for elastic pools, by pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rosters: BTreeMap<String, Roster>,
    /// Elastic pools that the leader's file declares for nodes: a configuration file with the pool alone, by pool. A node of a
    /// version without this field refuses instructions that have it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, String>,
    /// What clients of each prefix bring to all nodes together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: SourceRates,
    /// What nodes sign with what they delegate to each other; absent before a leader has made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_secret: Option<Secret>,
}

/// A text that only members of the cluster know: it is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// 256 random bits, in hex.
    pub fn random() -> Secret {
        let bytes: [u8; 32] = rand::random();
        Secret(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A member, as the leader knows it. Stored with the plan, so that the next leader knows whom to expect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Enrolled {
    /// What it is.
    pub kind: NodeKind,
    /// Cores that it counts for.
    pub capacity: f64,
    /// Cores that it reported first, if they differ. Controllers alone use it: it bounds what the node may claim later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_capacity: Option<f64>,
    /// Whether it has a dispatch level.
    pub dispatches: bool,
    /// The application of its dispatch level is dead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub application_down: bool,
    /// The permits of its application by its last report, in steps; absent without a concurrency limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<Permits>,
    /// Where peers reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<SocketAddr>,
    /// Its own addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
}

impl Instructions {
    /// Which these are.
    pub fn edition(&self) -> Edition {
        Edition { term: self.term, generation: self.generation }
    }

    /// Whether they are to replace `other`. Nothing that was ever planned has term 0, so the default is older than all.
    pub fn is_newer_than(&self, other: &Instructions) -> bool {
        self.edition() > other.edition()
    }

    /// Whether nobody has planned anything yet: the default.
    pub fn is_blank(&self) -> bool {
        self.edition() == Edition::default()
    }
}

impl fmt::Display for Edition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(term: u64, generation: u64) -> Instructions {
        Instructions { term, generation, ..Instructions::default() }
    }

    #[test]
    fn newer_is_by_term_and_then_by_generation() {
        // one, other, whether one replaces the other
        let rows = [
            (of(1, 1), of(0, 0), true),
            (of(3, 5), of(3, 4), true),
            (of(3, 5), of(3, 5), false),
            (of(3, 4), of(3, 5), false),
            (of(4, 1), of(3, 900), true),
            (of(3, 900), of(4, 1), false),
        ];
        for (one, other, is) in rows {
            let (a, b) = (one.edition(), other.edition());
            assert_eq!(one.is_newer_than(&other), is, "{a} against {b}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::random();
        assert_eq!((secret.reveal().len(), format!("{secret:?}")), (64, "Secret".to_string()));
        assert_ne!(secret, Secret::random());
    }

    #[test]
    fn they_survive_the_wire() {
        let member = Enrolled {
            kind: NodeKind::Node,
            capacity: 4.0,
            first_capacity: Some(2.0),
            dispatches: true,
            application_down: false,
            permits: None,
            endpoint: Some(([192, 0, 2, 1], 80).into()),
            addresses: vec![[192, 0, 2, 1].into()],
        };
        let members = [("edge-1".to_string(), member)].into();
        let dispatch_secret = Some(Secret::random());
        let sent = Instructions { members, dispatch_secret, ..of(3, 5) };
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<Instructions>(&text).unwrap(), sent);
    }
}
