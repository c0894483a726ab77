//! Backends under load, from a fifth of their capacity to four times it, behind equipoise and
//! behind HAProxy.
//!
//! Balancers and backends are processes, driven from outside. The files of `experiments/` describe
//! the measurements.

mod antagonists;
mod backends;
mod balancers;
mod change;
mod curves;
mod load;
mod place;
mod seen;

use std::path::PathBuf;

use clap::Parser;
use curves::Capacities;
use equipoise_lab_runner::{Options, Run};
use place::Place;

/// Measures goodput and latency of backends under overload, behind equipoise and behind HAProxy
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
    let seed = options.seed;
    let place = Place::find(equipoise)?;
    let capacities = Capacities::default();
    let mut run = Run::new("region", options);
    run.add(include_str!("../experiments/capacity.toml"), |case, row| {
        capacities.measure(&place, case, row, seed)
    })?;
    for description in curves::descriptions() {
        run.add(&description, |case, row| capacities.curve(&place, case, row, seed))?;
    }
    run.add_with_points(include_str!("../experiments/change.toml"), |case, row| {
        change::measure(&place, case, row, seed)
    })?;
    run.add(include_str!("../experiments/antagonists.toml"), |case, row| {
        antagonists::measure(&place, case, row, seed)
    })?;
    run.run()
}
