//! The CPU cost of an idle worker.

use std::time::{Duration, Instant};

use crate::role::Times;
use crate::stage::{HERE, PATIENCE, Stage};

/// The default lease.
const USUAL: Duration = Duration::from_secs(5);
/// Limit of waits per second of all threads of an idle worker.
const WAITS_MAX: u64 = 50;

/// Number of times that the threads of a process gave up the CPU to wait. A thread that lost its
/// CPU to another one is not counted.
fn waits(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    threads.map(of_thread).sum()
}

#[test]
fn a_worker_that_has_nothing_to_do_is_hardly_ever_woken() {
    let times = Times { lease: USUAL, ..Times::SHORT };
    let lease = [("LEASE_S", USUAL.as_secs().to_string())];
    let mut stage = Stage::bare(67, times, HERE);
    stage.start_with("controller", "controller", "controller", &lease);
    stage.start_with("one", "worker", "one", &lease);
    stage.settled("controller", &["one"]);
    let pid = stage.of("one").ask("process").unwrap().parse().unwrap();
    let end = Instant::now() + PATIENCE;
    // The start of a worker takes some seconds: readers settle, and it asks clients for items.
    loop {
        let (before, begun) = (waits(pid), Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let waited = (waits(pid) - before) as f64 / begun.elapsed().as_secs_f64();
        println!("{waited:.0} waits a second");
        if waited <= WAITS_MAX as f64 {
            return;
        }
        assert!(Instant::now() < end, "an idle worker waits {waited:.0} times a second");
    }
}
