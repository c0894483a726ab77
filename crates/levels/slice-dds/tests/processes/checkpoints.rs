//! Repeated `kill -9` of workers that take checkpoints: the state of every slice is that of a run
//! without faults. The workers' program is `examples/sums.py`, in Python: sums by key.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use equipoise_slice::{Order, SliceId};
use equipoise_slice_dds::client::{Client, Options, PublishError};

use crate::role::{SLICES, Times, stream};
use crate::stage::{HERE, Here, PATIENCE, Stage};

const DOMAIN: u32 = 58;
const DOMAIN_FOLDER: u32 = 76;
const DOMAIN_FAILING: u32 = 77;
const WORKERS: [&str; 4] = ["one", "two", "three", "four"];
/// Number of kills, unless `SLICE_KILLS` is set.
const KILLS: usize = 30;
/// Limit of items that the client keeps. Items in no checkpoint are published again after a loss.
const WINDOW: usize = 1_000;
const KEYS: i64 = 5;
/// Of the client, of one item of each slice at the end.
const QUERY: i64 = 1 << 40;

/// Of DDS, as in `order.rs`.
const DDS_LEASE: Duration = Duration::from_secs(20);
const MORE: &[(&str, &str)] = &[
    ("LEASE_S", "20"),
    ("RECOVERY_MS", "4000"),
    ("CHECKPOINT_MS", "200"),
    ("PROGRAM", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sums.py")),
];

/// A client that publishes amounts of keys and computes the expected sums.
struct Payer {
    client: Client,
    next: i64,
    sums: BTreeMap<u32, BTreeMap<String, i64>>,
    states: BTreeMap<i64, String>,
    answered: i64,
}

impl Payer {
    fn join(domain: u32) -> Self {
        let mut stream = stream(domain, "lo", 0);
        stream.dds.lease = DDS_LEASE;
        let (resend, resend_max) = (Duration::from_millis(500), Duration::from_secs(4));
        let options =
            Options { resend, resend_max, window: WINDOW, checkpoints: true, ..Options::new(4) };
        let mut client = Client::join(&stream, options).unwrap();
        for slice in 0..SLICES {
            client.open(SliceId(slice), PATIENCE).unwrap();
        }
        let (sums, states) = Default::default();
        Self { client, next: 0, sums, states, answered: 0 }
    }

    /// Publishes for this time.
    fn publish(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let id = self.next;
            let slice = id as u32 % SLICES;
            let (key, amount) = (format!("key{}", id / i64::from(SLICES) % KEYS), id % 97);
            match self.client.publish(SliceId(slice), id, format!("{key} {amount}").as_bytes()) {
                Ok(()) => {
                    self.next += 1;
                    *self.sums.entry(slice).or_default().entry(key).or_default() += amount;
                }
                Err(PublishError::WindowFull(_)) => {}
                Err(error) => panic!("{error}"),
            }
            self.hear();
        }
    }

    fn hear(&mut self) {
        let mut answers = Vec::new();
        self.client.replies(Duration::from_millis(1), &mut answers).unwrap();
        for answer in answers {
            match answer.id {
                id if id >= QUERY => {
                    self.states.insert(id - QUERY, String::from_utf8(answer.message).unwrap());
                }
                _ => self.answered += 1,
            }
        }
    }

    /// Waits until every item has a reply.
    fn settle(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.client.pending() > 0 {
            assert!(Instant::now() < end, "{} items have no reply", self.client.pending());
            self.hear();
        }
    }

    /// Waits until every item is in a checkpoint.
    fn covered(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.client.kept() > 0 {
            assert!(Instant::now() < end, "{} items are in no checkpoint", self.client.kept());
            self.hear();
        }
    }

    /// Compares the state of each slice with that of a run without faults.
    fn compare(&mut self) {
        self.settle();
        self.covered();
        for slice in 0..SLICES {
            let id = QUERY + i64::from(slice);
            self.client.publish(SliceId(slice), id, b"?").unwrap();
        }
        self.settle();
        assert_eq!(self.answered, self.next, "each item is answered once");
        for slice in 0..SLICES {
            let expected = self.sums.get(&slice).cloned().unwrap_or_default();
            let pairs: Vec<_> =
                expected.iter().map(|(key, sum)| format!("\"{key}\": {sum}")).collect();
            let expected = format!("{{{}}}", pairs.join(", "));
            assert_eq!(self.states.get(&i64::from(slice)), Some(&expected), "slice {slice}");
        }
        println!("{} items, {} published again", self.next, self.client.resent());
    }
}

