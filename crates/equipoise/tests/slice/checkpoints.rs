//! Workers of a stream with checkpoints are killed: the state of each slice is that of a run
//! without faults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use equipoise_slice::SliceId;
use equipoise_slice_dds::client::{Client, Options, PublishError};

use crate::bed::{Bed, PATIENCE, SLICES, python};
use crate::common::{Process, equipoise, stderr, text};

const WORKERS: [&str; 3] = ["one", "two", "three"];
const TABLE: &str = "order = \"stateful\"\ncheckpoint = { every = \"200ms\", items = 200 }";

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../levels/slice-dds/examples").join(name)
}

fn bed(test: &str, domain: u32, table: &str) -> Bed {
    let mut bed = Bed::with_losses(test, domain, table);
    for worker in WORKERS {
        start(&mut bed, worker);
    }
    bed.until_owned_by(&WORKERS);
    bed
}

/// Starts a worker with sums by key as its state.
fn start(bed: &mut Bed, worker: &str) {
    bed.worker_of(worker, &["python3", text(&example("sums.py"))]);
}

/// A client that publishes amounts, and knows the sum of each slice.
struct Payer {
    client: Client,
    next: i64,
    sums: BTreeMap<u32, i64>,
    answers: BTreeMap<i64, i64>,
}

impl Payer {
    fn join(bed: &Bed) -> Self {
        let options = Options { checkpoints: true, window: 2_000, ..Options::new(4) };
        let client = Client::join(&bed.stream(), options).unwrap();
        let (next, sums, answers) = Default::default();
        let mut payer = Self { client, next, sums, answers };
        payer.open();
        payer
    }

    /// Waits for workers of all slices.
    fn open(&mut self) {
        (0..SLICES).for_each(|slice| self.client.open(SliceId(slice), PATIENCE).unwrap());
    }

    /// Compares the states with those of a run without kills.
    fn compare(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.client.kept() > 0 {
            assert!(Instant::now() < end, "{} items are in no checkpoint", self.client.kept());
            self.hear();
        }
        assert_eq!(self.answers.len() as i64, self.next);
        // The sum so far of each slice, in the reply to its last item.
        for slice in 0..i64::from(SLICES) {
            let last = (0..self.next).rev().find(|id| id % i64::from(SLICES) == slice).unwrap();
            let sum = self.sums[&(slice as u32)];
            assert_eq!(self.answers[&last], sum, "slice {slice}");
        }
    }

    fn publish(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let (id, slice) = (self.next, self.next as u32 % SLICES);
            match self.client.publish(SliceId(slice), id, format!("all {id}").as_bytes()) {
                Ok(()) => {
                    self.next += 1;
                    *self.sums.entry(slice).or_default() += id;
                }
                // All workers are lost in some tests.
                Err(PublishError::WindowFull(_) | PublishError::NoWorker(_)) => {}
                Err(error) => panic!("{error}"),
            }
            self.hear();
        }
    }

    fn hear(&mut self) {
        let mut answers = Vec::new();
        self.client.replies(Duration::from_millis(1), &mut answers).unwrap();
        for answer in answers {
            let sum = String::from_utf8(answer.message).unwrap().parse().unwrap();
            assert_eq!(self.answers.insert(answer.id, sum), None, "one reply to {}", answer.id);
        }
    }
}

#[test]
fn checkpointed_states_after_kills_equal_an_uninterrupted_run() {
    if !python() {
        return;
    }
    let mut bed = bed("slice-checkpoints", 59, TABLE);
    let mut payer = Payer::join(&bed);
    for victim in ["two", "one", "two", "three"] {
        payer.publish(Duration::from_millis(500));
        // An owner and its keeper may not be lost together. Without balancing, slices that move at
        // each moment do not prevent it.
        reload(&bed, &format!("{TABLE}\n[slice.balancing]\nshare-max = 0"));
        let end = Instant::now() + PATIENCE;
        while !is_safe(&bed) {
            assert!(Instant::now() < end, "{:#}", bed.status());
            payer.publish(Duration::from_millis(20));
        }
        bed.kill_worker(victim);
        reload(&bed, TABLE);
        payer.publish(Duration::from_millis(300));
        start(&mut bed, victim);
    }
    payer.compare();
    let shown = bed.said(&["status"]);
    assert!(shown.contains("CHECKPOINTS OF  KEPT BY"), "{shown}");
}

