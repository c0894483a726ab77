//! `equipoise reload`.

use std::process::ExitCode;

use equipoise_api::routes::config::{PREVIEW, RELOAD};
use equipoise_api::wire::Reloaded;
use equipoise_api::wire::config::ReloadPreview;

use crate::output::AnswerArgs;
use crate::process::ApiArgs;

/// Arguments of `equipoise reload`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print what the reload would change and which connections it would end, and change nothing
    #[arg(long)]
    dry_run: bool,
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
    let client = args.api.client().await?;
    if args.dry_run {
        return args.answer.print(&client.ask(PREVIEW, &()).await?, preview);
    }
    args.answer.print(&client.ask(RELOAD, &()).await?, text)
}

fn text(now: &Reloaded) -> String {
    let text = format!(
        "{} loaded; front doors: {}, VIPs: {}, pools: {}, backends: {}\n",
        now.config_file, now.front_doors, now.vips, now.pools, now.backends
    );
    text + &details(&now.changes, &now.ends, &now.need_restart)
}

fn preview(preview: &ReloadPreview) -> String {
    let ReloadPreview { config_file, changes, ends, need_restart } = preview;
    let nothing = if changes.is_empty() { "nothing" } else { "the following" };
    format!("a reload of {config_file} would change {nothing}\n")
        + &details(changes, ends, need_restart)
}

fn details(changes: &[String], ends: &[String], need_restart: &[String]) -> String {
    let changes = changes.iter().map(|change| format!("  {change}\n"));
    let ends = ends.iter().map(|end| format!("  ends connections: {end}\n"));
    let restart = need_restart.iter();
    let restart = restart.map(|it| format!("`{it}` changed; `equipoise upgrade` applies it\n"));
    changes.chain(ends).chain(restart).collect()
}
