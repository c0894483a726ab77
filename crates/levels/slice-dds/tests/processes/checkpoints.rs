//! Repeated `kill -9` of workers that take checkpoints: the state of every slice is that of a run
//! without faults. The workers' program is `examples/sums.py`, in Python: sums by key.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use equipoise_slice::{Order, SliceId};
use equipoise_slice_dds::client::{Client, Options, PublishError};

use crate::role::{SLICES, Times, stream};
use crate::stage::{HERE, Here, PATIENCE, Stage};

const DOMAIN: u32 = 58;
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
    fn join() -> Self {
        let mut stream = stream(DOMAIN, "lo", 0);
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

    /// Asks for the state of each slice.
    fn query(&mut self) {
        for slice in 0..SLICES {
            let id = QUERY + i64::from(slice);
            self.client.publish(SliceId(slice), id, b"?").unwrap();
        }
        self.settle();
    }
}

#[test]
fn the_states_of_killed_workers_are_those_of_a_run_without_faults() {
    let kills = std::env::var("SLICE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let here = Here { order: Order::Stateful, more: MORE, ..HERE };
    let mut stage = Stage::new(DOMAIN, Times::SHORT, here, &WORKERS);
    let mut payer = Payer::join();
    for kill in 0..kills {
        payer.publish(Duration::from_millis(300 + 70 * (kill as u64 % 5)));
        // Two faults at a time may lose a state: its owner and its keeper.
        let end = Instant::now() + PATIENCE;
        while WORKERS.iter().any(|name| stage.of(name).ask("exposed").as_deref() != Some("0")) {
            assert!(Instant::now() < end, "states have no checkpoints");
            payer.publish(Duration::from_millis(20));
        }
        let victim = WORKERS[kill * 7 % WORKERS.len()];
        stage.kill(victim);
        payer.publish(Duration::from_millis(100));
        stage.start("worker", victim);
        stage.until_heard(victim);
    }
    payer.settle();
    payer.covered();
    stage.settled("controller", &WORKERS);
    payer.query();
    let late: Vec<_> = WORKERS.iter().filter_map(|name| stage.of(name).ask("late")).collect();
    println!("items done out of order, by worker: {late:?}");
    assert_eq!(payer.answered, payer.next, "each item is answered once");
    for slice in 0..SLICES {
        let expected = payer.sums.get(&slice).cloned().unwrap_or_default();
        let pairs: Vec<_> = expected.iter().map(|(key, sum)| format!("\"{key}\": {sum}")).collect();
        let expected = format!("{{{}}}", pairs.join(", "));
        assert_eq!(payer.states.get(&i64::from(slice)), Some(&expected), "slice {slice}");
    }
    println!("{kills} kills, {} items, {} published again", payer.next, payer.client.resent());
}
