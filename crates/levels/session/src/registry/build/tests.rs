use equipoise_core::{AdminState, Generation, Weight};

use super::super::fixtures::*;
use super::*;
use crate::config::PoolConfig;

fn first(inventory: &Inventory, now: Instant) -> Published {
    build(inventory, &Published::default(), 0, now).unwrap()
}

fn picked(view: &PoolView) -> Vec<&str> {
    view.backends.iter().map(|b| &*b.name).collect()
}

fn weights(published: &Published, pool: &PoolEntry) -> Vec<u32> {
    published.made_of[&pool.id].slots.iter().map(|s| s.weight).collect()
}

#[test]
fn a_snapshot_contains_eligible_backends_in_order_and_front_doors() {
    let now = Instant::now();
    let mut inventory = inventory(vec![pool("web", 3), pool("api", 1)], now);
    inventory.set_admin("web", "b2", AdminState::Drain).unwrap();
    let published = first(&inventory, now);
    let snapshot = &published.snapshot;
    assert_eq!(snapshot.generation, Generation(1));
    assert_eq!(picked(&snapshot.pools[0]), ["b1", "b3"]);
    assert_eq!(picked(&snapshot.pools[1]), ["b1"]);
    for (door, view) in inventory.front_doors.iter().zip(&snapshot.front_doors) {
        assert_eq!(view.id, door.id);
        assert_eq!(snapshot.pools[view.pool].name, view.config.pool);
        assert!(Arc::ptr_eq(&view.stats, &door.stats));
    }
    let b3 = entry(&inventory, "web", "b3");
    assert_eq!(snapshot.pools[0].backends[1].id, b3.id);
    assert!(Arc::ptr_eq(&snapshot.pools[0].backends[1].live, &b3.live));
}

#[test]
fn an_elastic_pool_without_a_serving_or_failing_backend_awaits_one() {
    let now = Instant::now();
    let made = |backends| {
        let mut pool = checked(pool("web", backends));
        pool.options.start_wait = Some(seconds(30));
        pool
    };
    let awaits = |inventory: &Inventory| first(inventory, now).snapshot.pools[0].awaits_backend;
    let mut inventory = inventory(vec![made(0)], now);
    assert!(awaits(&inventory));
    inventory = reload(&inventory, vec![made(1)], now);
    assert!(!awaits(&inventory), "it has one");
    inventory.set_admin("web", "b1", AdminState::Drain).unwrap();
    assert!(awaits(&inventory), "its last one leaves");
    inventory.set_admin("web", "b1", AdminState::Up).unwrap();
    check(&mut inventory, "b1", false, now);
    assert!(!awaits(&inventory), "it fails");
    assert!(!awaits(&reload(&inventory, vec![pool("web", 0)], now)), "none is made");
}

#[test]
fn a_build_without_changes_creates_no_snapshot() {
    let now = Instant::now();
    let inventory = inventory(vec![checked(pool("web", 2))], now);
    let published = first(&inventory, now);
    assert!(build(&inventory, &published, 0, now + seconds(60)).is_none());
    let mut passed = inventory.clone();
    check(&mut passed, "b1", true, now);
    assert!(build(&passed, &published, 0, now).is_none(), "unknown to healthy picks the same");
    let reloaded = reload(&inventory, vec![checked(pool("web", 2))], now);
    assert!(build(&reloaded, &published, 0, now).is_none());
}

#[test]
fn only_a_changed_pool_is_rebuilt() {
    let now = Instant::now();
    let mut inventory = inventory(vec![pool("web", 2), pool("api", 2)], now);
    let before = first(&inventory, now);
    inventory.set_weight("api", "b1", Some(Weight::new(5).unwrap())).unwrap();
    let after = build(&inventory, &before, 0, now).unwrap();
    let (old, new) = (&before.snapshot, &after.snapshot);
    assert_eq!(new.generation, old.generation.next());
    assert!(Arc::ptr_eq(&new.pools[0], &old.pools[0]));
    assert_eq!(new.pools[1].generation, old.pools[1].generation.next());
    assert_eq!(new.pools[1].id, old.pools[1].id);
    assert!(new.front_doors.iter().zip(&old.front_doors).all(|(a, b)| Arc::ptr_eq(a, b)));
}

