//! A control side that dies and is started anew over what it left.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use equipoise_packet::FlowScheduler::{LeastConnection, Maglev, WeightedRandom};
use equipoise_packet::control::{ControlError, Phase};
use equipoise_packet::{Capacity, Control, Reason, Registry};
use equipoise_pog::Seed;

use super::world::*;

const SECOND: Duration = Duration::from_secs(1);

/// A registry's file, removed at the end.
struct Kept(PathBuf);

impl Kept {
    fn new(name: &str) -> Kept {
        let name = format!("equipoise-control-{name}-{}", std::process::id());
        Kept(std::env::temp_dir().join(name))
    }

    fn open(&self) -> Registry {
        Registry::open(&self.0, capacity().flows, settings().fleet_seed).unwrap()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// As if it had been killed: nothing is put in order.
fn restart(world: &mut World, kept: &Kept) {
    drop(world.control.take());
    world.start(kept.open());
}

#[test]
fn flows_stay_when_the_control_side_is_killed_at_any_moment() {
    for scheduler in [Maglev, WeightedRandom, LeastConnection] {
        let kept = Kept::new(&scheduler.to_string());
        let mut world = World::with_registry(1, capacity(), settings(), kept.open());
        world.apply(vec![vip(1, scheduler, &[1, 2, 3])]);
        world.settle();
        let mut homes = world.open_all(1, 0..500);
        for round in 0..24_u32 {
            match round % 3 {
                0 => world.change(1, |pool| pool.push(backend(10 + round as u16))),
                1 => world.change(1, |pool| {
                    pool.remove(0);
                }),
                _ => {}
            }
            homes.extend(world.open_all(1, 500 + round * 20..520 + round * 20));
            world.run(Duration::from_millis(u64::from(round) * 173 % 1600));
            restart(&mut world, &kept);
            world.assert_at(1, 0, &homes);
            // The program goes on by itself for a while.
            let vips = world.snapshot.vips.clone();
            world.apply(vips);
            world.run(Duration::from_millis(15));
            world.assert_at(1, 0, &homes);
        }
        world.settle();
        world.assert_at(1, 0, &homes);
        assert_eq!(world.vip_status(1).phase, Phase::Steady);
        assert_eq!((world.flows(), world.status().moved), (homes.len(), 0), "{scheduler}");
    }
}

#[test]
fn source_lists_apply_after_a_restart_before_the_first_snapshot() {
    let kept = Kept::new("access");
    let mut world = World::with_registry(1, capacity(), settings(), kept.open());
    world.apply(vec![super::access::refusing(64..128)]);
    world.settle();
    restart(&mut world, &kept);
    assert_eq!(world.send(tcp(1, 64, SYN)), None);
    // A publication without a snapshot.
    world.control().next_hops(&HashMap::new());
    world.run(SECOND);
    assert_eq!(world.send(tcp(1, 64, SYN)), None);
    let denied = world.vip_status(1).reasons[Reason::SourceDenied as usize];
    assert_eq!(denied, 2);
}

#[test]
fn a_restart_with_the_same_snapshot_publishes_its_own_image_once_and_moves_nothing() {
    for scheduler in [Maglev, WeightedRandom] {
        let kept = Kept::new(&format!("same-{scheduler}"));
        let mut world = World::with_registry(1, capacity(), settings(), kept.open());
        world.apply(vec![vip(1, scheduler, &[1, 2, 3])]);
        world.settle();
        let homes = world.open_all(1, 0..500);
        world.change(1, |pool| pool.push(backend(4)));
        world.settle();
        world.run(5 * SECOND);
        restart(&mut world, &kept);
        let vips = world.snapshot.vips.clone();
        world.apply(vips);
        world.settle();
        world.assert_at(1, 0, &homes);
        let status = world.status();
        assert_eq!((status.publications, status.flows), (1, 500), "{scheduler}");
        assert_eq!(world.vip_status(1).backends.len(), 4);
    }
}

#[test]
fn counters_continue_after_a_restart() {
    let kept = Kept::new("counters");
    let mut world = World::with_registry(1, capacity(), settings(), kept.open());
    world.apply(vec![vip(1, Maglev, &[1, 2])]);
    world.settle();
    world.open_all(1, 0..100);
    restart(&mut world, &kept);
    let vips = world.snapshot.vips.clone();
    world.apply(vips);
    world.settle();
    let status = world.vip_status(1);
    assert_eq!(status.packets, 200);
    assert_eq!(status.backends.iter().map(|it| it.packets).sum::<u64>(), 200);
}

#[test]
fn tables_of_another_fleet_or_capacity_are_refused() {
    let mut world = World::one_vip(Maglev, &[1, 2]);
    drop(world.control.take());
    let (memories, now) = (world.memories.clone(), world.now);
    let open = |capacity: Capacity, settings| {
        let registry = Registry::anonymous(capacity.flows).unwrap();
        Control::new(memories.clone(), capacity, registry, settings, now)
    };
    let other = equipoise_packet::Settings { fleet_seed: Seed { k0: 5, k1: 5 }, ..settings() };
    let refused = open(capacity(), other).unwrap_err();
    assert!(
        matches!(refused, ControlError::Foreign { .. }) && refused.to_string().contains("seed")
    );
    let larger = Capacity { backends: 500, ..capacity() };
    assert!(matches!(open(larger, settings()).unwrap_err(), ControlError::Foreign { .. }));
    assert!(open(capacity(), settings()).is_ok());
}

/// A control side over new memories, for what one that was killed left: its registry, and what it
/// noted.
fn start_anew(mut world: World, kept: &Kept, capacity: Capacity) -> World {
    drop(world.control.take());
    let flows = capacity.flows;
    let registry = Registry::open(&kept.0, flows, settings().fleet_seed).unwrap();
    let mut anew = World::with_ledger(1, capacity, settings(), registry, world.ledger.take());
    anew.now = world.now;
    anew.snapshot = world.snapshot;
    anew
}

/// Flows of three VIPs, many of them off their rings, which have holes among their slots.
fn off_the_rings(kept: &Kept) -> (World, Vec<Vec<Backend>>) {
    let mut world = World::with_registry(1, capacity(), settings(), kept.open());
    let vips = [(1, Maglev), (2, LeastConnection), (3, WeightedRandom)];
    world.apply(vips.map(|(number, scheduler)| vip(number, scheduler, &[1, 2, 3])).into());
    world.settle();
    let homes = (1..=3).map(|number| world.open_all(number, 0..500)).collect();
    for number in 1..=3 {
        world.change(number, |pool| {
            pool.remove(1);
            pool.extend([backend(7), backend(8)]);
        });
        world.settle();
    }
    assert!(world.status().pins > 300);
    (world, homes)
}

#[test]
fn flows_keep_their_backends_when_the_tables_are_new() {
    for (name, capacity) in [
        ("same", capacity()),
        ("fewer", Capacity { pins: 2000, services: 4, backends: 32, flows: 2000, ..capacity() }),
        ("more", Capacity { pins: 20_000, services: 16, flows: 50_000, ..capacity() }),
    ] {
        let kept = Kept::new(name);
        let (world, homes) = off_the_rings(&kept);
        let mut vips = world.snapshot.vips.clone();
        let mut world = start_anew(world, &kept, capacity);
        let begun = world.control().begun();
        assert_eq!((begun.is_anew, begun.flows, begun.forgotten), (true, 1500, 0), "{name}");
        // Another pool than when it was killed, and in another order.
        vips.reverse();
        vips[1].backends.retain(|it| it.address != address_of(8));
        vips[1].backends.push(backend(9));
        world.apply(vips);
        world.run(Duration::from_millis(200));
        for (number, homes) in (1..).zip(&homes) {
            world.assert_at(number, 0, homes);
        }
        world.settle();
        for (number, homes) in (1..).zip(&homes) {
            world.assert_at(number, 0, homes);
        }
        let status = world.status();
        assert_eq!((status.flows, status.moved), (1500, 0), "{name}");
        // And again, over what that one left.
        let vips = world.snapshot.vips.clone();
        let mut world = start_anew(world, &kept, super::world::capacity());
        world.apply(vips);
        world.settle();
        for (number, homes) in (1..).zip(&homes) {
            world.assert_at(number, 0, homes);
        }
        assert_eq!(world.status().moved, 0, "{name}");
    }
}

#[test]
fn flows_survive_a_loss_of_tables_at_any_stage_of_change() {
    for pause in [0, 5, 50, 500, 1010, 1500] {
        let kept = Kept::new(&format!("amid-{pause}"));
        let mut world = World::with_registry(1, capacity(), settings(), kept.open());
        world.apply(vec![vip(1, Maglev, &[1, 2, 3])]);
        world.settle();
        let homes = world.open_all(1, 0..500);
        world.run(SECOND);
        world.change(1, |pool| {
            pool.remove(0);
            pool.extend([backend(4), backend(5)]);
        });
        world.run(Duration::from_millis(pause));
        let vips = world.snapshot.vips.clone();
        let mut world = start_anew(world, &kept, capacity());
        world.apply(vips);
        world.settle();
        world.assert_at(1, 0, &homes);
        assert_eq!((world.flows(), world.status().moved), (500, 0), "{pause}");
    }
}

#[test]
fn flows_of_removed_vips_leave_room_for_flows_of_new_vips() {
    let kept = Kept::new("unwanted");
    let (world, homes) = off_the_rings(&kept);
    let vips = vec![world.snapshot.vips[2].clone(), vip(4, Maglev, &[1, 2])];
    let mut world = start_anew(world, &kept, Capacity { services: 3, ..capacity() });
    world.apply(vips);
    world.settle();
    world.assert_at(3, 0, &homes[2]);
    world.open_all(4, 0..100);
    world.run(SECOND);
    assert_eq!(world.flows(), 600);
}

/// Without the ledger, the registry's flows have no meaning.
#[test]
fn flows_without_tables_and_ledger_are_forgotten_and_counted() {
    let kept = Kept::new("tables-gone");
    let mut world = World::with_registry(1, capacity(), settings(), kept.open());
    world.apply(vec![vip(1, Maglev, &[1, 2])]);
    world.settle();
    world.open_all(1, 0..100);
    world.run(SECOND);
    assert_eq!(world.flows(), 100);
    world.ledger = None;
    let mut world = start_anew(world, &kept, capacity());
    assert_eq!((world.flows(), world.control().begun().forgotten), (0, 100));
}

#[test]
fn flows_without_room_in_smaller_tables_are_forgotten_and_counted() {
    let kept = Kept::new("smaller");
    let (world, homes) = off_the_rings(&kept);
    let vips = world.snapshot.vips[..1].to_vec();
    let mut world = start_anew(world, &kept, Capacity { services: 1, ..capacity() });
    assert_eq!(world.control().begun().forgotten, 1000);
    world.apply(vips);
    world.settle();
    world.assert_at(1, 0, &homes[0]);
}

#[test]
fn a_ledger_that_failed_to_be_written_is_offered_again() {
    let mut world = World::one_vip(Maglev, &[1, 2]);
    world.change(1, |pool| pool.push(backend(3)));
    let mut asked = 0;
    for _ in 0..3 {
        let now = world.now;
        world.control().tick_noting(now, |ledger| {
            assert_eq!(ledger.services[0].slots.len(), 3);
            asked += 1;
            asked == 2
        });
    }
    assert_eq!(asked, 2);
}
