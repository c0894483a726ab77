//! nat: the replies that are translated after a start.

use std::net::SocketAddr;
use std::time::Duration;

use equipoise_packet::FlowScheduler::Maglev;
use equipoise_packet::abi::Forward;
use equipoise_packet::packet::Parsed;
use equipoise_packet::twin::{Route, Surroundings, Twin, Verdict};
use equipoise_packet::{Protocol, Registry, VipSpec};

use super::world::*;

const SECOND: Duration = Duration::from_secs(1);

/// Whether a reply of the backend is translated that no client of a VIP asked for.
fn translates_all(world: &World) -> bool {
    let backend = SocketAddr::new(address_of(1), 443);
    let client: SocketAddr = "192.0.2.77:5000".parse().unwrap();
    let reply = Parsed::of_flow(backend, client, Protocol::Tcp.number(), None);
    let around = Surroundings { route: Route::Out(9), ..Surroundings::default() };
    let twin = Twin::new(world.memories[0].clone(), world.limits);
    match twin.decide(&reply, &around).verdict {
        Verdict::Redirect(9) => true,
        Verdict::Pass => false,
        verdict => panic!("{verdict:?}"),
    }
}

fn translated() -> Vec<VipSpec> {
    vec![VipSpec { forward: Forward::Nat, ..vip(1, Maglev, &[1]) }]
}

#[test]
fn with_new_tables_all_replies_are_translated_until_every_known_flow_has_sent_or_is_forgotten() {
    let name = format!("equipoise-control-replies-{}", std::process::id());
    let file = std::env::temp_dir().join(name);
    let open = || Registry::open(&file, capacity().flows, settings().fleet_seed).unwrap();
    let mut world = World::with_registry(1, capacity(), settings(), open());
    world.apply(translated());
    world.settle();
    assert!(!translates_all(&world), "no flow is known from before");
    world.open(1, 7);
    world.run(2 * settings().interval);
    assert_eq!(world.flows(), 1);
    drop(world.control.take());
    let ledger = world.ledger.take();
    let mut anew = World::with_ledger(1, capacity(), settings(), open(), ledger);
    anew.now = world.now;
    anew.apply(translated());
    anew.settle();
    assert!(translates_all(&anew), "a flow is known that the new tables do not have");
    // A process that takes these tables over does not know when they were made.
    drop(anew.control.take());
    anew.start(open());
    anew.apply(translated());
    anew.settle();
    assert!(translates_all(&anew), "still not known");
    anew.run(settings().timeouts.open);
    assert!(!translates_all(&anew), "known or forgotten");
    anew.run(SECOND);
    assert!(!translates_all(&anew));
    std::fs::remove_file(&file).unwrap();
}
