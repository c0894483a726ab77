//! The commands of `equipoise` but `run`, `agent` and `demo`: for each its arguments and a `run`.
//! [`Command`] lists those that act on a running equipoise or its machines.
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

use std::process::ExitCode;

/// The commands that act on a running equipoise or its machines, in the order of `--help`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show front doors, pools and backends of a running equipoise
    Status(status::Args),
    /// Show a running equipoise on the whole terminal, and steer it by keys
    Top(top::Args),
    /// Show what has changed in a running equipoise, or follow it
    Events(events::Args),
    /// Stop new work for a backend, which finishes its current work; or remove a node of the
    /// cluster from DNS answers
    Drain(change::DrainArgs),
    /// Give a drained backend or node new work again
    Undrain(change::TargetArgs),
    /// Give a disabled backend new work again
    Enable(change::Args),
    /// Disable a backend and close its connections
    Disable(change::Args),
    /// Add a backend to a pool while it runs, change or remove it
    Backend(backend::Args),
    /// Set a backend's weight; 0 drains
    Weight(weight::Args),
    /// Make a running equipoise read its configuration file again
    Reload(reload::Args),
    /// Start the program of a running equipoise again, and hand its sockets and clients over
    Upgrade(upgrade::Args),
    /// Tell whether this machine serves its addresses, by the exit code
    Ready(ready::Args),
    /// Announce the addresses that this machine serves, by BIRD or keepalived
    Announce(announce::Args),
    /// Create a token for the API over TCP
    ApiToken(api_token::Args),
    /// On a backend: unpack the packets of the packet level's tunnels
    Decap(decap::Args),
    /// Explain where a flow of the packet level goes, and why
    Flow(flow::Args),
    /// Show the flows of the packet level with the most bytes
    Flows(flows::Args),
    /// Capture packets of a VIP, with their backends, as a pcapng file
    Capture(capture::Args),
    /// Explain where a request, connection, query or item would go, and why
    Why(why::Args),
    /// List, add, move and remove flows that are pinned to a backend
    Pin(pin::Args),
    /// Show the plan and its reasons; pin, pause and resume elastic pools
    Plan(plan::Args),
    /// Balance a stream of items over workers: run, show, drain, pin, move
    Slice(slice::Args),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// As each command's `run`.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Status(args) => status::run(args).await,
            Command::Top(args) => top::run(args).await,
            Command::Events(args) => events::run(args).await,
            Command::Drain(args) => change::drain(args).await,
            Command::Undrain(args) => change::undrain(args).await,
            Command::Enable(args) => change::enable(args).await,
            Command::Disable(args) => change::disable(args).await,
            Command::Backend(args) => backend::run(args).await,
            Command::Weight(args) => weight::run(args).await,
            Command::Reload(args) => reload::run(args).await,
            Command::Upgrade(args) => upgrade::run(args).await,
            Command::Ready(args) => ready::run(args).await,
            Command::Announce(args) => announce::run(args).await,
            Command::ApiToken(args) => api_token::run(&args),
            Command::Decap(args) => decap::run(args).await,
            Command::Flow(args) => flow::run(args).await,
            Command::Flows(args) => flows::run(args).await,
            Command::Capture(args) => capture::run(args).await,
            Command::Why(args) => why::run(args).await,
            Command::Pin(args) => pin::run(args).await,
            Command::Plan(args) => plan::run(args).await,
            Command::Slice(args) => slice::run(args).await,
        }
    }
}
