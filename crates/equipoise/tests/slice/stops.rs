//! Any process stands still for two seconds, at random, again and again, at the defaults: nothing
//! is lost, nothing is done twice, no worker is given up. The number of handovers is printed. A
//! queue after a pause causes none, but items that take longer on a busy machine may.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use equipoise_dds::Settings;
use equipoise_slice::SliceId;
use equipoise_slice_dds::Stream;
use equipoise_slice_dds::client::{Client, Options, PublishError};
use serde_json::Value;

use crate::bed::{Bed, PATIENCE, SLICES, python, worker};
use crate::common::{Process, kill};
use crate::pauses::{Neighbours, PAUSE, published, start_publisher};

/// Unless `SLICE_PAUSES_SECONDS` has another number.
const SECONDS: u64 = 25;
const DOMAIN: &str = "RETAINING_CLIENT_DOMAIN";
const STOP: &str = "RETAINING_CLIENT_STOP";
/// The retaining client's first id: those below are the plain publisher's.
const FIRST: i64 = 1 << 40;
/// Between two of its items.
const BETWEEN: Duration = Duration::from_millis(10);
/// Time of an item: each worker is half busy.
const ITEM_MS: u32 = 3;
/// Between two pauses, at most.
const REST_MS: u64 = 1500;

/// Processes that stand still; they go on when it is dropped.
struct Stopped(Vec<u32>);

impl Stopped {
    fn stop(pids: &[u32]) -> Self {
        pids.iter().for_each(|pid| kill(*pid, libc::SIGSTOP));
        Self(pids.to_vec())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| kill(*pid, libc::SIGCONT));
    }
}

/// # Source
/// Marsaglia, Xorshift RNGs, 2003.
struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Not a test: a process that publishes until a file exists, and keeps items until their replies.
#[test]
#[ignore = "is a process of the other tests"]
fn client() {
    let domain = std::env::var(DOMAIN).unwrap().parse().unwrap();
    let stop = std::env::var(STOP).unwrap();
    let dds = Settings { interfaces: vec!["lo".into()], ..Settings::default() };
    let stream = Stream { domain, dds, items: "items".into(), ..Stream::default() };
    let mut client = Client::join(&stream, Options::new(9)).unwrap();
    (0..SLICES).for_each(|slice| client.open(SliceId(slice), PATIENCE).unwrap());
    println!("\npublishing");
    let (mut next, mut answers, mut finishing) = (FIRST, Vec::new(), None);
    let mut due = Instant::now();
    loop {
        if !Path::new(&stop).exists() {
            if Instant::now() < due {
                client.replies(due - Instant::now(), &mut answers).unwrap();
                continue;
            }
            // A pause is not made up for.
            due = Instant::now() + BETWEEN;
            match client.publish(SliceId(next as u32 % SLICES), next, &next.to_le_bytes()) {
                Ok(()) => next += 1,
                Err(PublishError::WindowFull(_)) => {}
                Err(error) => panic!("{error}"),
            }
        } else if client.pending() == 0 {
            break;
        } else {
            let since = *finishing.get_or_insert_with(Instant::now);
            assert!(since.elapsed() < PATIENCE, "{} items have no reply", client.pending());
        }
        client.replies(Duration::from_millis(5), &mut answers).unwrap();
    }
    let mut ids: Vec<_> = answers.iter().map(|answer| answer.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (FIRST..next).collect::<Vec<_>>(), "each has one reply");
    println!("{} came again", client.resent());
    println!("published {} items", next - FIRST);
}

fn start_client(bed: &Bed) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "stops::client", "--ignored", "--nocapture"]);
    command.env(DOMAIN, bed.domain.to_string()).env(STOP, bed.folder.path("stop"));
    let client = Process::of(command);
    client.wait_for_text("publishing");
    client
}

/// The program that a worker has started.
fn program_of(worker: u32) -> u32 {
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in parentheses may contain anything.
        let after = stat.rsplit_once(") ").map(|(_, after)| after.split(' '));
        after.and_then(|mut fields| fields.nth(1)?.parse().ok()) == Some(worker)
    };
    let all = std::fs::read_dir("/proc").unwrap();
    let mut pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(is_child).expect("the worker has a program")
}

/// The owner of each slice, and since which handover.
fn owners(status: &Value) -> Vec<(String, u64)> {
    let slices = status["slices"].as_array().unwrap().iter();
    let owner = |slice: &Value| slice["owner"].as_str().unwrap_or("-").to_string();
    slices.map(|slice| (owner(slice), slice["epoch"].as_u64().unwrap())).collect()
}

/// A controller, two workers with their programs, and both kinds of publishers, beside busy loops.
struct Scene {
    bed: Bed,
    plain: Process,
    retaining: Process,
    owners: Vec<(String, u64)>,
}

