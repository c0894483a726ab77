//! `kill -9` of each process at each of its steps of a handover; two controllers with one store.

use std::time::{Duration, Instant};

use equipoise_slice::Order;
use rustix::process::Signal;

use crate::load::Load;
use crate::role::{Times, stream};
use crate::stage::{HERE, Here, PATIENCE, Seen, Stage};

const WORKERS: [&str; 3] = ["one", "two", "three"];

/// The process that is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Party {
    Source,
    Target,
    Controller,
}

fn load(domain: u32) -> Load {
    Load::start(stream(domain, "lo", 0), std::thread::spawn)
}

/// A command for a move with `victim` as `party`, in the present state: source, slices without the
/// pinned one, and target.
fn handover(seen: &Seen, party: Party, victim: &str) -> Option<String> {
    let owner = |slice: &usize| seen.owner(*slice);
    let all = || (1..seen.owners.len()).filter(|slice| WORKERS.contains(&owner(slice)));
    let source = match party {
        Party::Source => all().map(|slice| seen.owner(slice)).find(|source| *source == victim),
        Party::Target => all().map(|slice| seen.owner(slice)).find(|source| *source != victim),
        Party::Controller => None,
    };
    // If that is impossible now, it is possible after the move of these slices.
    let source = source.or_else(|| all().next().map(|slice| seen.owner(slice)))?;
    let target = match party {
        Party::Source | Party::Target if source != victim => victim,
        _ => WORKERS.into_iter().find(|worker| *worker != source)?,
    };
    let slices: Vec<_> =
        all().filter(|slice| owner(slice) == source).map(|slice| slice.to_string()).collect();
    Some(format!("move {} {target}", slices.join(",")))
}

/// Kills `party` at each of these steps, in one handover each. Returns the number of items that
/// were executed more than once.
fn kill_at(domain: u32, times: Times, order: Order, party: Party, steps: &[&str]) -> usize {
    kill_where(domain, times, Here { order, ..HERE }, party, steps)
}

