//! Measures whether this machine had time for its processes. Without time, bounds on what they do
//! say nothing.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval between two turns.
const PAUSE: Duration = Duration::from_millis(10);
/// Time that waking up and a write to the disk may take in addition.
const FINE: Duration = Duration::from_millis(30);
/// Total delay above which the machine counts as starved.
pub(crate) const STARVED: Duration = Duration::from_millis(500);
/// Longest time without a leader on a machine that has time for its processes. On an idle machine
/// it is 3 s: the lease of 2 s, etcd's check for expired leases each 0.5 s, and the next leader's
/// write. The controller's tests assert this with a simulated clock, and `lab/control` measures it.
/// Here the machine has load, and other programs may run.
pub(crate) const VACANT_MAX: Duration = Duration::from_secs(10);

/// A thread that does what every process here does, wake up and write to the disk, and adds up its
/// delays.
pub(crate) struct Canary {
    late_us: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Canary {
    /// Starts the thread. It writes in `folder`, which is on the disk that the processes use.
    pub(crate) fn start(folder: &Path) -> Canary {
        let (late_us, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let mut file = File::create(folder.join("canary")).unwrap();
        let (late, stopped) = (Arc::clone(&late_us), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopped.load(Relaxed) {
                let began = Instant::now();
                thread::sleep(PAUSE);
                file.write_all(b"x").and_then(|()| file.sync_data()).unwrap();
                let late_by = began.elapsed().saturating_sub(PAUSE + FINE);
                late.fetch_add(late_by.as_micros() as u64, Relaxed);
            }
        });
        Canary { late_us, stop, thread: Some(thread) }
    }

    /// The sum of the delays so far.
    pub(crate) fn late(&self) -> Duration {
        Duration::from_micros(self.late_us.load(Relaxed))
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
