//! `equipoise ready [ADDRESS...]`: whether this machine serves its addresses.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use equipoise_api::routes::process::STATUS;
use serde::Serialize;

use crate::output::AnswerArgs;
use crate::process::ApiArgs;
use crate::readiness::{self, Address};

/// Arguments of `equipoise ready`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Ask about these addresses; without one, about every address that the configuration names
    #[arg(value_name = "ADDRESS")]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
    /// Print nothing
    #[arg(long, short, conflicts_with = "json")]
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
    let status = tokio::time::timeout(TIMEOUT, client.ask(STATUS, &())).await;
    let status = status.map_err(|_| {
        anyhow::anyhow!("equipoise at {} did not answer within {TIMEOUT:?}", client.place())
    })??;
    let addresses = readiness::of(&status, &args.addresses);
    let addresses: Vec<_> = addresses.iter().map(Shown::of).collect();
    if !args.quiet {
        args.answer.print(&addresses, |addresses| text(addresses))?;
    }
    let is_ready = !addresses.is_empty() && addresses.iter().all(|it| it.ready);
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An address, and the reason why no traffic should come to it.
#[derive(Debug, Serialize)]
struct Shown {
    address: IpAddr,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl Shown {
    fn of(address: &Address) -> Shown {
        let problem = address.problem();
        Shown { address: address.address, ready: problem.is_none(), problem }
    }
}

fn text(addresses: &[Shown]) -> String {
    if addresses.is_empty() {
        return "no address besides loopback and wildcards: name one\n".into();
    }
    let line = |Shown { address, problem, .. }: &Shown| match problem {
        None => format!("{address}: ready\n"),
        Some(problem) => format!("{address}: not ready: {problem}\n"),
    };
    addresses.iter().map(line).collect()
}
