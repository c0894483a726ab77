//! The log of events on standard error, and the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use equipoise_api::events::{self, EventJournal};
use equipoise_config::{AccessLog, LogFormat, LogLevel};
use equipoise_session::LogOutput;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::log_queue::{EventWriter, LogQueue};
use crate::syslog::Syslog;

/// The log of this process, once [`Logs::start`] has started it.
static EVENTS: OnceLock<Arc<LogQueue>> = OnceLock::new();

/// Longest time that the end of the process waits for standard error to accept the last lines.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Settings of the log that can change while it is written.
#[derive(Clone, Debug)]
pub struct Logs {
    level: reload::Handle<Targets, Registry>,
    reopen_access_log: Arc<AtomicBool>,
    journal: Arc<EventJournal>,
}

impl Logs {
    /// Starts the thread that writes events to standard error.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub fn start(level: LogLevel, format: LogFormat) -> anyhow::Result<Logs> {
        let queue = LogQueue::start(io::stderr(), |lines| {
            tracing::warn!(
                lines,
                "log lines were lost, because standard error did not accept them"
            );
        });
        let queue = queue.context("cannot start the thread of the log")?;
        let queue = Arc::clone(EVENTS.get_or_init(|| queue));
        let (filter, handle) = reload::Layer::new(filter(level));
        let layer = fmt::layer().with_writer(move || EventWriter(Arc::clone(&queue)));
        let layer = layer.with_target(false);
        let layer = match format {
            LogFormat::Text => layer.with_ansi(colour()).boxed(),
            LogFormat::Json => layer.json().flatten_event(true).boxed(),
        };
        let journal = Arc::<EventJournal>::default();
        let log = tracing_subscriber::registry().with(layer.with_filter(filter));
        let started = log.with(events::layer(&journal)).try_init();
        // Only tests install another subscriber; their log serves as well.
        let _ = started;
        Ok(Logs { level: handle, reopen_access_log: Arc::default(), journal })
    }

    /// The events of this process.
    pub fn journal(&self) -> Arc<EventJournal> {
        Arc::clone(&self.journal)
    }

    /// Changes the level that is logged.
    pub fn set_level(&self, level: LogLevel) {
        // Cannot fail: the subscriber exists until the process ends.
        let _ = self.level.modify(|current| *current = filter(level));
    }

    /// Reopens the access log's file, which logrotate may have renamed.
    pub fn reopen_access_log(&self) {
        self.reopen_access_log.store(true, Relaxed);
    }

    /// The destination of the engine's log thread. `instance` is the host name in syslog.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn access_log(&self, to: &AccessLog, instance: &str) -> anyhow::Result<LogOutput> {
        match to {
            AccessLog::Stderr => Ok(LogOutput::Stream(Box::new(io::stderr()))),
            AccessLog::Stdout => {
                // Without the buffer of `io::stdout`.
                let descriptor = io::stdout().as_fd().try_clone_to_owned();
                let file = File::from(descriptor.context("cannot use standard output")?);
                Ok(LogOutput::Stream(Box::new(file)))
            }
            AccessLog::Syslog(to) => {
                let mut syslog = Syslog::new(to.clone(), instance.to_owned());
                Ok(LogOutput::Lines(Box::new(move |line| syslog.send(line))))
            }
            AccessLog::File(path) => {
                let file = append_to(path.clone()).with_context(|| {
                    format!(
                        "cannot write the access log {} (option `log.access-log`)",
                        path.display()
                    )
                })?;
                let reopen = Arc::clone(&self.reopen_access_log);
                Ok(LogOutput::Stream(Box::new(Reopened { path: path.clone(), file, reopen })))
            }
        }
    }
}

/// Number of log lines lost since the start.
pub fn lines_lost() -> u64 {
    EVENTS.get().map_or(0, |queue| queue.lost())
}

/// Prints the error that ends the process. If the log runs, its thread writes the error, so that
/// this call does not wait for standard error.
pub fn print_error(message: &str) {
    match EVENTS.get() {
        Some(queue) => queue.push_last(format!("{message}\n").as_bytes()),
        None => eprintln!("{message}"),
    }
}

/// Waits until the last log lines are written, for at most [`END_WITHIN`].
pub fn finish() {
    if let Some(queue) = EVENTS.get() {
        queue.flush(END_WITHIN);
    }
}

fn colour() -> bool {
    io::IsTerminal::is_terminal(&io::stderr()) && std::env::var_os("NO_COLOR").is_none()
}

/// The filter for a level. The audit log passes at every level.
fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // The resolver warns at every attempt; we log each change of a name once.
    let resolver = if level >= LevelFilter::DEBUG { level } else { LevelFilter::OFF };
    let targets = Targets::new().with_default(level).with_target("hickory", resolver);
    // Other lines report the same.
    let events = if level >= LevelFilter::DEBUG { level } else { LevelFilter::OFF };
    targets.with_target("audit", LevelFilter::INFO).with_target("event", events)
}

fn append_to(path: PathBuf) -> io::Result<File> {
    // Without O_NONBLOCK, opening a FIFO blocks until another process reads it.
    let mut options = OpenOptions::new();
    options.create(true).append(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// A file that is reopened by its path on request.
struct Reopened {
    path: PathBuf,
    file: File,
    reopen: Arc<AtomicBool>,
}

impl Write for Reopened {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.reopen.swap(false, Relaxed) {
            // If the file cannot be reopened, the renamed one stays in use.
            match append_to(self.path.clone()) {
                Ok(file) => self.file = file,
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "could not reopen the access log; writing to the old file")
                }
            }
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_was_moved_away_is_opened_again_when_asked() {
        let folder = std::env::temp_dir().join(format!("equipoise-logs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, moved) = (folder.join("access.log"), folder.join("access.log.1"));
        let reopen = Arc::new(AtomicBool::new(false));
        let file = append_to(path.clone()).unwrap();
        let mut log = Reopened { path: path.clone(), file, reopen: Arc::clone(&reopen) };
        log.write_all(b"one\n").unwrap();
        std::fs::rename(&path, &moved).unwrap();
        log.write_all(b"two\n").unwrap();
        reopen.store(true, Relaxed);
        log.write_all(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
