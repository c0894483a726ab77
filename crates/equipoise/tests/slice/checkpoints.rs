//! Workers of a stream with checkpoints are killed: the state of each slice is that of a run
//! without faults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use equipoise_slice::SliceId;
use equipoise_slice_dds::client::{Client, Options, PublishError};

use crate::bed::{Bed, PATIENCE, SLICES, python};
use crate::common::{Process, text};

const WORKERS: [&str; 3] = ["one", "two", "three"];
const TABLE: &str = "order = \"stateful\"\ncheckpoint = { every = \"200ms\", items = 200 }";

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../levels/slice-dds/examples").join(name)
}

fn bed(test: &str, domain: u32) -> Bed {
    let mut bed = Bed::with_losses(test, domain, TABLE);
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
    fn publish(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let (id, slice) = (self.next, self.next as u32 % SLICES);
            match self.client.publish(SliceId(slice), id, format!("all {id}").as_bytes()) {
                Ok(()) => {
                    self.next += 1;
                    *self.sums.entry(slice).or_default() += id;
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
            let sum = String::from_utf8(answer.message).unwrap().parse().unwrap();
            assert_eq!(self.answers.insert(answer.id, sum), None, "one reply to {}", answer.id);
        }
    }
}

#[test]
fn states_are_those_of_a_run_without_kills() {
    if !python() {
        return;
    }
    let mut bed = bed("slice-checkpoints", 59);
    let options = Options { checkpoints: true, window: 2_000, ..Options::new(4) };
    let client = Client::join(&bed.stream(), options).unwrap();
    let (next, sums, answers) = Default::default();
    let mut payer = Payer { client, next, sums, answers };
    for victim in ["two", "one", "two", "three"] {
        payer.publish(Duration::from_millis(500));
        // An owner and its keeper may not be lost together.
        let end = Instant::now() + PATIENCE;
        while !is_safe(&bed) {
            assert!(Instant::now() < end, "{:#}", bed.status());
            payer.publish(Duration::from_millis(20));
        }
        bed.kill_worker(victim);
        payer.publish(Duration::from_millis(300));
        start(&mut bed, victim);
    }
    let end = Instant::now() + PATIENCE;
    while payer.client.kept() > 0 {
        assert!(Instant::now() < end, "{} items are in no checkpoint", payer.client.kept());
        payer.hear();
    }
    assert_eq!(payer.answers.len() as i64, payer.next);
    // The sum so far of each slice, in the reply to its last item.
    for slice in 0..i64::from(SLICES) {
        let last = (0..payer.next).rev().find(|id| id % i64::from(SLICES) == slice).unwrap();
        let sum = payer.sums[&(slice as u32)];
        assert_eq!(payer.answers[&last], sum, "slice {slice}");
    }
    let shown = bed.said(&["status"]);
    assert!(shown.contains("CHECKPOINTS OF  KEPT BY"), "{shown}");
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
    let mut bed = bed("slice-checkpoints-python", 60);
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
