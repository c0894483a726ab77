//! `equipoise flows`: the flows of the packet level with the most bytes.

use std::process::ExitCode;

use anyhow::{Context, bail};
use equipoise_api::routes::process::STATUS;
use equipoise_api::wire::packet::HeavyTraffic;

use crate::output::AnswerArgs;
use crate::process::ApiArgs;
use crate::status::bytes;
use crate::table::{Align, Table};
use crate::view::View;

/// Arguments of `equipoise flows`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only flows of this VIP
    vip: Option<String>,
    /// Largest number of flows
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or has no estimates, or standard output cannot be
/// written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let status = args.api.client().await?.ask(STATUS, &()).await?;
    let packet =
        status.packet.context("no [[packet]] table is configured, so there are no flows")?;
    let Some(mut heavy) = packet.heavy else {
        bail!("there are no estimates: the first window takes 10 s, and needs [flows] elephants");
    };
    if let Some(vip) = &args.vip {
        if !packet.vips.iter().any(|it| it.vip == *vip) {
            let known: Vec<_> = packet.vips.iter().map(|vip| format!("`{}`", vip.vip)).collect();
            bail!("there is no VIP `{vip}`; the VIPs are {}", known.join(", "));
        }
        heavy.flows.retain(|flow| flow.vip == *vip);
        heavy.backends.retain(|backend| backend.vip == *vip);
    }
    heavy.flows.truncate(args.top);
    args.answer.print(&heavy, |heavy| text(heavy, View::of_stdout()))
}

fn text(heavy: &HeavyTraffic, view: View) -> String {
    let mut text = String::new();
    flows(heavy).render(view, &mut text);
    text.push('\n');
    backends(heavy).render(view, &mut text);
    text.push_str(&format!(
        "\nlast {:.0} s, estimated from one of {} packets\n",
        heavy.seconds, heavy.sample_every
    ));
    text
}

/// The flows with the most bytes.
pub(crate) fn flows(heavy: &HeavyTraffic) -> Table {
    let mut table = Table::new(&[
        ("FLOW", Align::Left),
        ("VIP", Align::Left),
        ("BACKEND", Align::Left),
        ("BYTES/S", Align::Right),
        ("ERROR", Align::Right),
        ("SHARE", Align::Right),
    ]);
    for flow in &heavy.flows {
        table.row(vec![
            (&flow.flow).into(),
            (&flow.vip).into(),
            flow.backend.as_deref().unwrap_or("-").into(),
            bytes(flow.bytes_per_second).into(),
            error(flow.standard_error).into(),
            percent(flow.share).into(),
        ]);
    }
    table
}

fn backends(heavy: &HeavyTraffic) -> Table {
    let mut table = Table::new(&[
        ("VIP", Align::Left),
        ("BACKEND", Align::Left),
        ("BYTES/S", Align::Right),
        ("OF THESE FLOWS", Align::Right),
        ("SHARE", Align::Right),
    ]);
    for backend in &heavy.backends {
        table.row(vec![
            (&backend.vip).into(),
            (&backend.backend).into(),
            bytes(backend.bytes_per_second).into(),
            bytes(backend.heavy_bytes_per_second).into(),
            percent(backend.share).into(),
        ]);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The standard error of an estimate; one sample says no more than the order of magnitude.
fn error(error: Option<f64>) -> String {
    match error {
        Some(error) if error < 1.0 => format!("±{:.0} %", 100.0 * error),
        _ => "one sample".into(),
    }
}
