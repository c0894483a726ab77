//! A worker process: greyscale with an adjustable CPU time.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use equipoise_dds::items::DataItem;
use equipoise_lab_runner::share;
use equipoise_slice_dds::worker::{Doer, Options, Program, Threads, Worker};

use crate::cluster::stream;
use crate::image;
use crate::trace;

/// Short, so that the pauses of an emulated core are short.
const PERIOD: Duration = Duration::from_millis(10);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) domain: u32,
    #[arg(long)]
    pub(crate) slices: u32,
    /// CPU time of an item, microseconds
    #[arg(long, default_value_t = 0)]
    pub(crate) cost_us: u64,
    /// Cores that the process may use; 0: all
    #[arg(long, default_value_t = 0.0)]
    pub(crate) share: f64,
    /// Each item occupies the thread for so many microseconds, without CPU time
    #[arg(long, default_value_t = 0)]
    pub(crate) sleep_us: u64,
    /// Readers are settled after so many milliseconds
    #[arg(long, default_value_t = 2000)]
    pub(crate) settle_ms: u64,
    /// Lose so many of 1000 packets
    #[arg(long, default_value_t = 0)]
    pub(crate) loss_permille: u16,
    /// A program does the items
    #[arg(long)]
    pub(crate) program: bool,
    /// A file with the ids of items that were done, 8 bytes each, in order
    #[arg(long)]
    pub(crate) log: Option<PathBuf>,
}

/// Records the items that were done, so that they can be counted after any process is killed.
pub(crate) struct Log(Option<Mutex<std::fs::File>>);

impl Log {
    pub(crate) fn open(path: Option<&PathBuf>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Some(Mutex::new(file))))
    }

    pub(crate) fn note(&self, id: i64) {
        let Some(file) = &self.0 else { return };
        // One write of a few bytes is atomic, even if this process is killed.
        let mut file = file.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(error) = file.write_all(&id.to_le_bytes()) {
            eprintln!("cannot note item {id}: {error}");
        }
    }
}

/// Limits the CPU of this process to its share.
pub(crate) fn hold(name: &str, cores: f64) -> anyhow::Result<()> {
    if cores > 0.0 {
        share::hold("dpslb", name, cores, PERIOD)
            .context("no share of a core: control groups take root")?;
    }
    Ok(())
}

fn program(cost_us: u64) -> anyhow::Result<Program> {
    let this = std::env::current_exe()?;
    let start = move || {
        let mut command = Command::new(&this);
        command.args(["program", "--cost-us", &cost_us.to_string()]);
        command
    };
    Program::start(start).context("the program does not start")
}

/// Runs until its standard input ends.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    hold(&args.name, args.share)?;
    let log = Log::open(args.log.as_ref())?;
    let [cost, sleep] = [args.cost_us, args.sleep_us].map(Duration::from_micros);
    let way = trace::Way::default();
    let process = move |item: &DataItem<'_>| {
        way.note(item.timestamp);
        if !sleep.is_zero() {
            std::thread::sleep(sleep);
        }
        let reply = image::grey_at_cost(item.message, cost);
        log.note(item.id);
        reply
    };
    let settle = Duration::from_millis(args.settle_ms);
    let options = Options { settle, ..Options::new(&args.name, args.slices) };
    let stream = stream(args.domain, args.loss_permille);
    let doer: Doer =
        if args.program { program(args.cost_us)?.into() } else { Threads::new(1, process).into() };
    let worker = Worker::start(&stream, options, doer)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    worker.stop()?;
    Ok(())
}
