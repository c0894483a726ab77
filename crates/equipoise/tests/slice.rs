//! The slice level through the real binary: `equipoise run` with a `[[slice]]` table, workers as
//! `equipoise slice worker`, and a client. Each test has its own DDS domain, on loopback.
#![cfg(feature = "slice")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "slice/absent.rs"]
mod absent;
#[path = "slice/bed.rs"]
mod bed;
#[path = "slice/checkpoints.rs"]
mod checkpoints;
mod common;
#[path = "slice/deaths.rs"]
mod deaths;
#[path = "slice/fastdds.rs"]
mod fastdds;
#[path = "slice/guide.rs"]
mod guide;
#[path = "slice/junk.rs"]
mod junk;
#[path = "slice/operate.rs"]
mod operate;
#[path = "slice/pauses.rs"]
mod pauses;
#[path = "slice/ros2.rs"]
mod ros2;
#[cfg(feature = "dds-security")]
#[path = "slice/secure.rs"]
mod secure;
#[path = "cluster/bed.rs"]
#[allow(dead_code, reason = "the cluster's tests use the rest")]
mod site;
#[path = "slice/soak.rs"]
mod soak;
#[path = "slice/stops.rs"]
mod stops;
#[path = "slice/succession.rs"]
mod succession;
#[path = "slice/workers.rs"]
mod workers;
