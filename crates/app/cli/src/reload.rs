//! `equipoise reload`.

use std::process::ExitCode;

use equipoise_api::routes::config::RELOAD;
use equipoise_api::wire::Reloaded;

use crate::output::AnswerArgs;
use crate::process::ApiArgs;

/// Arguments of `equipoise reload`.
#[derive(Debug, clap::Args)]
pub struct Args {
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
    let now = args.api.client().await?.ask(RELOAD, &()).await?;
    args.answer.print(&now, text)
}

fn text(now: &Reloaded) -> String {
    let mut text = format!(
        "{} loaded; front doors: {}, VIPs: {}, pools: {}, backends: {}\n",
        now.config_file, now.front_doors, now.vips, now.pools, now.backends
    );
    for option in &now.need_restart {
        text.push_str(&format!("`{option}` changed; `equipoise upgrade` applies it\n"));
    }
    text
}
