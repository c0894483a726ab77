//! Balanced names: their nodes, shares and records.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use rand::Rng;

use super::collect::{host_name, lower, text};
use crate::Mode;
use crate::config::{LISTED_NODES_MAX, NODES_MAX, NameConfig, NodeConfig, ZoneConfig};
use crate::message::code::{A, AAAA, HTTPS, SRV};
use crate::snapshot::{NameStatus, NodeStatus};
use crate::spread::{Group, Member, Spread, record};
use crate::standing::{NodeState, Standing};

/// Record types that a balanced name answers from its nodes.
pub(super) fn types_of(mode: Mode) -> &'static [u16] {
    match mode {
        Mode::Pair | Mode::Single | Mode::Ordered => &[A, AAAA],
        Mode::Srv => &[SRV],
        Mode::Https => &[HTTPS, A, AAAA],
    }
}

/// Builds the answers of one balanced name.
pub(super) struct Spreading<'s> {
    pub(super) zone: &'s ZoneConfig,
    pub(super) config: &'s NameConfig,
    pub(super) origin: &'s [u8],
    /// Number of nodes of the preceding zones.
    pub(super) nodes_before: usize,
    pub(super) state: &'s dyn Fn(usize) -> NodeState,
    /// Returns the entry of a name of the zone.
    pub(super) host: &'s dyn Fn(&[u8]) -> Option<usize>,
}

