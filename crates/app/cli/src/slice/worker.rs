//! `equipoise slice worker`: runs any program as a worker of a stream.

mod stream;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail};
use equipoise_slice_dds::worker::{
    Dealings, Format, Options, Program, SET_ASIDE_AFTER, SetAside, Worker,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::stream::StreamOptions;
use crate::logs::Logs;
use equipoise_basics::die_with_parent;
use equipoise_config::dds_stream;
use equipoise_config::{LogFormat, LogLevel, SliceStream};

/// Arguments of `equipoise slice worker`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the worker: unique in the stream, and the same after a restart [default: HOST-PID]
    #[arg(long, value_name = "NAME", value_parser = stream::name)]
    name: Option<String>,
    #[command(flatten)]
    stream: StreamOptions,
    /// Share of the load relative to other workers; 0: no new slices
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=1000))]
    weight: u16,
    /// Items that the program processes at a time, each of another slice
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    parallel: u16,
    /// Largest number of waiting items. Beyond it, items of publishers that do not publish again
    /// are dropped
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    queue_max: usize,
    /// Largest total size of items that wait or are kept for other workers. Beyond it, as beyond
    /// --queue-max
    #[arg(long, default_value_t = 1 << 30, value_name = "BYTES")]
    held_bytes_max: usize,
    /// When the worker ends: time for its slices to move to other workers
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = stream::duration)]
    drain_timeout: Duration,
    /// How the program receives and acknowledges items; docs/slice-programs.md has both formats
    #[arg(long, value_enum, default_value_t = Form::Batches)]
    format: Form,
    /// Give the program the fencing token of each item (epoch, writer, position). The receiver of
    /// its results can then refuse a worker that was given up; docs/slice-programs.md has the
    /// formats
    #[arg(long)]
    tokens: bool,
    /// After the program has ended this many times in a row with one item, set the item aside and
    /// inform its client; 0: never, the program receives it each time
    #[arg(long, default_value_t = SET_ASIDE_AFTER, value_name = "N", value_parser = set_aside_after)]
    set_aside_after: u32,
    /// Keep the messages of items that are set aside in this folder, in files
    /// SLICE-ID-SENDER-TIMESTAMP
    #[arg(long, value_name = "PATH")]
    set_aside_folder: Option<PathBuf>,
    /// Listen on this unix socket for a program that something else starts, in place of COMMAND
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    socket: Option<PathBuf>,
    /// The program and its arguments, behind `--`
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "socket")]
    command: Vec<String>,
}

/// Format of the program's input and output.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Form {
    /// Bytes, many items at a time
    Batches,
    /// One line of text for each item, with messages in base64: for shells
    Lines,
}

/// Time without work after which the last worker of a stream ends.
const IDLE: Duration = Duration::from_secs(1);
/// Interval between checks of the worker's state.
const LOOK: Duration = Duration::from_millis(20);
/// Time without an acknowledgement after which a stalled program is logged.
const STALLED: Duration = Duration::from_secs(10);
/// Interval between log lines about slices that no worker takes.
const REMIND: Duration = Duration::from_secs(5);

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stream = args.stream.read()?;
    let _logs = Logs::start(LogLevel::Info, LogFormat::Text)?;
    // A signal from here on is queued.
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle signals")?;
    let name = args.name.clone().unwrap_or_else(default_name);
    let worker = start(&args, &stream, &name)?;
    tracing::info!(
        worker = name,
        stream = stream.name,
        domain = stream.domain,
        slices = stream.slices,
        "worker started"
    );
    let mut told = Told::default();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut leaving, mut idle): (Option<Instant>, Idle) = Default::default();
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = terminate.recv() => leaving = Some(leave(&worker, leaving)?),
            _ = interrupt.recv() => leaving = Some(leave(&worker, leaving)?),
        }
        if !worker.is_running() {
            worker.stop()?;
            bail!("the worker ended, because DDS failed");
        }
        told.look(&worker, leaving);
        let Some(since) = leaving else { continue };
        if worker.slices() == 0 && worker.handovers() == 0 && worker.queued() == 0 {
            let done = worker.done();
            worker.stop()?;
            tracing::info!(done, "stopped: other workers have its slices");
            return Ok(ExitCode::SUCCESS);
        }
        if idle.look(&worker) && worker.others() == Some(0) {
            let slices = worker.slices();
            worker.stop()?;
            tracing::info!(slices, "stopped: it is the only worker, and it was idle");
            return Ok(ExitCode::SUCCESS);
        }
        if since.elapsed() >= args.drain_timeout {
            let (slices, queued) = (worker.slices(), worker.queued());
            bail!(
                "stopped after {:?} with {slices} slices and {queued} items that no other worker took; the next worker processes \
                 the items that clients publish again",
                args.drain_timeout
            );
        }
    }
}

