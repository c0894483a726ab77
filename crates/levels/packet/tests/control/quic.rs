//! Connection ids of QUIC while pools change, and over restarts.

use std::sync::Arc;

use equipoise_packet::FlowScheduler::Maglev;
use equipoise_packet::abi::How;
use equipoise_packet::control::ApplyError;
use equipoise_packet::{
    BackendId, Capacity, Protocol, Quic, QuicConfig, Reason, Registry, ServerId, VipSpec,
};

use super::world::*;

/// A VIP of UDP; the server id of a backend is its number.
fn spec(backends: &[Backend]) -> VipSpec {
    let config = QuicConfig { rotation: 1, server_id_bytes: 2, nonce_bytes: 6, key: None };
    let id = |number: &Backend| {
        let id: ServerId = format!("{number:04x}").parse().unwrap();
        ((1, BackendId { address: address_of(*number), port: None }), id)
    };
    let quic = Quic { configs: vec![config], servers: backends.iter().map(id).collect() };
    let quic = Some(Arc::new(quic));
    VipSpec { protocol: Protocol::Udp, quic, ..vip(1, Maglev, backends) }
}

fn world(backends: &[Backend]) -> World {
    let mut world = World::new(1, capacity(), settings());
    world.apply(vec![spec(backends)]);
    world.settle();
    world
}

/// A packet of a connection at a backend, from a client's address.
fn named(world: &mut World, client: u32, backend: Backend) -> Option<Backend> {
    let [high, low] = backend.to_be_bytes();
    let data = [&[0x41, 0x20, high, low][..], &[9; 30]].concat();
    world.send_data(udp(1, client), &data)
}

fn count(world: &mut World, reason: Reason) -> u64 {
    world.vip_status(1).reasons[reason as usize]
}

#[test]
fn a_connection_reaches_its_backend_from_every_address() {
    let mut world = world(&[1, 2, 3]);
    for client in 0..300 {
        let backend = (client % 3 + 1) as Backend;
        assert_eq!(named(&mut world, client, backend), Some(backend));
    }
    assert_eq!(world.vip_status(1).hows[How::ConnectionId as usize], 300);
    world.settle();
    // The ids suffice: the flows are known, and have no pins.
    assert_eq!((world.flows(), world.status().pins), (300, 0));
}

#[test]
fn packets_with_a_repeated_id_create_no_pin_and_move_none() {
    let mut world = world(&[1, 2, 3]);
    let homes: Vec<_> = (0..100).map(|client| world.send(udp(1, client))).collect();
    world.settle();
    world.apply(vec![spec(&[1, 2, 3, 4])]);
    world.settle();
    let pins = world.status().pins;
    assert!(pins > 0);
    // From forged addresses: those of these clients, and others.
    for round in 0..3 {
        for client in 0..500 {
            assert_eq!(named(&mut world, client, 4), Some(4), "{round}, client {client}");
        }
        world.run(2 * settings().interval);
    }
    world.apply(vec![spec(&[1, 2, 3, 4, 5])]);
    world.settle();
    let pinned = world.status().pins;
    assert!((pins..=100).contains(&pinned), "{pins} to {pinned}");
    for (client, home) in (0..).zip(&homes) {
        if world.how(0, udp(1, client)) == Some(How::Pin) {
            assert_eq!(world.send(udp(1, client)), *home, "client {client}");
        }
    }
}

#[test]
fn a_flow_known_by_the_tables_stays_pinned_despite_connection_ids() {
    let mut world = world(&[1, 2, 3]);
    let homes: Vec<Backend> = (0..100).map(|client| world.send(udp(1, client)).unwrap()).collect();
    for (client, home) in (0..).zip(&homes) {
        assert_eq!(named(&mut world, client, *home), Some(*home));
    }
    world.run(3 * settings().interval);
    for (client, home) in (0..).zip(&homes) {
        assert_eq!(named(&mut world, client, *home), Some(*home));
    }
    world.settle();
    world.apply(vec![spec(&[1, 2, 3, 4])]);
    world.settle();
    for (client, home) in (0..).zip(&homes) {
        assert_eq!(world.send(udp(1, client)), Some(*home), "client {client}");
    }
}

