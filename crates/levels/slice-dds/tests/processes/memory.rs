//! The memory of a worker: constant under load, and released afterwards.

use std::time::{Duration, Instant};

use equipoise_slice::SliceId;
use equipoise_slice_dds::client::{Client, Options, PublishError};

use crate::role::{SLICES, Times, stream};
use crate::stage::{HERE, Here, PATIENCE, Stage};

/// Time for which finished items and replies are kept, in the tests that always run.
const REMEMBER: Duration = Duration::from_secs(1);
/// Growth that is ignored: overhead of the allocator for some threads.
const NOISE_KB: u64 = 6 << 10;
/// Variation because of the writers of replies, which are replaced: each keeps half a kilobyte for
/// each of its replies.
const TURNS_KB: u64 = 24 << 10;

/// Resident memory of a process, in KiB.
fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// A controller, a worker, and a client that has discovered it.
fn begun(domain: u32, remember: Duration) -> (Stage<Here>, u32, Client) {
    let remember = [("REMEMBER_MS", remember.as_millis().to_string())];
    let mut stage = Stage::bare(domain, Times::LONG, HERE);
    stage.start("controller", "controller");
    stage.start_with("one", "worker", "one", &remember);
    stage.settled("controller", &["one"]);
    let pid = stage.of("one").ask("process").unwrap().parse().unwrap();
    let mut client = Client::join(&stream(domain, "lo", 0), Options::new(3)).unwrap();
    for slice in 0..SLICES {
        client.open(SliceId(slice), PATIENCE).unwrap();
    }
    (stage, pid, client)
}

/// Publishes items with these ids, and waits for all replies.
fn publish(client: &mut Client, ids: std::ops::Range<i64>, message: &[u8]) {
    let (mut id, end, mut answers) = (ids.start, Instant::now() + 3 * PATIENCE, Vec::new());
    while id < ids.end || client.pending() > 0 {
        assert!(Instant::now() < end, "{id} published, {} without a reply", client.pending());
        while id < ids.end {
            match client.publish(SliceId(id as u32 % SLICES), id, message) {
                Ok(()) => id += 1,
                Err(PublishError::WindowFull(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        client.replies(Duration::from_millis(5), &mut answers).unwrap();
        answers.clear();
    }
}

/// Largest memory of the worker while it processed these thousands of items.
fn most_kb(pid: u32, client: &mut Client, thousands: std::ops::Range<i64>) -> u64 {
    let most = thousands.step_by(5).map(|thousand| {
        publish(client, thousand * 1000..(thousand + 5) * 1000, b"an item");
        let now = resident_kb(pid);
        println!("{} items: {now} KiB", (thousand + 5) * 1000);
        now
    });
    most.max().unwrap()
}

#[test]
#[ignore = "a measurement: on a busy machine the plateau is reached later and is higher"]
fn a_workers_memory_reaches_a_plateau_under_continuous_load() {
    let (_stage, pid, mut client) = begun(69, REMEMBER);
    // Until every part that an item needs has been used once.
    let plateau = most_kb(pid, &mut client, 0..60);
    let later = most_kb(pid, &mut client, 60..140);
    assert!(later < plateau + TURNS_KB, "from {plateau} to {later} KiB");
}

#[test]
#[ignore = "a measurement: prints the plateau at the defaults"]
fn a_workers_memory_at_the_defaults() {
    let (_stage, pid, mut client) = begun(71, Duration::from_secs(30));
    println!("the most: {} KiB", most_kb(pid, &mut client, 0..600));
}

#[test]
fn a_worker_releases_the_memory_of_large_items() {
    let (_stage, pid, mut client) = begun(70, REMEMBER);
    publish(&mut client, 0..2_000, b"an item");
    let before = resident_kb(pid);
    let large = vec![7; 1 << 20];
    publish(&mut client, 2_000..2_060, &large);
    let (end, most) = (Instant::now() + PATIENCE, resident_kb(pid));
    loop {
        let now = resident_kb(pid);
        if now < before + NOISE_KB {
            println!("from {before} KiB to {most}, and back to {now}");
            return;
        }
        assert!(Instant::now() < end, "{before} KiB before 60 MB of items, {now} after");
        std::thread::sleep(Duration::from_millis(100));
    }
}
