//! The peers of a node in node mode and their shared secret, as learned from the cluster. Pure.

use std::sync::Arc;

use equipoise_controller::{Instructions, NodeKind, Secret};
use equipoise_core::Weight;
use equipoise_core::load::PerClass;
use equipoise_session::config::{BackendConfig, Place, SessionConfig};
use equipoise_session::dispatch::{DelegationKeys, PeerTls, Shares};

use equipoise_config::peer_check_interval;

/// Peers for delegation, and the secret that signs delegated requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Learnt {
    peers: Vec<BackendConfig>,
    secret: Option<Secret>,
}

impl Learnt {
    /// The peers and secret that the instructions have for a node.
    pub(super) fn of(instructions: &Instructions, node: &str) -> Learnt {
        let others = instructions.members.iter().filter(|(name, member)| {
            member.kind == NodeKind::Node && member.dispatches && name.as_str() != node
        });
        let peer = |(name, address): (&String, _)| BackendConfig {
            name: name.as_str().into(),
            address,
            place: Place::Address,
            weight: Weight::DEFAULT,
            backup: false,
            concurrency: None,
        };
        Learnt {
            peers: others.filter_map(|(name, it)| Some(peer((name, it.endpoint?)))).collect(),
            secret: instructions.dispatch_secret.clone(),
        }
    }

    /// Adds peers and secret to front doors in node mode. Values that the file states are kept.
    pub(super) fn add_to(&self, config: &mut SessionConfig) {
        let doors = config.front_doors.iter_mut().filter_map(|door| door.dispatch.as_mut());
        for node in doors {
            if node.keys.is_empty()
                && let Some(secret) = &self.secret
            {
                // With an invalid secret the door has no key, and nothing is delegated.
                let secrets = vec![secret.reveal().as_bytes().to_vec()];
                node.keys = DelegationKeys::new(secrets).unwrap_or_default();
            }
            let pool = config.pools.iter_mut().find(|pool| pool.name == node.peers);
            if let Some(pool) = pool.filter(|pool| pool.backends.is_empty()) {
                pool.backends.clone_from(&self.peers);
                if let Some(health) = &mut pool.health {
                    health.interval = peer_check_interval(self.peers.len());
                }
            }
        }
    }
}

/// Adds certificates for connections between nodes, where the configuration asks for TLS and names
/// no files.
pub(super) fn encrypt(config: &mut SessionConfig, tls: &PeerTls) {
    for node in config.front_doors.iter_mut().filter_map(|door| door.dispatch.as_mut()) {
        node.transport.provide(tls);
        if let Some(pool) = config.pools.iter_mut().find(|pool| pool.name == node.peers) {
            pool.options.tls = node.transport.outgoing().cloned();
        }
    }
}

/// Step to which shares are rounded. Smaller changes would cost a new snapshot on every thread each
/// period.
const STEP: f64 = 0.005;

/// The shares of a node: what it keeps, and the weights of its peers. `None` if the plan does not
/// know the node.
pub(super) fn shares(instructions: &Instructions, node: &str) -> Option<Arc<Shares>> {
    let own = instructions.plan.nodes.get(node)?;
    let dispatch = &instructions.plan.dispatch;
    let others = dispatch.weights.iter().filter(|(name, _)| name.as_str() != node);
    Some(Arc::new(Shares {
        keep: PerClass::from_fn(|class| stepped(own.keep_by_class[class])),
        weights: others.map(|(name, weight)| (name.clone(), stepped(*weight))).collect(),
        refuse: PerClass::from_fn(|class| stepped(dispatch.refuse[class])),
    }))
}

