//! `equipoise upgrade`.

use std::process::ExitCode;
use std::time::Duration;

use equipoise_api::wire::{Upgrade, Upgraded};
use equipoise_basics::counted;

use crate::output::AnswerArgs;
use crate::process::ApiArgs;

/// Arguments of `equipoise upgrade`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
    /// Time for the new process to get ready; at most 25
    #[arg(long, value_name = "SECONDS")]
    within: Option<f64>,
}

/// Runs the command.
///
/// # Errors
/// The new process does not get ready, the process that is asked does not answer or refuses, or
/// standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let how = Upgrade { within_seconds: args.within };
    let now = args.api.client().await?.upgrade(&how).await?;
    args.answer.print(&now, text)
}

fn text(now: &Upgraded) -> String {
    let took = Duration::from_secs_f64(now.took_seconds);
    format!(
        "process {} has replaced {}, which finishes {}; the new one took {took:.1?} to get ready\n",
        now.pid,
        now.replaced_pid,
        counted(now.connections, "connection")
    )
}
