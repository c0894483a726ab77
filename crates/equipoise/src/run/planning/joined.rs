//! The session level's configuration with what planning adds: elastic backends, peers and their
//! certificates. Pure but for the planner's state.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use equipoise_config::encryption::peer_tls;
use equipoise_config::{node_mode, peer_check_interval};
use equipoise_core::Weight;
use equipoise_dispatch::{DelegationKeys, NodeDoor};
use equipoise_planning::{Learnt, Planner, PlanningConfig};
use equipoise_session::config::{
    BackendConfig, Concurrency, PeerTls, Place, PoolConfig, SessionConfig, UpstreamTls,
};

/// The configuration with the backends of elastic pools and the peers of the cluster.
pub(crate) fn with_joined(planner: &Planner, config: &SessionConfig) -> SessionConfig {
    let (mut config, wish) = (config.clone(), planner.wish());
    for pool in &mut config.pools {
        for joined in planner.joined(&pool.name) {
            let concurrency = of_size(pool, joined.size.as_deref(), &wish);
            let joined = backend(&joined.name, joined.address);
            if pool.backends.iter().all(|it| it.address != joined.address) {
                pool.backends.push(BackendConfig { concurrency, ..joined });
            }
        }
    }
    add(&planner.peers().borrow(), &mut config);
    let credentials = planner.tls().borrow().clone();
    if let Some(credentials) = credentials {
        encrypt(&mut config, &peer_tls(credentials));
    }
    config
}

fn backend(name: &str, address: SocketAddr) -> BackendConfig {
    let (name, weight) = (name.into(), Weight::DEFAULT);
    let (place, backup, concurrency) = (Place::Address, false, None);
    BackendConfig { name, address, place, weight, backup, concurrency }
}

/// The concurrency limit of a backend by its size, if the pool states a number: in proportion to
/// the size's speed.
fn of_size(pool: &PoolConfig, size: Option<&str>, wish: &PlanningConfig) -> Option<Concurrency> {
    let limit = pool.concurrency.fixed()?;
    let size = wish.planning.elastic.get(&*pool.name)?.sizes.get(size?)?;
    let limit = (f64::from(limit.get()) * size.speed).round() as u32;
    Some(Concurrency::Fixed(NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN)))
}

/// Adds peers and secret to front doors in node mode. Values that the file states are kept.
fn add(learnt: &Learnt, config: &mut SessionConfig) {
    for mode in config.front_doors.iter_mut().filter_map(|door| door.dispatch.as_mut()) {
        let Some(mut node) = NodeDoor::of(&*mode.delegation).cloned() else { continue };
        if node.keys.is_empty()
            && let Some(secret) = &learnt.secret
        {
            // With an invalid secret the door has no key, and nothing is delegated.
            let secrets = vec![secret.reveal().as_bytes().to_vec()];
            node.keys = DelegationKeys::new(secrets).unwrap_or_default();
            *mode = node_mode(node);
        }
        let pool = config.pools.iter_mut().find(|pool| pool.name == mode.peers);
        if let Some(pool) = pool.filter(|pool| pool.backends.is_empty()) {
            let peers = learnt.peers.iter();
            pool.backends = peers.map(|(name, address)| backend(name, *address)).collect();
            if let Some(health) = &mut pool.health {
                health.interval = peer_check_interval(learnt.peers.len());
            }
        }
    }
}

/// Adds certificates for connections between nodes, where the configuration asks for TLS and names
/// no files.
fn encrypt(config: &mut SessionConfig, tls: &PeerTls) {
    for mode in config.front_doors.iter_mut().filter_map(|door| door.dispatch.as_mut()) {
        let Some(mut node) = NodeDoor::of(&*mode.delegation).cloned() else { continue };
        node.transport.provide(tls);
        if let Some(pool) = config.pools.iter_mut().find(|pool| pool.name == node.peers) {
            pool.options.tls = node.transport.outgoing().cloned().map(UpstreamTls::Peer);
        }
        *mode = node_mode(node);
    }
}

#[cfg(test)]
mod tests {
    use equipoise_controller::Secret;
    use equipoise_session::config::{FrontDoor, Protocol};

    use super::*;

    /// One peer with this last byte of its address, and a secret.
    fn learnt(last: u8) -> Learnt {
        let peers = vec![("b".to_string(), ([10, 0, 0, last], 80).into())];
        Learnt { peers, secret: Some(Secret::random()) }
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
        &NodeDoor::of(&*config.front_doors[0].dispatch.as_ref().unwrap().delegation).unwrap().keys
    }

    #[test]
    fn a_node_mode_front_door_receives_the_clusters_peers_and_secret() {
        let mut config = config("");
        assert!(peers(&config).is_empty() && keys(&config).is_empty());
        add(&learnt(2), &mut config);
        assert_eq!(peers(&config), [("b", ([10, 0, 0, 2], 80).into())]);
        assert!(!keys(&config).is_empty());
    }

    #[test]
    fn the_check_interval_of_peers_grows_with_their_number() {
        let interval = |count: u8| {
            let peer = |at| (format!("p{at}"), ([10, 0, 0, at], 80).into());
            let learnt = Learnt { peers: (1..=count).map(peer).collect(), secret: None };
            let mut config = config("");
            add(&learnt, &mut config);
            let pool = config.pools.iter().find(|pool| &*pool.name == "app.peers").unwrap();
            pool.health.as_ref().unwrap().interval.as_secs_f64()
        };
        assert_eq!([1, 4, 11, 50].map(interval), [1.0, 1.0, 2.75, 12.5]);
    }

    #[test]
    fn learnt_peers_do_not_change_configured_peers_or_plain_front_doors() {
        let stated = "secret = '/x'\npeers = [{ node = 'n', address = '10.9.9.9:80' }]\n";
        let mut config = config(stated);
        let before = config.clone();
        add(&learnt(2), &mut config);
        assert_eq!(config, before);
        let mut plain = SessionConfig::default();
        let door = FrontDoor::new(([127, 0, 0, 1], 80).into(), Protocol::Http, "x");
        plain.front_doors.push(door);
        let before = plain.clone();
        add(&learnt(2), &mut plain);
        assert_eq!(plain, before, "a front door that is not in node mode");
    }
}
