//! For how long the replaced answers of a ring are kept.

use std::time::Duration;

use equipoise_core::{AdminState, Health};
use equipoise_packet::FlowScheduler::Maglev;
use equipoise_packet::VipSpec;
use equipoise_packet::abi::Forward;

use crate::world::*;

const CLIENTS: std::ops::Range<u32> = 0..2000;

pub(crate) fn with_second_chance(backends: &[Backend]) -> VipSpec {
    VipSpec { forward: Forward::Gue, second_chance: true, ..vip(1, Maglev, backends) }
}

fn world(backends: &[Backend]) -> World {
    let mut world = World::new(1, capacity(), settings());
    world.apply(vec![with_second_chance(backends)]);
    world.settle();
    world
}

/// The first and the second backend of packets of unknown flows.
fn answers(world: &mut World) -> Vec<(Backend, Option<Backend>)> {
    let of = |client| world.gue(0, tcp(1, client, ACK)).unwrap();
    CLIENTS.map(of).collect()
}

fn count(answers: &[(Backend, Option<Backend>)], second: Backend) -> usize {
    answers.iter().filter(|(_, it)| *it == Some(second)).count()
}

/// Flows of other balancers: this one has seen none of the clients before.
#[test]
fn the_second_backend_is_the_one_before_the_last_change() {
    let before = answers(&mut world(&[1, 2, 3]));
    assert!(before.iter().all(|(_, second)| second.is_none()));
    let mut world = world(&[1, 2, 3]);
    world.change(1, |pool| pool.push(backend(4)));
    world.settle();
    let after = answers(&mut world);
    for ((was, _), (first, second)) in before.iter().zip(&after) {
        assert_eq!(*second, (was != first).then_some(*was), "{first}");
    }
    let moved = after.iter().filter(|(first, _)| *first == 4).count();
    assert!(moved > CLIENTS.len() / 5, "{moved}");
}

#[test]
fn a_balancer_that_starts_knows_the_backends_that_drain() {
    let mut old = world(&[1, 2, 3]);
    old.change(1, |pool| pool[0].admin = AdminState::Drain);
    old.settle();
    let mut new = World::new(1, capacity(), settings());
    let mut spec = with_second_chance(&[1, 2, 3]);
    spec.backends[0].admin = AdminState::Drain;
    new.apply(vec![spec]);
    new.settle();
    let (old, new) = (answers(&mut old), answers(&mut new));
    assert_eq!(old, new);
    assert!(count(&old, 1) > CLIENTS.len() / 4);
}

#[test]
fn a_backend_that_left_has_its_second_chances_for_the_time_of_idle_flows() {
    let mut world = world(&[1, 2, 3]);
    let open = world.settings.timeouts.open;
    world.change(1, |pool| pool.retain(|it| it.address != address_of(3)));
    world.settle();
    // An answer for each client would make a flow of it: only some are asked.
    let is_second = |world: &mut World, client: u32| {
        let second = world.gue(0, tcp(1, client, ACK)).unwrap().1;
        second == Some(3)
    };
    let client = CLIENTS.into_iter().find(|client| is_second(&mut world, *client)).unwrap();
    world.run(open - Duration::from_secs(10));
    assert!(is_second(&mut world, client), "before its end");
    world.run(Duration::from_secs(60));
    assert!(!is_second(&mut world, client), "after its end");
    // Its slot is free: another backend has it, and gets no packets of its flows.
    world.change(1, |pool| pool.push(backend(9)));
    world.settle();
    assert_eq!(count(&answers(&mut world), 3), 0);
    assert_eq!(world.vip_status(1).backends.len(), 3);
}

#[test]
fn a_backend_that_fails_gets_no_second_chances() {
    let mut world = world(&[1, 2, 3]);
    world.change(1, |pool| pool.push(backend(4)));
    world.settle();
    world.change(1, |pool| pool[0].health = Health::Unhealthy);
    world.run(Duration::from_millis(300));
    assert_eq!(count(&answers(&mut world), 1), 0);
    world.settle();
    let answers = answers(&mut world);
    assert_eq!(count(&answers, 1), 0);
    assert!(count(&answers, 2) > 0);
}

/// Maps and registry outlive the process.
#[test]
fn a_new_process_continues_with_the_replaced_answers() {
    let mut world = world(&[1, 2, 3]);
    world.change(1, |pool| pool.push(backend(4)));
    world.settle();
    let before = answers(&mut world);
    let snapshot = world.snapshot.vips.clone();
    world.start(equipoise_packet::Registry::anonymous(capacity().flows).unwrap());
    world.apply(snapshot);
    world.settle();
    assert_eq!(answers(&mut world), before);
}

#[test]
fn turning_it_off_ends_it() {
    let mut world = world(&[1, 2, 3]);
    world.change(1, |pool| pool.push(backend(4)));
    world.settle();
    let mut vips = world.snapshot.vips.clone();
    vips[0].second_chance = false;
    world.apply(vips);
    world.settle();
    assert!(answers(&mut world).iter().all(|(_, second)| second.is_none()));
}
