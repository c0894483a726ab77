//! Two workers of one name.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::load::Load;
use crate::role::{Times, stream};
use crate::stage::{HERE, PATIENCE, Stage};

#[test]
fn a_taken_worker_name_is_refused_until_its_holder_is_lost() {
    // The first worker is lost while it is paused, and not before.
    let times = Times { lease: Duration::from_secs(4), ..Times::SHORT };
    let mut stage = Stage::new(68, times, HERE, &["one", "two"]);
    let load = Load::start(stream(68, "lo", 0), std::thread::spawn);
    let before = stage.settled("controller", &["one", "two"]);
    let pid = stage.of("one").ask("process").unwrap();
    stage.start_as("twin", "worker", "one");
    let end = Instant::now() + PATIENCE;
    let refused = loop {
        let said = stage.of("twin").ask("how is it").unwrap();
        if said != "0" {
            break said;
        }
        assert!(Instant::now() < end, "it is not refused");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(
        refused.starts_with(&format!("another worker has the name one: pid {pid} on ")),
        "{refused}"
    );
    load.published_more(100);
    let after = stage.settled("controller", &["one", "two"]);
    assert_eq!(after.owners, before.owners, "nothing has moved");
    let done = stage.done();
    assert!(done.values().all(|count| *count == 1), "something was done twice");

    // A third one starts while the first is paused, and gets its place when its lease has expired.
    // The first ends when it continues.
    stage.of("one").signal(Signal::STOP);
    stage.start_as("third", "worker", "one");
    stage.until("controller", "the first is lost", |seen| seen.all_with(&["two"]));
    // Not before: the place belongs to the worker of the first message.
    stage.until_heard("third");
    stage.of("one").signal(Signal::CONT);
    let end = Instant::now() + PATIENCE;
    let pid = stage.of("third").ask("process").unwrap();
    loop {
        let said = stage.of("one").ask("how is it").unwrap();
        if said.starts_with(&format!("another worker has the name one: pid {pid} on ")) {
            break;
        }
        assert!(Instant::now() < end, "the first says {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
    stage.until_moved("controller", 0, "one");
    load.finish();
}

#[test]
fn a_restarted_worker_is_admitted_although_the_controller_was_paused() {
    let mut stage = Stage::new(92, Times::SHORT, HERE, &["one"]);
    stage.of("one").signal(Signal::KILL);
    stage.start("worker", "one");
    // The worker that was killed seems alive until its lease expires.
    let end = Instant::now() + PATIENCE;
    while stage.of("controller").ask("refused").as_deref() == Some("0")
        && stage.of("one").ask("fenced").as_deref() == Some("true")
    {
        assert!(Instant::now() < end, "the controller has no message from the new one");
        std::thread::sleep(Duration::from_millis(5));
    }
    stage.of("controller").signal(Signal::STOP);
    // For longer than a worker with a taken name waits.
    std::thread::sleep(Times::SHORT.lease + Duration::from_secs(3));
    stage.of("controller").signal(Signal::CONT);
    stage.until_heard("one");
    stage.settled("controller", &["one"]);
}
