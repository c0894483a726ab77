//! Processes that are paused, with default options, and publishers that never repeat items.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equipoise_dds::items::{DATA_ITEM, DataItem};
use equipoise_dds::{Domain, Participant, Qos, Settings, Topic, Writer};
use equipoise_slice::{Group, SliceId};
use equipoise_slice_dds::partition;

use crate::bed::{Bed, Outcome, PATIENCE, SLICES, each_done_once, python, slices_of, worker};
use crate::common::{Process, kill};

/// The longest pause that loses no item with default options.
pub(crate) const PAUSE: Duration = Duration::from_secs(2);
/// A publisher begins when no reader has come for this long.
const SETTLE: Duration = Duration::from_millis(500);
const DOMAIN: &str = "PLAIN_PUBLISHER_DOMAIN";
const STOP: &str = "PLAIN_PUBLISHER_STOP";

/// A publisher that uses only the topic. It publishes half of the slices into their groups, and the
/// others into none.
struct Plain {
    writers: Vec<Writer>,
    published: i64,
}

impl Plain {
    fn join(domain: u32) -> Self {
        // The defaults of Cyclone DDS.
        let renewals = "<CycloneDDS><Domain Id=\"any\"><Discovery><SPDPInterval>8 s</SPDPInterval></Discovery></Domain></CycloneDDS>";
        let settings = Settings {
            interfaces: vec!["lo".into()],
            lease: Duration::from_secs(10),
            more: Some(renewals.into()),
            ..Settings::default()
        };
        let domain = Domain::open(domain, &settings).unwrap();
        let items = Participant::new(domain, &[]).unwrap().topic("items", &DATA_ITEM).unwrap();
        let writers = (0..SLICES).map(|slice| writer(&items, slice)).collect();
        let plain = Self { writers, published: 0 };
        // A writer keeps an item for the readers that it has met. The reader of the item's worker
        // is among them when no other has come for some time.
        let end = Instant::now() + PATIENCE;
        let (mut met, mut since) = (plain.met(), Instant::now());
        while met.contains(&0) || since.elapsed() < SETTLE {
            assert!(Instant::now() < end, "no worker reads: {met:?}");
            std::thread::sleep(Duration::from_millis(5));
            let now = plain.met();
            if now != met {
                (met, since) = (now, Instant::now());
            }
        }
        plain
    }

    /// The number of readers that each writer has met.
    fn met(&self) -> Vec<u32> {
        self.writers.iter().map(|writer| writer.matched().unwrap()).collect()
    }

    fn publish(&mut self) {
        let slice = self.published as u32 % SLICES;
        let (id, message) = (self.published, self.published.to_le_bytes());
        let item =
            DataItem { slice_id: slice as i32, id, sender_id: 5, timestamp: id, message: &message };
        let mut cdr = Vec::new();
        item.encode(&mut cdr);
        self.writers[slice as usize].write(&cdr).unwrap();
        self.published += 1;
    }
}

fn writer(items: &Topic, slice: u32) -> Writer {
    let group = Group::of(SliceId(slice));
    let partition = slice.is_multiple_of(2).then(|| partition(group)).flatten();
    items.writer(&Qos { partition, ..Qos::default() }).unwrap()
}

/// Not a test: a process that publishes until a file exists.
#[test]
#[ignore = "is a process of the other tests"]
fn publisher() {
    let domain = std::env::var(DOMAIN).unwrap().parse().unwrap();
    let stop = std::env::var(STOP).unwrap();
    let mut plain = Plain::join(domain);
    println!("\npublishing");
    while !Path::new(&stop).exists() {
        plain.publish();
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("published {} items", plain.published);
    // Its items are acknowledged before it ends.
    for writer in &plain.writers {
        writer.wait_for_acknowledgements(PATIENCE).unwrap();
    }
}

pub(crate) fn start_publisher(bed: &Bed) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "pauses::publisher", "--ignored", "--nocapture"]);
    command.env(DOMAIN, bed.domain.to_string()).env(STOP, bed.folder.path("stop"));
    let publisher = Process::of(command);
    publisher.wait_for_text("publishing");
    publisher
}

