//! The command line.

use std::path::PathBuf;

use clap::Parser;
use serde::Serialize;

/// Compares equipoise's session level with HAProxy and nginx, side by side on this machine.
///
/// The figure is CPU time per request of the proxy process. README.md beside the source says how it
/// is measured and how to read it.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "session-http", version)]
pub(crate) struct Options {
    /// Three repetitions of two seconds: to see that everything runs, not to quote.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Only these rows, comma-separated; all of them otherwise.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub(crate) rows: Vec<String>,

    /// Measurements of each proxy in each row; the order of the proxies rotates from one to the
    /// next.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: Option<u32>,

    /// Length of one measurement.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,

    /// Client connections, in every row but idle-memory.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) connections: u32,

    /// Threads of wrk.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) wrk_threads: u32,

    /// Idle client connections of the row idle-memory; fewer if the limit of open files forbids it.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=100_000))]
    pub(crate) idle_connections: u32,

    /// The proxy alone on one CPU, upstream and load on the others; `--pin false` leaves it to the
    /// kernel.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "true|false")]
    pub(crate) pin: bool,

    /// Seed of the arrival times of the row latency-70.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// The equipoise binary; default: the one of `cargo build --profile dist -p equipoise`.
    #[arg(long, value_name = "PATH")]
    pub(crate) equipoise: Option<PathBuf>,

    /// Only HAProxy and nginx.
    #[arg(long, conflicts_with = "equipoise")]
    pub(crate) without_equipoise: bool,

    /// Where nginx keeps its dynamic modules: the stream module is needed for nginx in the TCP
    /// rows.
    #[arg(long, default_value = "/usr/lib/nginx/modules", value_name = "DIR")]
    pub(crate) nginx_modules: PathBuf,

    /// Where runs.csv, table.txt and manifest.json go.
    #[arg(long, default_value = "lab/results/session-http", value_name = "DIR")]
    pub(crate) out: PathBuf,
}

impl Options {
    pub(crate) fn repetitions(&self) -> u32 {
        self.repetitions.unwrap_or(if self.quick { 3 } else { 5 })
    }

    pub(crate) fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(if self.quick { 2 } else { 5 })
    }
}
