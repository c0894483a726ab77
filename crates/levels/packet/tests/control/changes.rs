//! Changes of pools: no flow of a backend that lives goes elsewhere.

use std::time::Duration;

use equipoise_core::{AdminState, Health, Weight};
use equipoise_packet::FlowScheduler::{Maglev, WeightedRandom};
use equipoise_packet::abi::How;
use equipoise_packet::control::Phase;
use equipoise_packet::{BackendSpec, OnDown, Protocol};

use super::world::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn flows_keep_their_backends_through_every_change_of_the_pool() {
    for scheduler in [Maglev, WeightedRandom] {
        let mut world = World::one_vip(scheduler, &[1, 2, 3, 4]);
        let homes = world.open_all(1, 0..3000);
        let weight = |weight| Weight::new(weight).unwrap();
        type Change<'a> = &'a dyn Fn(&mut Vec<equipoise_packet::BackendSpec>);
        let changes: [(&str, Change); 7] = [
            ("join", &|pool| pool.push(backend(9))),
            ("leave", &|pool| pool.retain(|it| it.address != address_of(2))),
            ("drain", &|pool| pool[0].admin = AdminState::Drain),
            ("weight", &|pool| pool[1].weight = weight(10)),
            ("weight 0", &|pool| pool[1].weight = weight(0)),
            ("back", &|pool| pool.push(backend(2))),
            ("up", &|pool| pool[0].admin = AdminState::Up),
        ];
        for (what, change) in changes {
            world.change(1, change);
            for _ in 0..40 {
                world.run(Duration::from_millis(60));
                world.assert_at(1, 0, &homes);
            }
            assert_eq!(world.vip_status(1).phase, Phase::Steady, "{scheduler} {what}");
        }
        assert_eq!((world.done.moved, world.done.began.len()), (0, 7));
    }
}

/// Balancers of a fleet have started at different times and seen different changes.
#[test]
fn a_new_flows_backend_depends_only_on_pool_members_and_weights() {
    let weight = |weight| Weight::new(weight).unwrap();
    for scheduler in [Maglev, WeightedRandom] {
        let mut young = World::one_vip(scheduler, &[1, 2, 3]);
        young.change(1, |pool| pool[1].weight = weight(3));
        young.settle();
        let mut old = World::one_vip(scheduler, &[7, 3, 8, 2]);
        old.change(1, |pool| pool.retain(|it| it.address != address_of(8)));
        old.settle();
        old.change(1, |pool| {
            pool.retain(|it| it.address != address_of(7));
            pool.push(backend(1));
        });
        old.settle();
        old.change(1, |pool| pool[1].weight = weight(3));
        old.settle();
        let alike = (0..10_000)
            .filter(|&client| young.send(tcp(1, client, SYN)) == old.send(tcp(1, client, SYN)))
            .count();
        // Four slots in 2^16: a flow in some thousands looks pinned, until userspace knows it and
        // pins it.
        let by_pin = |world: &mut World| world.vip_status(1).hows[How::Pin as usize] as usize;
        let mistaken = by_pin(&mut young) + by_pin(&mut old);
        assert!(alike + mistaken >= 10_000, "{scheduler}: {alike} alike, {mistaken} mistaken");
        assert!(mistaken < 20, "{scheduler}: {mistaken} mistaken");
    }
}

#[test]
fn new_flows_use_the_new_pool_during_the_transition() {
    let mut world = World::one_vip(Maglev, &[1, 2]);
    world.change(1, |pool| pool.retain(|it| it.address != address_of(1)));
    world.run(Duration::from_millis(20));
    assert_eq!(world.vip_status(1).phase, Phase::Transition);
    assert!(world.open_all(1, 0..500).iter().all(|&home| home == 2), "in the transition already");
    world.settle();
    assert!(world.open_all(1, 500..1000).iter().all(|&home| home == 2));
}

/// At every moment around a change, handshakes that began before it are completed after it.
#[test]
fn a_handshake_that_spans_a_step_of_a_change_is_completed() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3, 4]);
    let mut client = 0;
    for round in 0..4 {
        match round % 2 {
            0 => world.change(1, |pool| pool.push(backend(9))),
            _ => world.change(1, |pool| {
                pool.pop();
            }),
        }
        let mut opening: Vec<(u32, Option<Backend>)> = Vec::new();
        let mut open: Vec<(u32, Option<Backend>)> = Vec::new();
        for _ in 0..160 {
            let completed: Vec<_> = opening.drain(..opening.len().saturating_sub(60)).collect();
            for (client, home) in completed {
                assert_eq!(world.send(tcp(1, client, ACK)), home, "client {client}");
                open.push((client, home));
            }
            for _ in 0..12 {
                client += 1;
                opening.push((client, world.send(tcp(1, client, SYN))));
            }
            world.run(Duration::from_millis(9));
            for &(client, home) in &open {
                assert_eq!(world.send(tcp(1, client, ACK)), home, "client {client}");
            }
        }
        world.settle();
    }
    assert_eq!(world.status().pending, 0);
}

