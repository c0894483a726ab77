//! SDLB's experiments (Yu, Li, Qian, MECOMM 2017): Table 1 and Figures 3 to 6, beside the paper's
//! figures.
//!
//! Each module measures the cases that a file of `experiments/` describes.

mod build;
mod fig3;
mod fig4;
mod fig5;
mod keys;
mod ring;
mod table1;

use clap::Parser;
use equipoise_lab_runner::{Options, Run, memory::Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs SDLB's experiments and writes CSV, plots and a report beside the paper's figures
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

fn main() -> anyhow::Result<()> {
    let options = Arguments::parse().options;
    let (seed, repetitions) = (options.seed, options.repetitions);
    let mut run = Run::new("sdlb", options);
    run.add(include_str!("../experiments/table1.toml"), |case, row| {
        table1::measure(case, row, seed)
    })?;
    run.add_with_points(include_str!("../experiments/fig3.toml"), |case, row| {
        fig3::measure(case, row, seed)
    })?;
    run.add(include_str!("../experiments/fig4.toml"), |case, row| {
        fig4::measure(case, row, seed, repetitions)
    })?;
    run.add(include_str!("../experiments/fig5.toml"), |case, row| {
        fig5::measure(case, row, seed, repetitions)
    })?;
    run.add(include_str!("../experiments/fig6.toml"), |case, row| {
        fig5::measure(case, row, seed, repetitions)
    })?;
    run.add(include_str!("../experiments/build.toml"), |case, row| {
        build::measure(case, row, seed)
    })?;
    run.run()
}