/// Other threads that compete for the processors.
pub(crate) struct Neighbours {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Neighbours {
    pub(crate) fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let busy = |stop: Arc<AtomicBool>| {
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        Self { threads: (0..count).map(|_| busy(stop.clone())).collect(), stop }
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// The number of items that the publisher has published, after it was asked to stop.
pub(crate) fn published(publisher: &Process) -> i64 {
    publisher.wait_for("what it has published", |printed| {
        let (_, rest) = printed.split_once("published ")?;
        rest.split_once(" items")?.0.parse().ok()
    })
}

/// Pauses all of the processes for `pause`.
pub(crate) fn pause(pids: &[u32], pause: Duration) {
    pids.iter().for_each(|pid| kill(*pid, libc::SIGSTOP));
    std::thread::sleep(pause);
    pids.iter().for_each(|pid| kill(*pid, libc::SIGCONT));
}

pub(crate) fn done_all(bed: &Bed, published: i64) {
    let end = Instant::now() + PATIENCE;
    while (bed.done().len() as i64) < published && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    each_done_once(bed, &Outcome { published, resent: 0 });
}

#[test]
fn pauses_of_two_seconds_lose_no_item_and_double_none_at_the_defaults() {
    if !python() {
        return;
    }
    let bed = Bed::at_the_defaults("slice-pauses", 22, "");
    let publisher = start_publisher(&bed);
    let _neighbours = Neighbours::start(2);
    let (one, two) = (bed.workers["one"].pid(), bed.workers["two"].pid());
    let controller = bed.controller.as_ref().unwrap().pid();
    pause(&[one], PAUSE);
    pause(&[controller], PAUSE);
    // Slices move while their publisher does not learn about the new reader.
    kill(publisher.pid(), libc::SIGSTOP);
    bed.said(&["drain", "one"]);
    std::thread::sleep(PAUSE);
    kill(publisher.pid(), libc::SIGCONT);
    pause(&[two, controller], PAUSE);
    bed.until("it has none", |status| slices_of(status, "two") == u64::from(SLICES));
    std::fs::write(bed.folder.path("stop"), "").unwrap();
    done_all(&bed, published(&publisher));
    let drops = bed.status();
    for name in ["one", "two"] {
        assert_eq!(worker(&drops, name)["drops"]["given_up"].as_u64(), None, "{drops:#}");
    }
}

#[test]
fn a_worker_paused_beyond_its_lease_counts_its_dropped_items() {
    if !python() {
        return;
    }
    let lease = "[slice.workers]\nlease = \"500ms\"\n[slice.balancing]\nshare-max = 0\n";
    let mut bed = Bed::unstarted("slice-given-up", 23);
    bed.write_tables(&format!(
        "[[slice]]\nname = \"items\"\nslices = {SLICES}\ndomain = 23\ninterfaces = \"lo\"\n{lease}"
    ));
    bed.start();
    bed.worker("one", 50);
    bed.until_owned_by(&["one"]);
    let mut plain = Plain::join(23);
    (0..200).for_each(|_| plain.publish());
    bed.until("they wait", |status| worker(status, "one")["queued"].as_u64() > Some(100));
    let one = bed.workers["one"].pid();
    kill(one, libc::SIGSTOP);
    bed.until("it is given up", |status| worker(status, "one")["state"] == "lost");
    kill(one, libc::SIGCONT);
    let status =
        bed.until("it counts", |status| worker(status, "one")["drops"]["given_up"].is_u64());
    let dropped = worker(&status, "one")["drops"]["given_up"].as_u64().unwrap();
    // An item that the program was processing may be done without a reply.
    let done = bed.done().len() as u64;
    assert!((200..=201).contains(&(dropped + done)), "{dropped} dropped, {done} done of 200");
    let shown = bed.said(&["status"]);
    assert!(shown.contains("given_up") && shown.contains("silent for longer"), "{shown}");
    bed.workers["one"].wait_for_text("the controller declared this worker lost");
}
