//! The control side with the program itself, compiled for the host. No privilege, no sleeping: the
//! clock is the test's.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod access;
mod adoption;
mod changes;
mod floods;
mod learning;
mod quic;
mod refusals;
mod registered;
mod replies;
mod rings;
mod turns;
mod world;
