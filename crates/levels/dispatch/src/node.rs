//! The rules of one front door in node mode.

use std::any::Any;
use std::sync::Arc;

use equipoise_core::delegation::{Delegation, Encryption, SignedHead};
use equipoise_core::load::{ClassRules, DispatchTable, PerClass, RequestClass, Shares};

use crate::marker::{self, DelegationKeys};
use crate::transport::Transport;

/// Node mode of a front door, as the configuration has it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeDoor {
    /// Name of the pool of peers; each backend has the name of its node.
    pub peers: Arc<str>,
    /// This node, as its peers call it.
    pub node: Arc<str>,
    /// Keys of markers. Without keys nothing is delegated, and no marker is accepted.
    pub keys: DelegationKeys,
    /// Encryption between nodes.
    pub transport: Transport,
    /// Which requests are of which class.
    pub classes: ClassRules,
    /// The keep shares without a plan, by class, 0..=1. Peers share the rest by weight.
    pub keep: PerClass<f64>,
}

impl NodeDoor {
    /// The door behind a [`Delegation`], if it is one.
    pub fn of(delegation: &dyn Delegation) -> Option<&NodeDoor> {
        (delegation as &dyn Any).downcast_ref()
    }
}

impl Delegation for NodeDoor {
    fn may_delegate(&self) -> bool {
        !self.keys.is_empty() && self.transport.is_ready()
    }

    fn classify(
        &self,
        method: &str,
        path: &str,
        body_bytes: Option<u64>,
        scratch: &mut Vec<u8>,
    ) -> RequestClass {
        self.classes.classify(method, path, body_bytes, scratch)
    }

    fn table(&self, plan: Option<&Shares>, peers: &[(&str, u32)]) -> DispatchTable {
        match plan {
            Some(plan) if !self.may_delegate() => DispatchTable::keep_all().refusing(plan.refuse),
            None if !self.may_delegate() => DispatchTable::keep_all(),
            Some(plan) => plan.table(peers.iter().map(|(name, _)| *name)),
            None => {
                let weights = peers.iter().map(|(_, weight)| f64::from(*weight));
                DispatchTable::new(self.keep, weights)
            }
        }
    }

    fn keep(&self, plan: Option<&Shares>) -> PerClass<f64> {
        let keep = plan.map_or(self.keep, |plan| plan.keep);
        if self.may_delegate() { keep } else { PerClass::from_fn(|_| 1.0) }
    }

    fn sign(&self, head: &SignedHead<'_>, peer: &str, out: &mut Vec<u8>) -> bool {
        marker::write(&self.keys, &self.node, peer, head, out).is_some()
    }

    fn verify(&self, marker: &[u8], head: &SignedHead<'_>, sender: Option<&[String]>) -> bool {
        marker::source_of(marker).is_some_and(|source| self.transport.admits(sender, source))
            && self.keys.verify(marker, &self.node, head)
    }

    fn encryption(&self) -> Encryption {
        self.transport.encryption()
    }

    fn equals(&self, other: &dyn Delegation) -> bool {
        NodeDoor::of(other) == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use equipoise_core::delegation::EachField;

    use super::*;

    fn door(keys: &str) -> NodeDoor {
        let secrets = if keys.is_empty() { Vec::new() } else { vec![keys.repeat(16).into_bytes()] };
        NodeDoor {
            peers: "app.peers".into(),
            node: "a".into(),
            keys: DelegationKeys::new(secrets).unwrap(),
            transport: Transport::Plain,
            classes: ClassRules::default(),
            keep: PerClass::from_fn(|_| 0.25),
        }
    }

    fn plan() -> Shares {
        Shares {
            keep: PerClass::from_fn(|_| 0.5),
            weights: [("b".to_string(), 1.0)].into(),
            refuse: PerClass::from_fn(|_| 0.125),
        }
    }

    #[test]
    fn the_table_is_the_plans_or_else_the_files_and_keeps_all_without_a_key() {
        let (peers, plan) = ([("b", 1), ("c", 3)], plan());
        let class = RequestClass::Computing;
        assert_eq!(door("s").table(Some(&plan), &peers).keep(class), 0.5);
        assert_eq!(door("s").table(None, &peers).keep(class), 0.25);
        assert_eq!(door("s").table(None, &[]).keep(class), 1.0, "there is no peer");
        let refusing = DispatchTable::keep_all().refusing(plan.refuse);
        assert_eq!(door("").table(Some(&plan), &peers), refusing);
        assert_eq!(door("").table(None, &peers), DispatchTable::keep_all());
        assert_eq!(door("s").keep(Some(&plan)), plan.keep);
        assert_eq!((door("s").keep(None)[class], door("").keep(None)[class]), (0.25, 1.0));
    }

    #[test]
    fn a_marker_counts_from_the_node_in_the_certificate_and_unencrypted_where_that_is_allowed() {
        let (source, mut target) = (door("s"), NodeDoor { node: "b".into(), ..door("s") });
        let origin = |_: EachField<'_>| {};
        let head = SignedHead { lines: b"GET / HTTP/1.1\r\nHost: a\r\n", origin: &origin };
        let mut line = Vec::new();
        assert!(source.sign(&head, "b", &mut line) && !door("").sign(&head, "b", &mut Vec::new()));
        let marker = line.strip_prefix(b"Equipoise-Delegated: ").unwrap().trim_ascii_end();
        let [own, other] = ["a", "c"].map(|node| vec![node.to_string()]);
        for (transport, in_the_clear) in [
            (Transport::Plain, true),
            (Transport::Either(None), true),
            (Transport::Encrypted(None), false),
        ] {
            target.transport = transport;
            assert!(target.verify(marker, &head, Some(&own)));
            assert!(!target.verify(marker, &head, Some(&other)));
            assert_eq!(target.verify(marker, &head, None), in_the_clear);
        }
        assert!(!source.verify(marker, &head, None), "it is for another node");
    }

    #[test]
    fn rules_are_equal_if_all_their_parts_are() {
        assert!(door("s").equals(&door("s")) && !door("s").equals(&door("t")));
        assert_eq!(NodeDoor::of(&door("s")), Some(&door("s")));
    }
}