#[test]
fn changes_during_a_transition_wait_and_are_applied_together() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    let homes = world.open_all(1, 0..2000);
    world.change(1, |pool| pool.push(backend(4)));
    world.run(Duration::from_millis(300));
    world.change(1, |pool| pool.push(backend(5)));
    world.run(Duration::from_millis(300));
    world.change(1, |pool| pool.retain(|it| it.address != address_of(1)));
    for _ in 0..60 {
        world.run(Duration::from_millis(50));
        world.assert_at(1, 0, &homes);
    }
    assert_eq!((world.done.began.len(), world.done.settled.len()), (2, 2));
    let new = world.open_all(1, 5000..6000);
    assert!([2, 3, 4, 5].iter().all(|home| new.contains(home)) && !new.contains(&1));
}

#[test]
fn a_down_backend_receives_no_packets_after_the_next_tick() {
    type Change = fn(&mut equipoise_packet::BackendSpec);
    let ways: [Change; 2] = [|it| it.admin = AdminState::Down, |it| it.health = Health::Unhealthy];
    for way in ways {
        let mut world = World::one_vip(Maglev, &[1, 2, 3]);
        let homes = world.open_all(1, 0..2000);
        let lost = homes.iter().filter(|&&home| home == 2).count();
        world.run(SECOND);
        // Even while another change is on its way.
        world.change(1, |pool| pool.push(backend(4)));
        world.run(Duration::from_millis(500));
        world.change(1, |pool| way(&mut pool[1]));
        world.run(Duration::from_millis(20));
        let mut homes_now = Vec::new();
        for (client, &home) in (0..).zip(&homes) {
            let home_now = world.send(tcp(1, client, ACK)).unwrap();
            assert!(home_now != 2 && (home == 2 || home_now == home), "client {client}");
            homes_now.push(home_now);
        }
        assert_eq!(world.done.moved, lost, "counted");
        // Flows that went elsewhere are new flows, and stay.
        for _ in 0..60 {
            world.run(Duration::from_millis(50));
            world.assert_at(1, 0, &homes_now);
        }
        world.change(1, |pool| pool[1] = backend(2));
        world.settle();
        world.assert_at(1, 0, &homes_now);
        assert!(world.open_all(1, 5000..5500).contains(&2), "it takes new flows again");
    }
}

#[test]
fn an_unhealthy_backend_keeps_its_flows_if_configured_to() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    let homes = world.open_all(1, 0..1000);
    world.change(1, |pool| {
        (pool[0].health, pool[0].on_down) = (Health::Unhealthy, OnDown::Keep);
    });
    world.settle();
    world.assert_at(1, 0, &homes);
    assert!(!world.open_all(1, 2000..2500).contains(&1));
    assert_eq!(world.done.moved, 0);
}

#[test]
fn draining_all_backends_keeps_known_flows_and_drops_new_flows() {
    let mut world = World::one_vip(Maglev, &[1, 2]);
    let homes = world.open_all(1, 0..1000);
    world.change(1, |pool| pool.iter_mut().for_each(|it| it.admin = AdminState::Drain));
    world.settle();
    world.assert_at(1, 0, &homes);
    assert_eq!(world.send(tcp(1, 5000, SYN)), None);
    world.change(1, |pool| pool.iter_mut().for_each(|it| it.admin = AdminState::Down));
    world.settle();
    assert_eq!(world.send(tcp(1, 0, ACK)), None);
    assert_eq!((world.flows(), world.done.moved), (0, 1000));
    world.change(1, |pool| *pool = vec![backend(3)]);
    world.run(Duration::from_millis(20));
    assert_eq!(world.open(1, 5001), Some(3), "a pool that had nobody has no transition");
}

