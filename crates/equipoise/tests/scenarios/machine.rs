//! A simulated machine of a node: an application on a processor that does one thing at a time, and
//! the kernel's statistics of it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use equipoise_testkit::{Answer, Folder, HttpBackend};

use crate::common::text;

/// Interval between updates of the processor's statistics.
const ACCOUNT: Duration = Duration::from_millis(10);

/// Requests for `/work` occupy the processor for a while; others cost nothing.
pub(crate) struct Machine {
    pub(crate) app: HttpBackend,
    /// The file that replaces its `/proc/stat`.
    pub(crate) stat: PathBuf,
    stop: Arc<AtomicBool>,
    account: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Processor {
    free: Mutex<()>,
    times: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    busy: Duration,
    /// Time that a busy real machine added to the work.
    late: Duration,
    /// Start of the current work.
    began: Option<Instant>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Processor {
    fn work(&self, time: Duration) {
        let _taken = lock(&self.free);
        let began = Instant::now();
        lock(&self.times).began = Some(began);
        thread::sleep(time);
        let mut times = lock(&self.times);
        // Counts the requested time, not the measured one: a busy real machine wakes the thread
        // late. For this delay, the simulated processor counts as neither busy nor idle.
        times.busy += time;
        times.late += began.elapsed().saturating_sub(time);
        times.began = None;
    }

    /// The text of proc_stat(5), in microseconds, because only ratios matter. The length is always
    /// the same, so that it can be overwritten.
    fn stat(&self, since: Instant) -> String {
        let times = lock(&self.times);
        let at_hand = times.began.map_or(Duration::ZERO, |began| began.elapsed());
        let idle = since.elapsed().saturating_sub(times.busy + times.late + at_hand);
        let (busy, idle) = (times.busy.as_micros(), idle.as_micros());
        let times = format!("{busy:020} 0 0 {idle:020} 0 0 0 0 0 0");
        format!("cpu  {times}\ncpu0 {times}\n")
    }
}

impl Machine {
    /// Starts an application that answers with its name, and needs `work` for each request for
    /// `/work`.
    pub(crate) fn start(folder: &Folder, name: &'static str, work: Duration) -> Machine {
        let (processor, since) = (Arc::<Processor>::default(), Instant::now());
        let own = Arc::clone(&processor);
        let app = HttpBackend::start(move |request| {
            if request.head.target() == "/work" {
                own.work(work);
            }
            Answer::ok(name)
        });
        let stat = folder.write(&format!("{name}.stat"), &processor.stat(since));
        let stop = Arc::<AtomicBool>::default();
        let (stopping, path) = (Arc::clone(&stop), stat.clone());
        let account = thread::spawn(move || {
            let file = File::options().write(true).open(path).unwrap();
            while !stopping.load(Relaxed) {
                file.write_all_at(processor.stat(since).as_bytes(), 0).unwrap();
                thread::sleep(ACCOUNT);
            }
        });
        Machine { app, stat, stop, account: Some(account) }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(account) = self.account.take() {
            let _ = account.join();
        }
    }
}

/// Arguments of `unshare` for a program that sees `stat` as `/proc/stat`, and no control group: a
/// quota for the tests is not part of the simulated machine.
pub(crate) fn with_stat(stat: &Path, program: &[&str]) -> Vec<String> {
    let script = "mount --bind \"$0\" /proc/stat && { mountpoint -q /sys/fs/cgroup \
                  && mount -t tmpfs none /sys/fs/cgroup; true; } && exec \"$@\"";
    let words = ["--mount", "sh", "-c", script, text(stat)];
    words.iter().chain(program).map(|word| word.to_string()).collect()
}

/// The reason why processes cannot get their own `/proc/stat`.
pub(crate) fn unavailable(folder: &Folder) -> Option<String> {
    let stat = folder.path("probe.stat");
    fs::write(&stat, "probe\n").unwrap();
    let tried = std::process::Command::new("unshare")
        .args(with_stat(&stat, &["cat", "/proc/stat"]))
        .output();
    match tried {
        Ok(output) if output.stdout == b"probe\n" => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_string()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}