#[test]
fn a_front_door_follows_its_pool_to_a_new_index() {
    let now = Instant::now();
    let inventory = inventory(vec![pool("web", 1), pool("api", 1)], now);
    let before = first(&inventory, now);
    let wanted = config(vec![pool("web", 1), pool("api", 1)]);
    let mut swapped = wanted.clone();
    swapped.pools.reverse();
    let (next, changes) = inventory.reloaded(&swapped, THREADS, now).unwrap();
    assert!(changes.is_empty(), "{changes}");
    let after = build(&next, &before, 0, now).unwrap();
    for view in &after.snapshot.front_doors {
        assert_eq!(after.snapshot.pools[view.pool].name, view.config.pool);
    }
    assert!(Arc::ptr_eq(&after.snapshot.pools[0], &before.snapshot.pools[1]));
}

#[test]
fn effective_weight_is_operator_weight_times_slow_start_share() {
    let start = Instant::now();
    let slow = |n| PoolConfig { slow_start: Some(seconds(10)), ..pool("web", n) };
    let before = inventory(vec![slow(2)], start);
    let mut inventory = reload(&before, vec![slow(3)], start);
    inventory.set_weight("web", "b2", Some(Weight::new(4).unwrap())).unwrap();
    for (after, want) in [(0, 100), (1, 190), (5, 550), (10, 1000)] {
        let published = first(&inventory, start + seconds(after));
        assert_eq!(weights(&published, &inventory.pools[0]), [1000, 4000, want], "{after} s");
    }
}

#[test]
fn a_change_of_options_alone_creates_a_new_snapshot() {
    let now = Instant::now();
    let inventory = inventory(vec![pool("web", 1)], now);
    let before = first(&inventory, now);
    let mut wanted = pool("web", 1);
    wanted.options.retries = 3;
    let after = build(&reload(&inventory, vec![wanted], now), &before, 0, now).unwrap();
    assert_eq!(after.snapshot.pools[0].options.retries, 3);
    assert_eq!(after.snapshot.pools[0].generation, Generation(2));
}

#[test]
fn a_removed_pool_is_absent_from_the_next_snapshot() {
    let now = Instant::now();
    let inventory = inventory(vec![pool("web", 1), pool("api", 1)], now);
    let before = first(&inventory, now);
    let after = build(&reload(&inventory, vec![pool("api", 1)], now), &before, 0, now).unwrap();
    assert_eq!(after.snapshot.pools.len(), 1);
    assert_eq!(after.made_of.len(), 1);
}

#[test]
fn a_candidate_is_identified_by_its_address_alone() {
    let now = Instant::now();
    let mut renamed = pool("api", 2);
    renamed.backends.reverse();
    renamed.backends[0].name = "other".into();
    let inventory = inventory(vec![pool("web", 2), renamed], now);
    let [web, api] =
        [0, 1].map(|i| candidates(&ingredients(&inventory.pools[i], false, now).slots));
    assert_eq!((web[0], web[1]), (api[1], api[0]));
    assert_ne!(web[0].identity, web[1].identity);
}

#[test]
fn a_node_mode_pool_fails_open_while_only_unhealthy_backends_remain() {
    let now = Instant::now();
    let mut inventory = inventory(vec![checked(pool("app", 3)), pool("app.peers", 1)], now);
    let view = |inventory: &Inventory| {
        let view = first(inventory, now).snapshot.pools[0].clone();
        (picked(&view).iter().map(|name| name.to_string()).collect::<Vec<_>>(), view.fails_open)
    };
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    for backend in ["b1", "b2"] {
        check(&mut inventory, backend, false, now);
    }
    inventory.set_admin("app", "b3", AdminState::Drain).unwrap();
    assert_eq!(view(&inventory), (names(&[]), false), "at other front doors");
    inventory.front_doors[0].peers = Some(1);
    assert_eq!(view(&inventory), (names(&["b1", "b2"]), true));
    inventory.set_weight("app", "b1", Some(Weight::new(0).unwrap())).unwrap();
    assert_eq!(view(&inventory), (names(&["b2"]), true));
    check(&mut inventory, "b2", true, now);
    assert_eq!(view(&inventory), (names(&["b2"]), false));
}
