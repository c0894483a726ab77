//! The states of the levels and of the control side as types of the API.
//!
//! **In**: the plan, the state of the controller, the cluster. **Out**: the API's types for status
//! ([`equipoise_api::wire`]) and for metrics ([`equipoise_api::metrics`]). Pure: nothing here asks,
//! waits or fails.

pub mod cluster;
pub mod controller;
pub mod plan;
