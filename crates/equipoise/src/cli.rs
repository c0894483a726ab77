//! The command line: commands and their arguments.

pub(crate) mod completions;
pub(crate) mod manual;

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use equipoise_basics::with_causes;
use equipoise_packet::engine::Leave;

use equipoise_cli::{self as commands, argument, check, cluster, import, schema};
use equipoise_config::ConfigErrors;
use equipoise_demo as demo;

/// The binary's name.
const NAME: &str = "equipoise";

const EXIT_CODES: &str = "\
Exit codes:
  0  done; of `check`: the file can be used; of `ready`: every address is served
  1  not done, or the answer is no; standard error has the reason
  2  the command line has an error; of `import`: a line is not carried or changes behaviour,
     or with --try an answer differs or a request was not asked";

/// One load balancer from the name to the slice.
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run as FILE configures until SIGTERM or Ctrl-C; SIGHUP reads FILE again
    Run(RunArgs),
    /// Only report this machine's load to the cluster: for a machine of backends
    Agent(AgentArgs),
    /// Create a cluster, admit machines, show its members
    Cluster(cluster::ClusterArgs),
    /// Read FILE and report every problem
    Check(check::CheckArgs),
    /// Translate a configuration of HAProxy, nginx, keepalived or ipvsadm
    Import(import::Args),
    /// Print the JSON Schema of the configuration file
    Schema(schema::SchemaArgs),
    /// Balance three sample backends on this machine, to look around
    Demo(demo::Args),
    #[command(flatten)]
    Commands(commands::Command),
    /// Print the script by which a shell completes this command line
    Completions(completions::CompletionsArgs),
    /// Write the manual pages of all commands
    Man(manual::ManArgs),
    /// One backend of the demo
    #[command(hide = true)]
    SampleBackend(demo::sample::Args),
    /// The program of one worker of the demo
    #[cfg(feature = "slice")]
    #[command(hide = true)]
    SampleWorker(demo::slice::sample::Args),
}

/// Parses the path of a file that a reload reads again.
fn lasting_file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("accepted: a file, because a reload reads it again; `equipoise check -` reads standard input"),
        false => Ok(path),
    })
}

/// Arguments of `equipoise run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration file (TOML)
    #[arg(env = "EQUIPOISE_CONFIG", default_value = argument::DEFAULT_CONFIG, value_parser = lasting_file())]
    pub(crate) file: PathBuf,
    /// On stop, leave the packet level's program attached with its tables; the next `run` adopts it
    #[arg(long)]
    keep: bool,
}

impl RunArgs {
    /// Fate of the packet level's program on stop.
    pub(crate) fn leave(&self) -> Leave {
        if self.keep { Leave::Running } else { Leave::Nothing }
    }
}

/// Arguments of `equipoise agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The configuration file (TOML); an agent uses `[cluster]`, `[instance]`, `[load]` and `[log]`
    #[arg(env = "EQUIPOISE_CONFIG", default_value = argument::DEFAULT_CONFIG, value_parser = lasting_file())]
    pub(crate) file: PathBuf,
}

/// The text of an error for the terminal.
pub(crate) fn message(error: &anyhow::Error) -> String {
    // The lines of this error begin with the file's name, so that editors can parse them.
    if error.is::<ConfigErrors>() {
        return error.to_string();
    }
    format!("equipoise: {}", with_causes(&**error))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Commands that run until they are stopped, or print a format of their own.
    const WITHOUT_JSON: [&str; 13] = [
        "equipoise-run",
        "equipoise-agent",
        "equipoise-demo-cluster",
        "equipoise-demo-packet",
        "equipoise-demo-slice",
        "equipoise-announce",
        "equipoise-decap",
        "equipoise-slice-worker",
        "equipoise-top",
        "equipoise-capture",
        "equipoise-schema",
        "equipoise-completions",
        "equipoise-man",
    ];

    #[test]
    fn every_command_that_answers_can_answer_in_json() {
        let mut all = Cli::command().disable_help_subcommand(true);
        all.build();
        let mut lacking = Vec::new();
        lacking_json(&all, &mut lacking);
        assert_eq!(lacking, Vec::<String>::new());
    }

    fn lacking_json(command: &clap::Command, lacking: &mut Vec<String>) {
        let below: Vec<_> = command.get_subcommands().filter(|it| !it.is_hide_set()).collect();
        below.iter().for_each(|it| lacking_json(it, lacking));
        let name = command.get_display_name().unwrap_or(NAME);
        let answers = below.is_empty() && !WITHOUT_JSON.contains(&name);
        if answers && command.get_arguments().all(|it| it.get_id() != "json") {
            lacking.push(name.to_owned());
        }
    }
}
