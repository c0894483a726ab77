//! Registered flows: an operator or application pinned them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use equipoise_core::AdminState;
use equipoise_packet::FlowScheduler::{Maglev, RoundRobin};
use equipoise_packet::abi::FlowKey;
use equipoise_packet::control::{FlowId, PinError};
use equipoise_packet::{BackendId, Capacity, Registry, VipId};

use super::world::*;

const SECOND: Duration = Duration::from_secs(1);

fn flow(client: u32) -> FlowId {
    let (address, port) = client_of(client);
    let to = SocketAddr::from(([198, 51, 100, 1], 443));
    FlowId::FiveTuple(SocketAddr::from((address, port)), to)
}

fn id(world: &World) -> VipId {
    world.snapshot.vips[0].id()
}

fn to(number: Backend) -> BackendId {
    BackendId { address: address_of(number), port: None }
}

#[test]
fn a_pinned_flow_reaches_its_backend_until_unpinned_and_ended_and_then_its_scheduled_one() {
    for scheduler in [Maglev, RoundRobin] {
        let mut world = World::one_vip(scheduler, &[1, 2, 3]);
        let vip = id(&world);
        for client in 0..30 {
            let backend = to(1 + client as u16 % 3);
            world.control().pin(&vip, &flow(client), &backend).unwrap();
        }
        world.run(SECOND);
        for client in 0..30 {
            assert_eq!(world.open(1, client), Some(1 + client as u16 % 3));
        }
        // Without packets, for much longer than any flow is known.
        world.run(3000 * SECOND);
        world.change(1, |pool| pool.push(backend(4)));
        world.settle();
        for client in 0..30 {
            assert_eq!(world.open(1, client), Some(1 + client as u16 % 3), "{scheduler}");
        }
        assert!(world.control().pins().iter().all(|pin| pin.in_force));
        for client in 0..30 {
            world.control().unpin(&vip, &flow(client)).unwrap();
            assert_eq!(world.send(tcp(1, client, ACK)), Some(1 + client as u16 % 3), "it is open");
        }
        world.run(3000 * SECOND);
        assert_eq!((world.control().pins().len(), world.flows()), (0, 0));
        assert_eq!(world.status().pins, 0);
        // The ring is that of a VIP without pins.
        if scheduler == Maglev {
            let homes = World::one_vip(scheduler, &[1, 2, 3, 4]).open_all(1, 0..30);
            assert_eq!(world.open_all(1, 0..30), homes);
            assert!((0..30).any(|client| homes[client as usize] != 1 + client as u16 % 3));
        } else {
            let mut found = world.open_all(1, 0..32);
            found.sort_unstable();
            assert_eq!(found, [[1; 8], [2; 8], [3; 8], [4; 8]].concat(), "each in turn");
        }
    }
}

#[test]
fn a_known_flow_follows_its_pin_to_another_backend() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    let vip = id(&world);
    let home = world.open(1, 5).unwrap();
    world.run(SECOND);
    let other = 1 + home % 3;
    world.control().pin(&vip, &flow(5), &to(other)).unwrap();
    world.run(SECOND);
    assert_eq!(world.send(tcp(1, 5, ACK)), Some(other));
    world.control().move_pin(&vip, &flow(5), &to(home)).unwrap();
    world.run(SECOND);
    assert_eq!(world.send(tcp(1, 5, ACK)), Some(home));
    let pins = world.control().pins();
    assert_eq!((pins.len(), pins[0].backend, pins[0].in_force), (1, to(home), true));
}

#[test]
fn a_pin_is_suspended_while_its_backend_is_down() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    let vip = id(&world);
    world.control().pin(&vip, &flow(5), &to(2)).unwrap();
    world.run(SECOND);
    world.change(1, |pool| pool[1].admin = AdminState::Down);
    world.settle();
    assert!(!world.control().pins()[0].in_force);
    assert_ne!(world.open(1, 5), Some(2));
    world.change(1, |pool| pool[1].admin = AdminState::Up);
    world.settle();
    assert!(world.control().pins()[0].in_force);
    assert_eq!(world.send(tcp(1, 5, ACK)), Some(2));
}

