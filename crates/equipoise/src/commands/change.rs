//! `equipoise drain | undrain | enable | disable POOL/BACKEND`.

use std::process::ExitCode;

use equipoise_api::wire::Changed;

use crate::cli::{ApiArgs, BackendName};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The backend, as `equipoise status` names it
    #[arg(value_name = "POOL/BACKEND")]
    backend: BackendName,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) async fn run(action: &str, args: Args) -> anyhow::Result<ExitCode> {
    let BackendName { pool, backend } = &args.backend;
    print_changed(&args.api.client()?.change(pool, backend, action).await?);
    Ok(ExitCode::SUCCESS)
}

/// Says what the backend is like now.
pub(crate) fn print_changed(Changed { pool, backend }: &Changed) {
    let flows = match backend.flows {
        0 => String::new(),
        flows => format!(", {flows} flows"),
    };
    println!(
        "{pool}/{}: {}, weight {}, {} in flight{flows}",
        backend.name, backend.state, backend.weight, backend.in_flight
    );
}
