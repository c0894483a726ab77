//! `equipoise check`: reports every problem of a configuration file.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use equipoise_cluster::{Cluster, ClusterRole};
use equipoise_session::config::Place;
use tokio::runtime::Builder;

use equipoise_config::{
    self as config, Config, ConfigErrors, FileKind, Loaded, Problem, Severity, Surroundings,
};

/// Longest time that a check waits for host names.
const NAMES_WITHIN: Duration = Duration::from_secs(3);

/// Validates a configuration file and reports every problem.
///
/// Each problem is a line: FILE:LINE:COLUMN: OPTION: the problem; the accepted values. Exits 0 if
/// the file can be used (also with warnings), otherwise 1. A backend's host name that does not
/// resolve within 3 s is a warning.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// The configuration file; `-`: standard input.
    #[arg(env = "EQUIPOISE_CONFIG", default_value = crate::argument::DEFAULT_CONFIG)]
    pub file: PathBuf,
    /// Print one JSON object instead of lines, for editors and scripts.
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
///
/// # Errors
/// Standard input cannot be read, or standard output cannot be written.
pub fn run(args: &CheckArgs) -> io::Result<ExitCode> {
    let (file, mut outcome) = match args.file.as_os_str() == "-" {
        true => (Path::new("(standard input)"), standard_input()?),
        false => (args.file.as_path(), config::load(&args.file)),
    };
    if let Ok(loaded) = &mut outcome {
        resolve(loaded)?;
    }
    let report = if args.json { json_report(file, &outcome) } else { report(file, &outcome) };
    writeln!(io::stdout(), "{report}")?;
    Ok(if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Adds a warning for each backend with a host name that does not resolve.
fn resolve(loaded: &mut Loaded) -> io::Result<()> {
    let session = &loaded.config.session;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let unresolved = runtime.block_on(config::hosts::unresolved(session, NAMES_WITHIN));
    let backends =
        session.pools.iter().flat_map(|pool| pool.backends.iter().map(move |b| (pool, b)));
    for (pool, backend) in backends {
        let Place::Host { name, .. } = &backend.place else { continue };
        let Some(reason) = unresolved.get(name) else { continue };
        let host = name.rsplit_once(':').map_or(&**name, |(host, _)| host);
        loaded.warnings.push(Problem {
            severity: Severity::Warning,
            position: None,
            option: format!("pool.{}.backends.{}.address", pool.name, backend.name),
            text: format!(
                "\"{host}\" cannot be resolved: {reason}; the backend gets no requests until it is resolved (try: getent hosts {host})"
            ),
        });
    }
    Ok(())
}

fn standard_input() -> io::Result<Result<Loaded, ConfigErrors>> {
    let mut text = String::new();
    io::stdin().lock().take(FileKind::Config.bytes_max()).read_to_string(&mut text)?;
    Ok(config::parse(&text, Path::new("(standard input)"), &Surroundings::here()))
}

fn report(file: &Path, outcome: &Result<Loaded, ConfigErrors>) -> String {
    match outcome {
        Ok(loaded) => {
            let mut lines: Vec<String> = loaded.warnings.iter().map(|w| w.in_file(file)).collect();
            lines.push(format!("{}: {}", file.display(), summary(&loaded.config, lines.len())));
            lines.join("\n")
        }
        Err(errors) => errors.to_string(),
    }
}

fn summary(config: &Config, warnings: usize) -> String {
    let session = &config.session;
    let backends = session.pools.iter().map(|pool| pool.backends.len()).sum();
    let state = match warnings {
        0 => "valid".to_string(),
        _ => format!("valid, with {}", counted(warnings, "warning")),
    };
    let mut parts = vec![
        counted(session.front_doors.len(), "front door"),
        counted(session.pools.len(), "pool"),
        counted(backends, "backend"),
    ];
    // Levels that the file does not have are left out.
    let others = [
        (config.packet.vips.len(), "VIP"),
        (config.dns.zones.len(), "zone"),
        (config.slices.len(), "stream"),
    ];
    parts
        .extend(others.iter().filter(|(count, _)| *count > 0).map(|(it, noun)| counted(*it, noun)));
    parts.extend(config.cluster.as_ref().map(|cluster| part(cluster, serves(config))));
    format!("{state}: {}", parts.join(", "))
}

/// Whether `equipoise run` would serve anything besides its part in the cluster.
fn serves(config: &Config) -> bool {
    let doors = !config.session.front_doors.is_empty() || !config.packet.vips.is_empty();
    doors || !config.dns.zones.is_empty() || !config.slices.is_empty()
}

/// A machine's part in its cluster.
fn part(cluster: &Cluster, serves: bool) -> String {
    match &cluster.role {
        ClusterRole::Controller { name, etcd, .. } => {
            let store = match etcd {
                Some(etcd) => format!("with {}", counted(etcd.endpoints.len(), "etcd member")),
                None => "the only one, with a file as its store".to_string(),
            };
            format!("a controller of the cluster {name} ({store})")
        }
        ClusterRole::Node { controllers, .. } => {
            let whose = counted(controllers.len(), "controller");
            let how = if serves { "" } else { "; it serves nothing: for `equipoise agent`" };
            format!("a node of {whose}{how}")
        }
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn json_report(file: &Path, outcome: &Result<Loaded, ConfigErrors>) -> String {
    serde_json::to_string_pretty(&config::checked(file, outcome)).unwrap_or_default()
}
