//! DPSLB's experiments over real DDS, with workers as processes; and the slice level's demo.
//!
//! Figures are of one machine: workers, client and controller share its cores, and say so.

mod cluster;
mod crash;
mod demo;
mod image;
mod load;
mod sessions;
mod worker;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "equipoise-lab-dpslb", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Five workers join one by one while colour images are published; they turn them to greyscale
    Demo(demo::Args),
    /// How long a handover takes: the paper's Table 3
    Sessions(sessions::Args),
    /// Workers are killed again and again; every item is accounted for by its id
    Crash(crash::Args),
    /// One worker
    #[command(hide = true)]
    Worker(worker::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().what {
        What::Demo(args) => demo::run(&args),
        What::Sessions(args) => sessions::run(&args),
        What::Crash(args) => crash::run(&args),
        What::Worker(args) => worker::run(args),
    }
}
