use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use equipoise_core::AdminState::{Down, Drain, Up};
use equipoise_core::Weight;

use super::super::build::{Published, build};
use super::super::fixtures::*;
use super::*;
use crate::config::checks::HttpCheck;
use crate::config::{HealthCheck, PassiveHealth, Place, Protocol, Resolved};

#[test]
fn a_backend_with_the_same_pool_and_address_keeps_its_state() {
    let now = Instant::now();
    let mut before = inventory(vec![checked(pool("web", 2))], now);
    before.set_admin("web", "b1", Drain).unwrap();
    before.set_weight("web", "b1", Some(Weight::new(7).unwrap())).unwrap();
    check(&mut before, "b1", false, now);

    let mut wanted = checked(pool("web", 2));
    wanted.backends[0].name = "renamed".into();
    wanted.backends[0].weight = Weight::new(3).unwrap();
    wanted.backends.reverse();
    let (after, changes) = before.reloaded(&config(vec![wanted]), THREADS, now).unwrap();

    let (old, new) = (entry(&before, "web", "b1"), entry(&after, "web", "renamed"));
    assert_eq!(new.id, old.id);
    assert!(Arc::ptr_eq(&new.live, &old.live));
    assert_eq!((new.admin, new.weight().get(), new.config.weight.get()), (Drain, 7, 3));
    assert_eq!(new.health, old.health);
    assert_eq!(new.last_check, old.last_check);
    assert_eq!(changes.backends.changed, ["web/renamed"]);
    assert!(changes.pools.is_empty() && changes.front_doors.is_empty(), "{changes}");
}

#[test]
fn ids_are_never_reused() {
    let now = Instant::now();
    let first = inventory(vec![pool("web", 1)], now);
    let without = reload(&first, vec![], now);
    let again = reload(&without, vec![pool("web", 1)], now);
    let ids = |i: &Inventory| (i.pools[0].id, i.pools[0].backends[0].id, i.front_doors[0].id);
    let (old, new) = (ids(&first), ids(&again));
    assert!(old.0 != new.0 && old.1 != new.1 && old.2 != new.2, "{old:?} {new:?}");
    assert!(!Arc::ptr_eq(&entry(&first, "web", "b1").live, &entry(&again, "web", "b1").live));

    let refused = reload(&first, vec![pool("web", 3)], now);
    let mut kept = first.clone();
    kept.skip_ids_of(&refused);
    let next = reload(&kept, vec![pool("web", 3)], now);
    assert!(entry(&next, "web", "b2").id > entry(&refused, "web", "b3").id);
}

#[test]
fn the_same_address_in_two_pools_is_two_backends() {
    let inventory = inventory(vec![pool("a", 1), pool("b", 1)], Instant::now());
    let (a, b) = (entry(&inventory, "a", "b1"), entry(&inventory, "b", "b1"));
    assert_ne!(a.id, b.id);
    assert!(!Arc::ptr_eq(&a.live, &b.live));
}

#[test]
fn a_front_door_with_the_same_socket_keeps_its_counters() {
    let now = Instant::now();
    let before = inventory(vec![pool("web", 1), pool("api", 1)], now);
    before.front_doors[0].stats.shard(0).requests.add(5);
    let mut wanted = config(vec![pool("web", 1), pool("api", 1)]);
    wanted.front_doors[0].name = "front".into();
    wanted.front_doors[0].pool = "api".into();
    wanted.front_doors[1].protocol = Protocol::Tcp;
    let (after, changes) = before.reloaded(&wanted, THREADS, now).unwrap();
    let (old, new) = (&before.front_doors, &after.front_doors);
    assert_eq!((new[0].id, new[0].pool), (old[0].id, 1));
    assert_eq!(new[0].stats.sum(|s| s.requests.get()), 5);
    assert_eq!(new[1].id, old[1].id, "TCP and HTTP listen alike");
    assert_eq!(changes.front_doors.changed, ["front", "http:127.0.0.1:8001"]);
    wanted.front_doors[1].protocol = Protocol::Udp;
    let (last, changes) = after.reloaded(&wanted, THREADS, now).unwrap();
    assert_ne!(last.front_doors[1].id, old[1].id);
    assert_eq!(changes.front_doors.added.len(), 1);
    assert_eq!(changes.front_doors.removed, ["http:127.0.0.1:8001"]);
}

