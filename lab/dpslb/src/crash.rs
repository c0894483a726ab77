//! Workers are killed (`kill -9`) and started again, while items flow. Every item is accounted for by its id.

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::load::{Load, Offer};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 90)]
    domain: u32,
    /// How often a worker is killed
    #[arg(long, default_value_t = 10)]
    kills: usize,
    /// Items for each second
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let slices = 100;
    let mut cluster = Cluster::new(args.domain, slices, 100, Duration::from_millis(500), 0)?;
    let names = ["one", "two", "three"];
    for name in names {
        cluster.start_worker(name)?;
    }
    cluster.settled()?;
    let offer = Offer { items_per_second: args.rate, message: vec![7; 1000], slices };
    let load = Load::start(&cluster.stream, offer)?;
    load.wait_open();
    let mut times = Vec::new();
    for kill in 0..args.kills {
        std::thread::sleep(Duration::from_secs(1));
        let victim = names[kill % names.len()];
        let killed = Instant::now();
        cluster.kill_worker(victim)?;
        cluster.until("its slices have owners", Duration::from_secs(60), |status| {
            let slices = &status.slices;
            slices.iter().all(|slice| slice.owner.as_deref().is_some_and(|owner| owner != victim))
        })?;
        times.push(killed.elapsed());
        cluster.start_worker(victim)?;
    }
    let outcome = load.finish()?;
    let done = cluster.done()?;
    let lost = (0..outcome.published).filter(|id| !done.contains_key(id)).count();
    let twice = done.values().filter(|count| **count > 1).count();
    times.sort_unstable();
    println!("kills,ms_p50,ms_max,items,never_done,unanswered,done_twice,resent,second_replies");
    println!(
        "{},{:.0},{:.0},{},{lost},{},{twice},{},{}",
        times.len(),
        times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3),
        times.last().map_or(0.0, |time| time.as_secs_f64() * 1e3),
        outcome.published,
        outcome.unanswered,
        outcome.resent,
        outcome.strange,
    );
    Ok(())
}
