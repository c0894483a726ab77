//! Packets from forged addresses: they fill the registry, and take no room from flows that are
//! known to be flows.

use std::time::Duration;

use equipoise_packet::FlowScheduler::{Maglev, RoundRobin};
use equipoise_packet::abi::How;
use equipoise_packet::control::FlowId;
use equipoise_packet::{Capacity, Protocol, Reason};

use super::world::*;

const SECOND: Duration = Duration::from_secs(1);
/// Clients from here on are forged.
const FORGED: u32 = 1 << 20;
const PER_SECOND: u32 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    Syn,
    Ack,
    Udp,
    /// A SYN and the packet that would complete the handshake.
    Handshake,
    All,
}

fn small() -> Capacity {
    Capacity { flows: 4096, pins: 2048, ..capacity() }
}

/// A TCP and a UDP VIP.
fn two_vips() -> World {
    let mut world = World::new(1, small(), settings());
    let pool = [1, 2, 3];
    world.apply(vec![
        vip(1, Maglev, &pool),
        equipoise_packet::VipSpec { protocol: Protocol::Udp, ..vip(2, Maglev, &pool) },
    ]);
    world.settle();
    world
}

/// Sends the packet `number` of a flood.
fn forge(world: &mut World, flood: Flood, number: u32) {
    let client = FORGED + number;
    let send = |world: &mut World, packets: &[Packet]| {
        packets.iter().for_each(|packet| {
            world.send(*packet);
        });
    };
    match flood {
        Flood::Syn => send(world, &[tcp(1, client, SYN)]),
        Flood::Ack => send(world, &[tcp(1, client, ACK)]),
        Flood::Udp => send(world, &[udp(2, client)]),
        Flood::Handshake => send(world, &[tcp(1, client, SYN), tcp(1, client, ACK)]),
        Flood::All => {
            let floods = [Flood::Syn, Flood::Ack, Flood::Udp, Flood::Handshake];
            forge(world, floods[number as usize % floods.len()], number);
        }
    }
}

fn assert_udp_at(world: &mut World, homes: &[Option<Backend>]) {
    for (client, home) in (0..).zip(homes) {
        assert_eq!(world.send(udp(2, client)), *home, "client {client}");
    }
}

#[test]
fn no_confirmed_flow_moves_with_a_pool_that_changes_after_a_flood() {
    for flood in [Flood::Syn, Flood::Ack, Flood::Udp, Flood::Handshake, Flood::All] {
        let mut world = two_vips();
        let homes = world.open_all(1, 0..1000);
        let udp_homes: Vec<_> = (0..300).map(|client| world.send(udp(2, client))).collect();
        world.run(10 * SECOND);
        world.assert_at(1, 0, &homes);
        assert_udp_at(&mut world, &udp_homes);
        world.run(SECOND);
        let mut opened = Vec::new();
        for second in 0..25 {
            for number in 0..PER_SECOND {
                forge(&mut world, flood, second * PER_SECOND + number);
            }
            // Flows of clients that are there, in the midst of it.
            if second % 5 == 0 {
                opened.extend(world.open_all(1, 2000 + 4 * second..2020 + 4 * second));
            }
            world.run(SECOND);
        }
        assert_eq!(world.done.registry_full > 0, flood != Flood::Syn, "{flood:?}");
        for change in 0..4_u16 {
            world.change(1, |pool| pool.rotate_left(1));
            world.change(1, |pool| pool[0] = backend(10 + change));
            world.change(2, |pool| pool[0] = backend(10 + change));
            world.settle();
            world.assert_at(1, 0, &homes);
            assert_udp_at(&mut world, &udp_homes);
            // Against forged handshakes, nothing distinguishes those of clients.
            if !matches!(flood, Flood::Handshake | Flood::All) {
                world.assert_at(1, 2000, &opened);
            }
        }
    }
}

#[test]
fn a_flood_of_confirmed_flows_leaves_registry_room_for_another_vip() {
    let mut world = World::new(1, small(), settings());
    world.apply(vec![vip(1, Maglev, &[1, 2, 3]), vip(2, Maglev, &[1, 2, 3])]);
    world.settle();
    for _ in 0..3 {
        // The same flows in each interval.
        for number in 0..2 * small().flows {
            forge(&mut world, Flood::Ack, number);
        }
        world.run(10 * SECOND);
    }
    assert_eq!(world.vip_status(1).flows, 3072, "all but the share of VIP 2");
    let homes = world.open_all(2, 0..1000);
    world.run(SECOND);
    assert_eq!(world.vip_status(2).flows, 1000);
    world.change(2, |pool| pool[0] = backend(10));
    world.settle();
    world.assert_at(2, 0, &homes);
    // A lone VIP has all the room.
    world.apply(vec![vip(1, Maglev, &[1, 2, 3])]);
    world.settle();
    (0..2 * small().flows).for_each(|number| forge(&mut world, Flood::Ack, number));
    world.run(SECOND);
    assert_eq!(world.flows(), 4096);
}

