//! Front doors with backends that lead back to them: a request would return until a limit ends it.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use equipoise_session::config::{
    BackendConfig, FrontDoor, Place, PoolConfig, Protocol, SessionConfig,
};

use super::problem::Findings;
use super::tables::File;
use super::users::DoorTable;
use super::view::View;

/// A backend that is a front door.
struct Edge<'c> {
    pool: &'c str,
    backend: &'c str,
    /// Index of the front door.
    to: usize,
}

/// Warns of front doors with such a backend. Only loopback addresses and those that front doors
/// listen on are known to be of this machine.
pub(super) fn check(file: View<'_, File>, config: &SessionConfig, findings: &mut Findings<'_>) {
    let doors = Doors::of(&config.front_doors);
    let pools: HashMap<&str, &PoolConfig> =
        config.pools.iter().map(|pool| (&*pool.name, pool)).collect();
    let edges: Vec<Vec<Edge<'_>>> =
        config.front_doors.iter().map(|door| doors.edges(door, &pools)).collect();
    let mut warned = HashSet::new();
    for (at, door) in config.front_doors.iter().enumerate() {
        let Some(edge) = edges[at].iter().find(|edge| leads_to(edge.to, at, &edges)) else {
            continue;
        };
        let table = DoorTable::all(file).find(|table| is_of(*table, door));
        let Some(pool) = table.map(DoorTable::pool) else { continue };
        if !warned.insert(pool.at) {
            continue;
        }
        let whose = match edge.to == at {
            true => "this front door itself".to_owned(),
            false => {
                let other = &config.front_doors[edge.to].name;
                format!("front door \"{other}\", whose backends lead back here")
            }
        };
        let text = format!(
            "backend `{}` of pool `{}` is {whose}, so that a request never ends; name the address of the application",
            edge.backend, edge.pool
        );
        findings.warning(pool.at, &pool.path, text);
    }
}

/// Whether a table has declared the front door.
fn is_of(table: DoorTable<'_>, door: &FrontDoor) -> bool {
    let is_udp = |protocol: Protocol| protocol == Protocol::Udp;
    let protocol = table.protocol().unwrap_or(Protocol::Http);
    is_udp(protocol) == is_udp(door.protocol) && table.listen_addresses().contains(&door.listen)
}

fn leads_to(from: usize, to: usize, edges: &[Vec<Edge<'_>>]) -> bool {
    let (mut seen, mut left) = (HashSet::from([from]), vec![from]);
    while let Some(at) = left.pop() {
        if at == to {
            return true;
        }
        left.extend(edges[at].iter().map(|edge| edge.to).filter(|next| seen.insert(*next)));
    }
    false
}

/// Front doors, to be found by address.
struct Doors {
    /// Listen address and index, by transport (is it UDP) and port.
    by_port: HashMap<(bool, u16), Vec<(IpAddr, usize)>>,
    /// Addresses that front doors listen on.
    own: HashSet<IpAddr>,
}

impl Doors {
    fn of(doors: &[FrontDoor]) -> Doors {
        let (mut by_port, mut own) = (HashMap::<_, Vec<_>>::new(), HashSet::new());
        for (at, door) in doors.iter().enumerate() {
            let (listen, is_udp) = (door.listen, door.protocol == Protocol::Udp);
            by_port.entry((is_udp, listen.port())).or_default().push((listen.ip(), at));
            own.insert(listen.ip());
        }
        Doors { by_port, own }
    }

    /// The backends of a front door that are front doors.
    fn edges<'c>(
        &self,
        door: &'c FrontDoor,
        pools: &HashMap<&str, &'c PoolConfig>,
    ) -> Vec<Edge<'c>> {
        let of_routes = door.routes.routes().iter().flat_map(|route| route.pools());
        let names = std::iter::once(&door.pool)
            .chain(door.sni.iter().map(|route| &route.pool))
            .chain(of_routes)
            .collect::<HashSet<&Arc<str>>>();
        let is_udp = door.protocol == Protocol::Udp;
        let mut edges = Vec::new();
        for pool in names.into_iter().filter_map(|name| pools.get(&**name)) {
            for backend in &pool.backends {
                let found = addresses(backend).into_iter().find_map(|it| self.door_at(is_udp, it));
                let edge = |to| Edge { pool: &pool.name, backend: &backend.name, to };
                edges.extend(found.map(edge));
            }
        }
        edges.sort_by_key(|edge| (edge.pool, edge.backend));
        edges
    }

    /// The front door that a connection to this address reaches.
    fn door_at(&self, is_udp: bool, to: SocketAddr) -> Option<usize> {
        let listening = self.by_port.get(&(is_udp, to.port()))?;
        let ip = to.ip().to_canonical();
        let is_local = ip.is_loopback() || ip.is_unspecified() || self.own.contains(&ip);
        let reaches = |listen: IpAddr| {
            let is_every = listen.is_unspecified() && listen.is_ipv4() == ip.is_ipv4();
            listen == ip || (is_local && is_every)
        };
        listening.iter().find(|(listen, _)| reaches(*listen)).map(|(_, at)| *at)
    }
}

/// The addresses of a backend that are known without a lookup.
fn addresses(backend: &BackendConfig) -> Vec<SocketAddr> {
    match &backend.place {
        Place::Address => vec![backend.address],
        Place::Host { name, .. } => {
            let port = name.strip_prefix("localhost:").and_then(|port| port.parse().ok());
            let loopback = |port| ["127.0.0.1", "::1"].map(|ip| (ip, port));
            let all = port.map(|port: u16| loopback(port)).into_iter().flatten();
            all.filter_map(|(ip, port)| Some(SocketAddr::new(ip.parse().ok()?, port))).collect()
        }
        _ => Vec::new(),
    }
}