#[test]
fn a_removed_backends_slot_is_reused_after_its_last_flow_ends() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    let homes = world.open_all(1, 0..300);
    world.change(1, |pool| pool.retain(|it| it.address != address_of(3)));
    let slot_of = |world: &mut World, number| {
        let status = world.vip_status(1);
        let found = status.backends.into_iter().find(|it| it.backend.address == address_of(number));
        found.map(|it| (it.slot, it.listed, it.active))
    };
    for _ in 0..120 {
        world.run(10 * SECOND);
        world.assert_at(1, 0, &homes);
    }
    let at_3 = homes.iter().filter(|&&home| home == 3).count() as u32;
    assert_eq!(slot_of(&mut world, 3), Some((Some(2), false, at_3)));
    assert!(world.done.drained.is_empty());
    world.change(1, |pool| pool.push(backend(4)));
    world.settle();
    assert_eq!(slot_of(&mut world, 4), Some((Some(3), true, 0)), "not the slot that has flows");
    for (client, home) in (0..).zip(&homes) {
        if *home == 3 {
            world.send(tcp(1, client, FIN));
        }
    }
    world.run(180 * SECOND);
    assert_eq!(world.done.drained.len(), 1);
    assert_eq!(slot_of(&mut world, 3), None);
    world.run(60 * SECOND);
    world.change(1, |pool| pool.push(backend(5)));
    world.settle();
    assert_eq!(slot_of(&mut world, 5), Some((Some(2), true, 0)));
    assert_eq!(world.done.moved, 0);
}

#[test]
fn flows_of_udp_keep_their_backend() {
    let mut world = World::new(1, capacity(), settings());
    let mut spec = vip(1, Maglev, &[1, 2, 3]);
    spec.protocol = Protocol::Udp;
    world.apply(vec![spec]);
    world.settle();
    let homes: Vec<_> = (0..2000).map(|client| world.send(udp(1, client))).collect();
    world.change(1, |pool| pool.push(backend(4)));
    let mut late = Vec::new();
    for round in 0..60 {
        world.run(Duration::from_millis(40));
        for (client, home) in (0..).zip(homes.iter().chain(&late)) {
            assert_eq!(world.send(udp(1, client)), *home, "client {client}");
        }
        late.push(world.send(udp(1, 2000 + round)));
    }
}

/// More flows would move than there is room for pins.
#[test]
fn flows_beyond_the_room_for_pins_follow_the_ring_and_are_counted() {
    let mut world =
        World::new(1, equipoise_packet::Capacity { pins: 400, ..capacity() }, settings());
    world.apply(vec![vip(1, Maglev, &[1, 2])]);
    world.settle();
    let homes = world.open_all(1, 0..4000);
    world.run(SECOND);
    world.change(1, |pool| *pool = vec![backend(3)]);
    world.settle();
    world.run(5 * SECOND);
    let status = world.status();
    assert_eq!((status.pins, status.pins_max), (350, 350));
    let (mut kept, mut followed) = (0, 0);
    let mut homes_now = Vec::new();
    for (client, home) in (0..).zip(&homes) {
        let home_now = world.send(tcp(1, client, ACK)).unwrap();
        match home_now {
            it if it == *home => kept += 1,
            3 => followed += 1,
            other => panic!("client {client} went to {other}"),
        }
        homes_now.push(home_now);
    }
    assert_eq!((kept, followed), (350, 3650));
    assert_eq!((world.done.pins_full, world.done.moved), (3650, 3650));
    assert_eq!(world.status().pins_full, 3650);
}

#[test]
fn a_backup_gets_new_flows_only_while_no_other_backend_does() {
    let mut world = World::one_vip(Maglev, &[1, 2]);
    world.change(1, |pool| pool.push(BackendSpec { backup: true, ..backend(3) }));
    world.settle();
    let first = world.open_all(1, 0..200);
    assert!(!first.contains(&3));
    world.change(1, |pool| pool[0].health = Health::Unhealthy);
    world.settle();
    assert!(world.open_all(1, 1000..1200).iter().all(|home| *home == 2));
    // A draining backend keeps its flows, and gets no new ones.
    world.change(1, |pool| pool[1].admin = AdminState::Drain);
    world.settle();
    let on_backup = world.open_all(1, 2000..2200);
    assert!(on_backup.iter().all(|home| *home == 3));
    world.change(1, |pool| {
        pool[0].health = Health::Healthy;
        pool[1].admin = AdminState::Up;
    });
    world.settle();
    world.assert_at(1, 2000, &on_backup);
    let again = world.open_all(1, 3000..3200);
    assert!([1, 2].iter().all(|home| again.contains(home)) && !again.contains(&3));
    // A pool of backups alone serves.
    world.change(1, |pool| pool.retain(|it| it.backup));
    world.settle();
    assert!(world.open_all(1, 4000..4100).iter().all(|home| *home == 3));
}
