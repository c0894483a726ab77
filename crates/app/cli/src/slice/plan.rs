//! `equipoise slice plan`: shows what a balancing round would move.

use std::fmt::Write as _;
use std::process::ExitCode;

use equipoise_api::routes::slice::MOVES_PLANNED;
use equipoise_api::wire::slice::SlicePlan;

use super::StreamArgs;
use super::numbers::show;
use crate::output::AnswerArgs;
use crate::table::{Align, Table};
use crate::view::View;

/// Arguments of `equipoise slice plan`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    stream: StreamArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (client, stream) = args.stream.find().await?;
    let plan = client.ask(MOVES_PLANNED.of([&stream]), &()).await?;
    args.answer.print(&plan, page)
}

fn page(plan: &SlicePlan) -> String {
    let mut out = String::new();
    let over = 100.0 * plan.imbalance;
    // Here and below: writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{}: the most loaded worker has {over:.0} % over the mean, queues included",
        plan.stream
    );
    if plan.moves.is_empty() {
        let _ = writeln!(out, "nothing would be moved now: {}", plan.explanation);
    } else {
        let mut table = Table::new(&[
            ("SLICES", Align::Left),
            ("FROM", Align::Left),
            ("TO", Align::Left),
            ("LOAD", Align::Right),
            ("WHY", Align::Left),
        ]);
        for step in &plan.moves {
            let why = if step.pinned { "pinned there" } else { "balance" };
            let load = format!("{:.2}", step.load);
            let slices = show(&step.slices);
            table.row(vec![
                slices.into(),
                (&step.giver).into(),
                (&step.taker).into(),
                load.into(),
                why.into(),
            ]);
        }
        table.render(View::PLAIN, &mut out);
        let _ = writeln!(out, "limited by: {}", plan.explanation);
    }
    if !plan.workers.is_empty() {
        out.push('\n');
        workers(plan).render(View::PLAIN, &mut out);
    }
    for hot in &plan.hot {
        let share = 100.0 * hot.share;
        let _ =
            writeln!(out, "slice {} is hot: {share:.0} % of what a worker should have", hot.slice);
    }
    out
}

fn workers(plan: &SlicePlan) -> Table {
    let mut table = Table::new(&[
        ("WORKER", Align::Left),
        ("LOAD", Align::Right),
        ("QUEUED", Align::Right),
        ("QUEUE LOAD", Align::Right),
        ("TO MEAN", Align::Right),
        ("ROOM", Align::Right),
        ("SLICES", Align::Right),
        ("PINNED", Align::Right),
        ("IN HANDOVER", Align::Right),
        ("COOLING", Align::Right),
        ("ROUND", Align::Left),
    ])
    .folding(&["COOLING", "PINNED", "IN HANDOVER"]);
    for worker in &plan.workers {
        let over = worker.over_mean.map(|over| format!("{:+.0} %", 100.0 * over));
        table.row(vec![
            (&worker.name).into(),
            format!("{:.2}", worker.load).into(),
            worker.queued.into(),
            format!("{:.2}", worker.queue_load).into(),
            over.as_deref().unwrap_or("-").into(),
            worker.room.map_or_else(|| "-".to_string(), |room| format!("{room:.2}")).into(),
            worker.slices.into(),
            worker.pinned.into(),
            worker.in_handover.into(),
            worker.cooling.into(),
            (&worker.explanation).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use equipoise_api::wire::slice::{
        HotSlice, PlannedSliceMove, PlannedSliceWorker, PlannedWorkerReason, SlicePlanReason,
    };

    use super::*;

    fn worker(name: &str, over_mean: Option<f64>, explanation: &str) -> PlannedSliceWorker {
        PlannedSliceWorker {
            name: name.into(),
            load: 0.5,
            queue_load: 0.25,
            queued: 40,
            over_mean,
            room: over_mean.map(|_| 0.0),
            slices: 12,
            pinned: 1,
            in_handover: 0,
            cooling: 3,
            reason: PlannedWorkerReason::Over,
            explanation: explanation.into(),
        }
    }

    #[test]
    fn a_slice_plan_lists_moves_and_the_reason_that_limits_them() {
        let step = PlannedSliceMove {
            slices: vec![4, 5, 6, 9],
            giver: "w1".into(),
            taker: "w2".into(),
            load: 0.25,
            pinned: false,
        };
        let pinned = PlannedSliceMove { slices: vec![1], pinned: true, ..step.clone() };
        let plan = SlicePlan {
            stream: "images".into(),
            moves: vec![pinned, step],
            reason: SlicePlanReason::Moves,
            explanation: "enough".into(),
            workers: vec![worker("w1", Some(0.5), "gives 5"), worker("w3", None, "is lost")],
            hot: vec![HotSlice { slice: 7, share: 0.9 }],
            imbalance: 0.5,
        };
        assert_eq!(
            page(&plan),
            "images: the most loaded worker has 50 % over the mean, queues included\n\
             SLICES  FROM  TO  LOAD  WHY\n\
             1       w1    w2  0.25  pinned there\n\
             4-6,9   w1    w2  0.25  balance\n\
             limited by: enough\n\
             \n\
             WORKER  LOAD  QUEUED  QUEUE LOAD  TO MEAN  ROOM  SLICES  PINNED  IN HANDOVER  COOLING  ROUND\n\
             w1      0.50      40        0.25    +50 %  0.00      12       1            0        3  gives 5\n\
             w3      0.50      40        0.25        -     -      12       1            0        3  is lost\n\
             slice 7 is hot: 90 % of what a worker should have\n"
        );
        let (moves, workers, hot) = (Vec::new(), Vec::new(), Vec::new());
        let explanation = "balanced: no worker has more than 8 % over the mean".to_string();
        let idle = SlicePlan { moves, workers, hot, explanation, imbalance: 0.0, ..plan };
        assert_eq!(
            page(&idle),
            "images: the most loaded worker has 0 % over the mean, queues included\n\
             nothing would be moved now: balanced: no worker has more than 8 % over the mean\n"
        );
    }
}
