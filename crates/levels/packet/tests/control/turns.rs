//! Schedulers that are no hash: picked on the first packet, recorded, pinned.

use std::time::Duration;

use equipoise_core::{AdminState, Weight};
use equipoise_packet::FlowScheduler::{
    LeastConnection, Nq, RoundRobin, Sed, Sh, WeightedLeastConnection, WeightedRoundRobin,
};
use equipoise_packet::abi::{FlowKey, How};
use equipoise_packet::{Capacity, Protocol, Reason, Registry};

use super::world::*;

const SECOND: Duration = Duration::from_secs(1);

fn counts(homes: &[Backend], of: &[Backend]) -> Vec<usize> {
    of.iter().map(|number| homes.iter().filter(|home| *home == number).count()).collect()
}

#[test]
fn turns_are_taken_by_weight() {
    let mut world = World::one_vip(RoundRobin, &[1, 2, 3]);
    let homes = world.open_all(1, 0..300);
    assert_eq!(counts(&homes, &[1, 2, 3]), [100, 100, 100]);
    let mut spec = vip(1, WeightedRoundRobin, &[1, 2, 3]);
    spec.backends[2].weight = Weight::new(4).unwrap();
    world.apply(vec![spec]);
    world.run(Duration::from_millis(20));
    let homes = world.open_all(1, 300..900);
    assert_eq!(counts(&homes, &[1, 2, 3]), [100, 100, 400], "from the next tick on");
}

#[test]
fn flows_keep_their_backends_after_their_pending_records_are_deleted() {
    for scheduler in
        [RoundRobin, WeightedRoundRobin, LeastConnection, WeightedLeastConnection, Sed, Nq, Sh]
    {
        let mut world = World::one_vip(scheduler, &[1, 2, 3, 4]);
        let mut homes = Vec::new();
        for round in 0..40_u32 {
            homes.extend(world.open_all(1, round * 50..round * 50 + 50));
            world.run(Duration::from_millis(50));
            match round {
                10 => world.change(1, |pool| pool.push(backend(5))),
                20 => world.change(1, |pool| pool.retain(|it| it.address != address_of(2))),
                30 => world.change(1, |pool| pool[0].admin = AdminState::Drain),
                _ => {}
            }
            world.assert_at(1, 0, &homes);
        }
        world.settle();
        world.assert_at(1, 0, &homes);
        let status = world.status();
        assert_eq!((status.pending, status.moved), (0, 0), "{scheduler}");
        assert!(status.pins > 1000, "{scheduler}: {} pins", status.pins);
    }
}

/// A client repeats a SYN without an answer. The table may know the key from a flow that has ended.
#[test]
fn repeated_syns_of_a_port_that_is_used_again_reach_one_backend() {
    for scheduler in [RoundRobin, WeightedRoundRobin, LeastConnection, WeightedLeastConnection] {
        let mut world = World::one_vip(scheduler, &[1, 2, 3, 4]);
        world.open_all(1, 0..200);
        world.run(SECOND);
        for client in 0..200 {
            world.send(tcp(1, client, FIN));
        }
        world.run(2 * SECOND);
        let first: Vec<_> = (0..200).map(|client| world.send(tcp(1, client, SYN))).collect();
        for repetition in 0..3 {
            world.run(SECOND);
            for (client, backend) in (0..).zip(&first) {
                let to = world.send(tcp(1, client, SYN));
                assert_eq!(to, *backend, "{scheduler}: client {client}, {repetition}");
            }
        }
        world.run(20 * SECOND);
        assert_eq!(world.status().pending, 0, "{scheduler}: no record stays");
    }
}

#[test]
fn the_least_loaded_backend_gets_the_next_flow() {
    let mut world = World::one_vip(LeastConnection, &[1, 2, 3]);
    let homes = world.open_all(1, 0..300);
    assert_eq!(counts(&homes, &[1, 2, 3]), [100, 100, 100], "by what the program counts itself");
    world.run(SECOND);
    for (client, _) in (0..).zip(&homes).filter(|(_, home)| **home == 2) {
        world.send(tcp(1, client, RST));
    }
    world.run(SECOND);
    // A closing flow weighs 1, an open one 256.
    assert!(world.open_all(1, 1000..1050).iter().all(|&home| home == 2));
    world.run(40 * SECOND);
    let status = world.vip_status(1);
    let active: Vec<_> = status.backends.iter().map(|it| (it.active, it.inactive)).collect();
    assert_eq!(active, [(100, 0), (50, 0), (100, 0)]);
}

