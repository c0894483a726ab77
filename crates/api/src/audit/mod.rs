//! The audit log: every change that was asked for, and every caller that was turned away.
//!
//! A line is written before the answer is sent. Callers that are turned away too often are only counted: the next
//! line carries their number, so that nobody fills the log from outside.

mod line;
mod target;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

pub use line::Elsewhere;
pub(crate) use line::{Asked, Happened, Line};
use target::Opened;
pub use target::{AuditError, AuditTarget};

/// Where lines go, and what never became one.
#[derive(Debug)]
pub struct Audit {
    opened: Mutex<Opened>,
    /// Callers turned away without a line since the last line.
    uncounted: AtomicU64,
    lost: AtomicU64,
}

impl Audit {
    /// Opens the target.
    ///
    /// # Errors
    /// [`AuditError`]: its file cannot be opened.
    pub fn open(target: &AuditTarget) -> Result<Audit, AuditError> {
        Ok(Audit {
            opened: Mutex::new(Opened::open(target)?),
            uncounted: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    /// Opens the target anew: it may be another, or its file may have been moved away (logrotate).
    ///
    /// # Errors
    /// [`AuditError`]; lines go on to where they went.
    pub fn reopen(&self, target: &AuditTarget) -> Result<(), AuditError> {
        let opened = Opened::open(target)?;
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = opened;
        Ok(())
    }

    /// Lines that could not be written, since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Notes something that was asked of another than the API.
    pub fn note(&self, asked: Elsewhere) {
        self.write(Line::of_elsewhere(asked, SystemTime::now()));
    }

    /// A caller was turned away of whom there is no line.
    pub fn count(&self) {
        self.uncounted.fetch_add(1, Relaxed);
    }

    pub(crate) fn write(&self, mut line: Line) {
        line.turned_away_unlogged = self.uncounted.swap(0, Relaxed);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = opened.write(&line) {
            self.lost.fetch_add(1, Relaxed);
            tracing::error!(%error, "the audit log cannot be written; the line follows");
            line.to_log();
        }
    }
}

#[cfg(test)]
mod tests;
