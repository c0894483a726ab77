//! The audit log: every requested change, and every rejected caller.
//!
//! A thread writes the lines, because a file system may hang. An answer waits for its line for a
//! bounded time. Callers that are rejected too often are only counted; the next line has their
//! number, so that no client can fill the log.

mod line;
mod queue;
mod target;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, SystemTime};

pub use line::Elsewhere;
pub(crate) use line::{Asked, Happened, Line};
use queue::{Job, Queue};
use target::Opened;
pub use target::{AuditError, AuditTarget};
use tokio::sync::oneshot;

/// Longest time that an answer waits for its line. After a timeout, answers do not wait until a
/// line is written.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    queue: Arc<Queue>,
    /// Callers that were rejected without a line since the last line.
    uncounted: AtomicU64,
}

impl Audit {
    /// Opens the target.
    ///
    /// # Errors
    /// [`AuditError`] if its file cannot be opened, or if the operating system refuses a thread.
    pub fn open(target: &AuditTarget) -> Result<Audit, AuditError> {
        Audit::start(Opened::open(target)?).map_err(AuditError::Thread)
    }

    fn start(opened: Opened) -> io::Result<Audit> {
        let queue = Arc::new(Queue::default());
        let of_thread = Arc::clone(&queue);
        thread::Builder::new().name("audit-log".into()).spawn(move || of_thread.work(opened))?;
        Ok(Audit { queue, uncounted: AtomicU64::new(0) })
    }

    /// Opens the target again, after the queued lines: it may have changed, or logrotate may have
    /// renamed its file. On an error the lines go to the old target, and the log reports the error.
    pub fn reopen(&self, target: &AuditTarget) {
        drop(self.queue.add(Job::Reopen(target.clone())));
    }

    /// Lines since the start that could not be written.
    pub fn lost(&self) -> u64 {
        self.queue.lost.load(Relaxed)
    }

    /// Number of lines that are not written yet.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Logs a request to something other than the API.
    pub fn note(&self, asked: Elsewhere) {
        drop(self.add(Line::of_elsewhere(asked, SystemTime::now())));
    }

    /// Counts a rejected caller without writing a line.
    pub fn count(&self) {
        self.uncounted.fetch_add(1, Relaxed);
    }

    /// Waits up to `within` until all lines are written. The remaining lines go to the process's
    /// log.
    pub fn finish(&self, within: Duration) {
        self.queue.finish(within);
    }

    /// Writes a line, and waits for it for a bounded time.
    pub(crate) async fn write(&self, line: Line) {
        let written = self.add(line);
        if !self.queue.is_blocked() && tokio::time::timeout(WRITTEN_WITHIN, written).await.is_err()
        {
            self.queue.set_blocked();
        }
    }

    fn add(&self, mut line: Line) -> oneshot::Receiver<()> {
        line.turned_away_unlogged = self.uncounted.swap(0, Relaxed);
        line.to_event();
        self.queue.add(Job::Write(Box::new(line)))
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.queue.close();
    }
}

#[cfg(test)]
mod tests;
