//! `equipoise slice drain | undrain | pin | unpin | move | resize`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use equipoise_api::Operation;
use equipoise_api::routes::slice::{MOVE, PIN, RESIZE, STREAM, UNPIN};
use equipoise_api::wire::slice::{SliceMove, SliceMoves, SlicePin, SliceResize, SliceWorker};

use super::StreamArgs;
use super::numbers::{Numbers, show};
use crate::output::AnswerArgs;
use crate::process::ApiArgs;

/// Arguments of `drain` and `undrain`.
#[derive(Debug, clap::Args)]
pub(super) struct WorkerArgs {
    /// The worker, as `equipoise slice status` names it
    #[arg(value_name = "WORKER")]
    worker: String,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    stream: StreamArgs,
}

/// Arguments of `pin`.
#[derive(Debug, clap::Args)]
pub(super) struct PinArgs {
    /// The slice's number
    #[arg(value_name = "SLICE")]
    slice: u32,
    /// The worker, as `equipoise slice status` names it
    #[arg(value_name = "WORKER")]
    worker: String,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    stream: StreamArgs,
}

/// Arguments of `unpin`.
#[derive(Debug, clap::Args)]
pub(super) struct UnpinArgs {
    /// The slice's number
    #[arg(value_name = "SLICE")]
    slice: u32,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    stream: StreamArgs,
}

/// Arguments of `move`.
#[derive(Debug, clap::Args)]
pub(super) struct MoveArgs {
    /// Numbers and ranges: 7 or 0-9,12
    #[arg(value_name = "SLICES")]
    slices: Numbers,
    /// The worker, as `equipoise slice status` names it
    #[arg(value_name = "WORKER")]
    worker: String,
    /// Also move pinned slices; their pins are removed
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    stream: StreamArgs,
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub(super) struct ResizeArgs {
    /// The stream's name
    #[arg(value_name = "STREAM")]
    stream: String,
    /// How many slices it is to have: twice or half as many as now
    ///
    /// As many as now calls off a resize that has not taken effect.
    #[arg(value_name = "N")]
    slices: u32,
    /// How long to wait until it has taken effect; it goes on without this command
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Interval between two looks at a resize.
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn resize(args: ResizeArgs) -> anyhow::Result<ExitCode> {
    let client = args.api.client().await?;
    let (name, end) = (&args.stream, Instant::now() + Duration::from_secs(args.wait));
    let mut stream = client.ask(RESIZE.of([name]), &SliceResize { slices: args.slices }).await?;
    let mut told = None;
    while let Some(resizing) = &stream.resizing {
        if told.as_ref() != Some(resizing) && !args.answer.json {
            outln!(
                "stream {name}: to have {} slices; waits for {}",
                resizing.slices,
                resizing.waits_for
            );
        }
        if Instant::now() >= end {
            bail!("it has not taken effect yet, and goes on: see `equipoise slice status`");
        }
        told = Some(resizing.clone());
        tokio::time::sleep(LOOK).await;
        stream = client.ask(STREAM.of([name]), &()).await?;
    }
    args.answer.print(&stream, |it| format!("stream {name}: {} slices\n", it.slices_total))
}

pub(super) async fn drain(
    args: WorkerArgs,
    operation: Operation<(), SliceWorker>,
) -> anyhow::Result<ExitCode> {
    let (client, stream) = args.stream.find().await?;
    let worker = client.ask(operation.of([&stream, &args.worker]), &()).await?;
    args.answer.print(&worker, |worker| {
        format!("{}: {}, {} slices\n", worker.name, worker.state.word(), worker.slices)
    })
}

pub(super) async fn pin(args: PinArgs) -> anyhow::Result<ExitCode> {
    let (client, stream) = args.stream.find().await?;
    let (slice, pin) = (args.slice, SlicePin { worker: args.worker });
    let now = client.ask(PIN.of([&stream, &slice.to_string()]), &pin).await?;
    args.answer.print(&now, |_| format!("slice {slice}: pinned to {}\n", pin.worker))
}

pub(super) async fn unpin(args: UnpinArgs) -> anyhow::Result<ExitCode> {
    let (client, stream) = args.stream.find().await?;
    let now = client.ask(UNPIN.of([&stream, &args.slice.to_string()]), &()).await?;
    args.answer.print(&now, |_| format!("slice {}: no longer pinned\n", args.slice))
}

pub(super) async fn move_slices(args: MoveArgs) -> anyhow::Result<ExitCode> {
    let (client, stream) = args.stream.find().await?;
    let wish = SliceMove { slices: args.slices.0, worker: args.worker, force: args.force };
    let moves = client.ask(MOVE.of([&stream]), &wish).await?;
    args.answer.print(&moves, |moves| page(moves, &wish.worker))?;
    Ok(if moves.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn page(moves: &SliceMoves, worker: &str) -> String {
    let mut out = String::new();
    for pin in &moves.unpinned {
        out.push_str(&format!("slice {}: no longer pinned to {}\n", pin.slice, pin.worker));
    }
    for (what, slices) in [("moving to", &moves.moving), ("already at", &moves.there)] {
        if !slices.is_empty() {
            out.push_str(&format!("slices {}: {what} {worker}\n", show(slices)));
        }
    }
    for why in &moves.refused {
        out.push_str(&format!("not moved: {why}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use equipoise_api::wire::slice::TakenPin;

    use super::*;

    #[test]
    fn the_move_page_reports_the_result_for_every_slice() {
        let moves = SliceMoves {
            handovers: vec![4],
            moving: vec![1, 2, 3],
            there: vec![9],
            refused: vec!["slice 5 has no owner yet".into()],
            unpinned: vec![TakenPin { slice: 2, worker: "w2".into() }],
        };
        assert_eq!(
            page(&moves, "w1"),
            "slice 2: no longer pinned to w2\nslices 1-3: moving to w1\nslices 9: already at w1\nnot moved: slice 5 has no owner yet\n"
        );
    }
}
