//! `equipoise demo slice`: the paper's evaluation, live. A client publishes colour images; workers
//! that convert them to greyscale join one by one.
//!
//! All parts are real: `equipoise run` with the file that this module writes, workers as `equipoise
//! slice worker`, their program as a separate process, and images over DDS on loopback. The demo
//! accounts for every image by its id, and fails if one is missing or was processed twice.
//!
//! Its lines are the paper's Figures 26 (images per second), 27 (how busy each worker is) and 28
//! (delay). The load exceeds what the first workers can process, and at the end what all of them
//! can. As in the paper, the number of waiting images is not bounded.

mod account;
mod load;
pub mod sample;
mod stage;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use equipoise_api::wire::slice::StreamStatus;

use self::load::{Load, Offer};
use self::stage::Stage;

/// Arguments of `equipoise demo slice`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of workers, which join one after the other
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=20))]
    workers: u16,
    /// Seconds until the next worker joins
    #[arg(long, default_value_t = 4, value_name = "N")]
    join_seconds: u64,
    /// Milliseconds for which an image occupies a worker, as on a core of its own: the workers
    /// share this machine
    #[arg(long, default_value_t = 20, value_name = "N")]
    image_ms: u64,
    /// Images that are published per second
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Images that are published per second once all workers have joined, for --join-seconds
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate_then: u32,
    /// DDS domain, on loopback
    #[arg(long, default_value_t = 59, value_parser = clap::value_parser!(u32).range(0..=232))]
    domain: u32,
}

const SLICES: u32 = 50;
const STREAM: &str = "images";
/// Size of an image in pixels.
const SIZE: (usize, usize) = (128, 90);
/// Longest time for workers to start and for slices to get owners.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the slice level's demo.
///
/// # Errors
/// A socket, a process or standard output fails.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut stage = Stage::build(args.domain, args.image_ms)?;
    let Offer { images, .. } = Offer::new(args.rate);
    say(&format!(
        "{} images a second of {} bytes, in {SLICES} slices; a worker processes at most {} a second.\n\
         Processes: {}\n",
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
    say("no more images are published; the waiting ones are processed");
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

/// Prints at once. A closed standard output does not stop the demo.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints a line each second.
struct Live {
    begun: Instant,
    /// Time for which an image occupies a worker.
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

    /// Share of the time in which each worker processed images, in percent.
    fn busy(&self, done: &BTreeMap<String, u64>, seconds: f64) -> String {
        let busy = done.iter().map(|(name, done)| {
            let images = done - self.done.get(name).unwrap_or(&0);
            let share = images as f64 * self.image.as_secs_f64() / seconds;
            format!("{:.0}", 100.0 * share)
        });
        busy.collect::<Vec<_>>().join(" ")
    }

    /// At the end, fails if images have no reply and none has come for a while.
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
