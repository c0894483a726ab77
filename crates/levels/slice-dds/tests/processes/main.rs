//! Workers and controllers as processes of their own, which are killed, stopped and cut off. Each test in a DDS domain of its
//! own; every item is accounted for by its id.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod checkpoints;
mod faults;
mod idle;
mod killed;
mod load;
mod memory;
mod names;
mod order;
mod places;
mod role;
mod stage;
mod stopped;

/// Not a test: what the processes of the other tests run.
#[test]
#[ignore = "is a process of the other tests"]
fn role() {
    role::run();
}
