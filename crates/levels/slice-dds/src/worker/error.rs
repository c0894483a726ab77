//! The errors that end a worker.

use std::any::Any;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_slice::Process;

/// The error that ended a worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// An error of DDS after which the worker cannot continue.
    #[error(transparent)]
    Dds(#[from] equipoise_dds::Error),
    /// [`crate::worker::Process`] panicked while it processed an item. Other workers receive its
    /// slices and the item.
    #[error("the worker's program panicked: {0}")]
    Panicked(String),
    /// Another process works under the worker's name.
    #[error(
        "another worker has the name {name}: pid {} on {}, started {} ago. Give this one another name, or stop the other",
        .holder.pid, .holder.host, ago(.holder)
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The other process.
        holder: Process,
    },
}

impl WorkerError {
    pub(super) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panicked(text.unwrap_or_else(|| "without a message".into()))
    }
}

fn ago(process: &Process) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = now.saturating_sub(Duration::from_millis(process.since_unix_ms));
    format!("{} s", since.as_secs())
}
