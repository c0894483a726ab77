//! `equipoise capture VIP`: packets of a VIP as a pcapng file.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use equipoise_api::wire::packet::CaptureQuestion;

use crate::process::ApiArgs;

/// Help text: how to read the file.
const ALSO: &str = "The file has packets as they arrived; the comment of each one names its backend, or the reason of \
its drop.
  equipoise capture 192.0.2.10:443/tcp | tcpdump -nr -
One capture runs at a time. It ends with this command.";

/// Arguments of `equipoise capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = ALSO)]
pub struct Args {
    /// The VIP, as `equipoise status` names it
    vip: String,
    /// Largest number of packets
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: u32,
    /// Longest time
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Bytes of each packet
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    snap: u32,
    /// Capture one of N packets, by chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: u32,
    /// Only packets to this backend, by name or address
    #[arg(long)]
    backend: Option<String>,
    /// Only packets of clients in this prefix
    #[arg(long, value_name = "IP[/BITS]")]
    client: Option<String>,
    /// File to write; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    write: PathBuf,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or the file cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let is_stdout = args.write.as_os_str() == "-";
    if is_stdout && stdout().is_terminal() {
        bail!("a capture is not text: use --write FILE, or a pipe (| tcpdump -nr -)");
    }
    let question = CaptureQuestion {
        vip: args.vip,
        backend: args.backend,
        client: args.client,
        count: args.count,
        seconds: args.seconds,
        snap_bytes: args.snap,
        every: args.every,
    };
    let mut capture = args.api.client().await?.capture(&question).await?;
    let mut file: Box<dyn Write> = match is_stdout {
        true => Box::new(stdout()),
        false => {
            let mut options = OpenOptions::new();
            // Packets may be confidential.
            options.write(true).create(true).truncate(true).mode(0o600);
            let file = options.open(&args.write);
            Box::new(file.with_context(|| format!("cannot write {}", args.write.display()))?)
        }
    };
    let mut bytes = 0;
    while let Some(part) = capture.next().await.context("the capture ended early")? {
        file.write_all(&part)?;
        file.flush()?;
        bytes += part.len();
    }
    if !is_stdout {
        eprintln!("{}: {bytes} bytes", args.write.display());
    }
    Ok(ExitCode::SUCCESS)
}