#[test]
fn an_invalid_pin_is_refused_with_the_reason() {
    let capacity = Capacity { pins: 16, ..capacity() };
    let mut world = World::new(1, capacity, settings());
    let mut by_mac = vip(2, Maglev, &[1]);
    by_mac.key = FlowKey::SourceMac;
    world.apply(vec![vip(1, Maglev, &[1, 2]), by_mac]);
    world.settle();
    let (vip, mac_vip) = (id(&world), world.snapshot.vips[1].id());
    let unknown = VipId { protocol: equipoise_packet::Protocol::Udp, ..vip };
    let elsewhere = SocketAddr::from(([192, 0, 2, 9], 443));
    let from = SocketAddr::from(([192, 0, 2, 1], 1000));
    let six: IpAddr = "2001:db8::1".parse().unwrap();
    let control = world.control();
    let mut refused =
        |vip: &VipId, flow: FlowId, backend| control.pin(vip, &flow, &backend).unwrap_err();
    assert_eq!(refused(&unknown, flow(1), to(1)), PinError::Vip(unknown));
    assert_eq!(refused(&vip, flow(1), to(9)), PinError::Backend { vip, backend: to(9) });
    assert!(matches!(refused(&vip, FlowId::SourceMac([1; 6]), to(1)), PinError::Key { .. }));
    assert!(matches!(refused(&mac_vip, flow(1), to(1)), PinError::Key { .. }));
    let address = elsewhere.ip();
    assert_eq!(
        refused(&vip, FlowId::FiveTuple(from, elsewhere), to(1)),
        PinError::Address { vip, address }
    );
    let SocketAddr::V4(_) = from else { unreachable!() };
    let to_vip = SocketAddr::new(vip.address, 443);
    let mixed = FlowId::FiveTuple(SocketAddr::new(six, 5), to_vip);
    assert_eq!(refused(&vip, mixed, to(1)), PinError::Address { vip, address: six });
    assert_eq!(control.unpin(&vip, &flow(1)), Err(PinError::Unknown(vip)));
    assert_eq!(control.move_pin(&vip, &flow(1), &to(1)), Err(PinError::Unknown(vip)));
    // The other VIP has a share of the 14 pins.
    for client in 0..11 {
        world.control().pin(&vip, &flow(client), &to(1)).unwrap();
        world.run(SECOND);
    }
    assert_eq!(world.control().pin(&vip, &flow(99), &to(1)), Err(PinError::Full { pins: 11 }));
    let mut of_other = |last| world.control().pin(&mac_vip, &FlowId::SourceMac([last; 6]), &to(1));
    // Also before the first of them is in force.
    for last in 0..3 {
        of_other(last).unwrap();
    }
    assert_eq!(of_other(3), Err(PinError::Full { pins: 11 }));
}

/// A control side after another: over its tables, or over new ones.
fn restarted(mut world: World, registry: &Path, anew: bool) -> World {
    drop(world.control.take());
    let registry = || Registry::open(registry, capacity().flows, settings().fleet_seed).unwrap();
    let vips = world.snapshot.vips.clone();
    if anew {
        let ledger = world.ledger.take();
        world = World::with_ledger(1, capacity(), settings(), registry(), ledger);
    } else {
        world.start(registry());
    }
    world.apply(vips);
    world.settle();
    world
}

#[test]
fn pins_are_listed_moved_removed_and_follow_their_backends_after_a_restart() {
    for anew in [false, true] {
        let name = format!("equipoise-registered-{anew}-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let registry = Registry::open(&file, capacity().flows, settings().fleet_seed).unwrap();
        let mut world = World::with_registry(1, capacity(), settings(), registry);
        world.apply(vec![vip(1, Maglev, &[1, 2, 3]), vip(2, Maglev, &[1])]);
        world.settle();
        let vip = id(&world);
        for client in 0..3 {
            world.control().pin(&vip, &flow(client), &to(2)).unwrap();
        }
        world.run(SECOND);
        let mut world = restarted(world, &file, anew);
        let pins = world.control().pins();
        assert!(pins.len() == 3 && pins.iter().all(|pin| pin.in_force && pin.backend == to(2)));
        world.change(1, |pool| pool[1].admin = AdminState::Down);
        world.settle();
        assert_ne!(world.open(1, 0), Some(2));
        world.change(1, |pool| pool[1].admin = AdminState::Up);
        world.settle();
        assert_eq!(world.send(tcp(1, 0, ACK)), Some(2), "it follows its backend");
        world.control().move_pin(&vip, &flow(1), &to(3)).unwrap();
        world.control().unpin(&vip, &flow(2)).unwrap();
        world.run(SECOND);
        assert_eq!(world.open(1, 1), Some(3));
        // A pin that was not noted, or was removed, does not exist after a restart.
        world.control().pin(&vip, &flow(9), &to(1)).unwrap();
        let mut world = restarted(world, &file, anew);
        let pins = world.control().pins();
        let found: Vec<_> = pins.iter().map(|pin| (pin.flow, pin.backend)).collect();
        assert_eq!(found, [(flow(0), to(2)), (flow(1), to(3))]);
        // Its VIP leaves.
        let rest = world.snapshot.vips[1..].to_vec();
        world.apply(rest);
        world.settle();
        let mut world = restarted(world, &file, anew);
        assert_eq!(world.control().pins().len(), 2);
        assert!(!world.control().pins()[0].in_force);
        for client in 0..2 {
            world.control().unpin(&vip, &flow(client)).unwrap();
        }
        world.run(SECOND);
        let mut world = restarted(world, &file, anew);
        assert_eq!(world.control().pins(), []);
        std::fs::remove_file(&file).unwrap();
    }
}