impl Scene {
    fn new(name: &str, domain: u32) -> Self {
        let bed = Bed::at_the_defaults_with(name, domain, "", ITEM_MS);
        let (plain, retaining) = (start_publisher(&bed), start_client(&bed));
        // The balancer has seen the load.
        let mut owners_before = Vec::new();
        let end = Instant::now() + PATIENCE;
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_secs(5) {
            let now = owners(&bed.status());
            if now != owners_before {
                (owners_before, since) = (now, Instant::now());
            }
            assert!(Instant::now() < end, "slices do not settle");
            std::thread::sleep(Duration::from_millis(100));
        }
        Self { bed, plain, retaining, owners: owners_before }
    }

    /// Every process, with its name.
    fn processes(&self) -> Vec<(&'static str, u32)> {
        let (one, two) = (self.bed.workers["one"].pid(), self.bed.workers["two"].pid());
        vec![
            ("worker one", one),
            ("worker two", two),
            ("program one", program_of(one)),
            ("program two", program_of(two)),
            ("controller", self.bed.controller.as_ref().unwrap().pid()),
            ("plain publisher", self.plain.pid()),
            ("retaining client", self.retaining.pid()),
        ]
    }

    /// Nothing was lost, nothing was done twice, no worker was given up.
    fn check(self) {
        let Self { bed, plain, retaining, owners: before } = self;
        let now = owners(&bed.status());
        let last = |of: &[(String, u64)]| of.iter().map(|(_, epoch)| *epoch).max().unwrap_or(0);
        std::fs::write(bed.folder.path("stop"), "").unwrap();
        let counts = [published(&plain), published(&retaining)];
        let of_plain = 0..counts[0];
        let of_retaining = FIRST..FIRST + counts[1];
        let end = Instant::now() + PATIENCE;
        let all = || of_plain.clone().chain(of_retaining.clone());
        let missing = |done: &std::collections::BTreeMap<i64, u32>| -> Vec<i64> {
            all().filter(|id| !done.contains_key(id)).collect()
        };
        while !missing(&bed.done()).is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let done = bed.done();
        let twice: Vec<_> = done.iter().filter(|(_, count)| **count > 1).collect();
        let (lost, status) = (missing(&done), bed.status());
        println!(
            "{counts:?} items of the plain publisher and of the retaining client: {} lost, {} twice, \
             {} handovers",
            lost.len(),
            twice.len(),
            last(&now) - last(&before),
        );
        assert!(lost.is_empty() && twice.is_empty(), "lost {lost:?}, twice {twice:?}");
        for name in ["one", "two"] {
            let given_up = worker(&status, name)["drops"]["given_up"].as_u64();
            assert_eq!(given_up, None, "{status:#}");
        }
    }
}

fn seconds(default: u64) -> Duration {
    let seconds = std::env::var("SLICE_PAUSES_SECONDS");
    Duration::from_secs(seconds.map_or(default, |text| text.parse().unwrap()))
}

#[test]
fn random_pauses_duplicate_no_item_and_lose_no_item_or_worker() {
    if !python() {
        return;
    }
    let time = seconds(SECONDS);
    let seed = std::env::var("SLICE_PAUSES_SEED").map_or(1, |text| text.parse().unwrap());
    let scene = Scene::new("slice-stops", 32);
    let processes = scene.processes();
    let mut random = Random(seed);
    let (end, mut pauses) = (Instant::now() + time, 0);
    while Instant::now() < end {
        let mut chosen = vec![random.below(processes.len() as u64) as usize];
        // Now and then two together.
        let other = random.below(3 * processes.len() as u64) as usize;
        if other < processes.len() && !chosen.contains(&other) {
            chosen.push(other);
        }
        let pids: Vec<_> = chosen.iter().map(|at| processes[*at].1).collect();
        let names: Vec<_> = chosen.iter().map(|at| processes[*at].0).collect();
        let rest = Duration::from_millis(random.below(REST_MS));
        println!("{pauses}: {names:?}, and {rest:?} of rest");
        let stopped = Stopped::stop(&pids);
        std::thread::sleep(PAUSE);
        drop(stopped);
        std::thread::sleep(rest);
        pauses += 1;
    }
    println!("{pauses} pauses in {time:?}, seed {seed}");
    scene.check();
}

#[test]
#[ignore = "takes SLICE_PAUSES_SECONDS: make slice-quiet"]
fn no_worker_is_declared_lost_beside_busy_loops() {
    assert!(python(), "the workers' program needs Python");
    let time = seconds(3600);
    let _busy = Neighbours::start(4);
    let scene = Scene::new("slice-quiet", 33);
    let end = Instant::now() + time;
    let mut suspected = 0;
    while Instant::now() < end {
        let status = scene.bed.status();
        for name in ["one", "two"] {
            let of = worker(&status, name);
            assert_ne!(of["state"], "lost", "{status:#}");
            let reason = of["reason"].as_str();
            suspected += usize::from(reason.is_some_and(|reason| reason.contains("silent")));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    println!("suspected at {suspected} looks in {time:?}");
    scene.check();
}
