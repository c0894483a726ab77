//! A control side that dies and is started anew over what it left.

use std::path::PathBuf;
use std::time::Duration;

use equipoise_core::SchedulerKind::{LeastConnection, Maglev, WeightedRandom};
use equipoise_packet::control::{ControlError, Phase};
use equipoise_packet::{Control, Registry};
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
fn a_restart_with_the_same_snapshot_publishes_nothing() {
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
        assert_eq!((status.publications, status.flows), (0, 500), "{scheduler}");
        assert_eq!(world.vip_status(1).backends.len(), 4);
    }
}

#[test]
fn counters_go_on_after_a_restart() {
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
    let open = |capacity: equipoise_packet::Capacity, settings| {
        let registry = Registry::anonymous(capacity.flows).unwrap();
        Control::new(memories.clone(), capacity, registry, settings, now)
    };
    let other = equipoise_packet::Settings { fleet_seed: Seed { k0: 5, k1: 5 }, ..settings() };
    let refused = open(capacity(), other).unwrap_err();
    assert!(
        matches!(refused, ControlError::Foreign { .. }) && refused.to_string().contains("seed")
    );
    let larger = equipoise_packet::Capacity { backends: 500, ..capacity() };
    assert!(matches!(open(larger, settings()).unwrap_err(), ControlError::Foreign { .. }));
    assert!(open(capacity(), settings()).is_ok());
}

/// The program was unloaded: slots of its tables mean nothing any more.
#[test]
fn flows_without_their_tables_are_forgotten() {
    let kept = Kept::new("tables-gone");
    let mut world = World::with_registry(1, capacity(), settings(), kept.open());
    world.apply(vec![vip(1, Maglev, &[1, 2])]);
    world.settle();
    world.open_all(1, 0..100);
    world.run(SECOND);
    assert_eq!(world.flows(), 100);
    drop(world.control.take());
    let mut world = World::with_registry(1, capacity(), settings(), kept.open());
    assert_eq!(world.flows(), 0);
}
