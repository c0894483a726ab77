//! Lists of accepted and refused sources: their changes, and restarts.

use equipoise_packet::FlowScheduler::Maglev;
use equipoise_packet::control::ApplyError;
use equipoise_packet::{Access, Capacity, Reason, VipSpec};

use super::world::*;

/// Refuses the addresses of these clients; 64 clients share an address.
pub(super) fn refusing(clients: std::ops::Range<u32>) -> VipSpec {
    let bits = |client| u128::from(client_of(client).0.to_bits());
    let access = Access::new(true, [bits(clients.start), bits(clients.end)]);
    VipSpec { access, ..vip(1, Maglev, &[1, 2, 3]) }
}

fn denied(world: &mut World) -> u64 {
    world.vip_status(1).reasons[Reason::SourceDenied as usize]
}

#[test]
fn new_lists_hold_from_the_next_publication_on_and_move_no_flow() {
    let mut world = World::one_vip(Maglev, &[1, 2, 3]);
    let homes = world.open_all(1, 0..640);
    world.settle();
    world.apply(vec![refusing(64..128)]);
    world.run(settings().tick);
    for client in 64..128 {
        assert_eq!(world.send(tcp(1, client, ACK)), None);
    }
    assert_eq!(denied(&mut world), 64);
    world.assert_at(1, 0, &homes[..64]);
    world.assert_at(1, 128, &homes[128..]);
    // Other lists: at any time one of both holds.
    world.apply(vec![refusing(128..192)]);
    world.run(settings().tick);
    world.assert_at(1, 0, &homes[..128]);
    assert_eq!(world.send(tcp(1, 128, ACK)), None);
    world.apply(vec![vip(1, Maglev, &[1, 2, 3])]);
    world.run(settings().tick);
    world.assert_at(1, 0, &homes);
    assert_eq!((denied(&mut world), world.status().moved), (65, 0));
}

#[test]
fn lists_without_room_are_refused() {
    let mut world = World::new(1, Capacity { prefixes: 2, ..capacity() }, settings());
    world.apply(vec![refusing(64..128)]);
    let access = Access::new(true, 1..100);
    let mut snapshot = world.snapshot.clone();
    snapshot.generation.0 += 1;
    snapshot.vips[0].access = access;
    let now = world.now;
    let refused = world.control().apply(&snapshot, now).unwrap_err();
    assert!(matches!(refused, ApplyError::Room { wanted: 49, room: 2, .. }), "{refused}");
    world.run(settings().tick);
    assert_eq!(world.send(tcp(1, 64, SYN)), None, "nothing has changed");
}
