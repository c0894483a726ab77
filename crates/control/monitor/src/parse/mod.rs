//! Parses text of the kernel into typed values. Opens no file.

pub mod cgroup;
mod meminfo;
mod net_dev;
mod pressure;
mod process;
mod stat;

pub use meminfo::{Memory, meminfo};
pub use net_dev::{InterfaceBytes, net_dev};
pub use pressure::{Pressure, pressure};
pub use process::{ProcessTicks, allowed_processors, process_stat};
pub use stat::{CpuTicks, stat};

/// A kernel file deviates from its documentation.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{file} has no readable {what}: {found:?}")]
pub struct ParseError {
    /// Path of the file.
    pub file: &'static str,
    /// The missing or malformed field.
    pub what: &'static str,
    /// The line, or the start of the text.
    pub found: String,
}

fn unreadable(file: &'static str, what: &'static str, text: &str) -> ParseError {
    let found = text.lines().next().unwrap_or_default().chars().take(80).collect();
    ParseError { file, what, found }
}