#[test]
fn a_backend_that_leaves_keeps_its_connections_until_they_end() {
    let mut world = world(&[1, 2, 3]);
    for client in 0..30 {
        assert_eq!(named(&mut world, client, 3), Some(3));
    }
    world.settle();
    // The file has neither the backend nor its id.
    world.apply(vec![spec(&[1, 2])]);
    world.settle();
    for client in 0..60 {
        assert_eq!(named(&mut world, client, 3), Some(3), "client {client}");
    }
    assert_eq!(count(&mut world, Reason::QuicServerUnknown), 0);
    // All of them move to other addresses, again and again.
    let udp_timeout = settings().timeouts.udp;
    for moved in 1..4 {
        world.run(udp_timeout);
        for client in 0..60 {
            assert_eq!(named(&mut world, 100 * moved + client, 3), Some(3));
        }
    }
    world.run(3 * udp_timeout);
    let now = named(&mut world, 0, 3);
    assert!(matches!(now, Some(1 | 2)), "{now:?}");
    assert_eq!(count(&mut world, Reason::QuicServerUnknown), 1);
}

#[test]
fn an_id_reassigned_to_another_backend_reaches_that_backend() {
    let mut world = world(&[1, 2, 3]);
    assert_eq!(named(&mut world, 1, 3), Some(3));
    world.settle();
    let mut changed = spec(&[1, 2]);
    let mut quic = Quic::clone(changed.quic.as_ref().unwrap());
    let two = BackendId { address: address_of(2), port: None };
    quic.servers.insert((1, two), "0003".parse().unwrap());
    changed.quic = Some(Arc::new(quic));
    world.apply(vec![changed]);
    world.settle();
    assert_eq!(named(&mut world, 1, 3), Some(2));
}

#[test]
fn packets_without_an_id_follow_the_tables_beside_packets_with_ids() {
    let mut world = world(&[1, 2, 3]);
    let home = world.send(udp(1, 7));
    for backend in [1, 2, 3, 1] {
        assert_eq!(named(&mut world, 7, backend), Some(backend));
        world.run(3 * settings().interval);
        assert_eq!(named(&mut world, 7, backend), Some(backend));
        world.settle();
        assert_eq!(world.send(udp(1, 7)), home);
    }
    assert_eq!(world.status().pins, 0);
}

#[test]
fn connection_ids_are_known_after_a_restart() {
    let mut world = world(&[1, 2, 3]);
    assert_eq!(named(&mut world, 1, 3), Some(3));
    world.settle();
    world.apply(vec![spec(&[1, 2])]);
    world.settle();
    world.control = None;
    world.start(Registry::anonymous(world.capacity.flows).unwrap());
    // It publishes next hops before it has a snapshot.
    world.run(settings().tick * 20);
    assert_eq!(named(&mut world, 2, 3), Some(3));
    world.apply(vec![spec(&[1, 2])]);
    world.settle();
    assert_eq!(named(&mut world, 3, 3), Some(3));
    assert_eq!(count(&mut world, Reason::QuicServerUnknown), 0);
}

#[test]
fn connection_ids_beyond_the_capacity_are_refused() {
    let mut world = World::new(1, Capacity { backends: 3, ..capacity() }, settings());
    world.apply(vec![spec(&[1, 2, 3])]);
    let mut snapshot = world.snapshot.clone();
    let quic = Arc::make_mut(snapshot.vips[0].quic.as_mut().unwrap());
    for rotation in [0, 2] {
        let config = QuicConfig { rotation, ..quic.configs[0].clone() };
        quic.configs.push(config);
        let ids: Vec<_> = quic.servers.iter().filter(|((of, _), _)| *of == 1).collect();
        let ids: Vec<_> = ids.into_iter().map(|((_, it), id)| ((rotation, *it), *id)).collect();
        quic.servers.extend(ids);
    }
    snapshot.generation.0 += 1;
    let now = world.now;
    let refused = world.control().apply(&snapshot, now).unwrap_err();
    assert!(matches!(refused, ApplyError::Room { wanted: 9, room: 6, .. }), "{refused}");
}
