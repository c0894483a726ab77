//! `equipoise cluster`: makes a cluster, lets machines in, shows and shuts out.

pub(crate) mod alone;
mod controller;
pub(crate) mod members;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand};
use equipoise_api::wire::cluster::ClusterToken;
use equipoise_cluster::wire::CreateToken;
use equipoise_cluster::{
    Asker, Authority, ClientError, ControllerAddress, Fingerprint, FolderError, Name, StateFile,
    StateFolder, TokenId,
};

use crate::commands::process::ApiArgs;
use crate::commands::table::{Align, Cell, Table, Tone};
use crate::commands::view::View;
use crate::config::{self, Cluster, ClusterRole, Config};

use controller::{Controller, NodeRow};

/// Arguments.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// On the first controller: make the cluster's certificate authority
    Init(InitArgs),
    /// On a controller: let machines join
    #[command(subcommand)]
    Token(TokenCommand),
    /// Show members, leader, loads and instructions
    Members(members::MembersArgs),
    /// On a controller: show the nodes that joined, and which are evicted
    #[command(subcommand)]
    Node(NodeCommand),
    /// On a controller: shut a node out; its certificates are refused and its processes end at once
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
    /// Show the tokens there are, without their secrets
    List(ListArgs),
    /// Make a token worthless at once
    Revoke(RevokeArgs),
}

/// The configuration that says what this machine is.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// This machine's configuration
    #[arg(
        long,
        value_name = "FILE",
        env = "EQUIPOISE_CONFIG",
        default_value = crate::cli::DEFAULT_CONFIG
    )]
    config: PathBuf,
}

#[derive(Debug, Args)]
struct InitArgs {
    /// Issue the authority's certificate anew for its key; what it signed, and tokens, stay good
    #[arg(long)]
    renew: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// How long it is accepted: 30m, 1h, 7d
    #[arg(long, default_value = "1h", value_parser = duration)]
    ttl: Duration,
    /// Good for one machine only
    #[arg(long)]
    single_use: bool,
    /// Good for the node of this name only; it also takes the name over from a machine that had it
    #[arg(long, value_name = "NAME")]
    node: Option<Name>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct RevokeArgs {
    /// The token's id, as `equipoise cluster token list` shows it
    id: TokenId,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Args)]
struct EvictArgs {
    /// The node's name
    node: Name,
    #[command(flatten)]
    api: ApiArgs,
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    config::read_duration(text)
        .filter(|duration| *duration >= Duration::from_secs(1))
        .ok_or("accepted: a number and a unit (s, m, h, d), such as 1h")
}

pub(crate) async fn run(args: ClusterArgs) -> anyhow::Result<ExitCode> {
    obey(args).await.map_err(explained)
}

/// Adds to an error that no controller answers what to look at.
pub(crate) fn explained(error: anyhow::Error) -> anyhow::Error {
    if !is_unreached(&error) {
        return error;
    }
    error.context(
        "no controller runs on this machine (`equipoise run` starts it; where that runs, `equipoise status` says why its \
         controller does not, such as a store that is damaged)",
    )
}

/// Whether no process was reached.
fn is_unreached(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<ClientError>(), Some(ClientError::Connect { .. }))
}

