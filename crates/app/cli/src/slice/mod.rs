//! `equipoise slice ...`: runs workers, and operates the slice level of a running equipoise.

mod drops;
mod numbers;
mod operate;
mod plan;
pub(crate) mod status;
#[cfg(feature = "slice")]
mod worker;

use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use equipoise_api::client::Client;
use equipoise_api::routes::slice::{DRAIN_WORKER, STREAMS, UNDRAIN_WORKER};

use crate::process::ApiArgs;

/// Arguments of `equipoise slice`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Process items of a stream with a program of yours
    ///
    /// Items go to COMMAND on its standard input, in batches. They count as done when COMMAND
    /// acknowledges them on its standard output, with the reply to the client;
    /// docs/slice-programs.md has the formats. COMMAND is started again when it ends, and receives
    /// the items again that it did not acknowledge. SIGTERM and Ctrl-C hand the worker's slices to
    /// others first; a second one ends it at once.
    #[cfg(feature = "slice")]
    Worker(Box<worker::Args>),
    /// Show workers, slices, handovers and why a slice is blocked
    Status(status::Args),
    /// Move a worker's slices to others; it may be ended when it has none
    Drain(operate::WorkerArgs),
    /// Give a drained worker slices again
    Undrain(operate::WorkerArgs),
    /// Keep a slice on a worker while the worker is present
    Pin(operate::PinArgs),
    /// Let balancing move a pinned slice again
    Unpin(operate::UnpinArgs),
    /// Move slices to a worker now; --force removes pins that prevent the move
    Move(operate::MoveArgs),
    /// Split or join the slices of a stream while items flow: twice or half as many
    Resize(operate::ResizeArgs),
    /// Show what a balancing round would move now, without moving it, and what limits it
    Plan(plan::Args),
}

/// The arguments that select a stream.
#[derive(Debug, clap::Args)]
struct StreamArgs {
    /// The stream, if there are several
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

impl StreamArgs {
    /// The client and the selected stream.
    async fn find(self) -> anyhow::Result<(Client, String)> {
        let client = self.api.client().await?;
        if let Some(stream) = self.stream {
            return Ok((client, stream));
        }
        let streams = client.ask(STREAMS, &()).await?.streams;
        let names: Vec<_> = streams.into_iter().map(|stream| stream.name).collect();
        match names.as_slice() {
            [one] => Ok((client, one.clone())),
            _ => {
                bail!("there are several streams ({}): choose one with --stream", names.join(", "))
            }
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        #[cfg(feature = "slice")]
        Action::Worker(args) => worker::run(*args).await,
        Action::Status(args) => status::run(args).await,
        Action::Drain(args) => operate::drain(args, DRAIN_WORKER).await,
        Action::Undrain(args) => operate::drain(args, UNDRAIN_WORKER).await,
        Action::Pin(args) => operate::pin(args).await,
        Action::Unpin(args) => operate::unpin(args).await,
        Action::Move(args) => operate::move_slices(args).await,
        Action::Resize(args) => operate::resize(args).await,
        Action::Plan(args) => plan::run(args).await,
    }
}
