//! `equipoise upgrade`.

use std::process::ExitCode;
use std::time::Duration;

use equipoise_api::client::{Client, ClientError};
use equipoise_api::routes::config::UPGRADE;
use equipoise_api::routes::process::STATUS;
use equipoise_api::wire::{Upgrade, Upgraded};
use equipoise_basics::counted;

use crate::output::AnswerArgs;
use crate::process::ApiArgs;
use crate::progress::Progress;

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
    /// Wait until the replaced process has finished its connections
    #[arg(long)]
    wait: bool,
}

/// Time for the new process to get ready, without `--within`.
const WITHIN: f64 = 25.0;

/// Interval between questions for the connections of the replaced process.
const PERIOD: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// The new process does not get ready, the process that is asked does not answer or refuses, or
/// standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let how = Upgrade { within_seconds: args.within };
    let client = args.api.client().await?;
    // A limit that is none is refused.
    let limit = Duration::try_from_secs_f64(args.within.unwrap_or(WITHIN)).unwrap_or_default();
    let answer = client.ask(UPGRADE, &how);
    let now = Progress::within("the new process starts", limit, answer).await?;
    if args.wait {
        wait(&client, &now).await?;
    }
    args.answer.print(&now, text)
}

/// Waits until the replaced process has finished its connections.
async fn wait(client: &Client, now: &Upgraded) -> Result<(), ClientError> {
    let what = format!("process {} finishes connections", now.replaced_pid);
    let progress = Progress::of_work(what, now.connections);
    loop {
        let replaced = client.ask(STATUS, &()).await?.replaced;
        let Some(left) = replaced.iter().find(|it| it.pid == now.replaced_pid) else {
            return Ok(());
        };
        progress.left(left.connections);
        tokio::time::sleep(PERIOD).await;
    }
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
