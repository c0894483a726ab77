//! Which flows are known, and for how long.

use std::time::Duration;

use equipoise_packet::FlowScheduler::Maglev;
use equipoise_packet::control::Phase;
use equipoise_packet::{Capacity, OwnTimeouts, Protocol, VipSpec};

use super::world::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_flow_enters_the_registry_when_its_handshake_completes() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    assert_eq!(world.vip_status(1).phase, Phase::Steady);
    let home = world.send(tcp(1, 7, SYN));
    world.run(SECOND);
    assert_eq!(world.flows(), 0);
    assert_eq!(world.send(tcp(1, 7, ACK)), home);
    world.run(SECOND);
    assert_eq!(world.flows(), 1);
    let status = world.vip_status(1);
    let at_home = status.backends.iter().find(|it| it.backend.address == address_of(home.unwrap()));
    assert_eq!(at_home.map(|it| (it.active, it.inactive)), Some((1, 0)));
    assert_eq!((status.flows, status.packets), (1, 2));
}

#[test]
fn a_syn_flood_does_not_reach_the_registry() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    let homes = world.open_all(1, 0..500);
    for round in 0..10 {
        for client in 0..5000 {
            world.send(tcp(1, 10_000 + round * 5000 + client, SYN));
        }
        world.run(SECOND);
    }
    assert_eq!(world.flows(), 500);
    world.assert_at(1, 0, &homes);
}

#[test]
fn flows_expire_after_the_timeout_of_their_state() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    let mut udp_vip = vip(2, Maglev, &[1, 2, 3]);
    udp_vip.protocol = equipoise_packet::Protocol::Udp;
    world.apply(vec![vip(1, Maglev, &[1, 2, 3]), udp_vip]);
    world.settle();
    let end = |world: &mut World, flags| {
        world.open(1, u32::from(flags));
        if flags != ACK {
            world.send(tcp(1, u32::from(flags), flags));
        }
    };
    for flags in [ACK, FIN, RST] {
        end(&mut world, flags);
    }
    world.send(udp(2, 99));
    let mut left = Vec::new();
    // Each is seen for the last time now, and forgotten an interval or two after its time-out.
    for (after, flows) in
        [(1, 4), (9, 4), (40, 3), (119, 3), (150, 2), (299, 2), (330, 1), (899, 1), (930, 0)]
    {
        let passed: u64 = left.last().map_or(0, |(after, _): &(u64, usize)| *after);
        world.run(Duration::from_secs(after - passed));
        left.push((after, flows));
        assert_eq!(world.flows(), flows, "after {after} s");
    }
    assert_eq!(world.done.expired, 4);
}

#[test]
fn a_vip_may_have_its_own_flow_timeouts() {
    let seconds = |number| Some(Duration::from_secs(number));
    let mut world = World::new(1, capacity(), settings());
    let short = OwnTimeouts { open: seconds(60), closing: seconds(20), udp: seconds(30) };
    let with = |spec: VipSpec| VipSpec { timeouts: short, ..spec };
    let datagrams = |number| VipSpec { protocol: Protocol::Udp, ..vip(number, Maglev, &[1]) };
    world.apply(vec![
        with(vip(1, Maglev, &[1])),
        vip(2, Maglev, &[1]),
        with(datagrams(3)),
        datagrams(4),
    ]);
    world.settle();
    for number in [1, 2] {
        world.open_all(number, 0..100);
        for client in 0..50 {
            world.send(tcp(number, client, FIN));
        }
    }
    for number in [3, 4] {
        for client in 0..100 {
            world.send(udp(number, client));
        }
    }
    let mut flows = |after| {
        world.run(Duration::from_secs(after));
        [1, 2, 3, 4].map(|number| world.vip_status(number).flows)
    };
    assert_eq!(flows(15), [100; 4]);
    assert_eq!(flows(35), [50, 100, 0, 100], "closing ones, and those of UDP");
    assert_eq!(flows(40), [0, 100, 0, 100]);
    assert_eq!(flows(60), [0, 50, 0, 100], "by the times of all VIPs");
}

