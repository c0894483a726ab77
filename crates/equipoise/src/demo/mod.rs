//! `equipoise demo`: sample backends of different speed, and a real configuration in front of them.
//!
//! Everything is what `equipoise run` does with the file that is written here; only the backends
//! are children of this process.

mod account;
mod cluster;
mod files;
mod packet;
mod ports;
pub(crate) mod sample;
#[cfg(feature = "slice")]
pub(crate) mod slice;
mod supervise;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context;

use crate::demo::files::{Folder, Listening};
use crate::demo::supervise::{Sample, Spec, Supervisor};
use equipoise_packet::engine::Leave;

use crate::run::Running;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    level: Option<Level>,
    /// Listen on ports that happen to be free, not on 8080 and its neighbours
    #[arg(long)]
    any_ports: bool,
}

/// Further demos.
#[derive(Clone, Debug, clap::Subcommand)]
enum Level {
    /// Balance at the packet level, between network namespaces; needs root, iproute2 and curl
    Packet,
    /// Five nodes with DNS and dispatchers, between network namespaces; needs root, iproute2 and
    /// unbound
    Cluster,
    /// Images over DDS, and workers that turn them to greyscale, joining one by one
    #[cfg(feature = "slice")]
    Slice(slice::Args),
}

const SAMPLES: [Spec; 3] = [
    Spec { name: "fast", delay_ms: 2 },
    Spec { name: "medium", delay_ms: 10 },
    Spec { name: "slow", delay_ms: 40 },
];

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
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
    let folder = Folder::create().context("cannot make a folder for the demo's files")?;
    let listening = Listening::choose(args.any_ports).context("no free port on 127.0.0.1")?;
    folder.write_config(&files::config(&samples, &listening, &folder.socket()))?;
    let running = Running::start(&folder.config(), Leave::Nothing).await?;
    let text = banner(&samples, &listening, &folder);
    let _supervisor = Supervisor::over(samples);
    // A closed standard output is no reason to stop balancing.
    let _ = std::io::stdout().write_all(text.as_bytes());
    running.until_stopped().await
}

/// The listeners, and commands to try.
fn banner(samples: &[Sample], listening: &Listening, folder: &Folder) -> String {
    let mut text = String::from("\nequipoise balances three sample backends:\n\n");
    for sample in samples {
        // Writing to a string cannot fail, here and below.
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

/// How this program was called, so that the printed commands work when they are copied.
fn program() -> String {
    std::env::args().next().filter(|name| !name.is_empty()).unwrap_or_else(|| "equipoise".into())
}