fn stepped(part: f64) -> f64 {
    (part / STEP).round() * STEP
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use equipoise_controller::Enrolled;
    use equipoise_planner::{NodePlan, Plan, Standing};
    use equipoise_session::config::{FrontDoor, Protocol};

    use super::*;

    fn member(dispatches: bool, last: u8) -> Enrolled {
        Enrolled {
            kind: NodeKind::Node,
            capacity: 1.0,
            first_capacity: None,
            dispatches,
            application_down: false,
            permits: None,
            endpoint: Some(([10, 0, 0, last], 80).into()),
            addresses: Vec::new(),
        }
    }

    fn instructions() -> Instructions {
        let keep = PerClass { computing: 0.25, ..PerClass::from_fn(|_| 1.0) };
        let node = NodePlan {
            standing: Standing::Present,
            presence: 1.0,
            load: None,
            is_overloaded: true,
            keep: 0.5,
            keep_by_class: keep,
            scarce: None,
        };
        let mut plan = Plan { nodes: [("a".to_string(), node)].into(), ..Plan::default() };
        plan.dispatch.weights = [("a", 0.1), ("b", 0.9)].map(|(n, w)| (n.to_string(), w)).into();
        let agent = Enrolled { kind: NodeKind::Agent, ..member(true, 4) };
        let away = Enrolled { endpoint: None, ..member(true, 5) };
        let members = [
            ("a", member(true, 1)),
            ("b", member(true, 2)),
            ("c", member(false, 3)),
            ("d", agent),
            ("e", away),
        ];
        let members = members.map(|(name, member)| (name.to_string(), member)).into();
        let dispatch_secret = Some(Secret::random());
        Instructions {
            term: 1,
            generation: 1,
            members,
            plan,
            dispatch_secret,
            ..Instructions::default()
        }
    }

    fn config(loaded: &str) -> SessionConfig {
        use equipoise_config::{Surroundings, parse};
        let around =
            Surroundings { read: &|_, _| Ok("0123456789abcdef".into()), ..Surroundings::here() };
        let text = format!(
            "[instance]\nname = 'a'\n[cluster]\ncontrollers = ['c:1']\n[[pool]]\nname = 'app'\n\
             backends = ['127.0.0.1:81']\n[[dispatch]]\nlisten = '0.0.0.0:80'\npool = 'app'\n{loaded}"
        );
        parse(&text, std::path::Path::new("t"), &around).unwrap().config.session
    }

    fn peers(config: &SessionConfig) -> Vec<(&str, SocketAddr)> {
        let pool = config.pools.iter().find(|pool| &*pool.name == "app.peers").unwrap();
        pool.backends.iter().map(|it| (&*it.name, it.address)).collect()
    }

    fn keys(config: &SessionConfig) -> &DelegationKeys {
        &config.front_doors[0].dispatch.as_ref().unwrap().keys
    }

    #[test]
    fn peers_are_the_other_nodes_that_dispatch_and_can_be_reached() {
        let mut config = config("");
        assert!(peers(&config).is_empty() && keys(&config).is_empty());
        Learnt::of(&instructions(), "a").add_to(&mut config);
        assert_eq!(peers(&config), [("b", ([10, 0, 0, 2], 80).into())]);
        assert!(!keys(&config).is_empty());
    }

    #[test]
    fn many_peers_are_checked_as_often_together_as_a_few() {
        let interval = |count: u8| {
            let mut all = instructions();
            all.members = (1..=count).map(|at| (format!("p{at}"), member(true, at))).collect();
            let mut config = config("");
            Learnt::of(&all, "a").add_to(&mut config);
            let pool = config.pools.iter().find(|pool| &*pool.name == "app.peers").unwrap();
            pool.health.as_ref().unwrap().interval.as_secs_f64()
        };
        assert_eq!([1, 4, 11, 50].map(interval), [1.0, 1.0, 2.75, 12.5]);
    }

    #[test]
    fn what_the_file_states_is_not_learnt() {
        let stated = "secret = '/x'\npeers = [{ node = 'n', address = '10.9.9.9:80' }]\n";
        let mut config = config(stated);
        let before = config.clone();
        Learnt::of(&instructions(), "a").add_to(&mut config);
        assert_eq!(config, before);
        let mut plain = SessionConfig::default();
        let door = FrontDoor::new(([127, 0, 0, 1], 80).into(), Protocol::Http, "x");
        plain.front_doors.push(door);
        let before = plain.clone();
        Learnt::of(&instructions(), "a").add_to(&mut plain);
        assert_eq!(plain, before, "a front door that is not in node mode");
    }

    #[test]
    fn shares_are_by_class_and_leave_oneself_out() {
        let shares = shares(&instructions(), "a").unwrap();
        assert_eq!((shares.keep.computing, shares.keep.light), (0.25, 1.0));
        assert_eq!(shares.weights, [("b".to_string(), stepped(0.9))].into());
        let nearly = [0.5001, 0.4999].map(stepped);
        assert_eq!(nearly[0], nearly[1], "no snapshot for that");
        assert_eq!(super::shares(&instructions(), "z"), None);
    }
}
