//! Controllers and nodes over real sockets.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

mod bed;
mod faults;
mod following;
mod joining;
mod lagging;
mod noting;
mod peers;
mod renewing;
