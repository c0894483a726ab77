//! The `equipoise` binary as a library, which its tests share. In: a command line. Out: the
//! command's output, or a running process. Errors go to standard error, and the exit code is not 0.

mod cli;
mod run;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use equipoise_cli::{self as commands, logs};
use equipoise_demo as demo;
use equipoise_packet::engine::Leave;
use equipoise_packet::privileges;

use crate::cli::{Cli, Command};
use crate::run::Running;

/// Runs the command of the command line.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => privileges::keep()
            .context("cannot keep the capabilities of the packet level")
            .and_then(|()| block_on(run::run(&args.file, args.leave()))),
        Command::Agent(args) => block_on(run::agent(&args.file)),
        Command::Cluster(args) => block_on(commands::cluster::run(args)),
        Command::Check(args) => commands::check::run(&args).map_err(Into::into),
        Command::Import(args) => block_on(commands::import::run(args)),
        Command::Schema(args) => commands::schema::run(&args).map_err(Into::into),
        Command::Demo(args) => block_on(demonstrate(args)),
        Command::Commands(command) => block_on(command.run()),
        Command::Completions(args) => cli::completions::run(&args),
        Command::Man(args) => cli::manual::run(&args),
        Command::SampleBackend(args) => block_on(demo::sample::run(args)),
        #[cfg(feature = "slice")]
        Command::SampleWorker(args) => demo::slice::sample::run(&args),
    };
    let code = outcome.unwrap_or_else(|error| {
        // A reader such as `head` may close the pipe early; this is not an error.
        let is_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        if error.downcast_ref().is_some_and(is_pipe) {
            return ExitCode::SUCCESS;
        }
        logs::print_error(&cli::message(&error));
        ExitCode::FAILURE
    });
    logs::finish();
    code
}

/// A process of `equipoise run`, in front of the demo's backends.
async fn demonstrate(args: demo::Args) -> anyhow::Result<ExitCode> {
    let start = async |file: &Path| Running::start(file, Leave::Nothing).await;
    demo::run(args, start, Running::until_stopped).await
}

/// Longest time that the end of the process waits for calls that block on a file or a resolver.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Runs a command on this thread. Only the data plane has threads of its own.
fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(work);
    // Dropping the runtime would wait for blocked threads, one of which may never end.
    runtime.shutdown_timeout(END_WITHIN);
    outcome
}
