//! Why a worker has ended that nobody stopped.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_slice::Process;

/// What ended a worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// DDS left it no way to go on.
    #[error(transparent)]
    Dds(#[from] equipoise_dds::Error),
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

fn ago(process: &Process) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = now.saturating_sub(Duration::from_millis(process.since_unix_ms));
    format!("{} s", since.as_secs())
}