/// Between two ticks, the program knows of new flows what it counted itself.
#[test]
fn connections_opened_one_after_another_are_spread_over_unequal_backends() {
    for scheduler in [LeastConnection, WeightedLeastConnection] {
        let mut world = World::one_vip(scheduler, &[1, 2, 3]);
        let homes = world.open_all(1, 0..60);
        world.run(SECOND);
        for (client, _) in (0..).zip(&homes).filter(|(_, home)| **home == 3) {
            world.send(tcp(1, client, RST));
        }
        // Backend 3 has none, and is 20 behind: it gets those, and then a third of the others.
        world.run(20 * SECOND);
        let homes = world.open_all(1, 1000..1050);
        assert_eq!(counts(&homes, &[1, 2, 3]), [10, 10, 30], "{scheduler}");
    }
}

/// Opens flows, and compares each choice with `expected`, which knows the number of flows of each
/// backend.
fn compare_choices(
    scheduler: equipoise_packet::FlowScheduler,
    weights: [u16; 4],
    expected: impl Fn(&[u64; 4], &[u64; 4]) -> usize,
) {
    let mut spec = vip(1, scheduler, &[1, 2, 3, 4]);
    for (backend, weight) in spec.backends.iter_mut().zip(weights) {
        backend.weight = Weight::new(weight).unwrap();
    }
    let mut world = World::one_vip(scheduler, &[]);
    world.apply(vec![spec]);
    world.settle();
    let (weights, mut active) = (weights.map(u64::from), [0; 4]);
    for client in 0..500 {
        let slot = expected(&active, &weights);
        active[slot] += 1;
        let home = Some(slot as Backend + 1);
        assert_eq!(world.open(1, client), home, "{scheduler} {weights:?}, flow {client}");
        if client % 50 == 49 {
            world.run(SECOND);
        }
    }
}

/// Naive models of ip_vs_sed.c and ip_vs_nq.c: in fractions, where LVS multiplies.
#[test]
fn sed_and_nq_choose_as_lvs_does() {
    let shortest = |active: &[u64; 4], weights: &[u64; 4]| {
        let delay = |at: usize| (active[at] + 1) as f64 / weights[at] as f64;
        let eligible = (0..4).filter(|at| weights[*at] > 0);
        eligible.min_by(|a, b| delay(*a).total_cmp(&delay(*b))).unwrap()
    };
    let idle_first = |active: &[u64; 4], weights: &[u64; 4]| {
        let idle = (0..4).find(|at| weights[*at] > 0 && active[*at] == 0);
        idle.unwrap_or_else(|| shortest(active, weights))
    };
    for weights in [[1, 1, 1, 1], [1, 2, 4, 8], [7, 0, 3, 1], [100, 1, 1, 99]] {
        compare_choices(Sed, weights, shortest);
        compare_choices(Nq, weights, idle_first);
    }
}

/// A naive model of ip_vs_sh.c: 256 buckets, filled by weight in the order of the file.
#[test]
fn sh_chooses_by_the_address_as_lvs_does() {
    let weights: [u16; 3] = [3, 1, 2];
    let mut spec = vip(1, Sh, &[1, 2, 3]);
    for (backend, weight) in spec.backends.iter_mut().zip(weights) {
        backend.weight = Weight::new(weight).unwrap();
    }
    let mut world = World::one_vip(Sh, &[]);
    world.apply(vec![spec]);
    world.settle();
    let (mut buckets, mut at, mut filled) = (Vec::new(), 0, 0);
    while buckets.len() < 256 {
        buckets.push(at as Backend + 1);
        filled += 1;
        if filled >= weights[at] {
            (at, filled) = ((at + 1) % weights.len(), 0);
        }
    }
    let expected = |client: u32| {
        let hash = client_of(client).0.to_bits().wrapping_mul(0x61c8_8647);
        buckets[hash as usize >> 24]
    };
    let clients: Vec<u32> = (0..400).map(|number| number * 37).collect();
    let homes: Vec<_> = clients.iter().map(|client| world.open(1, *client).unwrap()).collect();
    assert_eq!(homes, clients.iter().map(|client| expected(*client)).collect::<Vec<_>>());
    assert!([1, 2, 3].iter().all(|home| homes.contains(home)));
    // A backend less: other clients, too, get another backend, and flows stay.
    world.change(1, |pool| pool.retain(|it| it.address != address_of(2)));
    world.settle();
    for (client, home) in clients.iter().zip(&homes) {
        assert_eq!(world.send(tcp(1, *client, ACK)), Some(*home), "client {client}");
    }
    let fresh = |world: &mut World| world.open_all(1, 100_000..100_640);
    let again = fresh(&mut world);
    assert!(!again.contains(&2));
}

