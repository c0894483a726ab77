//! `equipoise reload`.

use std::process::ExitCode;

use crate::process::ApiArgs;

/// Arguments of `equipoise reload`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let now = args.api.client().await?.reload().await?;
    outln!(
        "{} loaded; front doors: {}, VIPs: {}, pools: {}, backends: {}",
        now.config_file,
        now.front_doors,
        now.vips,
        now.pools,
        now.backends
    );
    for option in now.need_restart {
        outln!("`{option}` changed; `equipoise upgrade` applies it");
    }
    Ok(ExitCode::SUCCESS)
}
