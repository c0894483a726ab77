//! Several machines as one cluster: real processes on loopback with a real etcd.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

#[path = "../common/mod.rs"]
mod common;

mod api;
mod bed;
mod canary;
mod clock;
mod cut;
mod deaf;
mod declared;
mod degraded;
mod dropped;
mod faults;
mod grows;
mod limits;
mod members;
mod names;
mod pools;
mod rates;
mod restart;
mod restored;
mod seen;
mod tickets;
mod traps;
mod watching;