#[test]
fn a_flow_with_regular_packets_does_not_expire() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    world.open(1, 1);
    for _ in 0..200 {
        world.send(tcp(1, 1, ACK));
        world.run(10 * SECOND);
    }
    assert_eq!((world.flows(), world.done.expired), (1, 0));
}

#[test]
fn a_forged_rst_or_fin_does_not_end_a_living_flow() {
    for flags in [RST, FIN] {
        let mut world = World::one_vip(Maglev, &[1, 2, 3]);
        let home = world.open(1, 1);
        world.run(SECOND);
        world.send(tcp(1, 1, flags));
        world.send(tcp(1, 1, ACK));
        world.run(25 * SECOND);
        world.send(tcp(1, 1, ACK));
        world.run(800 * SECOND);
        assert_eq!(world.flows(), 1, "flags {flags:#x}");
        assert_eq!(world.send(tcp(1, 1, ACK)), home);
    }
}

#[test]
fn a_rst_of_an_unknown_flow_registers_no_flow() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    (0..1000).for_each(|client| {
        world.send(tcp(1, client, RST));
    });
    world.run(SECOND);
    assert_eq!(world.flows(), 0);
}

#[test]
fn flows_that_the_log_had_no_room_for_are_learnt_with_later_packets() {
    let mut world = World::new(1, Capacity { log_events: 1024, ..capacity() }, settings());
    world.apply(vec![vip(1, Maglev, &[1, 2, 3])]);
    world.settle();
    let homes = world.open_all(1, 0..8000);
    let log_full = world.vip_status(1).reasons[equipoise_packet::Reason::LogFull as usize];
    assert_eq!(log_full, 8000 - 2 * 1024, "a log for each of two CPUs");
    world.run(SECOND);
    assert_eq!(world.flows(), 2 * 1024);
    for _ in 0..3 {
        world.assert_at(1, 0, &homes);
        world.run(SECOND);
    }
    assert_eq!(world.flows(), 8000);
}

#[test]
fn flows_beyond_a_full_registry_follow_the_tables_and_are_counted() {
    let mut world = World::new(1, Capacity { flows: 1000, ..capacity() }, settings());
    world.apply(vec![vip(1, Maglev, &[1, 2, 3])]);
    world.settle();
    let homes = world.open_all(1, 0..1500);
    world.run(SECOND);
    assert_eq!((world.flows(), world.done.registry_full), (1000, 500));
    assert_eq!(world.status().registry_full, 500);
    world.assert_at(1, 0, &homes);
    // When room comes, they are learnt with the next interval.
    (0..1000).for_each(|client| {
        world.send(tcp(1, client, RST));
    });
    world.run(40 * SECOND);
    world.assert_at(1, 1000, &homes[1000..]);
    world.run(SECOND);
    assert_eq!(world.flows(), 500);
}

/// Packets that are no SYN, from addresses that never answer.
#[test]
fn a_flood_of_forged_packets_leaves_room_for_active_flows() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    let homes = world.open_all(1, 0..1000);
    let mut forged = 10_000;
    let flood = |world: &mut World, forged: &mut u32| {
        for _ in 0..2000 {
            *forged += 1;
            world.send(tcp(1, *forged, ACK));
        }
        world.run(SECOND);
    };
    for second in 0..60 {
        flood(&mut world, &mut forged);
        if second % 7 == 0 {
            world.assert_at(1, 0, &homes);
        }
    }
    assert!(world.done.registry_full > 0, "twenty thousand fit");
    // The flood goes on at a rate that leaves some room, and the known flows are still known.
    world.change(1, |pool| pool.push(backend(4)));
    for _ in 0..60 {
        flood(&mut world, &mut forged);
        world.assert_at(1, 0, &homes);
    }
    assert_eq!(world.done.moved, 0);
    // New flows take the places of forged ones.
    let homes_new = world.open_all(1, 5000..5100);
    world.run(SECOND);
    world.change(1, |pool| pool.push(backend(5)));
    world.settle();
    world.assert_at(1, 0, &homes);
    world.assert_at(1, 5000, &homes_new);
}
