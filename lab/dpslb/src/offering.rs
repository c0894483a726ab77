//! A client in its own process, so that its CPU time is separate.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use equipoise_lab_runner::Case;

use crate::cluster::stream;
use crate::image;
use crate::load::{Load, NEVER, Offer};
use crate::overhead::{self, Process};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    domain: u32,
    #[arg(long)]
    slices: u32,
    #[arg(long)]
    items_per_second: f64,
    #[arg(long)]
    item_bytes: usize,
    #[arg(long)]
    window: usize,
    /// Without the slice level
    #[arg(long)]
    plain: bool,
}

/// Publishes until its standard input ends. For each line there it writes how many replies have
/// come.
pub(crate) fn run(args: &Args) -> Result<()> {
    let rate = if args.items_per_second > 0.0 { args.items_per_second } else { 0.0 };
    let offer = Offer {
        items_per_second: rate,
        message: image::of_bytes(args.item_bytes),
        slices: args.slices,
        window: args.window,
        resend: NEVER,
    };
    if !args.plain {
        let load = Load::start(&stream(args.domain, 0), offer)?;
        return answer(|| load.answered());
    }
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (told, stopped, domain) = (answered.clone(), stop.clone(), args.domain);
    let publishing = std::thread::Builder::new().name("client".into()).spawn(move || {
        overhead::publish(
            domain,
            &offer,
            || Ok(()),
            |answered| {
                told.store(answered, Relaxed);
                !stopped.load(Relaxed)
            },
        )
    })?;
    let answers = answer(|| answered.load(Relaxed));
    stop.store(true, Relaxed);
    match publishing.join() {
        Ok(outcome) => outcome.map(drop).and(answers),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn answer(answered: impl Fn() -> u64) -> Result<()> {
    for line in std::io::stdin().lines() {
        line?;
        let mut output = std::io::stdout();
        writeln!(output, "{}", answered())?;
        output.flush()?;
    }
    Ok(())
}

/// The process.
pub(crate) struct Offering {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    process: Process,
}

impl Offering {
    pub(crate) fn start(case: &Case, domain: u32, plain: bool) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("client").args(["--domain", &domain.to_string()]);
        for name in ["slices", "items_per_second", "item_bytes", "window"] {
            command.arg(format!("--{}", name.replace('_', "-")));
            command.arg(case.number(name)?.to_string());
        }
        if plain {
            command.arg("--plain");
        }
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("a client does not start")?;
        let input = child.stdin.take().context("no way to the client")?;
        let output = child.stdout.take().context("no way from the client")?;
        Ok(Self { input, output: BufReader::new(output), process: Process::of(child) })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Replies so far.
    pub(crate) fn answered(&mut self) -> Result<u64> {
        writeln!(self.input)?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().context("the client has ended")
    }

    /// Waits until as many replies have come; how many those are.
    pub(crate) fn wait_for(&mut self, items: u64) -> Result<u64> {
        loop {
            let answered = self.answered()?;
            if answered >= items {
                return Ok(answered);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
