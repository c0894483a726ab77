//! `equipoise cluster`: creates a cluster, admits machines, shows and evicts members.

pub(crate) mod alone;
mod controller;
mod init;
pub(crate) mod members;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use equipoise_api::wire::cluster::ClusterToken;
use equipoise_basics::rough;
use equipoise_cluster::wire::CreateToken;
use equipoise_cluster::{
    Asker, Authority, ClientError, Cluster, ClusterRole, ControllerAddress, Name, TokenId,
};
use serde_json::json;

use crate::output::AnswerArgs;
use crate::process::ApiArgs;
use crate::table::{Align, Cell, Table, Tone};
use crate::view::View;
use equipoise_config::{self as config, Config};

use controller::{Controller, NodeRow};

/// Arguments of `equipoise cluster`.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// On the first controller: create the cluster's certificate authority
    Init(init::Args),
    /// On a controller: create, list and revoke join tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Show members, leader, loads and instructions
    Members(members::MembersArgs),
    /// On a controller: show the nodes that joined, and which are evicted
    #[command(subcommand)]
    Node(NodeCommand),
    /// On a controller: evict a node; its certificates are refused and its processes end at once
    Evict(EvictArgs),
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// Show the nodes that ever joined, evicted ones included
    List(ListArgs),
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Print a new join token; it cannot be shown again
    Create(CreateArgs),
    /// Show the join tokens, without their secrets
    List(ListArgs),
    /// Revoke a token at once
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// Time for which the token is accepted: 30m, 1h, 7d
    #[arg(long, default_value = "1h", value_parser = duration)]
    ttl: Duration,
    /// Accept it for one machine only
    #[arg(long)]
    single_use: bool,
    /// Accept it for the node of this name only; the node also takes the name over from an earlier
    /// machine
    #[arg(long, value_name = "NAME")]
    node: Option<Name>,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct RevokeArgs {
    /// The token's id, as `equipoise cluster token list` shows it
    id: TokenId,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct EvictArgs {
    /// The node's name
    node: Name,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    config::read_duration(text)
        .filter(|duration| *duration >= Duration::from_secs(1))
        .ok_or("accepted: a number and a unit (s, m, h, d), such as 1h")
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: ClusterArgs) -> anyhow::Result<ExitCode> {
    obey(args).await.map_err(explained)
}

/// Adds advice to the error that no controller could be reached.
pub(crate) fn explained(error: anyhow::Error) -> anyhow::Error {
    if !is_unreached(&error) {
        return error;
    }
    error.context(
        "no controller runs on this machine (start it with `equipoise run`; if that runs, `equipoise status` shows why its \
         controller does not run, for example a damaged store)",
    )
}

/// Whether the error is that no process could be reached.
fn is_unreached(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<ClientError>(), Some(ClientError::Connect { .. }))
}

async fn obey(args: ClusterArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        ClusterCommand::Init(args) => init::run(&args),
        ClusterCommand::Token(TokenCommand::Create(args)) => create(args).await,
        ClusterCommand::Token(TokenCommand::List(args)) => list(args).await,
        ClusterCommand::Token(TokenCommand::Revoke(args)) => {
            Controller::of(args.api)?.revoke_token(&args.id).await?;
            args.answer.print(&json!({ "revoked": args.id.to_string() }), |_| {
                format!(
                    "token {} is revoked; nodes that joined with it stay in the cluster\n",
                    args.id
                )
            })
        }
        ClusterCommand::Members(args) => members::run(args).await,
        ClusterCommand::Node(NodeCommand::List(args)) => list_nodes(args).await,
        ClusterCommand::Evict(args) => {
            Controller::of(args.api)?.evict(&args.node).await?;
            args.answer.print(&json!({ "evicted": args.node.to_string() }), |_| {
                format!(
                    "{0} is evicted. To admit it again: equipoise cluster token create --node {0}\n",
                    args.node
                )
            })
        }
    }
}

/// This machine's part in its cluster, from its configuration.
pub(crate) struct Here {
    config: Config,
    cluster: Cluster,
}

impl Here {
    pub(crate) fn load(file: &Path) -> anyhow::Result<Here> {
        if !file.exists() {
            bail!(
                "{} does not exist: name this machine's configuration with --config, or with the variable \
                 EQUIPOISE_CONFIG",
                file.display()
            );
        }
        let config = config::load(file)?.config;
        let Some(cluster) = config.cluster.clone() else {
            bail!(
                "{} has no [cluster] table, so this machine is in no cluster; see docs/cluster.md for how to set one up",
                file.display()
            );
        };
        Ok(Here { config, cluster })
    }

    fn is_node(&self) -> bool {
        matches!(self.cluster.role, ClusterRole::Node { .. })
    }

    fn name(&self) -> anyhow::Result<Name> {
        Ok(self.config.instance.name.parse()?)
    }

