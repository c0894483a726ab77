//! The peers of a node in node mode and their shared secret, as learned from the cluster. Pure.

use std::net::SocketAddr;
use std::sync::Arc;

use equipoise_controller::{Instructions, NodeKind, Secret};
use equipoise_core::load::{PerClass, Shares};

/// Peers for delegation, and the secret that signs delegated requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learnt {
    /// The other nodes in node mode, by name, with the address of each.
    pub peers: Vec<(String, SocketAddr)>,
    /// The secret of all nodes.
    pub secret: Option<Secret>,
}

impl Learnt {
    /// The peers and secret that the instructions have for a node.
    pub(crate) fn of(instructions: &Instructions, node: &str) -> Learnt {
        let others = instructions.members.iter().filter(|(name, member)| {
            member.kind == NodeKind::Node && member.dispatches && name.as_str() != node
        });
        Learnt {
            peers: others.filter_map(|(name, it)| Some((name.clone(), it.endpoint?))).collect(),
            secret: instructions.dispatch_secret.clone(),
        }
    }
}

/// Step to which shares are rounded. Smaller changes would cost a new snapshot on every thread each
/// period.
const STEP: f64 = 0.005;

/// The shares of a node: what it keeps, and the weights of its peers. `None` if the plan does not
/// know the node.
pub(crate) fn shares(instructions: &Instructions, node: &str) -> Option<Arc<Shares>> {
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
    use equipoise_controller::Enrolled;
    use equipoise_planner::{NodePlan, Plan, Standing};

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
            is_overloaded: true,
            keep: 0.5,
            keep_by_class: keep,
            ..NodePlan::new(Standing::Present, 1.0)
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

    #[test]
    fn peers_are_the_other_nodes_that_dispatch_and_can_be_reached() {
        let learnt = Learnt::of(&instructions(), "a");
        assert_eq!(learnt.peers, [("b".to_string(), ([10, 0, 0, 2], 80).into())]);
        assert!(learnt.secret.is_some());
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
