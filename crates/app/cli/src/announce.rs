//! `equipoise announce`: keeps the routes of a routing daemon in step with the addresses that this
//! machine serves.
//!
//! ```text
//! status of the process --readiness--> addresses --Routes--> file --command--> BIRD
//! ```
//!
//! It is a process of its own, so that it withdraws the routes of a process that has died. For
//! keepalived it writes the check scripts once, and keepalived runs them.

mod bird;
mod keepalived;
mod routes;

use std::fs::{File, TryLockError};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use equipoise_api::client::{Client, ClientError};
use equipoise_api::routes::process::STATUS;
use equipoise_basics::{files, with_causes};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior};

use self::bird::Bird;
use self::routes::{Change, Routes};
use crate::process::ApiArgs;
use crate::readiness;

/// Arguments of `equipoise announce`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Keep this file, which BIRD's configuration includes, in step until SIGTERM, which withdraws
    /// every route
    #[arg(long, value_name = "FILE", required_unless_present = "keepalived", value_parser = bird_file)]
    bird: Option<PathBuf>,
    /// Write keepalived's check scripts to this file, once; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "bird")]
    keepalived: Option<PathBuf>,
    /// Announce these addresses; without one, every address that the configuration names
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<IpAddr>,
    /// The command that makes BIRD read its configuration again
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "birdc configure",
        conflicts_with = "keepalived"
    )]
    reload: String,
    /// Announce an address again when it was served for this long, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds, conflicts_with = "keepalived")]
    back_after: f64,
    /// Look this often, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = seconds, conflicts_with = "keepalived")]
    every: f64,
    /// Withdraw the routes if equipoise lives and has not answered for this long, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds, conflicts_with = "keepalived")]
    patience: f64,
    #[command(flatten)]
    api: ApiArgs,
}

fn bird_file(text: &str) -> Result<PathBuf, String> {
    match text {
        "" | "-" => Err("accepted: a file, which BIRD's configuration includes".into()),
        file => Ok(file.into()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "accepted: seconds, 0.1 to 3600".to_owned())?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("accepted: seconds, 0.1 to 3600".into()),
    }
}

/// Largest file that an earlier process may have left.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Runs the command.
///
/// # Errors
/// Another command keeps the file, it cannot be written, the API refuses, or standard output cannot
/// be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.keepalived {
        let client = args.api.clone().client().await?;
        let status = client.ask(STATUS, &()).await?;
        let addresses = readiness::of(&status, &args.addresses);
        keepalived::write(file, &addresses, &args.api.options()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(file) = args.bird.clone() else { return Ok(ExitCode::FAILURE) };
    let _lock = lock(&file)?;
    let mut bird = Bird::new(file, args.reload.clone());
    let kept = bird.announced()?;
    let back_after = Duration::from_secs_f64(args.back_after);
    let mut routes = Routes::new(kept, back_after);
    let (mut watch, mut doubts) = (Watch::new(args), Doubts::default());
    let (mut stop, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut ticks = tokio::time::interval(watch.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                if let Some(seen) = watch.look().await {
                    doubts.note(&seen);
                    report(&routes.update(Instant::now(), seen))?;
                }
            }
            _ = stop.recv() => break,
            _ = interrupt.recv() => break,
        }
        // A command that failed is tried again.
        bird.apply(routes.announced()).await;
    }
    report(&routes.update(Instant::now(), Seen::Nothing("this command was stopped".into())))?;
    bird.apply(routes.announced()).await;
    Ok(if bird.is_applied() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(changes: &[Change]) -> anyhow::Result<()> {
    for change in changes {
        match change {
            Change::Announced(address) => outln!("announced {address}"),
            Change::Withdrawn(address, why) => outln!("withdrawn {address}: {why}"),
        }
    }
    Ok(())
}

/// Reports once that there is nothing to announce, and why.
#[derive(Default)]
struct Doubts(Option<String>);

impl Doubts {
    fn note(&mut self, seen: &Seen) {
        let why = match seen {
            Seen::Addresses(addresses) if addresses.is_empty() => {
                Some("no address besides loopback and wildcards: name one with --address".into())
            }
            Seen::Addresses(_) => None,
            Seen::Nothing(why) => Some(why.clone()),
        };
        let is_new = why.is_some() && self.0.is_none();
        self.0 = why;
        if let Some(why) = self.0.as_ref().filter(|_| is_new) {
            eprintln!("equipoise: nothing is announced: {why}");
        }
    }
}

/// The content of `file`, which this command wrote; empty if it is absent.
///
/// # Errors
/// It has another first line, or cannot be read.
fn ours(file: &Path, first_line: &str) -> anyhow::Result<String> {
    let text = match files::read_text(file, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        read => read.with_context(|| format!("cannot read {}", file.display()))?,
    };
    if text.is_empty() || text.starts_with(first_line) {
        return Ok(text);
    }
    bail!("{} is another file, which would be lost: name one that is only for this", file.display())
}

/// Locks the file for this process, by a file beside it: the file itself is replaced.
///
/// # Errors
/// Another process has the lock, or it cannot be created.
fn lock(file: &Path) -> anyhow::Result<File> {
    let mut path = file.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let options = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = options.with_context(|| format!("cannot open the lock {}", path.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!(
            "another `equipoise announce` keeps {} in step: stop it first, or name another file",
            file.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// The state of the addresses.
enum Seen {
    /// Each address with the reason why it is not served; `None` if it is.
    Addresses(Vec<(IpAddr, Option<String>)>),
    /// No address is served, for this reason.
    Nothing(String),
}

/// Longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Asks the process.
struct Watch {
    api: ApiArgs,
    addresses: Vec<IpAddr>,
    every: Duration,
    patience: Duration,
    client: Option<Client>,
    last_answer: Instant,
}

impl Watch {
    fn new(args: Args) -> Watch {
        Watch {
            api: args.api,
            addresses: args.addresses,
            every: Duration::from_secs_f64(args.every),
            patience: Duration::from_secs_f64(args.patience),
            client: None,
            last_answer: Instant::now(),
        }
    }

    /// The state of the addresses; `None` while it is in doubt: a process that lives may only be
    /// slow.
    async fn look(&mut self) -> Option<Seen> {
        let client = match self.client.take() {
            Some(client) => client,
            None => match self.api.clone().client().await {
                Ok(client) => client,
                Err(error) => return Some(Seen::Nothing(with_causes(&*error))),
            },
        };
        let error = match tokio::time::timeout(TIMEOUT, client.ask(STATUS, &())).await {
            Ok(Ok(status)) => {
                self.client = Some(client);
                self.last_answer = Instant::now();
                let addresses = readiness::of(&status, &self.addresses);
                let seen = addresses.iter().map(|it| (it.address, it.problem()));
                return Some(Seen::Addresses(seen.collect()));
            }
            Ok(Err(error @ ClientError::NotRunning { .. })) => {
                return Some(Seen::Nothing(with_causes(&error)));
            }
            // Certificates and tokens are read again before the next question.
            Ok(Err(error)) => with_causes(&error),
            Err(_) => format!("no answer within {TIMEOUT:?}"),
        };
        let silent = self.last_answer.elapsed();
        let why = format!("equipoise has not answered for {:.1} s: {error}", silent.as_secs_f64());
        (silent >= self.patience).then_some(Seen::Nothing(why))
    }
}
