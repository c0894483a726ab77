//! Names over elastic pools: adds the backends that these pools have now to the zones of the file.
//! Pure.

use std::net::IpAddr;
use std::sync::Arc;

use equipoise_dns::config::{DnsConfig, NameConfig, NodeConfig, ZoneConfig};
use equipoise_session::config::{ips, is_stand_in};
use equipoise_session::registry::{BackendState, PoolState};

/// Zones of the file, each with the zone that is served.
#[derive(Default)]
pub(super) struct Grown(Vec<(Arc<ZoneConfig>, Arc<ZoneConfig>)>);

impl Grown {
    /// Returns `stated` with the registry's backends in names over elastic pools. A zone without
    /// changes is the same `Arc` as before, so that its records are not built again.
    ///
    /// During a reload, a backend that is no longer listed counts as an elastic one until the
    /// registry has removed it.
    pub(super) fn take(&mut self, stated: &DnsConfig, pools: &[PoolState]) -> DnsConfig {
        let one = |zone: &Arc<ZoneConfig>| (Arc::clone(zone), self.zone(zone, pools));
        let zones: Vec<_> = stated.zones.iter().map(one).collect();
        self.0 = zones;
        let zones = self.0.iter().map(|(_, grown)| Arc::clone(grown)).collect();
        DnsConfig { listen: stated.listen.clone(), zones, options: stated.options.clone() }
    }

    fn zone(&self, zone: &Arc<ZoneConfig>, pools: &[PoolState]) -> Arc<ZoneConfig> {
        let is_named = |node: &NodeConfig| node.v6.iter().any(|ip| is_stand_in((*ip).into()));
        let is_stated = zone.names.iter().all(|name| name.elastic.is_none());
        if is_stated && !zone.nodes.iter().any(is_named) {
            return Arc::clone(zone);
        }
        let (mut nodes, mut names) = (zone.nodes.clone(), zone.names.clone());
        for node in nodes.iter_mut().filter(|node| is_named(node)) {
            let addresses = resolved(node, pools);
            *node = NodeConfig::new(node.pool.clone(), node.name.clone(), node.port, addresses);
        }
        names.iter_mut().for_each(|name| grow(name, &mut nodes, pools));
        let mut before = self.0.iter().filter(|(stated, _)| Arc::ptr_eq(stated, zone));
        match before.find(|(_, grown)| grown.nodes == nodes && grown.names == names) {
            Some((_, same)) => Arc::clone(same),
            None => Arc::new(ZoneConfig { nodes, names, ..(**zone).clone() }),
        }
    }
}

fn grow(name: &mut NameConfig, nodes: &mut Vec<NodeConfig>, pools: &[PoolState]) {
    let Some(elastic) = &name.elastic else { return };
    let pool = pools.iter().filter(|pool| pool.name == elastic.pool);
    for backend in pool.flat_map(|pool| &pool.backends) {
        let place = place(&elastic.pool, backend, nodes);
        if !name.nodes.contains(&place) {
            name.nodes.push(place);
        }
    }
}

fn place(pool: &Arc<str>, backend: &BackendState, nodes: &mut Vec<NodeConfig>) -> usize {
    let known = |node: &NodeConfig| node.pool == *pool && node.name == backend.name;
    nodes.iter().position(known).unwrap_or_else(|| {
        let (name, port) = (Arc::clone(&backend.name), backend.address.port());
        let addresses = ips(&backend.place, &backend.address);
        nodes.push(NodeConfig::new(Arc::clone(pool), name, port, addresses));
        nodes.len() - 1
    })
}

