//! Balancers that share their flows: not one packet of an established flow goes to another backend
//! once the exchange is over, while flows change balancers at random, pools change (at a different
//! time on each balancer), messages are lost, and balancers join and die.
//!
//! The program is the C itself, compiled for the host; the messages are those of the connections.
//! `FLEET_SECONDS` (of the model's time) and `FLEET_SEED` make longer runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "control/world.rs"]
#[allow(dead_code, reason = "shared with the tests of the control side")]
mod world;

#[path = "common/random.rs"]
mod random;

#[path = "fleet/model.rs"]
mod model;

#[path = "fleet/shared.rs"]
mod shared;

#[path = "fleet/sockets.rs"]
mod sockets;

use model::{Found, run};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn check(found: &Found) {
    println!("{found}");
    assert_eq!(found.violations, 0, "{:?}", found.first);
    assert!(found.packets > 50_000 && found.changes > 5 && found.splits > 20, "{found}");
}

#[test]
fn two_balancers_keep_every_flow() {
    check(&run(2, 1_500, setting("FLEET_SECONDS", 20), setting("FLEET_SEED", 1)));
}

#[test]
fn four_balancers_keep_every_flow() {
    check(&run(4, 1_500, setting("FLEET_SECONDS", 20), setting("FLEET_SEED", 2)));
}