    /// The controllers that this machine can reach.
    fn controllers(&self) -> anyhow::Result<Vec<ControllerAddress>> {
        match &self.cluster.role {
            ClusterRole::Node { controllers, .. } => Ok(controllers.clone()),
            ClusterRole::Controller { listen, .. } => {
                let mut address = *listen;
                if address.ip().is_unspecified() {
                    address.set_ip([127, 0, 0, 1].into());
                }
                let address = address.to_string().parse();
                Ok(vec![address.context("`cluster.listen` needs a fixed port")?])
            }
        }
    }

    /// A client with the operator's certificate. Only controllers can create one, since it takes
    /// the authority's key.
    fn operator(&self) -> anyhow::Result<Asker> {
        if let ClusterRole::Node { .. } = self.cluster.role {
            let controllers: Vec<String> =
                self.controllers()?.iter().map(ToString::to_string).collect();
            bail!(
                "this machine is a node: run the command on a controller's machine; the controllers are {}",
                controllers.join(", ")
            );
        }
        let authority = Authority::load(&self.cluster.folder())?;
        Ok(Asker::operator(&authority, &self.name()?, self.controllers()?)?)
    }

    /// A client with this machine's own certificate.
    pub(crate) fn asker(&self) -> anyhow::Result<Asker> {
        match self.cluster.role {
            ClusterRole::Controller { .. } => self.operator(),
            ClusterRole::Node { .. } => {
                Ok(Asker::node(&self.cluster.folder(), &self.name()?, self.controllers()?)?)
            }
        }
    }
}

async fn create(args: CreateArgs) -> anyhow::Result<ExitCode> {
    let controller = Controller::of(args.api)?;
    let wish = CreateToken {
        time_to_live_s: args.ttl.as_secs(),
        single_use: args.single_use,
        node: args.node,
    };
    let made = controller.create_token(&wish).await?;
    if args.answer.json {
        return args.answer.print(&made, |_| String::new());
    }
    // Prints only the token to standard output, so that it can be piped into a file.
    outln!("{}", made.token);
    let uses = if wish.single_use { "one node" } else { "any number of nodes" };
    let whom = wish.node.map_or(uses.to_string(), |node| format!("the node {node}"));
    eprintln!(
        "token {}: for {whom}, {}",
        made.listed.id,
        until(made.listed.expires_at_unix_seconds)
    );
    Ok(ExitCode::SUCCESS)
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let tokens = Controller::of(args.api)?.tokens().await?;
    args.answer.print(&tokens.answer?, |_| tokens_table(&tokens.shown))
}

fn tokens_table(tokens: &[ClusterToken]) -> String {
    let mut table =
        Table::new(&[("TOKEN", Align::Left), ("FOR", Align::Left), ("STATE", Align::Left)]);
    for token in tokens {
        let whom = match (&token.node, token.single_use) {
            (Some(node), _) => format!("the node {node}"),
            (None, true) => "one node".to_string(),
            (None, false) => "any node".to_string(),
        };
        table.row(vec![(&token.id).into(), whom.into(), state(token)]);
    }
    let mut out = String::new();
    table.render(View::PLAIN, &mut out);
    out
}

async fn list_nodes(args: ListArgs) -> anyhow::Result<ExitCode> {
    let nodes = Controller::of(args.api)?.nodes().await?;
    args.answer.print(&nodes.answer?, |_| nodes_table(&nodes.shown))
}

fn nodes_table(nodes: &[NodeRow]) -> String {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("JOINED", Align::Right),
        ("CERTIFICATE", Align::Left),
        ("TOKEN", Align::Left),
    ]);
    for node in nodes {
        table.row(node_row(node));
    }
    let mut out = String::new();
    table.render(View::PLAIN, &mut out);
    out
}

fn node_row(node: &NodeRow) -> Vec<Cell> {
    let joined = UNIX_EPOCH + Duration::from_secs(node.joined_at);
    let joined = SystemTime::now().duration_since(joined).unwrap_or_default();
    let (state, certificate) = match node.evicted {
        true => (Cell::toned("evicted", Tone::Bad), "refused".to_string()),
        false => (Cell::toned("joined", Tone::Good), until(node.valid_until)),
    };
    vec![
        (&node.name).into(),
        state,
        format!("{} ago", rough(joined.as_secs())).into(),
        certificate.into(),
        (&node.token).into(),
    ]
}

fn state(token: &ClusterToken) -> Cell {
    let end = token.expires_at_unix_seconds;
    match &token.used_by {
        Some(node) => Cell::toned(format!("used by {node}"), Tone::Plain),
        None if left(end).is_zero() => Cell::toned(until(end), Tone::Warning),
        None => Cell::toned(until(end), Tone::Good),
    }
}

fn left(unix: u64) -> Duration {
    let end = UNIX_EPOCH + Duration::from_secs(unix);
    end.duration_since(SystemTime::now()).unwrap_or_default()
}

fn until(unix: u64) -> String {
    let left = left(unix);
    if left.is_zero() {
        return "expired".to_string();
    }
    // Rounds up, so that a token is shown as good until it expires.
    format!("good for {}", rough(left.as_secs() + u64::from(left.subsec_nanos() > 0)))
}
