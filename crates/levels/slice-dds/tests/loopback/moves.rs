//! Slices move; workers join and leave.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use equipoise_slice::SliceId;
use equipoise_slice_dds::client;
use equipoise_slice_dds::worker::{self, Program, Worker};

use crate::cluster::{Cluster, Load, PATIENCE, SLICES, SOON, protocol};

#[test]
fn slices_move_back_and_forth_under_load_and_every_item_is_done_once() {
    let cluster = Cluster::new(41, Duration::ZERO);
    let workers = [cluster.worker("one", Duration::ZERO), cluster.worker("two", Duration::ZERO)];
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    for round in 0..30 {
        let target = if round % 2 == 0 { "one" } else { "two" };
        let slices: Vec<_> = (0..SLICES)
            .filter(|slice| cluster.owner(*slice).is_some_and(|owner| owner != target))
            .map(SliceId)
            .collect();
        load.publish(100);
        if !slices.is_empty() {
            let asked = cluster.controller.move_slices(slices.clone(), target);
            cluster.runtime.block_on(asked).unwrap();
        }
        let end = Instant::now() + PATIENCE;
        while slices.iter().any(|slice| cluster.owner(slice.0).as_deref() != Some(target)) {
            assert!(Instant::now() < end, "{:#?}", cluster.controller.status().handovers);
            load.publish_some(5);
            load.read(Duration::from_millis(1));
        }
        cluster.eventually("the handover is over", || cluster.all_owned());
    }
    load.read_all();
    load.check();
    let mut done: BTreeMap<i64, u32> = BTreeMap::new();
    for (id, _, _) in cluster.log.lock().unwrap().iter() {
        *done.entry(*id).or_default() += 1;
    }
    let twice: Vec<_> = done.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "done more than once: {twice:?}");
    assert_eq!(load.client.strange(), 0);
    let mut times = cluster.controller.status().handover_times;
    times.sort_unstable();
    println!("{} items; handovers: {times:?}; again: {}", load.next, load.client.resent());
    for worker in workers {
        worker.stop().unwrap();
    }
}

#[test]
fn a_lost_worker_is_replaced_and_every_item_is_answered_once() {
    let cluster = Cluster::where_some_are_lost(42);
    let one = cluster.worker("one", Duration::from_micros(300));
    let two = cluster.worker("two", Duration::from_micros(300));
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(1000);
    load.read(Duration::from_millis(20));
    let gone = Instant::now();
    drop(one);
    load.publish(500);
    let of_two =
        || cluster.controller.status().slices.iter().all(|s| s.owner.as_deref() == Some("two"));
    cluster.eventually("the other has all slices", of_two);
    println!("succeeded after {:?}", gone.elapsed());
    load.publish(500);
    load.read_all();
    load.check();
    drop(two);
}

#[test]
fn a_joining_worker_receives_slices_and_a_leaving_worker_keeps_none() {
    let cluster = Cluster::new(43, Duration::from_millis(200));
    let one = cluster.worker("one", Duration::from_millis(2));
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    let mut worker = None;
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "{:#?}", cluster.controller.status().workers);
        load.publish_some(4);
        load.read(Duration::from_millis(10));
        let joined = worker.get_or_insert_with(|| cluster.worker("two", Duration::from_millis(2)));
        if joined.slices() >= u64::from(SLICES) / 3 {
            break;
        }
    }
    one.leave();
    cluster.eventually("who leaves has nothing", || {
        load.publish_some(2);
        load.read(Duration::from_millis(5));
        one.slices() == 0 && cluster.all_owned()
    });
    one.stop().unwrap();
    load.publish(100);
    load.read_all();
    load.check();
}

#[test]
fn a_crashing_program_receives_its_unacknowledged_items_again() {
    let python = std::process::Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        println!("skipped: there is no python3");
        return;
    }
    let cluster = Cluster::new(44, Duration::ZERO);
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/worker.py");
    let starts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&starts);
    let program = Program::start(move || {
        counted.fetch_add(1, Relaxed);
        let mut command = std::process::Command::new("python3");
        command.arg(&script).args(["--crash-after", "40"]);
        command
    });
    let program = program.unwrap();
    let usual = worker::Options::new("python", SLICES);
    let options = worker::Options { jobs_max: 8, protocol: protocol(), ..usual };
    let worker = Worker::start(&cluster.stream, options, program).unwrap();
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(100);
    let image = [&b"P6\n4 2\n255\n"[..], &[200; 24]].concat();
    load.client.publish(SliceId(3), load.next, &image).unwrap();
    load.read_all();
    let (images, others): (Vec<_>, Vec<_>) =
        load.answers.iter().partition(|answer| answer.id == load.next);
    assert_eq!(images.len(), 1);
    assert_eq!(images[0].message, b"processed 4 2");
    let mut ids: Vec<_> = others.iter().map(|answer| answer.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
    let starts = starts.load(Relaxed);
    assert!(starts >= 3, "101 items, and a crash after each 40: {starts} starts");
    worker.stop().unwrap();
}

#[test]
fn queued_items_are_rarely_republished_and_never_processed_twice() {
    let cluster = Cluster::new(40, Duration::ZERO);
    let _slow = cluster.worker("slow", Duration::from_millis(10));
    cluster.eventually("all slices have owners", || cluster.all_owned());
    // The successor of each new slice asks clients for items.
    std::thread::sleep(protocol().recovery + Duration::from_secs(1));
    let resend = Duration::from_millis(50);
    let mut load = Load::with(&cluster, client::Options { resend, ..client::Options::new(7) });
    load.open_all();
    // Three seconds of work at once. A fixed interval would publish each item about 30 times.
    load.publish(300);
    load.read_all();
    load.check();
    let resent = load.client.resent();
    assert!(resent < 3000, "{resent} of 300 items");
    let mut done: Vec<_> = cluster.log.lock().unwrap().iter().map(|(id, _, _)| *id).collect();
    done.sort_unstable();
    assert_eq!(done, (0..300).collect::<Vec<_>>(), "each once");
}

#[test]
fn a_lost_worker_is_forgotten_after_a_time() {
    let cluster = Cluster::with(38, |options| {
        options.protocol.lease = SOON;
        // Longer than the test needs to see that it is lost.
        options.protocol.retire = Duration::from_secs(5);
    });
    let one = cluster.worker("one", Duration::ZERO);
    let two = cluster.worker("two", Duration::ZERO);
    cluster.eventually("all slices have owners", || cluster.all_owned());
    cluster.eventually("both are there", || {
        ["one", "two"].iter().all(|name| cluster.seen(name).is_some())
    });
    drop(one);
    cluster.eventually("it is lost", || cluster.seen("one").is_some_and(|worker| worker.lost));
    cluster.eventually("it is listed no more", || cluster.seen("one").is_none());
    assert!(cluster.seen("two").is_some_and(|worker| worker.slices > 0));
    two.leave();
    // No other worker can take its slices: it just ends.
    drop(two);
}
