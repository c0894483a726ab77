//! Events for the operator, on standard error; the access log, where the configuration says.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Context;
use equipoise_core::LineFormat;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::config::{AccessLog, LogFormat, LogLevel};

/// The log's settings that can be changed while it is written.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    level: reload::Handle<Targets, Registry>,
    reopen_access_log: Arc<AtomicBool>,
}

impl Logs {
    /// Writes events to standard error from now on.
    pub(crate) fn start(level: LogLevel, format: LogFormat) -> Logs {
        let (filter, handle) = reload::Layer::new(filter(level));
        let layer = fmt::layer().with_writer(io::stderr).with_target(false);
        let layer = match format {
            LogFormat::Text => layer.with_ansi(colour()).boxed(),
            LogFormat::Json => layer.json().flatten_event(true).boxed(),
        };
        let started = tracing_subscriber::registry().with(filter).with(layer).try_init();
        // Another subscriber is there only where a test has set one; its log is as good.
        let _ = started;
        Logs { level: handle, reopen_access_log: Arc::default() }
    }

    /// Changes what is logged.
    pub(crate) fn set_level(&self, level: LogLevel) {
        // The subscriber lives as long as the process.
        let _ = self.level.modify(|current| *current = filter(level));
    }

    /// Has the access log's file opened again, since it may have been moved away (logrotate).
    pub(crate) fn reopen_access_log(&self) {
        self.reopen_access_log.store(true, Relaxed);
    }

    /// Where the engine's log thread writes.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn access_log(&self, to: &AccessLog) -> anyhow::Result<Box<dyn Write + Send>> {
        match to {
            AccessLog::Stderr => Ok(Box::new(io::stderr())),
            AccessLog::File(path) => {
                let file = append_to(path.clone()).with_context(|| {
                    format!(
                        "cannot write the access log {} (option `log.access-log`)",
                        path.display()
                    )
                })?;
                let reopen = Arc::clone(&self.reopen_access_log);
                Ok(Box::new(Reopened { path: path.clone(), file, reopen }))
            }
        }
    }
}

/// How lines of the access log are written beside events of this format.
pub(crate) fn line_format(format: LogFormat) -> LineFormat {
    match format {
        LogFormat::Text => LineFormat::Text,
        LogFormat::Json => LineFormat::Json,
    }
}

fn colour() -> bool {
    io::IsTerminal::is_terminal(&io::stderr()) && std::env::var_os("NO_COLOR").is_none()
}

/// The audit log is written whatever the level is.
fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // The resolver warns at every attempt. Each name has a line of our own when that changes.
    let resolver = if level >= LevelFilter::DEBUG { level } else { LevelFilter::OFF };
    let targets = Targets::new().with_default(level).with_target("hickory", resolver);
    targets.with_target("audit", LevelFilter::INFO)
}

fn append_to(path: PathBuf) -> io::Result<File> {
    // Without O_NONBLOCK, opening a FIFO waits until another process reads it.
    let mut options = OpenOptions::new();
    options.create(true).append(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// A file that is opened again by its path when it is asked to be.
struct Reopened {
    path: PathBuf,
    file: File,
    reopen: Arc<AtomicBool>,
}

impl Write for Reopened {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.reopen.swap(false, Relaxed) {
            // The file that was moved away is better than none.
            match append_to(self.path.clone()) {
                Ok(file) => self.file = file,
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "access log not reopened")
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
