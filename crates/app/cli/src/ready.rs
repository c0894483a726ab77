//! `equipoise ready [ADDRESS...]`: whether this machine serves its addresses.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use crate::process::ApiArgs;
use crate::readiness::{self, Address};

/// Arguments of `equipoise ready`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Ask about these addresses; without one, about every address that the configuration names
    #[arg(value_name = "ADDRESS")]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    api: ApiArgs,
    /// Print nothing
    #[arg(long, short)]
    quiet: bool,
}

/// A check script of keepalived waits about this long.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the command. The exit code is 0 if every address is served, otherwise 1.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.api.client().await?;
    let status = tokio::time::timeout(TIMEOUT, client.status()).await;
    let status = status.map_err(|_| {
        anyhow::anyhow!("equipoise at {} did not answer within {TIMEOUT:?}", client.place())
    })??;
    let addresses = readiness::of(&status, &args.addresses);
    if !args.quiet {
        print(&addresses)?;
    }
    let is_ready = !addresses.is_empty() && addresses.iter().all(|it| it.problem().is_none());
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(addresses: &[Address]) -> anyhow::Result<()> {
    if addresses.is_empty() {
        outln!("no address besides loopback and wildcards: name one");
    }
    for address in addresses {
        match address.problem() {
            None => outln!("{}: ready", address.address),
            Some(problem) => outln!("{}: not ready: {problem}", address.address),
        }
    }
    Ok(())
}
