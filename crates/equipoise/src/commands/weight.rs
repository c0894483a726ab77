//! `equipoise weight POOL/BACKEND N`.

use std::process::ExitCode;

use crate::cli::BackendName;
use crate::commands::change::print_changed;
use crate::commands::process::ApiArgs;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The backend, as `equipoise status` names it
    #[arg(value_name = "POOL/BACKEND")]
    backend: BackendName,
    /// Its share, relative to the pool's other backends; 0 drains
    #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(0..=1000))]
    weight: u16,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let BackendName { pool, backend } = &args.backend;
    print_changed(&args.api.client().await?.set_weight(pool, backend, args.weight).await?);
    Ok(ExitCode::SUCCESS)
}
