//! Splits and joins slices while items flow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use equipoise_slice::controller::ResizeRefused;
use equipoise_slice::{Order, SliceId};
use equipoise_slices::AskError;

use crate::cluster::{Cluster, Load, PATIENCE, SLICES};

/// Publishes some items of this many slices.
fn publish(load: &mut Load, slices: u32) {
    for _ in 0..5 {
        if load.client.pending() < 300 {
            let slice = SliceId(load.next as u32 % slices);
            load.client.publish(slice, load.next, &load.next.to_le_bytes()).unwrap();
            load.next += 1;
        }
    }
    load.read(Duration::from_millis(2));
}

/// Resizes the stream while items of `published` slices flow. Returns how long that took.
fn resize(cluster: &Cluster, load: &mut Load, slices: u32, published: u32) -> Duration {
    let begun = Instant::now();
    cluster.runtime.block_on(cluster.controller.resize(slices)).unwrap();
    loop {
        let status = cluster.controller.status();
        if status.resizing.is_none() && status.slices.len() == slices as usize {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{:#?}", status.resizing);
        publish(load, published);
    }
    let took = begun.elapsed();
    for _ in 0..100 {
        publish(load, published);
    }
    took
}

fn owners(cluster: &Cluster) -> Vec<String> {
    let slices = cluster.controller.status().slices;
    slices.into_iter().map(|slice| slice.owner.unwrap_or_default()).collect()
}

#[test]
fn slices_are_split_and_joined_while_items_flow() {
    let cluster = Cluster::with_order(36, Duration::ZERO, Order::Strict);
    let work = Duration::from_micros(200);
    let workers = [cluster.worker("one", work), cluster.worker("two", work)];
    cluster.share("one", "two");
    let mut load = Load::new(&cluster);
    load.open_all();
    (0..50).for_each(|_| publish(&mut load, SLICES));
    let refused = cluster.runtime.block_on(cluster.controller.resize(30)).unwrap_err();
    let expected = ResizeRefused::NoStep { has: SLICES, wanted: 30 };
    assert!(matches!(refused, AskError::Size(why) if why == expected), "{refused}");

    let (before, moved) = (owners(&cluster), cluster.controller.status().handovers_done);
    let doubled = resize(&cluster, &mut load, 2 * SLICES, SLICES);
    assert_eq!(owners(&cluster), [before.clone(), before].concat(), "every half has its owner");
    assert_eq!(cluster.controller.status().handovers_done, moved, "nothing was moved");
    // Publishers may use the new numbers now, and each half can move without the other.
    (0..50).for_each(|_| publish(&mut load, 2 * SLICES));
    let halves: Vec<_> =
        (SLICES..2 * SLICES).step_by(2).map(SliceId).filter(|it| it.0 % 4 == 0).collect();
    let asked = cluster.controller.move_slices(halves.clone(), "two");
    cluster.runtime.block_on(asked).unwrap();
    let end = Instant::now() + PATIENCE;
    while halves.iter().any(|half| cluster.owner(half.0).as_deref() != Some("two")) {
        assert!(Instant::now() < end, "{:#?}", cluster.controller.status().handovers);
        publish(&mut load, 2 * SLICES);
    }

    let halved = resize(&cluster, &mut load, SLICES, 2 * SLICES);
    let quartered = resize(&cluster, &mut load, SLICES / 2, 2 * SLICES);
    println!("doubled after {doubled:?}, halved after {halved:?} and {quartered:?}");
    load.read_all();
    load.check();
    let (mut last, mut done) = (BTreeMap::new(), BTreeSet::new());
    for (id, slice, worker) in cluster.log.lock().unwrap().iter() {
        assert!(done.insert(*id), "{id} was done twice, by {worker} the second time");
        let before = last.insert(*slice, *id);
        assert!(before.is_none_or(|before| before < *id), "slice {slice}: {id} after {before:?}");
    }
    for worker in workers {
        worker.stop().unwrap();
    }
}
