//! Snapshots that cannot be had: refused whole.

use std::net::IpAddr;

use equipoise_core::Generation;
use equipoise_packet::FlowScheduler::Maglev;
use equipoise_packet::abi::Forward;
use equipoise_packet::control::ApplyError;
use equipoise_packet::{Access, Ports, Snapshot, Sources, VipSpec};

use super::world::*;

fn with(vips: Vec<VipSpec>) -> Result<(), ApplyError> {
    let mut world = World::one_vip(Maglev, &[1, 2]);
    let homes = world.open_all(1, 0..50);
    let generation = Generation(world.snapshot.generation.0 + 1);
    let now = world.now;
    let applied = world.control().apply(&Snapshot { generation, vips }, now);
    if applied.is_err() {
        world.settle();
        world.assert_at(1, 0, &homes);
        assert_eq!(world.status().vips.len(), 1, "nothing has changed");
    }
    applied
}

fn nat(number: u8, port: Ports, backend_port: Option<u16>) -> VipSpec {
    let mut spec = vip(number, Maglev, &[1]);
    (spec.forward, spec.ports) = (Forward::Nat, port);
    spec.backends[0].port = backend_port;
    spec
}

#[test]
fn an_older_snapshot_is_refused_as_stale() {
    let mut world = World::one_vip(Maglev, &[1, 2]);
    let now = world.now;
    let old = Snapshot { generation: Generation(0), vips: vec![] };
    assert!(matches!(world.control().apply(&old, now), Err(ApplyError::Stale { .. })));
    let same = world.snapshot.clone();
    world.control().apply(&same, now).expect("the same again");
}

#[test]
fn vips_that_overlap_are_refused() {
    let ranged = |ports| VipSpec { ports, ..vip(1, Maglev, &[1]) };
    for other in [Ports::One(443), Ports::Range(400, 500), Ports::Range(443, 443)] {
        let refused = with(vec![vip(1, Maglev, &[1]), ranged(other)]).unwrap_err();
        assert!(matches!(refused, ApplyError::Overlap { .. }), "{refused}");
    }
    with(vec![vip(1, Maglev, &[1]), ranged(Ports::Any)]).expect("what no other has");
    with(vec![vip(1, Maglev, &[1]), ranged(Ports::Range(444, 500))]).unwrap();
    let refused = with(vec![ranged(Ports::Range(5, 4))]).unwrap_err();
    assert!(matches!(refused, ApplyError::Range { .. }));
    let many = (0..17).map(|at| ranged(Ports::Range(at * 10 + 1, at * 10 + 5))).collect();
    assert!(matches!(with(many).unwrap_err(), ApplyError::Ranges { .. } | ApplyError::Room { .. }));
}

#[test]
fn duplicate_or_incompatible_backends_are_refused() {
    let refused = with(vec![vip(1, Maglev, &[1, 2, 1])]).unwrap_err();
    assert!(refused.to_string().contains("10.200.0.1 stands twice"), "{refused}");
    let mut six = vip(1, Maglev, &[1]);
    six.backends[0].address = "2001:db8::1".parse::<IpAddr>().unwrap();
    assert!(matches!(with(vec![six.clone()]).unwrap_err(), ApplyError::Family { .. }));
    six.forward = Forward::Tunnel;
    with(vec![six]).unwrap();
    let mut port = vip(1, Maglev, &[1]);
    port.backends[0].port = Some(80);
    assert!(matches!(with(vec![port]).unwrap_err(), ApplyError::Port { .. }));
}

#[test]
fn vips_with_indistinguishable_replies_are_refused() {
    let one = nat(1, Ports::One(443), Some(8080));
    with(vec![one.clone(), nat(2, Ports::One(443), Some(8081))]).unwrap();
    let refused = with(vec![one.clone(), nat(2, Ports::One(443), Some(8080))]).unwrap_err();
    assert!(matches!(refused, ApplyError::Reverse { .. }), "{refused}");
    let refused = with(vec![nat(1, Ports::One(443), None), nat(2, Ports::One(443), None)]);
    assert!(matches!(refused.unwrap_err(), ApplyError::Reverse { .. }));
    let refused = with(vec![nat(1, Ports::Range(1, 9), Some(80))]).unwrap_err();
    assert!(matches!(refused, ApplyError::Port { .. }), "a port cannot be turned back into many");
}

#[test]
fn a_snapshot_beyond_capacity_is_refused_with_the_capacity_and_the_option_to_raise() {
    let vips = (1..=9).map(|number| vip(number, Maglev, &[1])).collect();
    let refused = with(vips).unwrap_err().to_string();
    assert!(refused.contains("9 VIPs") && refused.contains("room for 8"), "{refused}");
    assert!(refused.contains("raise [flows] vips-max and restart"), "{refused}");
    let refused = with(vec![vip(1, Maglev, &(0..65).collect::<Vec<_>>())]).unwrap_err().to_string();
    assert!(refused.contains("65 backends") && refused.contains("room for 64"), "{refused}");
    assert!(refused.contains("raise [flows] backends-max and restart"), "{refused}");
    let mut denies = vip(1, Maglev, &[1]);
    denies.access = Access::new(true, (1..=2100).map(|n| n << 8));
    let refused = with(vec![denies]).unwrap_err().to_string();
    assert!(refused.contains("prefixes of `allow` and `deny`"), "{refused}");
    assert!(refused.contains("raise [flows] prefixes-max and restart"), "{refused}");
}

#[test]
fn full_nat_sources_without_memory_or_already_in_use_are_refused() {
    let full = |addresses: &[IpAddr]| {
        let sources = Sources { addresses: addresses.to_vec(), ..Sources::default() };
        VipSpec { forward: Forward::FullNat, sources, ..vip(1, Maglev, &[1]) }
    };
    let own = IpAddr::from([10, 201, 0, 1]);
    // These tables have no memory for ports.
    assert!(matches!(with(vec![full(&[own])]).unwrap_err(), ApplyError::NoPorts { .. }));
    for wrong in [&[][..], &[own, own], &[IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]] {
        assert!(matches!(with(vec![full(wrong)]).unwrap_err(), ApplyError::Sources { .. }));
    }
    for used in [vip(1, Maglev, &[]).address, address_of(1)] {
        let refused = with(vec![full(&[own, used])]).unwrap_err();
        assert!(matches!(refused, ApplyError::SourceUsed { address, .. } if address == used));
    }
}

#[test]
fn a_backend_at_the_address_of_a_vip_is_refused() {
    for forward in [Forward::Nat, Forward::Tunnel, Forward::Gue, Forward::DirectRouting] {
        let mut spec = VipSpec { forward, ..vip(1, Maglev, &[1]) };
        spec.backends[0].address = spec.address;
        assert!(matches!(with(vec![spec]).unwrap_err(), ApplyError::Loop { .. }), "{forward:?}");
        let (mut first, second) = (vip(1, Maglev, &[1]), vip(2, Maglev, &[2]));
        first.forward = forward;
        first.backends[0].address = second.address;
        let refused = with(vec![first.clone(), second.clone()]).unwrap_err();
        let expected = ApplyError::Loop { vip: first.id(), of: second.id() };
        assert_eq!(refused, expected, "{forward:?}");
    }
}
