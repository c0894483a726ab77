//! Workers, controller and clients in one process, over DDS on loopback; each test in its own DDS
//! domain.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod backlog;
mod cluster;
mod deaths;
mod hostile;
mod leases;
mod moves;
mod order;
mod programs;
mod resize;
