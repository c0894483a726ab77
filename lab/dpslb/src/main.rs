//! DPSLB's experiments (Vasconcelos, PUC-Rio) over real DDS, beside the paper's figures.
//!
//! Workers are processes; controller and client are this one. Figures are of one machine, which all
//! share. The files of `experiments/` describe the measurements.

mod balance;
mod cluster;
mod cost;
mod crash;
mod during;
mod image;
mod join;
mod load;
mod offering;
mod overhead;
mod plain;
mod program;
mod sessions;
mod times;
mod trace;
mod usage;
mod worker;

use clap::{Parser, Subcommand};
use equipoise_lab_runner::{Options, Run};

/// Runs DPSLB's experiments and writes CSV, plots and a report beside the paper's figures
#[derive(Parser)]
#[command(name = "equipoise-lab-dpslb", version, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    instead: Option<Instead>,
}

#[derive(Subcommand)]
enum Instead {
    /// One worker
    #[command(hide = true)]
    Worker(worker::Args),
    /// The same work by plain Cyclone DDS
    #[command(hide = true)]
    Plain(plain::Args),
    /// A worker's program
    #[command(hide = true)]
    Program(program::Args),
    /// One client
    #[command(hide = true)]
    Client(offering::Args),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    trace::begin();
    match arguments.instead {
        Some(Instead::Worker(args)) => worker::run(args),
        Some(Instead::Plain(args)) => plain::run(&args),
        Some(Instead::Program(args)) => program::run(&args),
        Some(Instead::Client(args)) => offering::run(&args),
        None => measure(arguments.options),
    }
}

fn measure(options: Options) -> anyhow::Result<()> {
    let mut run = Run::new("dpslb", options);
    run.add(include_str!("../experiments/sessions.toml"), sessions::measure)?;
    run.add(include_str!("../experiments/loss.toml"), sessions::measure)?;
    run.add(include_str!("../experiments/once.toml"), sessions::measure_many)?;
    run.add(include_str!("../experiments/crash.toml"), crash::measure)?;
    run.add(include_str!("../experiments/balance.toml"), balance::measure)?;
    run.add(include_str!("../experiments/still.toml"), balance::measure_still)?;
    run.add(include_str!("../experiments/during.toml"), during::measure)?;
    run.add(include_str!("../experiments/overhead.toml"), overhead::measure)?;
    run.add(include_str!("../experiments/cost.toml"), cost::measure)?;
    run.add(include_str!("../experiments/idle.toml"), cost::measure_idle)?;
    run.add_with_points(include_str!("../experiments/join.toml"), join::measure)?;
    run.run()
}