#[test]
fn a_flow_that_is_not_established_counts_as_load_until_opening_times_out() {
    let mut world = World::one_vip(LeastConnection, &[1, 2]);
    // Half of them at backend 1, which are completed.
    for client in 0..40 {
        if world.send(tcp(1, client, SYN)) == Some(1) {
            world.send(tcp(1, client, ACK));
        }
    }
    world.run(settings().opening_timeout - SECOND);
    let homes = world.open_all(1, 100..120);
    assert_eq!(counts(&homes, &[1, 2]), [10, 10], "20 each are counted");
    world.run(2 * SECOND);
    let homes = world.open_all(1, 200..220);
    assert_eq!(counts(&homes, &[1, 2]), [0, 20], "20 of backend 2 are not counted any more");
}

#[test]
fn flows_that_never_open_stop_counting_as_load() {
    let mut world = World::one_vip(LeastConnection, &[1, 2]);
    for client in 0..300 {
        world.send(tcp(1, client, SYN));
    }
    world.run(6 * SECOND);
    let loads = [0, 1].map(|slot| {
        world.memories[0]
            .state
            .load(slot)
            .map(|load| load.load(std::sync::atomic::Ordering::Relaxed))
    });
    assert_eq!(loads, [[0, 0], [0, 0]]);
    world.run(54 * SECOND);
    assert_eq!((world.status().pending, world.flows()), (0, 0));
}

#[test]
fn new_flows_follow_the_ring_until_a_flood_of_syns_ends() {
    let mut world = World::new(1, Capacity { pending: 32_768, ..capacity() }, settings());
    world.apply(vec![vip(1, RoundRobin, &[1, 2, 3])]);
    world.settle();
    let mut homes = world.open_all(1, 0..500);
    world.run(SECOND);
    let by_turn = |world: &mut World| world.vip_status(1).hows[How::Turn as usize];
    let by_pin = |world: &mut World| world.vip_status(1).hows[How::Pin as usize];
    let pinned = by_pin(&mut world);
    for client in 0..60_000 {
        world.send(tcp(1, 100_000 + client, SYN));
    }
    let turns = by_turn(&mut world);
    assert!(turns <= 500 + 24_576, "{turns}: three quarters of pending");
    let full = world.vip_status(1).reasons[Reason::PendingFull as usize];
    // Three slots in 2^16: some strangers match a pin.
    let strangers = by_pin(&mut world) - pinned;
    assert!(strangers < 60, "{strangers} of 60,000 match a pin falsely");
    assert_eq!(full, 60_000 - (turns - 500) - strangers, "counted");
    homes.extend(world.open_all(1, 500..1000));
    assert_eq!(by_turn(&mut world), turns, "by the ring");
    assert_eq!(world.flows(), 500);
    world.run(SECOND);
    assert_eq!(world.flows(), 1000);
    // Flows without further packets are forgotten.
    for _ in 0..10 {
        world.run(SECOND);
        world.assert_at(1, 0, &homes);
    }
    homes.extend(world.open_all(1, 1000..1300));
    assert_eq!(by_turn(&mut world), turns + 300, "turns again");
    world.settle();
    world.assert_at(1, 0, &homes);
}

/// Each packet of UDP may be a flow's first.
#[test]
fn a_udp_flow_keeps_the_backend_of_its_first_packet() {
    let mut world = World::new(1, capacity(), settings());
    let mut spec = vip(1, RoundRobin, &[1, 2, 3, 4]);
    spec.protocol = Protocol::Udp;
    world.apply(vec![spec]);
    world.settle();
    let homes: Vec<_> = (0..1000).map(|client| world.send(udp(1, client))).collect();
    for round in 0..60 {
        world.run(Duration::from_millis(333));
        if round == 20 {
            world.change(1, |pool| pool.push(backend(5)));
        }
        for (client, home) in (0..).zip(&homes) {
            assert_eq!(world.send(udp(1, client)), *home, "client {client}");
        }
    }
    assert_eq!(world.status().pins, 1000);
}