async fn obey(args: ClusterArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        ClusterCommand::Init(args) => init(&args)?,
        ClusterCommand::Token(TokenCommand::Create(args)) => create(args).await?,
        ClusterCommand::Token(TokenCommand::List(args)) => list(args).await?,
        ClusterCommand::Token(TokenCommand::Revoke(args)) => {
            Controller::of(args.api)?.revoke_token(&args.id).await?;
            outln!("token {} is revoked; nodes that joined with it stay", args.id);
        }
        ClusterCommand::Members(args) => return members::run(args).await,
        ClusterCommand::Node(NodeCommand::List(args)) => list_nodes(args).await?,
        ClusterCommand::Evict(args) => {
            Controller::of(args.api)?.evict(&args.node).await?;
            outln!(
                "{0} is shut out. To let it back: equipoise cluster token create --node {0}",
                args.node
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// This machine's part in its cluster.
pub(crate) struct Here {
    config: Config,
    cluster: Cluster,
}

impl Here {
    pub(crate) fn load(file: &Path) -> anyhow::Result<Here> {
        if !file.exists() {
            bail!(
                "there is no {}, which would say what this machine is: name its file with --config, or as the variable \
                 EQUIPOISE_CONFIG",
                file.display()
            );
        }
        let config = config::load(file)?.config;
        let Some(cluster) = config.cluster.clone() else {
            bail!(
                "{} has no [cluster] table, so this machine is alone; docs/cluster.md says how to make a cluster",
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

    /// The controllers that can be asked from here.
    fn controllers(&self) -> anyhow::Result<Vec<ControllerAddress>> {
        match &self.cluster.role {
            ClusterRole::Node { controllers, .. } => Ok(controllers.clone()),
            ClusterRole::Controller { listen, .. } => {
                let mut address = *listen;
                if address.ip().is_unspecified() {
                    address.set_ip([127, 0, 0, 1].into());
                }
                let address = address.to_string().parse();
                Ok(vec![address.context("`cluster.listen` needs a port that is known")?])
            }
        }
    }

    /// Asks as an operator: on controllers only, since it takes the authority's key.
    fn operator(&self) -> anyhow::Result<Asker> {
        if let ClusterRole::Node { .. } = self.cluster.role {
            let controllers: Vec<String> =
                self.controllers()?.iter().map(ToString::to_string).collect();
            bail!(
                "this machine is a node: do this on a controller's machine; the controllers are {}",
                controllers.join(", ")
            );
        }
        let authority = authority(&self.cluster.folder())?;
        Ok(Asker::operator(&authority, &self.name()?, self.controllers()?)?)
    }

    /// Asks as what this machine is.
    pub(crate) fn asker(&self) -> anyhow::Result<Asker> {
        match self.cluster.role {
            ClusterRole::Controller { .. } => self.operator(),
            ClusterRole::Node { .. } => {
                Ok(Asker::node(&self.cluster.folder(), &self.name()?, self.controllers()?)?)
            }
        }
    }
}

/// The authority in this folder.
pub(crate) fn authority(folder: &StateFolder) -> anyhow::Result<Authority> {
    let read = |file| {
        folder.read(file).map_err(|error| match error {
            FolderError::Missing { path } => anyhow!(
                "this machine has no certificate authority of the cluster ({} is not there): on the first controller \
                 make it with `equipoise cluster init`; to the others copy ca.pem and ca.key from there",
                path.display()
            ),
            // It says what is wrong and what to do.
            other => other.into(),
        })
    };
    let (certificate, key) =
        (read(StateFile::AuthorityCertificate)?, read(StateFile::AuthorityKey)?);
    Ok(Authority::from_pem(&certificate, &key)?)
}

fn init(args: &InitArgs) -> anyhow::Result<()> {
    let here = Here::load(&args.config.config)?;
    let ClusterRole::Controller { name, .. } = &here.cluster.role else {
        bail!(
            "this machine is a node (`cluster.controllers`): a cluster is made on its first controller"
        );
    };
    let (folder, now) = (here.cluster.folder(), SystemTime::now());
    if args.renew {
        let renewed = authority(&folder)?.renewed(now)?;
        folder.replace(StateFile::AuthorityCertificate, &renewed.certificate_pem())?;
        outln!("the authority's certificate is issued anew, for the same key");
        outln!("copy {} to the other controllers, and restart", shown(&folder, true));
        return Ok(());
    }
    let made = Authority::new(name, now)?;
    // The key first: without it the certificate is of no use, and is not there.
    folder.create(StateFile::AuthorityKey, &made.key_pem())?;
    folder.create(StateFile::AuthorityCertificate, &made.certificate_pem())?;
    let fingerprint: Fingerprint = made.fingerprint();
    outln!("cluster {name} is made; its authority is {fingerprint}");
    outln!("  {} may be seen by everybody", shown(&folder, true));
    outln!("  {} is the cluster's secret: only controllers have it", shown(&folder, false));
    outln!(
        "next: copy both to the same folder of the other controllers, start `equipoise run` on each,"
    );
    outln!("and let nodes in: equipoise cluster token create");
    Ok(())
}

fn shown(folder: &StateFolder, public: bool) -> String {
    let file = if public { StateFile::AuthorityCertificate } else { StateFile::AuthorityKey };
    folder.path_of(file).display().to_string()
}

async fn create(args: CreateArgs) -> anyhow::Result<()> {
    let controller = Controller::of(args.api)?;
    let wish = CreateToken {
        time_to_live_s: args.ttl.as_secs(),
        single_use: args.single_use,
        node: args.node,
    };
    let made = controller.create_token(&wish).await?;
    // The token alone on standard output, so that it can be piped into a file.
    outln!("{}", made.token);
    let uses = if wish.single_use { "one node" } else { "any number of nodes" };
    let whom = wish.node.map_or(uses.to_string(), |node| format!("the node {node}"));
    eprintln!(
        "token {}: for {whom}, {}",
        made.listed.id,
        until(made.listed.expires_at_unix_seconds)
    );
    Ok(())
}

async fn list(args: ListArgs) -> anyhow::Result<()> {
    let tokens = Controller::of(args.api)?.tokens().await?;
    if args.json {
        outln!("{}", tokens.json()?);
        return Ok(());
    }
    let mut table =
        Table::new(&[("TOKEN", Align::Left), ("FOR", Align::Left), ("STATE", Align::Left)]);
    for token in &tokens.shown {
        let whom = match (&token.node, token.single_use) {
            (Some(node), _) => format!("the node {node}"),
            (None, true) => "one node".to_string(),
            (None, false) => "any node".to_string(),
        };
        table.row(vec![(&token.id).into(), whom.into(), state(token)]);
    }
    let mut out = String::new();
    table.render(View::PLAIN, &mut out);
    out!("{out}");
    Ok(())
}

async fn list_nodes(args: ListArgs) -> anyhow::Result<()> {
    let nodes = Controller::of(args.api)?.nodes().await?;
    if args.json {
        outln!("{}", nodes.json()?);
        return Ok(());
    }
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("JOINED", Align::Right),
        ("CERTIFICATE", Align::Left),
        ("TOKEN", Align::Left),
    ]);
    for node in &nodes.shown {
        table.row(node_row(node));
    }
    let mut out = String::new();
    table.render(View::PLAIN, &mut out);
    out!("{out}");
    Ok(())
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
    // The last second counts: until it is over, the token is good.
    format!("good for {}", rough(left.as_secs() + u64::from(left.subsec_nanos() > 0)))
}

/// A time as people say it.
pub(crate) fn rough(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
