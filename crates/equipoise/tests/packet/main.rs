//! The packet level with real hosts: the real binary balances TCP of `curl` and `iperf3` between
//! network namespaces.
//!
//! Needs root, iproute2, curl and iperf3 (`make test` installs them). Prints the reason if it
//! cannot run.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../common/mod.rs"]
mod common;

mod access;
mod attach;
mod bed;
mod bridge;
mod capture;
mod changes;
mod decap;
mod demo;
mod forwarding;
mod full_nat;
mod load;
mod method;
mod names;
mod options;
mod privileges;
mod quic;
mod schedulers;
mod soak;
mod station;
mod tunnel_checks;
mod unasked;
mod unserved;
