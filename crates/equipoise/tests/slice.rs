//! The slice level through the real binary: `equipoise run` with a `[[slice]]` table, workers as `equipoise slice worker`, and a
//! client. Each test has a DDS domain of its own, on loopback.
#![cfg(feature = "slice")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "slice/bed.rs"]
mod bed;
mod common;
#[path = "slice/operate.rs"]
mod operate;
#[path = "slice/workers.rs"]
mod workers;
