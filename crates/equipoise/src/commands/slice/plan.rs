//! `equipoise slice plan`.

use std::fmt::Write as _;
use std::process::ExitCode;

use equipoise_api::wire::slice::SlicePlan;

use super::StreamArgs;
use super::numbers::show;
use crate::commands::table::{Align, Table};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print what the API answers, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    stream: StreamArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (client, stream) = args.stream.find().await?;
    let plan = client.slice_plan(&stream).await?;
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&plan)?),
        false => print!("{}", page(&plan)),
    }
    Ok(ExitCode::SUCCESS)
}

fn page(plan: &SlicePlan) -> String {
    let mut out = String::new();
    let over = 100.0 * plan.imbalance;
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(out, "{}: the most loaded worker has {over:.0} % over the mean", plan.stream);
    if plan.moves.is_empty() {
        out.push_str("nothing would be moved now\n");
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
        table.render(false, &mut out);
    }
    for hot in &plan.hot {
        let share = 100.0 * hot.share;
        let _ =
            writeln!(out, "slice {} is hot: {share:.0} % of what a worker should have", hot.slice);
    }
    out
}

#[cfg(test)]
mod tests {
    use equipoise_api::wire::slice::{HotSlice, PlannedSliceMove};

    use super::*;

    #[test]
    fn a_plan_says_what_goes_where_and_why() {
        let step = PlannedSliceMove {
            slices: vec![4, 5, 6, 9],
            giver: "w1".into(),
            taker: "w2".into(),
            load: 0.25,
            pinned: false,
        };
        let pinned = PlannedSliceMove { slices: vec![1], pinned: true, ..step.clone() };
        let hot = vec![HotSlice { slice: 7, share: 0.9 }];
        let plan =
            SlicePlan { stream: "images".into(), moves: vec![pinned, step], hot, imbalance: 0.5 };
        assert_eq!(
            page(&plan),
            "images: the most loaded worker has 50 % over the mean\n\
             SLICES  FROM  TO  LOAD  WHY\n\
             1       w1    w2  0.25  pinned there\n\
             4-6,9   w1    w2  0.25  balance\n\
             slice 7 is hot: 90 % of what a worker should have\n"
        );
        let idle = SlicePlan { moves: Vec::new(), hot: Vec::new(), imbalance: 0.0, ..plan };
        assert!(page(&idle).contains("nothing would be moved now"));
    }
}