#[test]
fn the_change_summary_lists_pools_backends_and_front_doors_separately() {
    let now = Instant::now();
    let before = inventory(vec![pool("web", 2), pool("old", 1)], now);
    let mut web = pool("web", 3);
    web.backends.remove(0);
    web.slow_start = Some(seconds(10));
    let mut wanted = config(vec![web, pool("new", 1)]);
    wanted.front_doors[0] = front_door(8002, "web");
    let (after, changes) = before.reloaded(&wanted, THREADS, now).unwrap();
    assert_eq!(changes.pools.changed, ["web"]);
    assert_eq!(changes.pools.added, ["new"]);
    assert_eq!(changes.pools.removed, ["old"]);
    assert_eq!(changes.backends.added, ["web/b3", "new/b1"]);
    assert_eq!(changes.backends.removed, ["web/b1", "old/b1"]);
    assert!(changes.backends.changed.is_empty());
    assert_eq!(changes.front_doors.added, ["http:127.0.0.1:8002"]);
    assert_eq!(changes.front_doors.changed, ["http:127.0.0.1:8001"]);
    assert_eq!(changes.front_doors.removed, ["http:127.0.0.1:8000"]);
    let (_, again) = after.reloaded(&wanted, THREADS, now).unwrap();
    assert!(again.is_empty(), "{again}");
}

#[test]
fn a_removed_backend_is_not_cut() {
    let now = Instant::now();
    let before = inventory(vec![pool("web", 2)], now);
    let live = Arc::clone(&entry(&before, "web", "b2").live);
    reload(&before, vec![pool("web", 1)], now).cut_downed();
    assert!(!live.cut.load(Relaxed));
}

#[test]
fn removing_the_checks_of_a_pool_makes_its_backends_eligible() {
    let now = Instant::now();
    let mut before = inventory(vec![checked(pool("web", 1))], now);
    check(&mut before, "b1", false, now);
    assert!(eligible(&before).is_empty());
    let after = reload(&before, vec![pool("web", 1)], now);
    assert_eq!(eligible(&after), ["b1"]);
    assert_eq!(entry(&after, "web", "b1").last_check, None);
}

#[test]
fn a_replaced_check_keeps_the_old_verdict_until_its_own_result() {
    let now = Instant::now();
    let mut before = inventory(vec![checked(pool("web", 2))], now);
    check(&mut before, "b1", false, now);
    let mut wanted = checked(pool("web", 2));
    let http = HealthCheck::Http(HttpCheck::get("/"));
    wanted.health.as_mut().unwrap().check = http;
    let mut after = reload(&before, vec![wanted], now);
    assert_eq!(eligible(&after), ["b2"]);
    check(&mut after, "b1", true, now);
    assert_eq!(eligible(&after), ["b1", "b2"]);
}

#[test]
fn turning_passive_health_off_ends_ejections() {
    let now = Instant::now();
    let mut before = inventory(vec![pool("web", 2)], now);
    fail(&mut before, "b1", now);
    assert_eq!(eligible(&before), ["b2"]);
    let passive = PassiveHealth { failures: 0, ..PassiveHealth::default() };
    let after = reload(&before, vec![PoolConfig { passive, ..pool("web", 2) }], now);
    assert_eq!(eligible(&after), ["b1", "b2"]);
    assert_eq!(entry(&after, "web", "b1").admin, Up);
}

#[test]
fn a_front_door_to_an_unknown_pool_is_refused_with_suggestion() {
    let mut wanted = config(vec![pool("web", 1)]);
    wanted.front_doors[0].pool = "wep".into();
    let refused = Inventory::default().reloaded(&wanted, THREADS, Instant::now());
    let error = refused.err().unwrap().to_string();
    assert_eq!(
        error,
        "front door `http:127.0.0.1:8000` names pool `wep` (option `pool`), which is not \
         configured; did you mean `web`?"
    );
}

