//! Pools with `discover`: real processes, and real sources beside them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../common/mod.rs"]
mod common;

mod bed;
mod files;
mod keys;
mod names;
mod real;
mod scripted;
mod server;
mod servers;
