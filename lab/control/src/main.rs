//! The speed and the cost of the control side (the controller's figures, `lab/control/README.md`).
//!
//! equipoise, its backends and etcd are processes on hosts that are network namespaces. Nodes of a
//! cluster are simulated by this program, over the same TLS as real ones. The files of
//! `experiments/` describe the measurements.

mod cluster;
mod death;
mod delegation;
mod etcd;
mod fleet;
mod monitor;
mod nodes;
mod place;
mod planner;
mod probe;
mod scale;
mod step;
mod traffic;
mod usage;

use std::path::PathBuf;

use clap::Parser;
use equipoise_lab_runner::{Options, Run};
use place::Place;

/// Measures how fast the control side of equipoise is and what it costs
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
    let mut run = Run::new("control", options);
    run.add(include_str!("../experiments/death.toml"), |case, row| {
        death::measure(&place, case, row)
    })?;
    run.add(include_str!("../experiments/step.toml"), |case, row| {
        step::measure(&place, case, row)
    })?;
    run.add(include_str!("../experiments/scale.toml"), |case, row| {
        scale::measure(&place, case, row)
    })?;
    run.add(include_str!("../experiments/nodes.toml"), |case, row| {
        nodes::measure(&place, case, row)
    })?;
    run.add(include_str!("../experiments/planner.toml"), planner::measure)?;
    run.add(include_str!("../experiments/monitor.toml"), |case, row| {
        monitor::measure(&place, case, row)
    })?;
    run.run()
}
