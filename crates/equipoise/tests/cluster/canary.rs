//! Whether this machine had time for its processes: a bound on what they do is no bound on a machine that does not run them.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two turns.
const PAUSE: Duration = Duration::from_millis(10);
/// What waking up and a write to the disk may take beside it.
const FINE: Duration = Duration::from_millis(30);
/// Late by more than this altogether, the machine was starved.
pub(crate) const STARVED: Duration = Duration::from_millis(500);
/// Without a leader at most, on a machine that has time for its processes. On an idle one it is 3 s: the lease of 2 s, etcd's
/// look for leases that are over each 0.5 s, and the rest for the next one's write. That is held to in the controller's tests,
/// with a clock of their own, and measured by `lab/control`; here there is load, and there may be other programs.
pub(crate) const VACANT_MAX: Duration = Duration::from_secs(10);

/// A thread that does what everybody here does, wake up and write to the disk, and adds up how late it was.
pub(crate) struct Canary {
    late_us: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Canary {
    /// It writes below `folder`, which is on the disk that the processes use.
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

    /// How late it was since it began.
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
