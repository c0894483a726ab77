//! The commands except `run` and `demo`: arguments and implementation of each.

pub(crate) mod api_token;
pub(crate) mod change;
pub mod check;
pub(crate) mod cluster;
pub(crate) mod decap;
pub(crate) mod flow;
pub(crate) mod pin;
pub(crate) mod plan;
pub(crate) mod process;
pub(crate) mod reload;
pub mod schema;
pub(crate) mod slice;
pub(crate) mod status;
mod table;
mod view;
mod watch;
pub(crate) mod weight;