fn kill_where(domain: u32, times: Times, here: Here, party: Party, steps: &[&str]) -> usize {
    let mut stage = Stage::new(domain, times, here, &WORKERS);
    let load = load(domain);
    stage.until_done("controller", "pin 0 two");
    for step in steps {
        let seen = stage.settled("controller", &WORKERS);
        let owner = seen.owner(1).to_string();
        let victim = match party {
            Party::Source => owner.as_str(),
            Party::Target => WORKERS.into_iter().find(|worker| *worker != owner).unwrap(),
            Party::Controller => "controller",
        };
        assert_eq!(stage.of(victim).ask(&format!("arm {step}")).as_deref(), Some("armed"));
        let end = Instant::now() + PATIENCE;
        // A handover may be called off earlier, for example while the source still receives
        // republished items.
        let mut asked = None;
        while !stage.of(victim).has_ended() {
            assert!(Instant::now() < end, "{step}: {victim} lives, {asked:?}");
            let seen = stage.seen_by("controller");
            // It may also have ended without this step of the victim: a message that is late may no
            // longer be needed.
            if seen.open.is_empty()
                && let Some(wanted) = handover(&seen, party, victim)
            {
                asked = stage.of("controller").ask(&wanted);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if party == Party::Controller {
            stage.start("controller", victim);
        } else {
            stage.start("worker", victim);
            stage.until_heard(victim);
        }
        load.published_more(20);
    }
    let seen = stage.settled("controller", &WORKERS);
    assert_eq!(seen.pins[0], "two", "what was pinned is pinned, whoever was lost");
    stage.until("controller", "the pinned slice is there", |seen| seen.owner(0) == "two");
    let outcome = load.finish();
    let done = stage.done();
    let never: Vec<_> = (0..outcome.published).filter(|id| !done.contains_key(id)).collect();
    assert!(never.is_empty(), "answered and never done: {never:?}");
    let most = done.values().max().copied().unwrap_or(0);
    assert!(most as usize <= 1 + steps.len(), "more often than workers were lost: {most}");
    let twice = done.values().filter(|count| **count > 1).count();
    println!("{} items, {twice} executed twice, {} again", outcome.published, outcome.resent);
    twice
}

#[test]
fn a_source_that_is_killed_at_any_step_loses_nothing() {
    let steps = ["Received release", "Sends cut", "Sent cut", "Received active", "Sends closed"];
    kill_at(91, Times::SHORT, Order::Free, Party::Source, &steps);
}

#[test]
fn a_target_that_is_killed_at_any_step_loses_nothing() {
    let steps = [
        "Received prepare",
        "Sends ready",
        "Sent ready",
        "Received cut",
        "Sends active",
        "Sent active",
    ];
    kill_at(60, Times::SHORT, Order::Free, Party::Target, &steps);
}

#[test]
fn a_controller_killed_at_any_step_is_replaced_without_repeated_items() {
    let steps = [
        "Sends prepare",
        "Sent prepare",
        "Received ready",
        "Sends release",
        "Sent release",
        "Received cut",
        "Received active",
        "Received closed",
        "Sends end",
    ];
    let twice = kill_at(61, Times::LONG, Order::Free, Party::Controller, &steps);
    assert_eq!(twice, 0, "no worker was lost");
}

/// Items arrive faster than workers process them, so waiting items move with their slice.
#[test]
fn a_source_killed_while_handing_over_queued_items_loses_no_item() {
    let queueing = Here { work_ms: 4, ..HERE };
    kill_where(98, Times::SHORT, queueing, Party::Source, &["Sends tail", "Sent tail"]);
}

#[test]
fn a_target_killed_while_receiving_queued_items_loses_no_item() {
    let queueing = Here { work_ms: 4, order: Order::Strict, ..HERE };
    kill_where(99, Times::SHORT, queueing, Party::Target, &["Received tail", "Sent active"]);
}

/// In stricter orders the target waits for the items that the source has in hand, and for the
/// state.
#[test]
fn in_strict_order_a_source_that_is_killed_after_its_cut_loses_nothing() {
    kill_at(95, Times::SHORT, Order::Strict, Party::Source, &["Sent cut"]);
}

#[test]
fn a_target_that_is_killed_before_it_has_the_state_loses_nothing() {
    kill_at(96, Times::SHORT, Order::Stateful, Party::Target, &["Received drained"]);
}

#[test]
fn a_controller_killed_while_state_moves_is_replaced_without_repeated_items() {
    let steps = ["Received cut", "Received active"];
    let twice = kill_at(97, Times::LONG, Order::Stateful, Party::Controller, &steps);
    assert_eq!(twice, 0, "no worker was lost");
}

#[test]
fn of_two_controllers_with_one_store_only_the_leader_moves_slices() {
    let folder = equipoise_testkit::Folder::new("slice-etcd");
    let Some(etcd) = equipoise_testkit::EtcdMembers::start(folder.root(), 1, "http", &[]) else {
        return;
    };
    let place = Here { etcd: Some(etcd.endpoint(0)), ..HERE };
    // No controller loses its leadership because the machine is busy.
    let times = Times { leadership: Duration::from_secs(6), ..Times::LONG };
    let mut stage = Stage::new(62, times, place, &["one", "two"]);
    stage.start("controller", "second");
    let load = load(62);
    stage.settled("controller", &["one", "two"]);
    stage.until_done("controller", "pin 0 two");
    assert!(!stage.seen_by("second").leading);
    // The load determines the owners; this slice has to belong to worker `one`.
    let moved = 1;
    stage.until_moved("controller", moved, "one");
    // The leader is paused, as its machine may be.
    stage.of("controller").signal(Signal::STOP);
    let seen = stage.settled("second", &["one", "two"]);
    assert_eq!(seen.pins[0], "two", "the next controller knows the pin");
    stage.until("second", "it knows the owner", |seen| seen.owner(moved) == "one");
    // New slices do not move for some time.
    stage.until_done("second", &format!("move {moved} two"));
    stage.until("second", "it has moved", |seen| {
        seen.open.is_empty() && seen.owner(moved) == "two" && seen.owner(0) == "two"
    });
    // It continues as if it still led, and is asked at once.
    stage.of("controller").signal(Signal::CONT);
    let answer = stage.of("controller").ask(&format!("move {moved} one")).unwrap();
    stage.until("controller", "it knows that another leads", |seen| !seen.leading);
    load.published_more(200);
    let seen = stage.settled("second", &["one", "two"]);
    assert_eq!(seen.owners[moved], "two", "it had answered: {answer}");
    let outcome = load.finish();
    let done = stage.done();
    assert_eq!(done.len() as i64, outcome.published);
    assert!(done.values().all(|count| *count == 1), "something was done twice");
}
