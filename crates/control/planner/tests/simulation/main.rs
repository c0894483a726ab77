//! The planner in a closed loop with a cluster that reacts with a delay, and other rules in the
//! same cluster.
//!
//! Figures are printed (`cargo test -p equipoise-planner --test simulation -- --nocapture`) and
//! asserted.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod closed;
mod delegation;
mod occupancy;
mod rest;
mod rules;
mod shares;