#[test]
fn find_matches_a_name_or_address_and_otherwise_suggests_a_name() {
    let mut inventory = inventory(vec![pool("web", 2)], Instant::now());
    for name in ["b2", "10.0.0.2:80"] {
        assert_eq!(&*inventory.find("web", name).unwrap().1.config.name, "b2");
    }
    let error = |inventory: &mut Inventory, pool: &str, backend: &str| {
        inventory.find(pool, backend).err().unwrap().to_string()
    };
    let unknown = error(&mut inventory, "web", "b2x");
    assert_eq!(unknown, "pool `web` has no backend `b2x`; did you mean `b2`?");
    let unknown = error(&mut inventory, "wbe", "b1");
    assert_eq!(unknown, "there is no pool `wbe`; did you mean `web`?");
}

#[test]
fn a_reload_takes_time_in_proportion_to_pools() {
    let now = Instant::now();
    let time_of = |count: usize| {
        let pools = || (0..count).map(|number| pool(&format!("p{number}"), 1)).collect();
        let mut before = inventory(pools(), now);
        let published = build(&before, &Published::default(), 0, now).unwrap();
        let work = || {
            before = reload(&before, pools(), now);
            assert!(build(&before, &published, 0, now).is_none(), "nothing changed");
        };
        equipoise_testkit::cpu_time(work)
    };
    let best_of = |count| (0..3).map(|_| time_of(count)).min().unwrap();
    let (few, many) = (best_of(500), best_of(8000));
    // 16 times as many: 256 times as long if every pool were compared with every other.
    assert!(many < few * 64, "500 pools: {few:?}, 8000 pools: {many:?}");
}

/// `b1` with these addresses, given by name.
fn named(addresses: &[&str], problem: Option<&str>) -> PoolConfig {
    let mut pool = checked(pool("web", 2));
    let addresses = addresses.iter().map(|address| address.parse().unwrap());
    let resolved = Resolved::new(addresses).with_problem(problem.map(Into::into));
    pool.backends[0].place = Place::Host { name: "b1.internal:80".into(), resolved };
    pool
}

#[test]
fn a_host_name_without_an_address_is_unhealthy_until_it_has_one() {
    let now = Instant::now();
    let before = inventory(vec![named(&[], None)], now);
    assert_eq!(eligible(&before), ["b2"]);
    assert_eq!(entry(&before, "web", "b1").verdict(), Health::Unhealthy);
    let after = reload(&before, vec![named(&["10.0.0.1:80"], None)], now);
    assert_eq!(eligible(&after), ["b1", "b2"]);
}

#[test]
fn a_host_name_with_new_addresses_keeps_its_backend_and_state() {
    let now = Instant::now();
    let before = inventory(vec![named(&["10.0.0.1:80", "10.0.0.2:80"], None)], now);
    let again = named(&["10.0.0.2:80", "10.0.0.1:80"], Some("no answer"));
    let mut before = before;
    check(&mut before, "b1", true, now);
    before.set_admin("web", "b1", Down).unwrap();
    let (same, changes) = before.reloaded(&config(vec![again]), THREADS, now).unwrap();
    assert!(changes.is_empty(), "{changes}");
    assert_eq!(entry(&same, "web", "b1").id, entry(&before, "web", "b1").id);
    let other = named(&["10.0.0.3:80"], None);
    let (moved, changes) = same.reloaded(&config(vec![other]), THREADS, now).unwrap();
    assert!(changes.is_empty(), "the configuration states the same: {changes}");
    let (old, new) = (entry(&same, "web", "b1"), entry(&moved, "web", "b1"));
    assert_eq!(new.id, old.id);
    assert_eq!((&new.health, new.admin, new.last_check.is_some()), (&old.health, Down, true));
    assert!(Arc::ptr_eq(&new.live, &old.live));
}