#[test]
fn states_in_a_folder_outlive_all_workers() {
    if !python() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("slice-checkpoints-{}", std::process::id()));
    let option = format!("items = 200, folder = {:?} }}", text(&folder));
    let mut bed = bed("slice-checkpoints-folder", 62, &TABLE.replace("items = 200 }", &option));
    let mut payer = Payer::join(&bed);
    payer.publish(Duration::from_millis(500));
    // The folder does not exist yet.
    let problem = |status: &serde_json::Value| {
        let workers = status["workers"].as_array().unwrap().iter();
        let problems = workers.filter_map(|worker| worker["problem"].as_str());
        problems.map(str::to_string).find(|problem| problem.contains("checkpoints are not stored"))
    };
    let shown = bed
        .until("states are in no folder", |status| !is_stored(status) && problem(status).is_some());
    let problem = problem(&shown).unwrap();
    assert!(problem.contains("items-12: No such file or directory"), "{problem}");
    std::fs::create_dir(&folder).unwrap();
    bed.until("states are in the folder", is_stored);
    for _ in 0..2 {
        payer.publish(Duration::from_millis(700));
        WORKERS.iter().for_each(|worker| bed.kill_worker(worker));
        payer.publish(Duration::from_millis(100));
        WORKERS.iter().for_each(|worker| start(&mut bed, worker));
        payer.open();
    }
    payer.compare();
    std::fs::remove_dir_all(&folder).unwrap();
}

fn reload(bed: &Bed, table: &str) {
    bed.write(table);
    let output = equipoise(&["reload", "--api", text(&bed.socket)]);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Whether every worker has its states in the folder.
fn is_stored(status: &serde_json::Value) -> bool {
    let workers = status["workers"].as_array().unwrap();
    workers.iter().all(|it| it["checkpoints"]["slices_unstored"] == 0)
}

/// Whether every worker is active, and has its checkpoints at its keeper.
fn is_safe(bed: &Bed) -> bool {
    let status = bed.status();
    let workers = status["workers"].as_array().unwrap();
    let active: Vec<_> = workers.iter().filter(|it| it["state"] == "active").collect();
    active.len() == WORKERS.len()
        && active.iter().all(|it| {
            let of = &it["checkpoints"];
            of["slices_exposed"] == 0 && of["keeper"].is_string()
        })
}

#[test]
fn a_client_in_python_keeps_items_until_they_are_in_a_checkpoint() {
    let Some(python) = crate::bed::cyclonedds() else { return };
    let mut bed = bed("slice-checkpoints-python", 60, TABLE);
    let mut command = std::process::Command::new(python);
    command.arg(example("client.py"));
    command.args(["60", &SLICES.to_string(), "6000", "lo", "modulo", "checkpoints"]);
    command.env("CONTROL", "items/control");
    let mut client = Process::of(command);
    client.wait_for_text(" ");
    bed.kill_worker("one");
    assert!(client.ended().success(), "{}", client.printed());
    let mut sums = BTreeMap::new();
    let printed = client.printed();
    let replies: BTreeMap<i64, i64> = printed
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(id, sum)| (id.parse().unwrap(), sum.parse().unwrap()))
        .collect();
    assert_eq!(replies.len(), 6000);
    for (id, sum) in replies {
        let of: &mut i64 = sums.entry(id % i64::from(SLICES)).or_default();
        *of += id;
        assert_eq!(sum, *of, "the sum after item {id}");
    }
}
