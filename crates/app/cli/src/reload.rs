//! `equipoise reload`.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use equipoise_api::routes::config::{APPLY, PREVIEW, RELOAD, ROLL_BACK};
use equipoise_api::wire::Reloaded;
use equipoise_api::wire::config::{ReloadPreview, WriteConfig};
use equipoise_basics::files;
use equipoise_config::FileKind;

use crate::output::AnswerArgs;
use crate::process::ApiArgs;

/// Arguments of `equipoise reload`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print what the reload would change and which connections it would end, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Replace the configuration file with this one (`-`: standard input), and reload it. A failed
    /// reload restores the file. Needs `[api] write-config`
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    with: Option<PathBuf>,
    /// Restore the previous text of the configuration file, and reload it. A second time reverses
    /// the first. Needs `[api] write-config`
    #[arg(long, conflicts_with_all = ["dry_run", "with"])]
    back: bool,
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
    let reloaded = match args.with {
        Some(file) => client.ask(APPLY, &WriteConfig { toml: read(&file)? }).await?,
        None if args.back => client.ask(ROLL_BACK, &()).await?,
        None => client.ask(RELOAD, &()).await?,
    };
    args.answer.print(&reloaded, text)
}

fn read(file: &Path) -> anyhow::Result<String> {
    match file.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            let mut input = io::stdin().lock().take(FileKind::Config.bytes_max());
            input.read_to_string(&mut text).context("could not read standard input")?;
            Ok(text)
        }
        false => files::read_text(file, FileKind::Config.bytes_max())
            .with_context(|| format!("could not read {}", file.display())),
    }
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
