use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use equipoise_planner::{Permits, Plan};
use serde::{Deserialize, Serialize};

use crate::edition::Edition;
use crate::kind::NodeKind;
use crate::roster::Roster;
use crate::sources::SourceRates;

/// The message of the controllers to all nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instructions {
    /// The leader's term.
    pub term: u64,
    /// The plan's generation.
    pub generation: u64,
    /// The leader's name.
    pub leader: String,
    /// Time between two plans. A node's instructions are old after a few of these.
    pub period: Duration,
    /// The members, with the properties that others need.
    pub members: BTreeMap<String, Enrolled>,
    /// The plan.
    pub plan: Plan,
    /// Backends of elastic pools, by pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rosters: BTreeMap<String, Roster>,
    /// Elastic pools that the leader's file declares for nodes, by pool: a configuration file with
    /// the pool alone. A node of a version without this field refuses instructions that have it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, String>,
    /// Rates of the clients of each prefix at all nodes together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: SourceRates,
    /// Key with which nodes sign delegated requests; absent before a leader has made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_secret: Option<Secret>,
}

/// A secret of the cluster, which is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// 256 random bits, in hexadecimal.
    pub fn random() -> Secret {
        let bytes: [u8; 32] = rand::random();
        Secret(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The secret text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A member, as the leader knows it. It is stored with the plan, so that the next leader knows
/// which members to expect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Enrolled {
    /// Node or agent.
    pub kind: NodeKind,
    /// The member's capacity in the plan, in cores.
    pub capacity: f64,
    /// The capacity that it reported first, in cores, if it differs. Only controllers use it, as
    /// the base of the limit for later claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_capacity: Option<f64>,
    /// True if it has a dispatch level.
    pub dispatches: bool,
    /// True if no backend of its dispatch level can take a request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub application_down: bool,
    /// Permits of its application by its last report, in steps; absent without a concurrency limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<Permits>,
    /// Address at which peers reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<SocketAddr>,
    /// Its own addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
}

impl Instructions {
    /// Term and generation.
    pub fn edition(&self) -> Edition {
        Edition { term: self.term, generation: self.generation }
    }

    /// True if they replace `other`. No plan has term 0, so the default is older than all.
    pub fn is_newer_than(&self, other: &Instructions) -> bool {
        self.edition() > other.edition()
    }

    /// True for the default: no plan exists yet.
    pub fn is_blank(&self) -> bool {
        self.edition() == Edition::default()
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
