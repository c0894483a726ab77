//! A second chance: flows survive a change of their pool at balancers that do not know them,
//! because a backend passes packets of unknown flows on to the backend that had them.
//!
//! The balancers and the backends' program are the C itself, compiled for the host; the kernel
//! runs the backends' program beside real sockets.
//! `SECOND_CHANCE_ROUNDS` and `SECOND_CHANCE_SEED` make longer runs.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "control/world.rs"]
#[allow(dead_code, reason = "shared with the tests of the control side")]
mod world;

#[path = "common/random.rs"]
#[allow(dead_code, reason = "shared with other models")]
mod random;

#[path = "second_chance/model.rs"]
mod model;

#[path = "second_chance/frames.rs"]
mod frames;

#[path = "second_chance/passing_on.rs"]
mod passing_on;

#[path = "second_chance/slots.rs"]
mod slots;

#[path = "second_chance/sockets.rs"]
mod sockets;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn flows_survive_a_change_of_their_pool_at_any_balancer_without_an_exchange() {
    let rounds = setting("SECOND_CHANCE_ROUNDS", 6);
    let found = model::run(3, 20_000, rounds, setting("SECOND_CHANCE_SEED", 1), true);
    println!("{found}");
    assert_eq!(found.lost_after_one, 0, "{found}");
    assert!(found.packets > 200_000 && found.passed_on > 1000, "{found}");
}

/// Otherwise the test above would show nothing.
#[test]
fn without_a_second_chance_flows_are_lost() {
    let found = model::run(3, 20_000, 2, setting("SECOND_CHANCE_SEED", 1), false);
    println!("{found}");
    assert!(found.lost_after_one > 500 && found.passed_on == 0, "{found}");
}
