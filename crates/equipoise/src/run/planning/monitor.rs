//! What this machine is doing, sampled by a thread of its own: reading the kernel's files may wait.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use equipoise_monitor::{Monitor, MonitorOptions, Utilisation};
use tokio::sync::watch;

/// The thread's life: it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Sampling {
    _stop: mpsc::Sender<()>,
}

/// Starts sampling once a `period`.
pub(super) fn start(
    period: Duration,
) -> std::io::Result<(Sampling, watch::Receiver<Option<Utilisation>>)> {
    let (stop, stopped) = mpsc::channel();
    let (told, utilisation) = watch::channel(None);
    std::thread::Builder::new().name("monitor".into()).spawn(move || {
        let mut monitor = Monitor::new(MonitorOptions::default());
        let missing = monitor.missing();
        if !missing.is_empty() {
            tracing::debug!(?missing, "the kernel does not say everything");
        }
        // The first has no rates.
        monitor.sample();
        let mut due = Instant::now() + period;
        while let Err(RecvTimeoutError::Timeout) =
            stopped.recv_timeout(due.saturating_duration_since(Instant::now()))
        {
            told.send_replace(Some(monitor.sample()));
            // After a long stop there is nothing to catch up with.
            due = (due + period).max(Instant::now());
        }
    })?;
    Ok((Sampling { _stop: stop }, utilisation))
}
