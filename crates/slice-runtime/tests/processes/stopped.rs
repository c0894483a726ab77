//! Clients and workers that stand still, for longer than DDS waits for them, and go on.

use std::time::{Duration, Instant};

use equipoise_slice::SliceId;
use equipoise_slice_runtime::client::{Client, Options};
use rustix::process::Signal;

use crate::role::{SLICES, Times, stream};
use crate::stage::{Here, PATIENCE, Stage};

const HERE: Here = Here { loss_permille: 0, etcd: None };
/// As participants of these tests say, and a moment.
const LOST: Duration = Duration::from_millis(1300);

/// Every item was done; how many more than once.
fn twice(stage: &Stage<Here>, published: i64) -> usize {
    let done = stage.done();
    let never: Vec<_> = (0..published).filter(|id| !done.contains_key(id)).collect();
    assert!(never.is_empty(), "answered and never done: {never:?}");
    done.values().filter(|count| **count > 1).count()
}

#[test]
fn a_client_that_stood_still_has_a_reply_to_each_item_and_none_was_done_twice() {
    let mut stage = Stage::new(64, Times::LONG, HERE, &["one"]);
    stage.start("client", "client");
    for _ in 0..3 {
        assert_eq!(stage.of("client").ask("more").as_deref(), Some("published"));
        stage.of("client").signal(Signal::STOP);
        std::thread::sleep(LOST);
        stage.of("client").signal(Signal::CONT);
    }
    let published = stage.of("client").ask("finish").expect("each item has a reply");
    assert_eq!(twice(&stage, published.parse().unwrap()), 0, "the worker was never lost");
}

#[test]
fn a_worker_that_stood_still_does_what_was_published_meanwhile() {
    let mut stage = Stage::new(65, Times::SHORT, HERE, &["one", "two"]);
    stage.start("client", "client");
    for _ in 0..2 {
        assert_eq!(stage.of("client").ask("more").as_deref(), Some("published"));
        stage.of("one").signal(Signal::STOP);
        // Its slices stay its own for half a second longer.
        std::thread::sleep(LOST);
        stage.of("one").signal(Signal::CONT);
    }
    let published = stage.of("client").ask("finish").expect("each item has a reply");
    twice(&stage, published.parse().unwrap());
}

#[test]
fn a_client_that_stands_still_costs_no_other_its_replies() {
    let mut stage = Stage::new(66, Times::LONG, HERE, &["one"]);
    stage.start("client", "client");
    assert_eq!(stage.of("client").ask("more").as_deref(), Some("published"));
    let mut other = Client::join(&stream(66, "lo", 0), Options::new(9)).unwrap();
    for slice in 0..SLICES {
        other.open(SliceId(slice), PATIENCE).unwrap();
    }
    stage.of("client").signal(Signal::STOP);
    // Much more than DDS keeps for one that takes nothing.
    let message = vec![7; 20_000];
    let first = 1_000_000;
    for id in first..first + 300 {
        other.publish(SliceId(id as u32 % SLICES), id, &message).unwrap();
    }
    let (mut answers, end) = (Vec::new(), Instant::now() + PATIENCE);
    while other.pending() > 0 {
        assert!(Instant::now() < end, "{} items have no reply", other.pending());
        other.replies(Duration::from_millis(50), &mut answers).unwrap();
    }
    assert!(answers.iter().all(|answer| answer.message == message));
    stage.of("client").signal(Signal::CONT);
    let published = stage.of("client").ask("finish").expect("each item has a reply");
    assert_eq!(twice(&stage, published.parse().unwrap()), 0, "the worker was never lost");
    let done = stage.done();
    assert!((first..first + 300).all(|id| done.get(&id) == Some(&1)));
}
