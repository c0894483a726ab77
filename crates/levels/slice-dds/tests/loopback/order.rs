//! Guarantees of the stricter orders, over DDS.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use equipoise_dds::items::DataItem;
use equipoise_slice::{Order, SliceId};
use equipoise_slice_dds::worker::{Process, Program, Threads};

use crate::cluster::{Cluster, Load};

#[test]
fn in_strict_order_items_of_a_slice_are_done_in_their_order_by_whomever() {
    let cluster = Cluster::with_order(45, Duration::ZERO, Order::Strict);
    let work = Duration::from_micros(200);
    let _workers = [cluster.worker("one", work), cluster.worker("two", work)];
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    for round in 0..6 {
        // The target may begin only after the source has finished its item in hand.
        load.publish(200);
        cluster.gather(if round % 2 == 0 { "one" } else { "two" }, &mut load);
    }
    load.read_all();
    load.check();
    let mut last: BTreeMap<i32, i64> = BTreeMap::new();
    let mut changes = 0;
    let mut owners: BTreeMap<i32, String> = BTreeMap::new();
    for (id, slice, worker) in cluster.log.lock().unwrap().iter() {
        let before = last.insert(*slice, *id);
        assert!(before.is_none_or(|before| before < *id), "slice {slice}: {id} after {before:?}");
        changes += usize::from(owners.insert(*slice, worker.clone()).is_some_and(|w| w != *worker));
    }
    assert!(changes > 20, "slices hardly moved: {changes} times");
}

/// Counts the items of each slice. The count is the slice's state.
#[derive(Clone, Default)]
struct Counting(Arc<Mutex<BTreeMap<SliceId, u64>>>);

impl Process for Counting {
    fn process(&self, item: &DataItem<'_>) -> Vec<u8> {
        let slice = SliceId(item.slice_id as u32);
        *self.0.lock().unwrap().entry(slice).or_default() += 1;
        item.message.to_vec()
    }

    fn import(&self, slice: SliceId, state: Option<&[u8]>) {
        let count = state.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        let before = self.0.lock().unwrap().insert(slice, count);
        assert_eq!(before, None, "it has a state of slice {slice:?}");
    }

    fn export(&self, slice: SliceId) -> Option<Vec<u8>> {
        self.0.lock().unwrap().remove(&slice).map(|count| count.to_le_bytes().to_vec())
    }
}

#[test]
fn the_state_of_a_slice_moves_with_it() {
    let cluster = Cluster::with_order(46, Duration::ZERO, Order::Stateful);
    let counts = [Counting::default(), Counting::default()];
    let _workers = ["one", "two"]
        .into_iter()
        .zip(counts.clone())
        .map(|(name, counting)| cluster.worker_of(name, Threads::new(2, counting)));
    let _workers: Vec<_> = _workers.collect();
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    for round in 0..4 {
        load.publish(100);
        cluster.gather(if round % 2 == 0 { "one" } else { "two" }, &mut load);
    }
    load.read_all();
    load.check();
    let counted: u64 = counts.iter().map(|of| of.0.lock().unwrap().values().sum::<u64>()).sum();
    assert_eq!(counted as i64, load.next);
    assert!(counts[0].0.lock().unwrap().is_empty(), "the first gave all its states away");
}

#[test]
fn the_state_of_a_program_moves_with_its_slice() {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        println!("skipped: there is no python3");
        return;
    }
    let cluster = Cluster::with_order(47, Duration::ZERO, Order::Stateful);
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/worker.py");
    let program = || {
        let script = script.clone();
        let command = move || {
            let mut command = Command::new("python3");
            command.arg(&script);
            command
        };
        Program::start(command).unwrap()
    };
    let _workers = [cluster.worker_of("one", program()), cluster.worker_of("two", program())];
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    for round in 0..4 {
        load.publish(60);
        cluster.gather(if round % 2 == 0 { "one" } else { "two" }, &mut load);
    }
    load.read_all();
    // The answer to each item is its number among the items of its slice, in all workers.
    let mut answers: Vec<_> = load.answers.iter().map(|answer| answer.id).collect();
    answers.sort_unstable();
    assert_eq!(answers, (0..load.next).collect::<Vec<_>>());
    for answer in &load.answers {
        let nth = 1 + answer.id / i64::from(crate::cluster::SLICES);
        assert_eq!(String::from_utf8_lossy(&answer.message), format!("received {nth}"));
    }
}
