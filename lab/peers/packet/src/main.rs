//! The packet level beside a Katran-style program of our own writing: nanoseconds a packet, kernel
//! memory, changes of a pool, packets a second over veth.

mod arrivals;
mod bench;
mod change;
mod contender;
mod driver;
mod equipoise;
mod katran_style;
mod kernel_memory;
mod memory;
mod network;
mod parts;
mod ring;
mod second_chance;
mod skew;
mod tables;
mod time;
mod traffic;
mod wire;
mod wire_rate;

use anyhow::Result;
use clap::Parser;
use equipoise_lab_runner::{Options, Run};

/// Runs our packet program and a Katran-style one on the same packets, and writes the figures
/// beside each other. Root
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

fn main() -> Result<()> {
    let options = Arguments::parse().options;
    let (seed, repetitions, quick) = (options.seed, options.repetitions, options.quick);
    let mut run = Run::new("peers-packet", options);
    let mut time = time::Time::new(seed, repetitions, quick);
    run.add(include_str!("../experiments/time.toml"), move |case, row| time.measure(case, row))?;
    run.add(include_str!("../experiments/arrivals.toml"), move |case, row| {
        arrivals::measure(case, row, seed, repetitions)
    })?;
    run.add(include_str!("../experiments/parts.toml"), move |case, row| {
        parts::measure(case, row, seed, repetitions)
    })?;
    run.add(include_str!("../experiments/memory.toml"), memory::measure)?;
    run.add(include_str!("../experiments/change.toml"), move |case, row| {
        change::measure(case, row, repetitions)
    })?;
    run.add(include_str!("../experiments/second_chance.toml"), move |case, row| {
        second_chance::measure(case, row, seed, repetitions)
    })?;
    run.add(include_str!("../experiments/wire.toml"), move |case, row| {
        wire_rate::measure(case, row, seed, repetitions)
    })?;
    run.run()
}
