//! `equipoise weight POOL/BACKEND N`: sets a backend's weight.

use std::process::ExitCode;

use equipoise_api::routes::backends::WEIGHT;
use equipoise_api::wire::SetWeight;

use crate::argument::{BackendName, ExistingBackend};
use crate::change::text;
use crate::output::AnswerArgs;
use crate::process::ApiArgs;

/// Largest weight of a backend.
const WEIGHT_MAX: u16 = 1000;

/// Arguments of `equipoise weight`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The backend, as `equipoise status` names it
    #[arg(value_name = "POOL/BACKEND")]
    backend: ExistingBackend,
    /// Its share relative to the pool's other backends; 0 drains
    #[arg(allow_negative_numbers = true, value_parser = weight)]
    weight: u16,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) fn weight(text: &str) -> Result<u16, String> {
    let weight = text.parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
    weight.ok_or_else(|| format!("{text} is not in 0..={WEIGHT_MAX}; accepted: a whole number"))
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.api.client().await?;
    let BackendName { pool, backend } = args.backend.resolve(&client).await?;
    let wish = SetWeight { weight: args.weight };
    let changed = client.ask(WEIGHT.of([&pool, &backend]), &wish).await?;
    args.answer.print(&changed, text)
}
