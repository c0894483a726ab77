//! L3B's experiments (Ristov, Cvetkov, Gusev 2016), beside the paper's figures, and an elastic
//! pool.
//!
//! equipoise and the endpoints are processes, driven from outside. The files of `experiments/`
//! describe the measurements.

mod client;
mod elastic;
mod endpoints;
mod limits;
mod page;
mod regions;
mod shuffle;

use std::path::PathBuf;

use clap::Parser;
use endpoints::Place;
use equipoise_lab_runner::{Options, Run};

/// Runs L3B's experiments and writes CSV, plots and a report beside the paper's figures
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
    let mut run = Run::new("l3b", options);
    run.add(include_str!("../experiments/page.toml"), |case, row| {
        page::measure(&place, case, row)
    })?;
    run.add_following(include_str!("../experiments/page-regions.toml"), |pages, _, row| {
        page::regions(pages, row)
    })?;
    run.add(include_str!("../experiments/shuffle.toml"), |case, row| {
        shuffle::measure(&place, case, row)
    })?;
    run.add_following(include_str!("../experiments/shuffle-regions.toml"), shuffle::regions)?;
    run.add_with_points(include_str!("../experiments/limits.toml"), |case, row| {
        limits::measure(&place, case, row)
    })?;
    run.add_with_points(include_str!("../experiments/elastic.toml"), |case, row| {
        elastic::measure(&place, case, row)
    })?;
    run.run()
}