#[test]
fn a_vip_has_room_for_opening_flows_while_another_one_is_flooded_with_syns() {
    let mut world = World::new(1, capacity(), settings());
    world.apply(vec![vip(1, RoundRobin, &[1, 2, 3]), vip(2, RoundRobin, &[1, 2, 3])]);
    world.settle();
    (0..40_000).for_each(|number| forge(&mut world, Flood::Syn, number));
    let full = Reason::PendingFull as usize;
    assert!(world.vip_status(1).reasons[full] > 0);
    // Lines of the table are full here and there.
    world.open_all(2, 0..300);
    let by_turn = world.vip_status(2).hows[How::Turn as usize];
    assert!(by_turn > 200, "{by_turn} of 300");
    // Pending forgets the flood, and the shares with it.
    world.run(30 * SECOND);
    assert_eq!(world.status().pending, 0);
    let shares = [0, 1].map(|service| {
        let share = world.memories[0].state.pending_share(service);
        share.map(|it| it.load(std::sync::atomic::Ordering::Relaxed))
    });
    assert_eq!(shares, [[0, 6144, 6144]; 2]);
}

/// The balancer has seen no SYN of them.
#[test]
fn flows_older_than_the_balancer_are_adopted_though_a_flood_begins_soon_after() {
    let mut world = two_vips();
    let homes: Vec<Backend> =
        (0..500).map(|client| world.send(tcp(1, client, ACK)).unwrap()).collect();
    world.run(SECOND);
    for second in 0..25 {
        for number in 0..PER_SECOND {
            forge(&mut world, Flood::Ack, second * PER_SECOND + number);
        }
        if second % 4 == 3 {
            world.assert_at(1, 0, &homes);
        }
        world.run(SECOND);
    }
    world.change(1, |pool| pool[0] = backend(10));
    world.settle();
    world.assert_at(1, 0, &homes);
    assert!(world.done.registry_full > 0);
}

/// Two UDP VIPs that take turns, so that all their flows are pinned; with room for 56 pins.
fn two_pinned_vips() -> World {
    let mut world = World::new(1, Capacity { pins: 64, ..small() }, settings());
    let by_turns = |number| equipoise_packet::VipSpec {
        protocol: Protocol::Udp,
        ..vip(number, RoundRobin, &[1, 2, 3])
    };
    world.apply(vec![by_turns(1), by_turns(2)]);
    world.settle();
    world
}

#[test]
fn an_operator_pins_a_flow_while_flows_without_evidence_hold_all_pins() {
    let mut world = two_pinned_vips();
    for number in 0..500 {
        world.send(udp(1, FORGED + number));
        world.send(udp(2, FORGED + number));
    }
    world.run(SECOND);
    assert_eq!(world.status().pins, 56);
    let vip = world.snapshot.vips[0].id();
    let to = |number| equipoise_packet::BackendId { address: address_of(number), port: None };
    let flow = |client| {
        let destination = std::net::SocketAddr::new(vip.address, 443);
        FlowId::FiveTuple(client_of(client).into(), destination)
    };
    for client in 0..20 {
        world.control().pin(&vip, &flow(client), &to(1 + client as u16 % 3)).unwrap();
    }
    world.run(SECOND);
    assert!(world.control().pins().iter().all(|pin| pin.in_force));
    for client in 0..20 {
        assert_eq!(world.send(udp(1, client)), Some(1 + client as u16 % 3));
    }
    assert_eq!(world.status().pins, 56);
    assert!(world.done.pins_full > 20, "flows that lost their pins are counted");
}

#[test]
fn a_flood_of_confirmed_flows_leaves_pins_for_another_vip() {
    let mut world = two_pinned_vips();
    for _ in 0..3 {
        // The same flows in each interval.
        for number in 0..200 {
            world.send(udp(1, FORGED + number));
        }
        world.run(10 * SECOND);
    }
    assert_eq!(world.status().pins, 42, "all but the share of VIP 2");
    let homes: Vec<_> = (0..14).map(|client| world.send(udp(2, client))).collect();
    world.run(SECOND);
    assert_eq!(world.status().pins, 56);
    // Pending forgets them, and only the pins know.
    world.run(20 * SECOND);
    assert_udp_at(&mut world, &homes);
}
