//! Clients and workers that are paused for longer than DDS waits for them, and continue.

use std::ops::Range;
use std::time::{Duration, Instant};

use equipoise_slice::SliceId;
use equipoise_slice_dds::client::{Client, Options};
use rustix::process::Signal;

use crate::role::{SLICES, Times, stream};
use crate::stage::{HERE, Here, PATIENCE, Stage};

/// The DDS lease of participants in these tests, with a margin.
const LOST: Duration = Duration::from_millis(1300);

/// Checks that every item was processed. Returns how many were processed more than once.
fn twice(stage: &Stage<Here>, published: i64) -> usize {
    let done = stage.done();
    let never: Vec<_> = (0..published).filter(|id| !done.contains_key(id)).collect();
    assert!(never.is_empty(), "answered and never done: {never:?}");
    done.values().filter(|count| **count > 1).count()
}

#[test]
fn a_paused_client_receives_every_reply_and_no_item_is_repeated() {
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

/// Its lease is longer than the pause, so it keeps its slices. DDS waits for it for less.
#[test]
fn a_worker_processes_items_that_were_published_while_it_was_paused() {
    let mut stage = Stage::new(65, Times::LONG, HERE, &["one", "two"]);
    stage.start("client", "client");
    let published = |stage: &mut Stage<Here>| -> i64 {
        stage.of("client").ask("published").unwrap().parse().unwrap()
    };
    let mut pauses = Vec::new();
    for _ in 0..2 {
        assert_eq!(stage.of("client").ask("more").as_deref(), Some("published"));
        stage.of("one").signal(Signal::STOP);
        let first = published(&mut stage);
        assert_eq!(stage.of("client").ask("more").as_deref(), Some("published"));
        std::thread::sleep(LOST);
        pauses.push(first..published(&mut stage));
        stage.of("one").signal(Signal::CONT);
    }
    let published = stage.of("client").ask("finish").expect("each item has a reply");
    twice(&stage, published.parse().unwrap());
    let done = stage.done_by("one");
    for pause in pauses {
        let of_pause = done.iter().filter(|id| pause.contains(*id)).count();
        assert!(of_pause > 0, "it processed none of the items {pause:?}");
    }
}

/// Publishes items and reads their replies. Returns the time of each reply.
fn with_replies_of(client: &mut Client, bytes: usize, ids: Range<i64>) -> Vec<Duration> {
    let message = vec![7; bytes];
    for id in ids {
        client.publish(SliceId(id as u32 % SLICES), id, &message).unwrap();
    }
    let (mut answers, end) = (Vec::new(), Instant::now() + PATIENCE);
    while client.pending() > 0 {
        assert!(Instant::now() < end, "{} items have no reply", client.pending());
        client.replies(Duration::from_millis(50), &mut answers).unwrap();
    }
    assert!(answers.iter().all(|answer| answer.message == message));
    answers.iter().map(|answer| answer.delay).collect()
}

/// The same with replies that exceed the limit of DDS for a reader that accepts nothing.
fn with_large_replies(client: &mut Client, first: i64) -> Vec<Duration> {
    with_replies_of(client, 20_000, first..first + 300)
}

/// A client in this process.
fn other(domain: u32) -> Client {
    // It never publishes an item again.
    let options = Options { resend: 2 * PATIENCE, resend_max: 2 * PATIENCE, ..Options::new(9) };
    let mut other = Client::join(&stream(domain, "lo", 0), options).unwrap();
    for slice in 0..SLICES {
        other.open(SliceId(slice), PATIENCE).unwrap();
    }
    other
}

/// A DDS lease that does not expire during the test.
const LONG: (&str, fn() -> String) = ("LEASE_S", || (10 * PATIENCE.as_secs()).to_string());

#[test]
fn a_paused_client_does_not_block_replies_to_other_clients() {
    let mut stage = Stage::new(66, Times::LONG, HERE, &["one"]);
    stage.start_with("client", "client", "client", &[(LONG.0, LONG.1())]);
    assert_eq!(stage.of("client").ask("more").as_deref(), Some("published"));
    let mut other = other(66);
    let usual = with_large_replies(&mut other, 2_000_000).into_iter().max();
    stage.of("client").signal(Signal::STOP);
    let first = 1_000_000;
    let longest = with_large_replies(&mut other, first).into_iter().max();
    println!("replies took {longest:?} at most beside one that takes none, {usual:?} before");
    stage.of("client").signal(Signal::CONT);
    let published = stage.of("client").ask("finish").expect("each item has a reply");
    assert_eq!(twice(&stage, published.parse().unwrap()), 0, "the worker was never lost");
    let done = stage.done();
    assert!((first..first + 300).all(|id| done.get(&id) == Some(&1)));
}

#[test]
fn a_paused_reader_receives_all_replies_after_it_continues() {
    let mut stage = Stage::new(94, Times::LONG, HERE, &["one"]);
    stage.start_with("reader", "reader", "reader", &[(LONG.0, LONG.1())]);
    let mut other = other(94);
    let (mut met, end) = (0, Instant::now() + PATIENCE);
    while stage.of("reader").ask("above 0").as_deref() == Some("0") {
        assert!(Instant::now() < end, "it receives no replies");
        met += 1;
        with_replies_of(&mut other, 100, met..met + 1);
    }
    stage.of("reader").signal(Signal::STOP);
    for round in 1..4 {
        with_large_replies(&mut other, 1000 * round);
    }
    stage.of("reader").signal(Signal::CONT);
    let end = Instant::now() + PATIENCE;
    while stage.of("reader").ask("above 1000").as_deref() != Some("900") {
        assert!(Instant::now() < end, "{:?} of 900", stage.of("reader").ask("above 1000"));
        std::thread::sleep(Duration::from_millis(20));
    }
}
