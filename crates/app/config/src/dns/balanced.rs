//! A balanced name: its backends, and how answers are spread over them.

use std::collections::BTreeSet;
use std::sync::Arc;

use equipoise_dns::config::{NameConfig, NodeConfig, ZoneConfig};
use equipoise_dns::{Mode, Name};
use equipoise_session::config::{BackendConfig, PoolConfig};

use super::addresses;
use super::zone::Reading;
use crate::labels;
use crate::values::{Values, chosen};

impl Reading<'_, '_> {
    /// Adds a balanced name and its backends to the zone.
    pub(super) fn balanced(&mut self, values: &Values, name: Name, zone: &mut ZoneConfig) {
        let own = self.values;
        let from = if values.given("pool") { values } else { own };
        let Some(pool_name) = from.text("pool") else {
            let text =
                "has no `pool`, and the zone has none either; accepted: the `name` of a pool";
            self.error(values, "pool", text.into());
            return;
        };
        let Some(pool) = self.by_name.get(pool_name) else { return };
        let is_own = std::ptr::eq(values, own);
        let mode = match is_own {
            true => None,
            false => values.choice("mode"),
        };
        let mode = mode.unwrap_or_else(|| chosen(own, "mode"));
        let ttl = if is_own { None } else { values.duration_if_any("ttl") };
        if !is_own {
            self.filled(values, "backends");
            self.filled(values, "labels");
        }
        let backends = self.members(values, pool, is_own);
        let seconds = |option: &str| own.duration(option).as_secs() as u32;
        let nodes = backends.iter().map(|backend| node(own, pool, backend, zone)).collect();
        let given_port = if is_own { None } else { values.number("port") };
        let picks = !is_own && (values.given("backends") || values.given("labels"));
        let elastic = if picks { None } else { self.elastic(values, pool, mode) };
        self.effects(values, is_own, mode);
        let alpn = if is_own { &[][..] } else { values.texts("alpn").unwrap_or_default() };
        zone.names.push(NameConfig {
            name,
            mode,
            nodes,
            elastic,
            ttl: ttl.map_or_else(|| seconds("ttl"), |ttl| ttl.as_secs() as u32),
            ttl_draining: seconds("ttl-draining"),
            ttl_heavy: seconds("ttl-heavy"),
            port: given_port.and_then(|port| u16::try_from(port).ok()),
            alpn: alpn.iter().map(|id| id.as_str().into()).collect(),
        });
    }

    fn members<'p>(
        &mut self,
        values: &Values,
        pool: &'p PoolConfig,
        all: bool,
    ) -> Vec<&'p BackendConfig> {
        let given = |option: &str| if all { None } else { values.texts(option) };
        if let Some(wanted) = given("labels") {
            return self.labelled(values, pool, wanted);
        }
        let Some(names) = given("backends") else { return pool.backends.iter().collect() };
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
                    self.error(values, "backends", text);
                }
            }
        }
        members
    }

    /// The pool's backends that have all labels.
    fn labelled<'p>(
        &mut self,
        values: &Values,
        pool: &'p PoolConfig,
        wanted: &[String],
    ) -> Vec<&'p BackendConfig> {
        labels::check(values, self.findings);
        if values.given("backends") {
            let text = "is set together with `backends`; accepted: one of the two";
            self.error(values, "labels", text.into());
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
            self.error(values, "labels", text);
        }
        members
    }

    fn effects(&mut self, values: &Values, is_own: bool, mode: Mode) {
        if is_own {
            return;
        }
        let mut without = |option: &str, modes: &str| {
            if values.given(option) {
                let text = format!("has no effect: only {modes} tells it");
                self.findings.warning(values.at(option), &values.path_of(option), text);
            }
        };
        if mode != Mode::Https {
            without("alpn", "mode \"https\"");
        }
        if !mode.has_hosts() {
            without("port", "mode \"srv\" or \"https\"");
        }
    }
}

/// The index of a backend in the zone's list of nodes; adds it if it is not there.
fn node(own: &Values, pool: &PoolConfig, backend: &BackendConfig, zone: &mut ZoneConfig) -> usize {
    let known = |node: &NodeConfig| node.pool == pool.name && node.name == backend.name;
    if let Some(place) = zone.nodes.iter().position(known) {
        return place;
    }
    let said = own.tables("nodes").iter().find(|values| {
        values
            .text("backend")
            .is_some_and(|b| *backend.name == *b || backend.place.text(backend.address) == b)
    });
    let all = said.map_or_else(|| vec![backend.address.ip()], |said| addresses(said, "addresses"));
    let (pool, name, port) =
        (Arc::clone(&pool.name), Arc::clone(&backend.name), backend.address.port());
    zone.nodes.push(NodeConfig::new(pool, name, port, all));
    zone.nodes.len() - 1
}