/// The current addresses of a backend's host name.
fn resolved(node: &NodeConfig, pools: &[PoolState]) -> Vec<IpAddr> {
    let pool = pools.iter().filter(|pool| pool.name == node.pool);
    let backends = pool.flat_map(|pool| &pool.backends).filter(|it| it.name == node.name);
    let addresses = backends.flat_map(|it| ips(&it.place, &it.address));
    addresses.filter(|address| !is_stand_in(*address)).collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use equipoise_core::{AdminState, Health, Weight};
    use equipoise_dns::config::ElasticNodes;
    use equipoise_dns::{Mode, Name};
    use equipoise_session::config::{Place, Resolved, stand_in};

    use super::*;

    fn name(text: &str) -> Name {
        Name::vec_from_str(text).unwrap()
    }

    fn spread(text: &str, elastic: bool) -> NameConfig {
        NameConfig {
            name: name(text),
            mode: Mode::Ordered,
            nodes: vec![0],
            elastic: elastic.then(|| ElasticNodes { pool: "web".into(), nodes_max: 3 }),
            ttl: 60,
            ttl_draining: 10,
            ttl_heavy: 20,
            port: None,
            alpn: Vec::new(),
        }
    }

    fn stated() -> DnsConfig {
        let listed = SocketAddr::from(([192, 0, 2, 1], 80));
        let zone = |elastic: bool| ZoneConfig {
            origin: name("z."),
            ttl: 60,
            negative_ttl: 30,
            serial: 1,
            mailbox: name("h.z."),
            servers: Vec::new(),
            nodes: vec![NodeConfig::new("web".into(), "n1".into(), listed.port(), [listed.ip()])],
            names: vec![spread("all.z.", elastic), spread("some.z.", false)],
            records: Vec::new(),
        };
        DnsConfig {
            zones: vec![Arc::new(zone(true)), Arc::new(zone(false))],
            ..DnsConfig::default()
        }
    }

    fn pool(names: &[&str]) -> Vec<PoolState> {
        let backend = |(at, name): (usize, &&str)| BackendState {
            name: (*name).into(),
            address: ([192, 0, 2, at as u8 + 1], 8080).into(),
            place: Place::Address,
            checked_at: Vec::new(),
            weight: Weight::DEFAULT,
            admin: AdminState::Up,
            health: Health::Unknown,
        };
        let backends = names.iter().enumerate().map(backend).collect();
        vec![PoolState { name: "web".into(), backends }]
    }

    fn nodes(config: &DnsConfig) -> Vec<&str> {
        config.zones[0].nodes.iter().map(|node| &*node.name).collect()
    }

    #[test]
    fn elastic_names_have_the_current_backends_and_others_the_listed_backends() {
        let (stated, mut grown) = (stated(), Grown::default());
        let found = grown.take(&stated, &pool(&["n1", "web-e1", "web-e2"]));
        assert_eq!(nodes(&found), ["n1", "web-e1", "web-e2"]);
        let names = &found.zones[0].names;
        assert_eq!((&names[0].nodes[..], &names[1].nodes[..]), (&[0, 1, 2][..], &[0][..]));
        let made = &found.zones[0].nodes[1];
        assert_eq!((made.port, &made.v4[..]), (8080, &[[192, 0, 2, 2].into()][..]));
        assert!(Arc::ptr_eq(&found.zones[1], &stated.zones[1]), "not elastic");
        let fewer = grown.take(&stated, &pool(&["n1", "web-e2"]));
        assert_eq!(nodes(&fewer), ["n1", "web-e2"]);
        assert_eq!(nodes(&grown.take(&stated, &[])), ["n1"], "the pool is not known yet");
    }

    #[test]
    fn a_zone_is_rebuilt_only_if_its_backends_change() {
        let (stated, mut grown) = (stated(), Grown::default());
        let mut take = |names: &[&str]| grown.take(&stated, &pool(names)).zones.remove(0);
        let first = take(&["n1", "web-e1"]);
        assert!(Arc::ptr_eq(&first, &take(&["n1", "web-e1"])));
        assert!(!Arc::ptr_eq(&first, &take(&["n1"])));
    }

    #[test]
    fn a_node_with_a_host_name_has_the_addresses_that_it_resolves_to() {
        let identity = stand_in(b"n1.internal:80", 80);
        let node = NodeConfig::new("web".into(), "n1".into(), 80, [identity.ip()]);
        let mut stated = stated();
        let zone = Arc::make_mut(&mut stated.zones[1]);
        zone.nodes = vec![node];
        let resolved = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|it| it.parse().unwrap());
            let name = "n1.internal:80".into();
            let mut pools = pool(&["n1"]);
            let backend = &mut pools[0].backends[0];
            backend.address = identity;
            backend.place = Place::Host { name, resolved: Resolved::new(addresses) };
            Grown::default().take(&stated, &pools).zones[1].nodes[0].clone()
        };
        let both = resolved(&["192.0.2.9:80", "[2001:db8::9]:80"]);
        assert_eq!((both.v4.len(), both.v6.len(), both.port), (1, 1, 80));
        let none = resolved(&[]);
        assert!(none.v4.is_empty() && none.v6.is_empty(), "{none:?}");
    }
}
