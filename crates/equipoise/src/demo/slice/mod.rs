//! `equipoise demo slice`: the paper's evaluation, live. Colour images are published; workers that turn them to greyscale join
//! one by one.
//!
//! Everything is real: `equipoise run` with the file that is written here, workers as `equipoise slice worker`, their program as
//! a process beside each, images over DDS on loopback. It accounts for every image by its id, and fails if one is missing or
//! was done twice.
//!
//! Its lines are the paper's Figures 26 (images a second), 27 (how busy each worker is) and 28
//! (delay). More is offered than the first workers can do, and in the end more than all can do.
//! What waits is not bounded, as the paper's was not.

mod account;
mod load;
pub(crate) mod sample;
mod stage;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use equipoise_api::wire::slice::StreamStatus;

use self::load::{Load, Offer};
use self::stage::Stage;

/// Arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Workers, one after the other
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=20))]
    workers: u16,
    /// Seconds until the next joins
    #[arg(long, default_value_t = 4, value_name = "N")]
    join_seconds: u64,
    /// An image occupies a worker for so many milliseconds, as on a core of its own: the workers share this machine
    #[arg(long, default_value_t = 20, value_name = "N")]
    image_ms: u64,
    /// Images that are published in a second
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Images that are published in a second when all workers have joined, for as long as one joins
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate_then: u32,
    /// The DDS domain, on loopback
    #[arg(long, default_value_t = 59, value_parser = clap::value_parser!(u32).range(0..=232))]
    domain: u32,
}

const SLICES: u32 = 50;
const STREAM: &str = "images";
/// Pixels of an image.
const SIZE: (usize, usize) = (128, 90);
/// For workers to come and slices to find their owners.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut stage = Stage::build(args.domain, args.image_ms)?;
    let Offer { images, .. } = Offer::new(args.rate);
    say(&format!(
        "{} images a second of {} bytes, in {SLICES} slices; a worker does at most {} a second.\n\
         What runs: {}\n",
        args.rate,
        images.first().map_or(0, Vec::len),
        1000 / args.image_ms.max(1),
        stage.described(args.workers),
    ));
    stage.start_worker("worker-1")?;
    stage.until_owned(PATIENCE).await?;
    let load = Load::start(&stage.stream(), Offer::new(args.rate))?;
    load.wait_open().await?;
    say(&format!(
        "{:>4}  {:>7}  {:>8}  {:>8}  {:>7}  {:<20}  {:<15}",
        "s", "workers", "images/s", "delay ms", "waiting", "busy, per cent", "slices of each"
    ));
    let mut live = Live::new(Duration::from_millis(args.image_ms));
    for joined in 1..=args.workers {
        if joined > 1 {
            stage.start_worker(&format!("worker-{joined}"))?;
        }
        let until = Instant::now() + Duration::from_secs(args.join_seconds);
        while Instant::now() < until {
            live.line(&stage, &load).await?;
        }
    }
    load.set_rate(args.rate_then);
    say(&format!("{} images a second are published", args.rate_then));
    let until = Instant::now() + Duration::from_secs(args.join_seconds);
    while Instant::now() < until {
        live.line(&stage, &load).await?;
    }
    load.stop_publishing();
    say("no more images are published; those that wait are done");
    while load.waiting() > 0 {
        let before = load.answered();
        live.line(&stage, &load).await?;
        live.stuck(before, &load)?;
    }
    let outcome = load.finish()?;
    let times = stage.status().await?;
    let account = account::of(&outcome, &stage.done()?);
    say(&format!("\n{}", account.text(&times)));
    stage.stop().context("the demo's processes did not end in order")?;
    Ok(if account.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints at once. A closed standard output is no reason to stop.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A line each second.
struct Live {
    begun: Instant,
    /// An image occupies a worker for this long.
    image: Duration,
    last: Instant,
    answered: u64,
    delay: Duration,
    done: BTreeMap<String, u64>,
}

impl Live {
    fn new(image: Duration) -> Self {
        let (begun, last) = (Instant::now(), Instant::now());
        Self { begun, image, last, answered: 0, delay: Duration::ZERO, done: BTreeMap::new() }
    }

    async fn line(&mut self, stage: &Stage, load: &Load) -> anyhow::Result<()> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        load.check()?;
        let (answered, delay, done) = (load.answered(), load.delay(), stage.done_by_each());
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let count = answered - self.answered;
        let rate = count as f64 / seconds;
        let delay_ms = 1e3 * (delay - self.delay).as_secs_f64() / count.max(1) as f64;
        let busy = self.busy(&done, seconds);
        (self.answered, self.delay, self.done) = (answered, delay, done);
        let status = stage.status().await?;
        say(&format!(
            "{:>4.0}  {:>7}  {rate:>8.0}  {delay_ms:>8.0}  {:>7}  {busy:<20}  {:<15} {}",
            self.begun.elapsed().as_secs_f64(),
            status.workers.len(),
            load.waiting(),
            owned(&status),
            "#".repeat((rate / 10.0) as usize),
        ));
        Ok(())
    }

    /// The share of the time in which each worker did images, in per cent.
    fn busy(&self, done: &BTreeMap<String, u64>, seconds: f64) -> String {
        let busy = done.iter().map(|(name, done)| {
            let images = done - self.done.get(name).unwrap_or(&0);
            let share = images as f64 * self.image.as_secs_f64() / seconds;
            format!("{:.0}", 100.0 * share)
        });
        busy.collect::<Vec<_>>().join(" ")
    }

    /// At the end, images that nobody does are no reason to wait for ever.
    fn stuck(&self, before: u64, load: &Load) -> anyhow::Result<()> {
        if load.answered() == before && load.idle() > PATIENCE {
            bail!("{} images have no reply, and none came for {PATIENCE:?}", load.waiting());
        }
        Ok(())
    }
}

fn owned(status: &StreamStatus) -> String {
    let owned: Vec<_> = status.workers.iter().map(|worker| worker.slices.to_string()).collect();
    owned.join(" ")
}
