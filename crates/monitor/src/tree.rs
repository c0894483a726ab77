//! Processor time of a process and of all that it started.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::parse::{ProcessTicks, process_stat};

/// What a process and its descendants have used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeReading {
    /// Processor time. It may go back when somebody ends whom nobody waits for.
    pub used: Duration,
    /// Threads of all of them: no more processors can be in use.
    pub threads: u32,
}

/// What the kernel shows in times is in these on every architecture that we build for, whatever its own clock (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;
/// Those that are read of one tree at most: a backend that starts thousands is read in part.
const PROCESSES_MAX: usize = 256;
/// Threads of a process whose children are looked for: the first one is who starts most.
const THREADS_MAX: usize = 8;

/// Reads `pid` and its descendants; `None` if it is not there, or no child of `parent`: then the number is another's.
///
/// Not seen are descendants whose parent ended, those that a later thread of many started, and any on a kernel that does
/// not list children.
pub fn tree(pid: u32, parent: u32) -> Option<TreeReading> {
    let proc = Path::new("/proc");
    let first = read(proc, pid).filter(|it| it.parent == parent)?;
    let (mut ticks, mut threads) = (first.ticks, first.threads);
    let mut next = children(proc, pid);
    let mut seen = 1;
    while let Some(pid) = next.pop().filter(|_| seen < PROCESSES_MAX) {
        seen += 1;
        let Some(one) = read(proc, pid) else { continue };
        ticks += one.ticks;
        threads += one.threads;
        next.extend(children(proc, pid));
    }
    let used = Duration::from_millis(ticks.saturating_mul(1000) / TICKS_PER_SECOND);
    Some(TreeReading { used, threads })
}

fn read(proc: &Path, pid: u32) -> Option<ProcessTicks> {
    let text = fs::read_to_string(proc.join(format!("{pid}/stat"))).ok()?;
    process_stat(&text).ok()
}

fn children(proc: &Path, pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(proc.join(format!("{pid}/task"))) else { return Vec::new() };
    let threads = threads.flatten().take(THREADS_MAX);
    let listed = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let mut all = Vec::new();
    for text in listed {
        all.extend(text.split_ascii_whitespace().filter_map(|it| it.parse::<u32>().ok()));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Ended when dropped.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn shell(script: &str) -> Running {
        let mut command = Command::new("sh");
        Running(command.args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap())
    }

    #[test]
    fn a_process_that_works_shows_it_and_one_that_waits_does_not() {
        let (works, waits) = (shell("while :; do :; done"), shell("read line"));
        let own = std::process::id();
        let used = |of: &Running| tree(of.0.id(), own).unwrap().used;
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while used(&works) < Duration::from_millis(200) {
            assert!(std::time::Instant::now() < until, "{:?}", used(&works));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(used(&waits) < Duration::from_millis(100), "{:?}", used(&waits));
        assert_eq!(tree(works.0.id(), own).unwrap().threads, 1);
    }

    #[test]
    fn what_a_process_started_counts_and_what_is_not_ours_is_not_read() {
        // A shell gives what it starts in the background no input but by another number.
        let both = shell("exec 3<&0; sh -c 'read line; :' <&3 & read line");
        let own = std::process::id();
        let until = std::time::Instant::now() + Duration::from_secs(60);
        let has_child = || tree(both.0.id(), own).is_some_and(|it| it.threads == 2);
        if !Path::new("/proc/thread-self/children").exists() {
            println!("skipped: this kernel lists no children (CONFIG_PROC_CHILDREN)");
            return;
        }
        while !has_child() {
            assert!(std::time::Instant::now() < until);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(tree(both.0.id(), own + 1), None);
        assert_eq!(tree(u32::MAX, own), None);
    }
}
