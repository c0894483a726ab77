//! Waiting items move with their slice.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use equipoise_dds::items::DataItem;
use equipoise_slice::Order;
use equipoise_slice_dds::client;
use equipoise_slice_dds::worker::{Threads, Worker};

use crate::cluster::{Cluster, Load, PATIENCE, SLICES};

/// Items that wait when the slices move.
const ITEMS: usize = 10_000;

/// Blocks every thread until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let is_open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(is_open, |is_open| !*is_open).unwrap());
    }
}

/// A worker that blocks at its first item until the gate is open.
fn held_up(cluster: &Cluster, name: &str, gate: &Gate) -> Worker {
    let (log, gate, me) = (cluster.log.clone(), gate.clone(), name.to_string());
    let process = move |item: &DataItem<'_>| {
        gate.pass();
        log.lock().unwrap().push((item.id, item.slice_id, me.clone()));
        item.message.to_vec()
    };
    cluster.worker_of(name, Threads::new(1, process))
}

/// `a` blocks at one item, and all others wait. `b` joins and `a` leaves. All items but that one
/// are processed while `a` still blocks. Returns the number of items processed by then.
fn a_queue_changes_hands(domain: u32, order: Order) -> usize {
    let cluster = Cluster::with(domain, |options| {
        options.round = Duration::from_millis(200);
        options.protocol.order = order;
    });
    let gate = Gate::default();
    let a = held_up(&cluster, "a", &gate);
    cluster.eventually("all slices have owners", || cluster.all_owned());
    // No item is lost, so waiting items need not be published again.
    let options = client::Options {
        window: 2 * ITEMS,
        resend: PATIENCE,
        resend_max: PATIENCE,
        ..client::Options::new(7)
    };
    let mut load = Load::with(&cluster, options);
    load.open_all();
    load.publish(ITEMS);
    cluster.eventually("all items wait at a", || a.queued() == ITEMS as u64);
    let b = cluster.worker("b", Duration::ZERO);
    a.leave();
    let left = Instant::now();
    cluster.eventually("b has all slices", || {
        load.read(Duration::from_millis(1));
        a.slices() == 0 && b.slices() == u64::from(SLICES)
    });
    let moved = left.elapsed();
    // In strict order the items of the same slice behind the one at which `a` blocks have to wait.
    let waiting = if order.is_strict() { ITEMS / SLICES as usize } else { 1 };
    cluster.eventually("all is done that need not wait for a", || {
        load.read(Duration::from_millis(5));
        load.client.pending() <= waiting
    });
    println!("{order:?}: moved after {moved:?}, all done after {:?}", left.elapsed());
    let done = load.answers.len();
    assert_eq!(a.done(), 0, "a stands at its first item");
    gate.open();
    load.read_all();
    load.check();
    cluster.eventually("a has nothing left", || a.queued() == 0 && a.handovers() == 0);
    assert_eq!(a.done(), 1);
    let mut last: BTreeMap<i32, i64> = BTreeMap::new();
    let log = cluster.log.lock().unwrap();
    assert_eq!(log.len(), ITEMS, "each was done once");
    for (id, slice, worker) in log.iter().filter(|(.., worker)| order.is_strict() || worker == "b")
    {
        let before = last.insert(*slice, *id);
        assert!(
            before.is_none_or(|before| before < *id),
            "{slice}: {worker}: {id} after {before:?}"
        );
    }
    drop(log);
    a.stop().unwrap();
    done
}

#[test]
fn queued_items_move_to_a_joining_worker_when_their_owner_leaves() {
    assert_eq!(a_queue_changes_hands(36, Order::Free), ITEMS - 1);
}

#[test]
fn in_strict_order_moved_items_are_processed_after_the_sources_item() {
    assert_eq!(a_queue_changes_hands(37, Order::Strict), ITEMS - ITEMS / SLICES as usize);
}
