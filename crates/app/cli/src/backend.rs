//! `equipoise backend`: adds backends to pools of a running equipoise, changes and removes them.

use std::process::ExitCode;

use equipoise_api::routes::backends::{CHANGE, PUT, REMOVE};
use equipoise_api::wire::backends::{AddBackend, ChangeBackend, RemoveBackend};

use crate::argument::{BackendName, ExistingBackend};
use crate::change::text;
use crate::output::AnswerArgs;
use crate::process::ApiArgs;
use crate::weight::weight;

/// Largest concurrency limit.
const CONCURRENCY_MAX: i64 = 1_000_000;

/// Arguments of `equipoise backend`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Add a backend to a pool, or change one that was added; it stays over reloads and upgrades,
    /// until it is removed or the file names it
    Add(AddArgs),
    /// Change the weight or the concurrency limit of any backend
    Set(SetArgs),
    /// Remove a backend that was added, when it has finished its work
    Remove(RemoveArgs),
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// The pool, and a name for the backend or its address
    #[arg(value_name = "POOL/BACKEND")]
    backend: BackendName,
    /// IP:PORT or HOST:PORT; without it, BACKEND is the address
    #[arg(long)]
    address: Option<String>,
    /// Its share relative to the pool's other backends; 0: it gets no new work
    #[arg(long, default_value = "1", value_parser = weight)]
    weight: u16,
    /// Give it new work only while no backend that is no backup serves
    #[arg(long)]
    backup: bool,
    /// Its concurrency limit; without it, the pool's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=CONCURRENCY_MAX))]
    concurrency: Option<u32>,
    /// Have it after a restart, too
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    /// The backend, as `equipoise status` names it
    #[arg(value_name = "POOL/BACKEND")]
    backend: ExistingBackend,
    /// Its share relative to the pool's other backends; 0 drains
    #[arg(long, value_parser = weight, required_unless_present = "concurrency")]
    weight: Option<u16>,
    /// Its concurrency limit; 0 returns to the configured one
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=CONCURRENCY_MAX))]
    concurrency: Option<u32>,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// The backend, as `equipoise status` names it
    #[arg(value_name = "POOL/BACKEND")]
    backend: ExistingBackend,
    /// Remove it at once, and close its connections
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (changed, answer) = match args.command {
        Command::Add(AddArgs {
            backend,
            address,
            weight,
            backup,
            concurrency,
            keep,
            answer,
            api,
        }) => {
            let wish = AddBackend { address, weight, backup, concurrency, keep };
            let client = api.client().await?;
            (client.ask(PUT.of([&backend.pool, &backend.backend]), &wish).await?, answer)
        }
        Command::Set(SetArgs { backend, weight, concurrency, answer, api }) => {
            let wish = ChangeBackend { weight, concurrency };
            let client = api.client().await?;
            let BackendName { pool, backend } = backend.resolve(&client).await?;
            (client.ask(CHANGE.of([&pool, &backend]), &wish).await?, answer)
        }
        Command::Remove(RemoveArgs { backend, now, answer, api }) => {
            let client = api.client().await?;
            let BackendName { pool, backend } = backend.resolve(&client).await?;
            (client.ask(REMOVE.of([&pool, &backend]), &RemoveBackend { now }).await?, answer)
        }
    };
    answer.print(&changed, text)
}
