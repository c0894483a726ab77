//! Samples this machine's utilisation on a separate thread, because reading the kernel's files may
//! block.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use equipoise_monitor::{Monitor, MonitorOptions, Utilisation};
use tokio::sync::watch;

/// Handle of the sampling thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Sampling {
    link_speeds: mpsc::Sender<BTreeMap<String, u64>>,
}

impl Sampling {
    /// Sets link speeds in bits per second, from the next sample on. Other links have the kernel's
    /// speed.
    pub(crate) fn set_link_speeds(&self, stated: BTreeMap<String, u64>) {
        // Without the thread nothing is measured, and reports have no utilisation.
        let _ = self.link_speeds.send(stated);
    }
}

/// Takes the first sample, which has no rates, and logs which signals cannot be measured.
pub fn begin(monitor: &mut Monitor) {
    let missing = monitor.missing();
    if !missing.is_empty() {
        tracing::debug!(?missing, "the kernel does not provide all load signals");
    }
    say_missing_links(monitor);
    monitor.sample();
}

fn say_missing_links(monitor: &Monitor) {
    for interface in monitor.missing_links() {
        tracing::warn!(
            interface,
            "`load.links` names an interface that does not exist; it counts once it exists"
        );
    }
}

/// Processors that this process may use, a fraction within a quota. Before the monitor's first
/// sample, the standard library's number.
pub fn capacity(used: Option<&Utilisation>) -> f64 {
    let whole = || std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    used.and_then(|used| used.processors).filter(|it| *it > 0.0).unwrap_or_else(whole)
}

/// Starts the thread, which samples once each `period`.
pub(crate) fn start(
    period: Duration,
    link_speeds: BTreeMap<String, u64>,
) -> std::io::Result<(Sampling, watch::Receiver<Option<Utilisation>>)> {
    let (state, stated) = mpsc::channel();
    let (told, utilisation) = watch::channel(None);
    std::thread::Builder::new().name("monitor".into()).spawn(move || {
        let mut monitor = Monitor::new(MonitorOptions { link_speeds, ..MonitorOptions::default() });
        begin(&mut monitor);
        let mut due = Instant::now() + period;
        loop {
            match stated.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(link_speeds) => {
                    monitor.set_link_speeds(link_speeds);
                    say_missing_links(&monitor);
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    told.send_replace(Some(monitor.sample()));
                    // After a long pause, missed samples are skipped.
                    due = (due + period).max(Instant::now());
                }
            }
        }
    })?;
    Ok((Sampling { link_speeds: state }, utilisation))
}
