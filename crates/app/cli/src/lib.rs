//! The commands of `equipoise` but `run`, `agent` and `demo`: for each its arguments and a `run`.
//!
//! **In**: parsed arguments, the answers of a process's API or of a cluster's controllers, and
//! configuration files. **Out**: text or JSON on standard output, and the exit code. **Fails** with
//! an [`anyhow::Error`], which the binary prints. [`logs`] and [`wire`] also serve `run`.

#[macro_use]
mod output;

pub mod announce;
pub mod api_token;
pub mod argument;
pub mod backend;
pub mod capture;
pub mod change;
pub mod check;
pub mod cluster;
mod controller;
pub mod decap;
pub mod events;
pub mod flow;
pub mod flows;
pub mod import;
mod log_queue;
pub mod logs;
pub mod pin;
pub mod plan;
mod process;
mod progress;
mod readiness;
pub mod ready;
pub mod reload;
pub mod schema;
mod secure;
pub mod slice;
pub mod status;
mod syslog;
mod table;
pub mod top;
pub mod upgrade;
mod view;
mod watch;
pub mod weight;
pub mod why;
pub mod wire;
