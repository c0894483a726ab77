//! `equipoise drain | undrain | enable | disable POOL/BACKEND`, and `drain | undrain NODE` for a
//! node of the cluster.

use std::process::ExitCode;

use anyhow::Context;
use equipoise_api::wire::Changed;
use equipoise_api::wire::plan::NodeStatus;

use crate::argument::BackendName;
use crate::output::AnswerArgs;
use crate::process::ApiArgs;

/// Arguments of commands for a backend.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The backend, as `equipoise status` names it
    #[arg(value_name = "POOL/BACKEND")]
    backend: BackendName,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(action: &str, args: Args) -> anyhow::Result<ExitCode> {
    let BackendName { pool, backend } = &args.backend;
    let changed = args.api.client().await?.change(pool, backend, action).await?;
    args.answer.print(&changed, text)
}

/// Arguments of commands for a backend or a node.
#[derive(Debug, clap::Args)]
pub struct TargetArgs {
    /// The backend, as `equipoise status` names it; or a node of the cluster, if run on a
    /// controller
    #[arg(value_name = "POOL/BACKEND|NODE")]
    target: String,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// A target with a slash is a backend: names of members have no slash.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run_on_target(action: &str, args: TargetArgs) -> anyhow::Result<ExitCode> {
    let TargetArgs { target, answer, api } = args;
    if target.contains('/') {
        return run(action, Args { backend: target.parse()?, answer, api }).await;
    }
    let changed = api.client().await?.change_node(&target, action).await;
    let node = changed.with_context(|| {
        format!(
            "`{target}` was taken for a node of the cluster; a backend is named POOL/BACKEND, as `equipoise status` lists them"
        )
    })?;
    answer.print(&node, node_text)
}

fn node_text(node: &NodeStatus) -> String {
    let standing = node.standing.as_deref().unwrap_or("not planned");
    let mut text = format!("node {}: wanted {}, {standing}\n", node.name, node.admin.word());
    for (name, share) in &node.shares {
        text.push_str(&format!("  {:.1} % of {name}\n", 100.0 * share));
    }
    text
}

/// The new state of the backend.
pub(crate) fn text(Changed { pool, backend }: &Changed) -> String {
    let flows = match backend.flows {
        0 => String::new(),
        flows => format!(", {flows} flows"),
    };
    format!(
        "{pool}/{}: {}, weight {}, {} in flight{flows}\n",
        backend.name, backend.state, backend.weight, backend.in_flight
    )
}
