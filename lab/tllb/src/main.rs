//! TLLB's figures and scenarios (Onedata's two-layer load balancing), beside the paper's.
//!
//! Nodes are hosts (network namespaces), each held to a share of a core by a control group, with an
//! equipoise and its application as processes; the controller and the clients are outside of the
//! groups. The files of `experiments/` describe the measurements.

mod client;
mod crowd;
mod even;
mod half;
mod path;
mod scarce;
mod scenario;
mod site;

use std::path::PathBuf;

use clap::Parser;
use equipoise_lab_runner::{Options, Run};
use site::Place;

/// Runs TLLB's experiments and writes CSV, plots and a report beside the paper's figures
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// The equipoise to measure; the one beside this program if none
    #[arg(long)]
    equipoise: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let Arguments { options, equipoise } = Arguments::parse();
    let place = Place::find(equipoise)?;
    let rounds = options.repetitions;
    let mut run = Run::new("tllb", options);
    run.add(include_str!("../experiments/even.toml"), |case, row| {
        even::measure(&place, case, row)
    })?;
    run.add(include_str!("../experiments/half.toml"), |case, row| {
        half::measure(&place, case, row)
    })?;
    run.add_with_points(include_str!("../experiments/fluctuation.toml"), |case, row| {
        scenario::fluctuation(&place, case, row)
    })?;
    run.add_with_points(include_str!("../experiments/unbalanced.toml"), |case, row| {
        scenario::unbalanced(&place, case, row)
    })?;
    run.add(include_str!("../experiments/scarce.toml"), |case, row| {
        scarce::measure(&place, case, row)
    })?;
    run.add_with_points(include_str!("../experiments/failure.toml"), |case, row| {
        scenario::failure(&place, case, row)
    })?;
    run.add(include_str!("../experiments/path.toml"), |case, row| {
        path::measure(&place, rounds, case, row)
    })?;
    run.run()
}
