//! `equipoise demo`: sample backends of different speed behind a real configuration.
//!
//! **In**: the arguments of `equipoise demo`, and a function that starts a process like
//! `equipoise run`. **Out**: that process with a file that the demo writes, backends as children of
//! this process, and text on standard output. **Fails** with an [`anyhow::Error`], which the binary
//! prints.

mod account;
mod cluster;
mod files;
mod packet;
mod ports;
pub mod sample;
#[cfg(feature = "slice")]
pub mod slice;
mod supervise;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use crate::files::{Folder, Listening};
use crate::supervise::{Sample, Spec, Supervisor};

/// Arguments of `equipoise demo`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    level: Option<Level>,
    /// Listen on any free ports, not on 8080 and the following ones
    #[arg(long)]
    any_ports: bool,
}

/// Demos of other levels.
#[derive(Clone, Debug, clap::Subcommand)]
enum Level {
    /// The packet level, between network namespaces; needs root, iproute2 and curl
    Packet,
    /// A cluster of five nodes with DNS and dispatchers, between network namespaces; needs root,
    /// iproute2 and unbound
    Cluster,
    /// The slice level: images over DDS, and workers that convert them to greyscale and join one by
    /// one
    #[cfg(feature = "slice")]
    Slice(slice::Args),
}

const SAMPLES: [Spec; 3] = [
    Spec { name: "fast", delay_ms: 2 },
    Spec { name: "medium", delay_ms: 10 },
    Spec { name: "slow", delay_ms: 40 },
];

/// Runs the demo. `start` starts a process like `equipoise run` with a configuration file, and
/// `until_stopped` waits for its end.
///
/// # Errors
/// A sample backend or the process cannot be started.
pub async fn run<Running>(
    args: Args,
    start: impl AsyncFnOnce(&Path) -> anyhow::Result<Running>,
    until_stopped: impl AsyncFnOnce(Running) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    match args.level {
        Some(Level::Packet) => return packet::run(),
        Some(Level::Cluster) => return cluster::run(),
        #[cfg(feature = "slice")]
        Some(Level::Slice(args)) => return slice::run(args).await,
        None => {}
    }
    let mut samples = Vec::new();
    for spec in SAMPLES {
        samples.push(Sample::start(spec).await?);
    }
    let folder = Folder::create().context("cannot create a folder for the demo's files")?;
    let listening = Listening::choose(args.any_ports).context("no free port on 127.0.0.1")?;
    folder.write_config(&files::config(&samples, &listening, &folder.socket()))?;
    let running = start(&folder.config()).await?;
    let text = banner(&samples, &listening, &folder);
    let _supervisor = Supervisor::over(samples);
    // A closed standard output does not stop the demo.
    let _ = std::io::stdout().write_all(text.as_bytes());
    until_stopped(running).await
}

/// A text with the listeners, and commands to try.
fn banner(samples: &[Sample], listening: &Listening, folder: &Folder) -> String {
    let mut text = String::from("\nequipoise balances three sample backends:\n\n");
    for sample in samples {
        // Here and below: writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {:<8} answers after {:>2} ms   pid {:<8} http {}  tcp {}  udp {}",
            sample.spec.name,
            sample.spec.delay_ms,
            sample.pid,
            sample.ports.http,
            sample.ports.tcp,
            sample.ports.udp
        );
    }
    let Listening { http, tcp, udp, api } = listening;
    let (socket, config) = (folder.socket(), folder.config());
    let program = program();
    let _ = write!(
        text,
        "
behind three front doors:

  http     http://{http}
  tcp      {tcp}
  udp      {udp}

dashboard  http://{api}
API        {socket} and http://{api}
metrics    http://{api}/metrics
settings   {config} (edit it, then: {program} reload --api {socket})

Try:

  curl http://{http}/hello
  {program} status --api {socket}
  {program} drain web/fast --api {socket}

or kill a backend (kill -9 {pid}) and watch it come back. Ctrl-C drains and ends.
",
        socket = socket.display(),
        config = config.display(),
        pid = samples[0].pid,
    );
    text
}

/// The name by which this program was started, so that the printed commands work when copied.
fn program() -> String {
    std::env::args().next().filter(|name| !name.is_empty()).unwrap_or_else(|| "equipoise".into())
}