/// A client's later connections open with a SYN, and belong where its first one is.
#[test]
fn with_a_source_address_key_a_client_is_one_flow() {
    for scheduler in [RoundRobin, equipoise_packet::FlowScheduler::Maglev] {
        let mut world = World::new(1, capacity(), settings());
        let mut spec = vip(1, scheduler, &[1, 2, 3, 4]);
        spec.key = FlowKey::SourceAddress;
        world.apply(vec![spec]);
        world.settle();
        // 64 clients share an address.
        let homes: Vec<_> = (0..100).map(|address| world.open(1, address * 64)).collect();
        for round in 1..50 {
            world.run(Duration::from_millis(100));
            if round % 16 == 10 {
                world.change(1, |pool| pool.push(backend(5 + round as u16)));
            }
            for (address, home) in (0..).zip(&homes) {
                assert_eq!(
                    world.open(1, address * 64 + round),
                    *home,
                    "{scheduler} {address} {round}"
                );
            }
        }
        assert_eq!(world.flows(), 100);
    }
}

#[test]
fn with_a_source_prefix_key_clients_sharing_it_are_one_flow() {
    for scheduler in [RoundRobin, equipoise_packet::FlowScheduler::Maglev] {
        let mut world = World::new(1, capacity(), settings());
        let mut spec = vip(1, scheduler, &[1, 2, 3, 4]);
        spec.key = FlowKey::SourcePrefix(24);
        world.apply(vec![spec.clone()]);
        world.settle();
        // 64 clients share an address, and 256 addresses a prefix.
        let client = |prefix: u32, number: u32| prefix * 64 * 256 + number;
        let homes: Vec<_> = (0..40).map(|prefix| world.open(1, client(prefix, 7))).collect();
        assert!((1..=4).all(|backend| homes.contains(&Some(backend))), "{homes:?}");
        world.change(1, |pool| pool.push(backend(5)));
        for number in [0, 63, 64, 64 * 255 + 63] {
            world.run(SECOND);
            for (prefix, home) in (0..).zip(&homes) {
                assert_eq!(world.open(1, client(prefix, number)), *home, "{prefix} {number}");
            }
        }
        assert_eq!(world.flows(), 40);
        // Another length is another VIP.
        spec.key = FlowKey::SourcePrefix(16);
        world.apply(vec![spec]);
        world.settle();
        assert_eq!(world.vip_status(1).flows, 0);
    }
}

#[test]
fn flows_stay_when_the_scheduler_changes() {
    use equipoise_packet::FlowScheduler::{Maglev, WeightedRandom};
    let mut world = World::one_vip(RoundRobin, &[1, 2, 3, 4]);
    let mut homes = Vec::new();
    for (round, scheduler) in
        [Maglev, LeastConnection, WeightedRandom, RoundRobin, Maglev].into_iter().enumerate()
    {
        let first = 200 * round as u32;
        homes.extend(world.open_all(1, first..first + 200));
        let opening: Vec<_> =
            (0..50).map(|at| world.send(tcp(1, 9000 + first + at, SYN))).collect();
        world.apply(vec![vip(1, scheduler, &[1, 2, 3, 4])]);
        world.run(Duration::from_millis(35));
        for (client, home) in (9000 + first..).zip(opening) {
            assert_eq!(world.send(tcp(1, client, ACK)), home, "{scheduler} {client}: handshake");
        }
        for _ in 0..30 {
            world.run(Duration::from_millis(100));
            world.assert_at(1, 0, &homes);
        }
    }
    world.run(30 * SECOND);
    assert_eq!((world.status().pending, world.status().moved), (0, 0));
}

#[test]
fn pending_records_of_a_flood_expire_after_a_restart() {
    let file = std::env::temp_dir().join(format!("equipoise-control-flood-{}", std::process::id()));
    let open = || Registry::open(&file, capacity().flows, settings().fleet_seed).unwrap();
    let mut world = World::with_registry(1, capacity(), settings(), open());
    world.apply(vec![vip(1, RoundRobin, &[1, 2, 3])]);
    world.settle();
    for client in 0..2000 {
        world.send(tcp(1, client, SYN));
    }
    drop(world.control.take());
    // Packets arrive while the control side does not run.
    for client in 2000..3000 {
        world.send(tcp(1, client, SYN));
    }
    world.start(open());
    let vips = world.snapshot.vips.clone();
    world.apply(vips);
    assert_eq!(world.status().pending, 3000);
    world.run(Duration::from_secs(120));
    assert_eq!(world.status().pending, 0);
    let _ = std::fs::remove_file(&file);
}
