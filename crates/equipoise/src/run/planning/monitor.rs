//! What this machine is doing, sampled by a thread of its own: reading the kernel's files may wait.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use equipoise_monitor::{Monitor, MonitorOptions, Utilisation};
use tokio::sync::watch;

/// The thread's life: it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Sampling {
    link_speeds: mpsc::Sender<BTreeMap<String, u64>>,
}

impl Sampling {
    /// From the next sample on, links have these speeds, in bits a second; others have what the kernel says.
    pub(super) fn set_link_speeds(&self, stated: BTreeMap<String, u64>) {
        // Without the thread nothing is measured, and reports say so.
        let _ = self.link_speeds.send(stated);
    }
}

/// The first sample, which has no rates, and what the log should have of what cannot be measured.
pub(crate) fn begin(monitor: &mut Monitor) {
    let missing = monitor.missing();
    if !missing.is_empty() {
        tracing::debug!(?missing, "the kernel does not say everything");
    }
    say_missing_links(monitor);
    monitor.sample();
}

fn say_missing_links(monitor: &Monitor) {
    for interface in monitor.missing_links() {
        tracing::warn!(
            interface,
            "`load.links` has an interface that is not there; it counts as soon as it is"
        );
    }
}

/// Starts sampling once a `period`.
pub(super) fn start(
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
                    // After a long stop there is nothing to catch up with.
                    due = (due + period).max(Instant::now());
                }
            }
        }
    })?;
    Ok((Sampling { link_speeds: state }, utilisation))
}