#[test]
fn the_states_of_killed_workers_equal_a_run_without_faults() {
    let kills = std::env::var("SLICE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let here = Here { order: Order::Stateful, more: MORE, ..HERE };
    let mut stage = Stage::new(DOMAIN, Times::SHORT, here, &WORKERS);
    let mut payer = Payer::join(DOMAIN);
    for kill in 0..kills {
        payer.publish(Duration::from_millis(300 + 70 * (kill as u64 % 5)));
        // Two faults at a time may lose a state: its owner and its keeper.
        until_nothing_lacks(&mut stage, &mut payer, "exposed", &WORKERS);
        let victim = WORKERS[kill * 7 % WORKERS.len()];
        stage.kill(victim);
        payer.publish(Duration::from_millis(100));
        stage.start("worker", victim);
        stage.until_heard(victim);
    }
    payer.settle();
    payer.covered();
    stage.settled("controller", &WORKERS);
    let late: Vec<_> = WORKERS.iter().filter_map(|name| stage.of(name).ask("late")).collect();
    println!("{kills} kills; items done out of order, by worker: {late:?}");
    payer.compare();
}

/// With a folder, all workers may be lost at once.
const MORE_FOLDER: &[(&str, &str)] = &[MORE[0], MORE[1], MORE[2], MORE[3], ("CHECKPOINTS", "kept")];

const OTHERS: [&str; 4] = ["five", "six", "seven", "eight"];

fn until_nothing_lacks(stage: &mut Stage<Here>, payer: &mut Payer, what: &str, workers: &[&str]) {
    let end = Instant::now() + PATIENCE;
    while workers.iter().any(|name| stage.of(name).ask(what).as_deref() != Some("0")) {
        assert!(Instant::now() < end, "states are {what}");
        payer.publish(Duration::from_millis(20));
    }
}

#[test]
fn with_a_folder_the_states_outlive_all_workers_and_the_store() {
    let kills = std::env::var("SLICE_KILLS").map_or(6, |kills| kills.parse().unwrap());
    let here = Here { order: Order::Stateful, more: MORE_FOLDER, ..HERE };
    let mut stage = Stage::bare(DOMAIN_FOLDER, Times::SHORT, here);
    std::fs::create_dir(stage.root().join("kept")).unwrap();
    stage.start("controller", "controller");
    WORKERS.iter().for_each(|worker| stage.start("worker", worker));
    let mut payer = Payer::join(DOMAIN_FOLDER);
    let mut now = (WORKERS, OTHERS);
    for kill in 0..kills {
        payer.publish(Duration::from_millis(700 + 130 * (kill as u64 % 7)));
        now.0.iter().for_each(|worker| stage.kill(worker));
        if kill == kills / 2 {
            stage.kill("controller");
            std::fs::remove_file(stage.root().join("store")).unwrap();
            stage.start("controller", "controller");
        }
        payer.publish(Duration::from_millis(100));
        now = (now.1, now.0);
        now.0.iter().for_each(|worker| stage.start("worker", worker));
    }
    println!("{kills} times all workers were killed");
    payer.compare();
}

#[test]
fn a_failing_checkpoint_folder_loses_no_state() {
    let here = Here { order: Order::Stateful, more: MORE_FOLDER, ..HERE };
    let mut stage = Stage::bare(DOMAIN_FAILING, Times::SHORT, here);
    let folder = stage.root().join("kept");
    std::fs::create_dir(&folder).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.join("stream")).status().unwrap();
    assert!(made.success());
    stage.start("controller", "controller");
    WORKERS.iter().for_each(|worker| stage.start("worker", worker));
    let mut payer = Payer::join(DOMAIN_FAILING);
    payer.publish(Duration::from_secs(1));
    payer.settle();
    until_nothing_lacks(&mut stage, &mut payer, "exposed", &WORKERS);
    let unstored = WORKERS.map(|name| stage.of(name).ask("unstored").unwrap().parse().unwrap());
    assert_eq!(unstored.iter().sum::<u32>(), SLICES);
    stage.kill("two");
    payer.publish(Duration::from_millis(300));
    stage.start("worker", "two");
    payer.compare();
    // From then on the states are in the folder, also those without new items.
    std::fs::remove_file(folder.join("stream")).unwrap();
    until_nothing_lacks(&mut stage, &mut payer, "unstored", &WORKERS);
    WORKERS.iter().for_each(|worker| stage.kill(worker));
    OTHERS.iter().for_each(|worker| stage.start("worker", worker));
    payer.publish(Duration::from_millis(300));
    payer.compare();
}
