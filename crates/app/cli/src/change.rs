//! `equipoise drain | undrain | enable | disable POOL/BACKEND`, and `drain | undrain NODE` for a
//! node of the cluster.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use equipoise_api::Operation;
use equipoise_api::client::{Client, ClientError};
use equipoise_api::routes::backends::{DISABLE, DRAIN, ENABLE, UNDRAIN};
use equipoise_api::routes::plan::{DRAIN_NODE, UNDRAIN_NODE};
use equipoise_api::routes::process::STATUS;
use equipoise_api::wire::plan::NodeStatus;
use equipoise_api::wire::{Admin, Changed};

use crate::argument::{BackendName, ExistingBackend, did_you_mean};
use crate::output::AnswerArgs;
use crate::process::ApiArgs;
use crate::progress::Progress;
use crate::watch::may_come_back;

/// Interval between questions for the work that is left.
const PERIOD: Duration = Duration::from_millis(500);

/// Longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of commands for a backend.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The backend, as `equipoise status` names it
    #[arg(value_name = "POOL/BACKEND")]
    backend: ExistingBackend,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Enables a backend.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn enable(args: Args) -> anyhow::Result<ExitCode> {
    run(ENABLE, args).await
}

/// Disables a backend.
///
/// # Errors
/// As [`enable`].
pub async fn disable(args: Args) -> anyhow::Result<ExitCode> {
    run(DISABLE, args).await
}

async fn run(operation: Operation<(), Changed>, args: Args) -> anyhow::Result<ExitCode> {
    let client = args.api.client().await?;
    let BackendName { pool, backend } = args.backend.resolve(&client).await?;
    let changed = client.ask(operation.of([&pool, &backend]), &()).await?;
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

/// Arguments of `equipoise drain`.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Wait until the backend has finished its work, so that it can be stopped
    #[arg(long)]
    wait: bool,
}

/// Drains a backend or a node.
///
/// # Errors
/// The process that is asked does not answer or refuses, the drain is taken back while it is
/// waited for, or standard output cannot be written.
pub async fn drain(args: DrainArgs) -> anyhow::Result<ExitCode> {
    let DrainArgs { target, wait } = args;
    if !wait {
        return run_on_target(DRAIN, DRAIN_NODE, target).await;
    }
    let TargetArgs { target, answer, api } = target;
    let client = api.client().await?;
    let asked = ExistingBackend::from(target);
    let backend = asked.resolve(&client).await.context("--wait is of a backend")?;
    let BackendName { pool, backend } = backend;
    let changed = client.ask(DRAIN.of([&pool, &backend]), &()).await?;
    answer.print(&drained(&client, changed).await?, text)
}

/// Waits until the backend has no work. Answers that fail are asked for again: the process may be
/// replaced by an upgrade.
async fn drained(client: &Client, mut changed: Changed) -> anyhow::Result<Changed> {
    let name = format!("{}/{}", changed.pool, changed.backend.name);
    let work = |changed: &Changed| changed.backend.in_flight + changed.backend.flows;
    let progress = Progress::of_work(format!("{name} drains"), work(&changed));
    let mut answered = Instant::now();
    while work(&changed) > 0 {
        progress.left(work(&changed));
        tokio::time::sleep(PERIOD).await;
        let status = match client.ask(STATUS, &()).await {
            Ok(status) => status,
            Err(error) if may_come_back(&error) && answered.elapsed() < PATIENCE => continue,
            Err(error) => return Err(error.into()),
        };
        answered = Instant::now();
        let pool = status.pools.into_iter().find(|pool| pool.name == changed.pool);
        let found = pool.into_iter().flat_map(|pool| pool.backends);
        let found = found.into_iter().find(|backend| backend.name == changed.backend.name);
        changed.backend = found.with_context(|| format!("{name} was removed"))?;
        ensure!(
            changed.backend.admin == Admin::Drain,
            "{name} is not drained any more: the process has restarted, or an operator has taken the drain back"
        );
    }
    Ok(changed)
}

/// Takes the drain of a backend or a node back.
///
/// # Errors
/// As [`enable`].
pub async fn undrain(args: TargetArgs) -> anyhow::Result<ExitCode> {
    run_on_target(UNDRAIN, UNDRAIN_NODE, args).await
}

/// A target with a slash is a backend: names of members have no slash.
async fn run_on_target(
    of_backend: Operation<(), Changed>,
    of_node: Operation<(), NodeStatus>,
    args: TargetArgs,
) -> anyhow::Result<ExitCode> {
    let TargetArgs { target, answer, api } = args;
    if target.contains('/') {
        return run(of_backend, Args { backend: target.into(), answer, api }).await;
    }
    let client = api.client().await?;
    match client.ask(of_node.of([&target]), &()).await {
        Ok(node) => answer.print(&node, node_text),
        Err(error) => Err(not_a_node(&client, &target, error).await),
    }
}

/// The error for a target without a slash: the name of a backend without its pool, or of a node
/// that the process does not know.
async fn not_a_node(client: &Client, target: &str, error: ClientError) -> anyhow::Error {
    let guess = match did_you_mean(client, target).await {
        Some(question) => format!("{question} A name without a slash is that of a node"),
        None => format!(
            "`{target}` was taken for a node of the cluster; a backend is named POOL/BACKEND, as `equipoise status` lists them"
        ),
    };
    anyhow::Error::new(error).context(guess)
}

/// The new state of the node, with its shares.
pub(crate) fn node_text(node: &NodeStatus) -> String {
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
