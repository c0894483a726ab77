use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use crate::eventually;

/// Log lines in memory. Copies of this writer write to the same text.
///
/// For an access log, or for `tracing_subscriber::fmt().with_writer(move || lines.clone())`.
#[derive(Clone, Debug, Default)]
pub struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    /// The text so far.
    ///
    /// # Panics
    /// If it is not UTF-8.
    pub fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(bytes).expect("log lines are text")
    }

    /// Removes the text so far, and returns it.
    ///
    /// # Panics
    /// If it is not UTF-8.
    pub fn take(&self) -> String {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8(bytes).expect("log lines are text")
    }

    /// Waits for this number of lines.
    ///
    /// # Panics
    /// If there are fewer in the end, or more.
    #[track_caller]
    pub fn wait(&self, count: usize) -> Vec<String> {
        eventually(|| self.text().lines().count() >= count);
        let lines: Vec<_> = self.text().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), count, "{lines:#?}");
        lines
    }
}

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