/// Handles a signal: the first one drains, the second one ends the worker.
fn leave(worker: &Worker, leaving: Option<Instant>) -> anyhow::Result<Instant> {
    if leaving.is_some() {
        bail!("stopped at once by a second signal, with {} slices", worker.slices());
    }
    tracing::info!(slices = worker.slices(), "leaving: slices move to other workers");
    worker.leave();
    Ok(Instant::now())
}

fn start(args: &Args, stream: &SliceStream, name: &str) -> anyhow::Result<Worker> {
    let usual = Options::new(name, stream.slices);
    let options = Options {
        weight: args.weight,
        jobs_max: args.parallel.into(),
        queue_max: args.queue_max,
        held_bytes_max: args.held_bytes_max,
        protocol: stream.protocol.clone(),
        checkpoint_folder: stream.checkpoint_folder.as_ref().map(|folder| {
            // With another number of slices, the states are others.
            folder.join(format!("{}-{}", stream.name, stream.slices))
        }),
        ..usual
    };
    let format = match args.format {
        Form::Batches => Format::Batches,
        Form::Lines => Format::Lines,
    };
    if let Some(folder) = &args.set_aside_folder {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create --set-aside-folder {}", folder.display()))?;
    }
    let set_aside = SetAside { after: args.set_aside_after, folder: args.set_aside_folder.clone() };
    let dealings = Dealings { format, set_aside, tokens: args.tokens };
    let program = match &args.socket {
        Some(path) => Program::listen_with(dealings, path)?,
        None => spawned(dealings, &args.command)?,
    };
    Worker::start(&dds_stream(stream), options, program)
        .with_context(|| format!("cannot join DDS domain {}", stream.domain))
}

fn spawned(dealings: Dealings, words: &[String]) -> anyhow::Result<Program> {
    let [program, arguments @ ..] = words else { bail!("COMMAND is missing behind `--`") };
    let (path, arguments) = (program.clone(), arguments.to_vec());
    let make = move || {
        let mut command = Command::new(&path);
        // Ctrl-C reaches the terminal's whole process group, but the program must outlive the
        // drain.
        command.args(&arguments).process_group(0);
        die_with_parent(&mut command);
        command
    };
    Program::start_with(dealings, make).with_context(|| {
        format!("cannot start `{program}`: check that it is installed, in PATH and executable")
    })
}

/// Refuses 1: after a single end it is unknown which of several items caused it.
fn set_aside_after(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(1) => Err("accepted: 0, or 2 or more, since a single end may be chance".into()),
        Ok(after) => Ok(after),
        Err(_) => Err("is not a number".into()),
    }
}

fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "worker",
        host => host,
    };
    format!("{host}-{}", std::process::id())
}

/// How long a worker has had no work, and how many items it had processed by then.
#[derive(Default)]
struct Idle {
    since: Option<Instant>,
    done: u64,
}

impl Idle {
    /// Whether the worker has been idle for [`IDLE`].
    fn look(&mut self, worker: &Worker) -> bool {
        let done = worker.done();
        if worker.queued() > 0 || done != self.done {
            *self = Self { since: None, done };
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() >= IDLE
    }
}

/// The state of the worker that was logged last.
#[derive(Default)]
struct Told {
    slices: u64,
    fenced: Option<bool>,
    stalled: bool,
    reminded: Option<Instant>,
    /// Reported that no other worker is present.
    alone: bool,
}

impl Told {
    fn look(&mut self, worker: &Worker, leaving: Option<Instant>) {
        let (slices, fenced) = (worker.slices(), worker.is_fenced());
        match (self.fenced, fenced) {
            (None, true) => {}
            (None | Some(true), false) => tracing::info!("a controller knows the worker"),
            (Some(false), true) => {
                tracing::warn!(
                    "no controller has answered recently: the worker pauses until one answers"
                );
            }
            _ => {}
        }
        self.fenced = if self.fenced.is_none() && fenced { None } else { Some(fenced) };
        if slices != self.slices {
            self.slices = slices;
            tracing::info!(slices, "slices");
        }
        let stalled = worker.stalled() >= STALLED;
        if stalled && !self.stalled {
            tracing::warn!(
                queued = worker.queued(),
                "the program has items and has acknowledged none for {STALLED:?}"
            );
        }
        self.stalled = stalled;
        let Some(since) = leaving else { return };
        if slices > 0 && worker.others() == Some(0) && !std::mem::replace(&mut self.alone, true) {
            tracing::warn!(
                slices,
                queued = worker.queued(),
                "no other worker can take its slices: the worker keeps processing them until one joins"
            );
        }
        if self.reminded.unwrap_or(since).elapsed() >= REMIND {
            self.reminded = Some(Instant::now());
            tracing::warn!(
                slices,
                queued = worker.queued(),
                "still waiting for other workers to take its slices; a second signal ends the worker at once"
            );
        }
    }
}