impl Spreading<'_> {
    /// Returns the nodes with records of type `rtype`, and whether the name fails open because none
    /// of them serves. In that case the answer has the draining nodes, which are alive, or else the
    /// unhealthy ones, because a check may be wrong. Each address family is judged separately, so
    /// that clients of one family always get an answer.
    fn given(&self, rtype: u16) -> (Vec<usize>, bool) {
        use Standing::{Draining, DrainingUnhealthy, Serving, Unhealthy};
        let has_type = |place: &usize| match (rtype, self.node(*place)) {
            (A, Some(node)) => !node.v4.is_empty(),
            (AAAA, Some(node)) => !node.v6.is_empty(),
            (_, node) => node.is_some(),
        };
        for given in [Serving, Draining, Unhealthy, DrainingUnhealthy] {
            let stands = |place: &usize| {
                let state = (self.state)(self.config.nodes[*place]);
                state.standing == given && (state.share > 0.0 || given != Serving)
            };
            let places =
                (0..self.config.nodes.len()).filter(|place| has_type(place) && stands(place));
            let places: Vec<_> = places.collect();
            if !places.is_empty() {
                return (self.bounded(places), given != Serving);
            }
        }
        (Vec::new(), false)
    }

    /// Limits the nodes to the maximum of an answer: an elastic pool may temporarily exceed its
    /// planned size.
    fn bounded(&self, mut places: Vec<usize>) -> Vec<usize> {
        let most = if self.config.mode.gives_all() { LISTED_NODES_MAX } else { NODES_MAX };
        places.truncate(most);
        places
    }

    fn node(&self, place: usize) -> Option<&NodeConfig> {
        self.zone.nodes.get(self.config.nodes[place])
    }

    fn ttl(&self) -> u32 {
        let states = self.config.nodes.iter().map(|node| (self.state)(*node));
        let draining = states.into_iter().any(|state| state.standing.drains());
        if draining { self.config.ttl.min(self.config.ttl_draining) } else { self.config.ttl }
    }

    pub(super) fn made(&self, account: usize, rng: &mut dyn Rng) -> Spread {
        let groups = types_of(self.config.mode).iter();
        let groups = groups.filter_map(|rtype| self.group(*rtype, rng)).collect();
        let ttl = self.ttl();
        Spread {
            mode: self.config.mode,
            ttl,
            ttl_heavy: ttl.min(self.config.ttl_heavy),
            account,
            groups,
        }
    }

    fn group(&self, rtype: u16, rng: &mut dyn Rng) -> Option<Group> {
        let (given, fail_open) = self.given(rtype);
        let mut members: Vec<Member> =
            given.iter().filter_map(|place| self.member(rtype, *place)).collect();
        // Nodes of two pools may have the same name; its addresses are given once.
        let mut hosts = BTreeSet::new();
        for member in &mut members {
            member.host = member.host.filter(|host| hosts.insert(*host));
        }
        let sum: f64 = members.iter().map(|member| member.share).sum();
        let count = members.len() as f64;
        for member in &mut members {
            // In fail-open, all shares may be 0.
            member.share = if sum > 0.0 { member.share / sum } else { 1.0 / count };
        }
        let mode = match (rtype, self.config.mode) {
            (A | AAAA, Mode::Https) => Mode::Pair,
            (_, mode) => mode,
        };
        (!members.is_empty()).then(|| {
            let mut group = Group::new(rtype, mode, members, rng);
            group.fail_open = fail_open;
            group
        })
    }

    fn member(&self, rtype: u16, place: usize) -> Option<Member> {
        let node = self.node(place)?;
        let share = (self.state)(self.config.nodes[place]).share;
        let bodies = self.bodies(rtype, node, share);
        let host = match rtype {
            SRV | HTTPS => (self.host)(&host_name(&node.name, self.origin)?),
            _ => None,
        };
        (!bodies.is_empty()).then(|| Member {
            node: self.nodes_before + self.config.nodes[place],
            place,
            share,
            records: bodies.iter().flat_map(|body| record(rtype, body)).collect(),
            count: bodies.len() as u16,
            host,
        })
    }

    fn bodies(&self, rtype: u16, node: &NodeConfig, share: f64) -> Vec<Vec<u8>> {
        match rtype {
            A => node.v4.iter().map(|v4| v4.octets().to_vec()).collect(),
            AAAA => node.v6.iter().map(|v6| v6.octets().to_vec()).collect(),
            _ => {
                let Some(host) = host_name(&node.name, self.origin) else { return Vec::new() };
                let body = match rtype {
                    SRV => self.service(&host, node, share),
                    _ => self.https(&host, node),
                };
                vec![body]
            }
        }
    }

    /// SRV data (RFC 2782): priority 0, weight, port, target. The weight is at least 1, because
    /// clients hardly ever pick weight 0.
    fn service(&self, host: &[u8], node: &NodeConfig, share: f64) -> Vec<u8> {
        let largest =
            self.config.nodes.iter().map(|node| (self.state)(*node).share).fold(0.0, f64::max);
        let weight = if largest > 0.0 { (share / largest * 1000.0).round() } else { 1.0 };
        let mut body = vec![0, 0];
        body.extend((weight.clamp(1.0, 65_535.0) as u16).to_be_bytes());
        body.extend(self.config.port.unwrap_or(node.port).to_be_bytes());
        body.extend(host);
        body
    }

    /// HTTPS data (RFC 9460, 2.2): priority (written with each answer), target, and parameters in
    /// ascending order of their keys.
    fn https(&self, host: &[u8], node: &NodeConfig) -> Vec<u8> {
        const HTTPS_PORT: u16 = 443;
        let mut body = vec![0, 1];
        body.extend(host);
        let mut parameter = |key: u16, value: Vec<u8>| {
            if !value.is_empty() {
                body.extend(key.to_be_bytes());
                body.extend((value.len() as u16).to_be_bytes());
                body.extend(value);
            }
        };
        let protocols = self.config.alpn.iter();
        parameter(
            1,
            protocols.flat_map(|id| std::iter::once(id.len() as u8).chain(id.bytes())).collect(),
        );
        if let Some(port) = self.config.port.filter(|port| *port != HTTPS_PORT) {
            parameter(3, port.to_be_bytes().to_vec());
        }
        parameter(4, node.v4.iter().flat_map(|v4| v4.octets()).collect());
        parameter(6, node.v6.iter().flat_map(|v6| v6.octets()).collect());
        body
    }

    pub(super) fn status(&self) -> NameStatus {
        let types = types_of(self.config.mode).iter();
        let by_type: Vec<_> = types.map(|rtype| self.given(*rtype)).collect();
        let fail_open = by_type.iter().any(|(_, fail_open)| *fail_open);
        let share_of = |place: usize| (self.state)(self.config.nodes[place]).share;
        let nodes = (0..self.config.nodes.len()).filter_map(|place| {
            let node = self.node(place)?;
            // Uses the first type that the node has records of.
            let given = by_type.iter().find(|(given, _)| given.contains(&place));
            let share = given.map_or(0.0, |(given, _)| {
                let sum: f64 = given.iter().map(|place| share_of(*place)).sum();
                if sum > 0.0 { share_of(place) / sum } else { 1.0 / given.len() as f64 }
            });
            let v4 = node.v4.iter().copied().map(IpAddr::from);
            Some(NodeStatus {
                pool: Arc::clone(&node.pool),
                name: Arc::clone(&node.name),
                addresses: v4.chain(node.v6.iter().copied().map(IpAddr::from)).collect(),
                standing: (self.state)(self.config.nodes[place]).standing,
                share,
            })
        });
        NameStatus {
            name: text(&lower(&self.config.name)),
            mode: self.config.mode,
            ttl: self.ttl(),
            fail_open,
            nodes: nodes.collect(),
        }
    }
}
