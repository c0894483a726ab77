//! How long a handover takes while items flow.
//!
//! # Source
//! Vasconcelos, DPSLB, Table 3: 401 to 491 ms. Measured here from the controller's decision to its hearing that the taker
//! is active; its writing to the store is in it.

use std::time::Duration;

use equipoise_slice::SliceId;

use crate::cluster::Cluster;
use crate::load::{Load, Offer};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// DDS domains from this one on
    #[arg(long, default_value_t = 60)]
    domain: u32,
    /// Handovers in each cell
    #[arg(long, default_value_t = 50)]
    handovers: usize,
    /// Lose so many of 1000 packets
    #[arg(long, default_value_t = 0)]
    loss_permille: u16,
    /// Slices that move together
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000")]
    slices: Vec<u32>,
    /// Offered load: MB/s, and bytes of an item
    #[arg(long, value_delimiter = ',', default_value = "1.4x35000,4x35000,10x35000,20x1000")]
    loads: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    println!("# two workers, client and controller share {} cores", cores());
    println!(
        "slices,mb_per_s,item_bytes,handovers,ms_p50,ms_p99,ms_max,items,lost,twice,resent,delay_ms_p50,delay_ms_p99"
    );
    let mut domain = args.domain;
    for slices in &args.slices {
        for load in &args.loads {
            let (mb, bytes) = parse(load)?;
            cell(args, domain, *slices, mb, bytes)?;
            domain += 1;
        }
    }
    Ok(())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn parse(load: &str) -> anyhow::Result<(f64, usize)> {
    let (mb, bytes) =
        load.split_once('x').ok_or_else(|| anyhow::anyhow!("{load} is no MBxBYTES"))?;
    Ok((mb.parse()?, bytes.parse()?))
}

fn cell(args: &Args, domain: u32, slices: u32, mb: f64, bytes: usize) -> anyhow::Result<()> {
    let mut cluster = Cluster::new(domain, slices, 0, Duration::ZERO, args.loss_permille)?;
    cluster.start_worker("one")?;
    cluster.start_worker("two")?;
    cluster.settled()?;
    let rate = mb * 1e6 / bytes as f64;
    let offer = Offer { items_per_second: rate, message: vec![7; bytes], slices };
    let load = Load::start(&cluster.stream, offer)?;
    load.wait_open();
    for round in 0..=args.handovers {
        // The first gathers them all at one worker.
        let to = if round % 2 == 0 { "one" } else { "two" };
        let status = cluster.status();
        let away = status.slices.iter().filter(|s| s.owner.as_deref().is_some_and(|o| o != to));
        let away: Vec<SliceId> = away.map(|slice| slice.slice).collect();
        if !away.is_empty() {
            cluster.move_slices(away, to)?;
            cluster.until("the slices are there", Duration::from_secs(30), |status| {
                status.handovers.is_empty()
                    && status.slices.iter().all(|slice| slice.owner.as_deref() == Some(to))
            })?;
        }
    }
    let outcome = load.finish()?;
    let done = cluster.done()?;
    let lost = (0..outcome.published).filter(|id| !done.contains_key(id)).count();
    let twice = done.values().filter(|count| **count > 1).count();
    let (mut times, mut delays) = (cluster.status().handover_times, outcome.delays);
    times.sort_unstable();
    delays.sort_unstable();
    println!(
        "{slices},{mb},{bytes},{},{:.2},{:.2},{:.2},{},{lost},{twice},{},{:.2},{:.2}",
        times.len(),
        at_ms(&times, 500),
        at_ms(&times, 990),
        at_ms(&times, 1000),
        outcome.published,
        outcome.resent,
        at_ms(&delays, 500),
        at_ms(&delays, 990),
    );
    Ok(())
}

/// The quantile of sorted times, in milliseconds.
fn at_ms(times: &[Duration], permille: usize) -> f64 {
    let at = (times.len() * permille / 1000).min(times.len().saturating_sub(1));
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}
