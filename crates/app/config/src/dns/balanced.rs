//! A balanced name: its backends, and how answers are spread over them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use equipoise_dns::config::{NameConfig, NodeConfig, ZoneConfig};
use equipoise_dns::{Mode, Name};
use equipoise_session::config::{BackendConfig, PoolConfig};

use super::zone::Reading;
use crate::key::Key;
use crate::labels;
use crate::tables::{Dns, DnsName, DnsNode};
use crate::view::View;

impl Reading<'_, '_> {
    /// Adds a balanced name and its backends to the zone. `named` is its table; the zone's own name
    /// has none.
    pub(super) fn balanced(
        &mut self,
        named: Option<View<'_, DnsName>>,
        name: Name,
        zone: &mut ZoneConfig,
    ) {
        let own = self.values;
        let stated = named.and_then(|named| named.get(DnsName::POOL));
        let Some(pool_name) = stated.or_else(|| own.get(Dns::POOL)) else {
            if let Some(named) = named {
                let text =
                    "has no `pool`, and the zone has none either; accepted: the `name` of a pool";
                self.error(named, DnsName::POOL, text.into());
            }
            return;
        };
        let Some(pool) = self.by_name.get(pool_name) else { return };
        let mode = named.and_then(|named| named.get(DnsName::MODE));
        let mode = mode.unwrap_or_else(|| own.get(Dns::MODE));
        let ttl = named.and_then(|named| named.get(DnsName::TTL));
        if let Some(named) = named {
            self.filled(named, DnsName::BACKENDS);
            self.filled(named, DnsName::LABELS);
        }
        let backends = match named {
            Some(named) => self.members(named, pool),
            None => pool.backends.iter().collect(),
        };
        let seconds = |option: Key<Dns, Duration>| own.get(option).as_secs() as u32;
        let nodes = backends.iter().map(|backend| node(own, pool, backend, zone)).collect();
        let picks = named
            .is_some_and(|named| named.given(DnsName::BACKENDS) || named.given(DnsName::LABELS));
        let elastic = if picks { None } else { self.elastic(named, pool, mode) };
        if let Some(named) = named {
            self.effects(named, mode);
        }
        let alpn = named.and_then(|named| named.get(DnsName::ALPN)).unwrap_or_default();
        zone.names.push(NameConfig {
            name,
            mode,
            nodes,
            elastic,
            ttl: ttl.map_or_else(|| seconds(Dns::TTL), |ttl| ttl.as_secs() as u32),
            ttl_draining: seconds(Dns::TTL_DRAINING),
            ttl_heavy: seconds(Dns::TTL_HEAVY),
            port: named.and_then(|named| named.get(DnsName::PORT)),
            alpn: alpn.iter().map(|id| id.as_str().into()).collect(),
        });
    }

    fn members<'p>(
        &mut self,
        values: View<'_, DnsName>,
        pool: &'p PoolConfig,
    ) -> Vec<&'p BackendConfig> {
        if let Some(wanted) = values.get(DnsName::LABELS) {
            return self.labelled(values, pool, wanted);
        }
        let Some(names) = values.get(DnsName::BACKENDS) else {
            return pool.backends.iter().collect();
        };
        let mut members: Vec<&BackendConfig> = Vec::new();
        for wanted in names {
            let found = pool
                .backends
                .iter()
                .find(|b| *b.name == **wanted || b.place.text(b.address) == **wanted);
            match found {
                Some(backend) if members.iter().any(|known| known.name == backend.name) => {}
                Some(backend) => members.push(backend),
                None => {
                    let known: Vec<_> =
                        pool.backends.iter().map(|b| format!("`{}`", b.name)).collect();
                    let text = format!(
                        "pool \"{}\" has no backend `{wanted}`; its backends are {}",
                        pool.name,
                        known.join(", ")
                    );
                    self.error(values, DnsName::BACKENDS, text);
                }
            }
        }
        members
    }

    /// The pool's backends that have all labels.
    fn labelled<'p>(
        &mut self,
        values: View<'_, DnsName>,
        pool: &'p PoolConfig,
        wanted: &[String],
    ) -> Vec<&'p BackendConfig> {
        labels::check(values, DnsName::LABELS, self.findings);
        if values.given(DnsName::BACKENDS) {
            let text = "is set together with `backends`; accepted: one of the two";
            self.error(values, DnsName::LABELS, text.into());
        }
        let file = self.file;
        let of = |backend: &BackendConfig| labels::of_backend(file, &pool.name, &backend.name);
        let has_all = |backend: &&BackendConfig| labels::has_all(of(backend), wanted);
        let members: Vec<_> = pool.backends.iter().filter(has_all).collect();
        if members.is_empty() {
            let known: BTreeSet<_> =
                pool.backends.iter().flat_map(of).map(|label| format!("`{label}`")).collect();
            let known: Vec<_> = known.into_iter().collect();
            let among = match known.is_empty() {
                true => "none has any".to_owned(),
                false => format!("there are {}", known.join(", ")),
            };
            let text = format!("no backend of pool \"{}\" has all of them; {among}", pool.name);
            self.error(values, DnsName::LABELS, text);
        }
        members
    }

    fn effects(&mut self, values: View<'_, DnsName>, mode: Mode) {
        let alpn = (DnsName::ALPN.any(), mode == Mode::Https, "mode \"https\"");
        let port = (DnsName::PORT.any(), mode.has_hosts(), "mode \"srv\" or \"https\"");
        for (option, is_used, modes) in [alpn, port] {
            if !is_used && values.given(option) {
                let text = format!("has no effect: only {modes} tells it");
                self.findings.warning(values.at(option), &values.path_of(option), text);
            }
        }
    }
}

/// The index of a backend in the zone's list of nodes; adds it if it is not there.
fn node(
    own: View<'_, Dns>,
    pool: &PoolConfig,
    backend: &BackendConfig,
    zone: &mut ZoneConfig,
) -> usize {
    let known = |node: &NodeConfig| node.pool == pool.name && node.name == backend.name;
    if let Some(place) = zone.nodes.iter().position(known) {
        return place;
    }
    let said = own.get(Dns::NODES).iter().find(|values| {
        values
            .get(DnsNode::BACKEND)
            .is_some_and(|b| *backend.name == *b || backend.place.text(backend.address) == b)
    });
    let stated = said.map(|said| said.get(DnsNode::ADDRESSES).unwrap_or_default());
    let all = stated.unwrap_or_else(|| vec![backend.address.ip()]);
    let (pool, name, port) =
        (Arc::clone(&pool.name), Arc::clone(&backend.name), backend.address.port());
    zone.nodes.push(NodeConfig::new(pool, name, port, all));
    zone.nodes.len() - 1
}
