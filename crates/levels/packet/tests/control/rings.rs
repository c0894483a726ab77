//! Rings in the published tables: VIPs with equal pools share one.

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use equipoise_packet::FlowScheduler::{Maglev, RoundRobin, WeightedRandom};
use equipoise_packet::abi::{How, Service};
use equipoise_packet::{Registry, TablesReader, pin_form};

use super::world::*;

/// Returns the places of the rings of the first services.
fn rings<const N: usize>(world: &World) -> [u32; N] {
    let tables = world.memories[0].tables.clone();
    let reader = TablesReader::open(tables, pin_form()).unwrap();
    let services = (world.limits.services_offset - world.limits.directory_offset) as usize;
    std::array::from_fn(|index| {
        let at = services + index * size_of::<Service>() + offset_of!(Service, ring);
        // The ring is in the lower half of its word.
        reader.read(|view| view.extra()[at / 8].load(Relaxed)) as u32
    })
}

#[test]
fn vips_with_equal_pools_share_a_ring_and_change_independently() {
    let mut world = World::new(1, capacity(), settings());
    let pool = [1, 2, 3, 4];
    world.apply(vec![
        vip(1, Maglev, &pool),
        vip(2, WeightedRandom, &pool),
        vip(3, Maglev, &[1, 2]),
    ]);
    world.settle();
    let [one, two, three] = rings(&world);
    assert!(one == two && three != one, "{one} {two} {three}");
    let homes = [1, 2].map(|vip| world.open_all(vip, 0..2000));
    let same = homes[0].iter().zip(&homes[1]).filter(|(a, b)| a == b).count();
    assert!((400..600).contains(&same), "flows to two VIPs are independent: {same} of 2000");

    // During the change and afterwards no flow moves, and none of the other VIP is recorded.
    world.change(2, |pool| pool.push(backend(9)));
    for _ in 0..40 {
        world.run(Duration::from_millis(60));
        world.assert_at(1, 0, &homes[0]);
        world.assert_at(2, 0, &homes[1]);
    }
    let [one, two, _] = rings(&world);
    assert_ne!(one, two);
    let by_ring = |world: &World, vip| {
        (0..2000).filter(|&it| world.how(0, tcp(vip, it, ACK)) == Some(How::Ring)).count()
    };
    assert!(by_ring(&world, 1) > 1990 && by_ring(&world, 2) < 1900);

    // The other one follows, and the next process shares, too.
    world.change(1, |pool| pool.push(backend(9)));
    world.settle();
    let [one, two, _] = rings(&world);
    assert_eq!(one, two);
    let registry = Registry::anonymous(world.capacity.flows).unwrap();
    world.control = None;
    world.start(registry);
    let vips = world.snapshot.vips.clone();
    world.apply(vips);
    world.settle();
    assert_eq!(rings(&world), [one; 2], "in the same place");
    assert_eq!(world.done.moved, 0);
}

/// Balancers of a fleet may get their VIPs in another order, and have other slots.
#[test]
fn a_new_flows_backend_does_not_depend_on_earlier_vips() {
    let first = World::one_vip(Maglev, &[1, 2, 3]);
    let mut later = World::new(1, capacity(), settings());
    later.apply(vec![vip(5, RoundRobin, &[3, 2, 1]), vip(4, Maglev, &[3, 2, 1])]);
    later.settle();
    let mut vips = later.snapshot.vips.clone();
    vips.push(vip(1, Maglev, &[3, 1, 2]));
    later.apply(vips);
    later.settle();
    let mut first = first;
    for client in 0..2000 {
        assert_eq!(later.open(1, client), first.open(1, client), "client {client}");
    }
}
