//! Exchanges samples with the `cyclonedds` package of Python in another process, in both
//! directions. Needs Python. `make cyclonedds-python` creates its environment under target/; this
//! test does so if it is missing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use equipoise_dds::items::{DATA_ITEM, DataItem, REPLY, Reply};
use equipoise_dds::{Domain, Participant, Qos, Reader, Sample, Settings, Topic, Waitset, Writer};
use equipoise_testkit::{python_programs, spawn_bound, workspace};

const PATIENCE: Duration = Duration::from_secs(60);
const COUNT: i64 = 200;

/// Python with the package; `None` without Python.
fn python() -> Option<PathBuf> {
    Some(python_programs("cyclonedds-python")?.join("python"))
}

fn peer(python: &Path, what: &str, domain: u32) -> Child {
    let mut command = Command::new(python);
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/peer.py"))
        .env("PYTHONPATH", workspace().join("crates/levels/slice-dds/examples"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args([what, &domain.to_string(), &COUNT.to_string()])
        .stdout(Stdio::piped());
    spawn_bound(command).expect("Python starts")
}

fn here(domain: u32) -> (Participant, Topic, Topic) {
    // So long that a busy machine does not end a participant's lease.
    let lease = Duration::from_secs(30);
    let settings = Settings { interfaces: vec!["lo".into()], lease, ..Settings::default() };
    let here = Participant::new(Domain::open(domain, &settings).unwrap(), &[]).unwrap();
    let items = here.topic("items", &DATA_ITEM).unwrap();
    let replies = here.topic("replies", &REPLY).unwrap();
    (here, items, replies)
}

fn met(writer: &Writer) {
    let end = Instant::now() + PATIENCE;
    while writer.matched().unwrap() == 0 {
        assert!(Instant::now() < end, "no reader is there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn take(waitset: &Waitset, reader: &Reader, count: i64) -> Vec<Sample> {
    let mut samples = Vec::new();
    let end = Instant::now() + PATIENCE;
    while samples.len() < count as usize {
        assert!(Instant::now() < end, "{} of {count} came", samples.len());
        waitset.wait(Duration::from_millis(100), &mut Vec::new()).unwrap();
        reader.take(&mut samples).unwrap();
    }
    samples
}

#[test]
fn items_of_a_python_client_are_read_and_it_reads_replies() {
    let Some(python) = python() else { return };
    let (here, items, replies) = here(33);
    let reader = items.reader(&Qos::default()).unwrap();
    let writer = replies.writer(&Qos::default()).unwrap();
    let waitset = here.waitset().unwrap();
    waitset.attach(&reader, 0).unwrap();
    let mut client = peer(&python, "publish", 33);
    met(&writer);
    for (id, sample) in (0..).zip(take(&waitset, &reader, COUNT)) {
        let item = DataItem::decode(sample.cdr()).unwrap();
        let message = vec![id as u8; id as usize % 5];
        let expected = DataItem {
            slice_id: id as i32 % 10,
            id,
            sender_id: 42,
            timestamp: 1000 + id,
            message: &message,
        };
        assert_eq!(item, expected);
        let text = format!("done {id}");
        let reply =
            Reply { id, timestamp: item.timestamp, sender_id: 42, message: text.as_bytes() };
        let mut cdr = Vec::new();
        reply.encode(&mut cdr);
        writer.write(&cdr).unwrap();
    }
    let mut printed = String::new();
    client.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(client.wait().unwrap().success());
    let mut lines: Vec<_> = printed.lines().collect();
    lines.sort_by_key(|line| line.split(' ').next().and_then(|id| id.parse::<i64>().ok()));
    let expected: Vec<_> = (0..COUNT).map(|id| format!("{id} done {id}")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_python_reader_reads_our_items_and_we_its_replies() {
    let Some(python) = python() else { return };
    let (here, items, replies) = here(34);
    let reader = replies.reader(&Qos::default()).unwrap();
    let writer = items.writer(&Qos::default()).unwrap();
    let waitset = here.waitset().unwrap();
    waitset.attach(&reader, 0).unwrap();
    let mut worker = peer(&python, "answer", 34);
    met(&writer);
    for id in 0..COUNT {
        let message = vec![id as u8; id as usize % 3];
        let item = DataItem {
            slice_id: id as i32 % 10,
            id,
            sender_id: -7,
            timestamp: id * 2,
            message: &message,
        };
        let mut cdr = Vec::new();
        item.encode(&mut cdr);
        writer.write(&cdr).unwrap();
    }
    let samples = take(&waitset, &reader, COUNT);
    let mut answered: Vec<_> =
        samples.iter().map(|sample| Reply::decode(sample.cdr()).unwrap()).collect();
    answered.sort_by_key(|reply| reply.id);
    for (id, reply) in (0..COUNT).zip(answered) {
        let hex = format!("{:02x}", id as u8).repeat(id as usize % 3);
        let text = format!("slice {} {hex}", id % 10);
        let expected = Reply { id, timestamp: id * 2, sender_id: -7, message: text.as_bytes() };
        assert_eq!(reply, expected);
    }
    assert!(worker.wait().unwrap().success());
}
