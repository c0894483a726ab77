//! Why a worker has ended that nobody stopped.

use std::any::Any;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_slice::Process;

/// What ended a worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// DDS left it no way to go on.
    #[error(transparent)]
    Dds(#[from] equipoise_dds::Error),
    /// [`crate::worker::Process`] panicked at an item. Its slices go to other workers, and the item comes to one of them.
    #[error("the worker's program panicked: {0}")]
    Panicked(String),
    /// Another process works under its name.
    #[error(
        "another worker is called {name}: pid {} on {}, started {} ago. Give this one a name of its own, or stop the other",
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
        Self::Panicked(text.unwrap_or_else(|| "and said nothing".into()))
    }
}

fn ago(process: &Process) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = now.saturating_sub(Duration::from_millis(process.since_unix_ms));
    format!("{} s", since.as_secs())
}
