//! The paper's evaluation, live: images are published, and workers that turn them to greyscale join one by one.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Shape};
use crate::image;
use crate::load::{Load, Offer, USUAL};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Workers, one after the other
    #[arg(long, default_value_t = 5)]
    workers: usize,
    /// Seconds until the next joins
    #[arg(long, default_value_t = 6)]
    join_seconds: u64,
    /// Each image occupies a worker for so many milliseconds, as a core of its own would: five workers share this machine
    #[arg(long, default_value_t = 20)]
    image_ms: u64,
    /// Images that are published for each second
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let slices = 50;
    let (round, sleep) = (Duration::from_millis(500), Duration::from_millis(args.image_ms));
    let mut cluster = Cluster::new(Shape { round, sleep, ..Shape::new(slices) })?;
    let image = image::colour(128, 90, 1);
    println!(
        "Images of {} bytes, {} of them a second, in {slices} slices; a worker does {} a second. Ctrl-C ends it.",
        image.len(),
        args.rate,
        1000 / args.image_ms.max(1),
    );
    cluster.start_worker("worker-1")?;
    cluster.settled()?;
    let offer = Offer {
        items_per_second: args.rate,
        message: image,
        slices,
        window: 10_000,
        resend: USUAL,
    };
    let load = Load::start(&cluster.stream, offer)?;
    let (begun, mut last, mut seen) = (Instant::now(), Instant::now(), 0);
    println!("{:>5}  {:>7}  {:>8}  slices of each worker", "s", "workers", "images/s");
    for joined in 1..=args.workers {
        if joined > 1 {
            cluster.start_worker(&format!("worker-{joined}"))?;
        }
        let until = Instant::now() + Duration::from_secs(args.join_seconds);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_secs(1));
            let answered = load.answered();
            let rate = (answered - seen) as f64 / last.elapsed().as_secs_f64();
            (last, seen) = (Instant::now(), answered);
            let status = cluster.status();
            let owned: Vec<_> = status.workers.iter().map(|w| w.slices.to_string()).collect();
            let bar = "#".repeat((rate / 5.0) as usize);
            println!(
                "{:>5.0}  {joined:>7}  {rate:>8.0}  {:<16} {bar}",
                begun.elapsed().as_secs_f64(),
                owned.join(" "),
            );
            std::io::stdout().flush()?;
        }
    }
    load.set_rate(0.0);
    let outcome = load.finish()?;
    let (lost, twice) = cluster.lost_and_twice(outcome.published)?;
    println!(
        "{} images published; never done: {lost}; done twice: {twice}; without a reply: {}",
        outcome.published, outcome.unanswered,
    );
    Ok(())
}
