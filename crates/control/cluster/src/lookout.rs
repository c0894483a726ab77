//! Checks whether peers are reachable, as a second opinion on late ones.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind::ConnectionRefused as Refused;
use std::net::SocketAddr;
use std::time::Duration;

use equipoise_controller::{Instructions, NodeKind};
use equipoise_planner::Standing;
use rand::{Rng, RngExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Tries a TCP connection to a few peers each period: late ones first, the others in turn.
#[derive(Debug)]
pub struct Lookout {
    own: String,
    peers_max: usize,
    patience: Duration,
    /// The name after which the next turn begins.
    last: String,
}

/// The peers that were checked, as in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sightings {
    /// Checked peers, and whether each answered.
    pub reachable: BTreeMap<String, bool>,
    /// Peers with a kernel that refused the connection.
    pub refused: BTreeSet<String>,
}

/// Number of nodes that check a late peer each period, on average, in a cluster of any size: enough
/// for one of them to decide, and few enough not to overload a machine in trouble.
const OBSERVERS: f64 = 8.0;

impl Lookout {
    /// A lookout of node `own`, for at most `peers_max` peers each time, with the timeout
    /// `patience` for each.
    pub fn new(own: impl Into<String>, peers_max: usize, patience: Duration) -> Lookout {
        Lookout { own: own.into(), peers_max, patience, last: String::new() }
    }

    /// Checks peers once. Takes no longer than the timeout.
    pub async fn look(&mut self, instructions: &Instructions) -> Sightings {
        let chosen = self.choose(instructions, &mut rand::rng());
        let mut looking = JoinSet::new();
        for (name, endpoint) in chosen {
            let patience = self.patience;
            looking.spawn(async move {
                let connected = timeout(patience, TcpStream::connect(endpoint)).await;
                let is_refused = matches!(&connected, Ok(Err(error)) if error.kind() == Refused);
                (name, matches!(connected, Ok(Ok(_))), is_refused)
            });
        }
        let mut sightings = Sightings::default();
        for (name, is_reachable, is_refused) in looking.join_all().await {
            if is_refused {
                sightings.refused.insert(name.clone());
            }
            sightings.reachable.insert(name, is_reachable);
        }
        sightings
    }

    fn choose(
        &mut self,
        instructions: &Instructions,
        rng: &mut impl Rng,
    ) -> Vec<(String, SocketAddr)> {
        let peers: BTreeMap<&str, SocketAddr> = instructions
            .members
            .iter()
            .filter(|(name, one)| one.kind == NodeKind::Node && **name != self.own)
            .filter_map(|(name, one)| Some((name.as_str(), one.endpoint?)))
            .collect();
        let chance = (OBSERVERS / peers.len().max(1) as f64).min(1.0);
        let is_late = |name: &str| {
            let node = instructions.plan.nodes.get(name);
            node.is_some_and(|node| matches!(node.standing, Standing::Late | Standing::Gone))
        };
        let mut chosen: BTreeSet<&str> = BTreeSet::new();
        for name in peers.keys().filter(|name| is_late(name)) {
            if chosen.len() < self.peers_max && rng.random_bool(chance) {
                chosen.insert(name);
            }
        }
        let after = peers.range::<str, _>((
            std::ops::Bound::Excluded(self.last.as_str()),
            std::ops::Bound::Unbounded,
        ));
        let mut last = None;
        for (name, _) in after.chain(peers.iter()).take(peers.len()) {
            if chosen.len() >= self.peers_max {
                break;
            }
            chosen.insert(name);
            last = Some((*name).to_string());
        }
        let chosen = chosen.into_iter().map(|name| (name.to_string(), peers[name])).collect();
        if let Some(last) = last {
            self.last = last;
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use equipoise_controller::Enrolled;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn cluster(names: &[&str], late: &[&str]) -> Instructions {
        let mut instructions = Instructions::default();
        for (name, port) in names.iter().zip(1000..) {
            let member = Enrolled {
                kind: NodeKind::Node,
                capacity: 1.0,
                first_capacity: None,
                dispatches: false,
                application_down: false,
                permits: None,
                endpoint: Some(([127, 0, 0, 1], port).into()),
                addresses: Vec::new(),
            };
            instructions.members.insert((*name).to_string(), member);
        }
        for name in late {
            let node = serde_json::json!({
                "standing": "late", "presence": 0.5, "load": null, "is_overloaded": false, "keep": 1.0,
                "keep_by_class": serde_json::to_value(equipoise_core::load::PerClass::from_fn(|_| 1.0)).unwrap(),
                "scarce": null,
            });
            let node = serde_json::from_value(node).unwrap();
            instructions.plan.nodes.insert((*name).to_string(), node);
        }
        instructions
    }

    fn names(chosen: &[(String, SocketAddr)]) -> Vec<&str> {
        chosen.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn a_node_checks_all_peers_in_turn_and_never_itself() {
        let mut lookout = Lookout::new("b", 2, Duration::from_millis(1));
        let mut rng = StdRng::seed_from_u64(1);
        let cluster = cluster(&["a", "b", "c", "d"], &[]);
        let turns: Vec<_> = (0..3).map(|_| lookout.choose(&cluster, &mut rng)).collect();
        assert_eq!(names(&turns[0]), ["a", "c"]);
        assert_eq!(names(&turns[1]), ["a", "d"]);
        assert_eq!(names(&turns[2]), ["c", "d"]);
    }

    #[test]
    fn a_late_peer_is_checked_in_every_round() {
        let mut lookout = Lookout::new("a", 2, Duration::from_millis(1));
        let mut rng = StdRng::seed_from_u64(1);
        let cluster = cluster(&["a", "b", "c", "d", "z"], &["z"]);
        for _ in 0..5 {
            let chosen = lookout.choose(&cluster, &mut rng);
            assert!(names(&chosen).contains(&"z") && chosen.len() == 2, "{chosen:?}");
        }
    }

    #[test]
    fn a_late_node_of_a_thousand_is_checked_by_few_peers() {
        let all: Vec<String> = (0..1000).map(|n| format!("n{n:04}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let cluster = cluster(&all, &["n0500"]);
        let mut rng = StdRng::seed_from_u64(7);
        let looks = |n: &usize| {
            let mut lookout = Lookout::new(all[*n], 1, Duration::from_millis(1));
            lookout.last = "n0600".to_string();
            let chosen = lookout.choose(&cluster, &mut rng);
            names(&chosen) == ["n0500"]
        };
        let observers = (0..1000).filter(looks).count();
        assert!((1..30).contains(&observers), "{observers}");
    }

    #[tokio::test]
    async fn a_listening_peer_is_reachable_and_a_closed_port_is_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut cluster = cluster(&["a", "b", "c"], &[]);
        let place = |listener: &std::net::TcpListener| Some(listener.local_addr().unwrap());
        cluster.members.get_mut("b").unwrap().endpoint = place(&listener);
        cluster.members.get_mut("c").unwrap().endpoint = place(&closed);
        drop(closed);
        let mut lookout = Lookout::new("a", 3, Duration::from_secs(5));
        let seen = lookout.look(&cluster).await;
        assert_eq!(seen.reachable, [("b".to_string(), true), ("c".to_string(), false)].into());
        assert_eq!(seen.refused, ["c".to_string()].into());
    }
}
