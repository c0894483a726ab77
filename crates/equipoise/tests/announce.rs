//! Addresses that move between machines: `equipoise ready` and `equipoise announce`, with BIRD and
//! keepalived. Each machine is a network namespace.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

#[path = "announce/bed.rs"]
mod bed;
#[path = "announce/bird.rs"]
mod bird;
#[path = "announce/keepalived.rs"]
mod keepalived;
#[path = "announce/ready.rs"]
mod ready;
