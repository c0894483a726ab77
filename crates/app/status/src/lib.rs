//! The states of the levels and of the control side as types of the API.
//!
//! **In**: states and counters of the levels, the plan, the cluster. **Out**: the API's types for
//! status ([`equipoise_api::wire`]) and metrics ([`equipoise_api::metrics`]). Pure: nothing here
//! asks, waits or fails.

pub mod cluster;
pub mod controller;
pub mod discovery;
pub mod dns;
pub mod packet;
pub mod plan;
pub mod rates;
pub mod session;
#[cfg(feature = "slice")]
pub mod slice;
pub mod tls;
pub mod why;
