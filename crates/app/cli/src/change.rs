//! `equipoise drain | undrain | enable | disable POOL/BACKEND`, and `drain | undrain NODE` for a
//! node of the cluster.

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use equipoise_api::wire::Changed;

use crate::argument::BackendName;
use crate::process::ApiArgs;

/// Arguments of commands for a backend.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The backend, as `equipoise status` names it
    #[arg(value_name = "POOL/BACKEND")]
    backend: BackendName,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(action: &str, args: Args) -> anyhow::Result<ExitCode> {
    let BackendName { pool, backend } = &args.backend;
    print_changed(&args.api.client().await?.change(pool, backend, action).await?)?;
    Ok(ExitCode::SUCCESS)
}

/// Arguments of commands for a backend or a node.
#[derive(Debug, clap::Args)]
pub struct TargetArgs {
    /// The backend, as `equipoise status` names it; or a node of the cluster, if run on a
    /// controller
    #[arg(value_name = "POOL/BACKEND|NODE")]
    target: String,
    #[command(flatten)]
    api: ApiArgs,
}

/// A target with a slash is a backend: names of members have no slash.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run_on_target(action: &str, args: TargetArgs) -> anyhow::Result<ExitCode> {
    let TargetArgs { target, api } = args;
    if target.contains('/') {
        return run(action, Args { backend: target.parse()?, api }).await;
    }
    let changed = api.client().await?.change_node(&target, action).await;
    let node = changed.with_context(|| {
        format!(
            "`{target}` was taken for a node of the cluster; a backend is named POOL/BACKEND, as `equipoise status` lists them"
        )
    })?;
    let standing = node.standing.as_deref().unwrap_or("not planned");
    outln!("node {}: wanted {}, {standing}", node.name, node.admin.word());
    for (name, share) in &node.shares {
        outln!("  {:.1} % of {name}", 100.0 * share);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the new state of the backend.
pub(crate) fn print_changed(Changed { pool, backend }: &Changed) -> io::Result<()> {
    let flows = match backend.flows {
        0 => String::new(),
        flows => format!(", {flows} flows"),
    };
    outln!(
        "{pool}/{}: {}, weight {}, {} in flight{flows}",
        backend.name,
        backend.state,
        backend.weight,
        backend.in_flight
    );
    Ok(())
}
