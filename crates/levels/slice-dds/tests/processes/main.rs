//! Workers and controllers as separate processes that are killed, paused and cut off. Each test has
//! its own DDS domain, and accounts for every item by its id.
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

/// Not a test: the code of the processes of the other tests.
#[test]
#[ignore = "is a process of the other tests"]
fn role() {
    role::run();
}
