//! `kill -9` of each party at each of its steps of a handover; two controllers with one store.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::load::Load;
use crate::role::stream;
use crate::stage::{Here, PATIENCE, Stage};

const WORKERS: [&str; 3] = ["one", "two", "three"];

/// Who is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Party {
    Giver,
    Taker,
    Controller,
}

fn here() -> Here {
    Here { loss_permille: 0, etcd: None }
}

fn load(domain: u32) -> Load {
    Load::start(stream(domain, "lo", 0), std::thread::spawn)
}

/// Kills `party` at each of these steps, one handover after the other. Returns how often something was executed more than
/// once.
fn kill_at(domain: u32, party: Party, steps: &[&str]) -> usize {
    let mut stage = Stage::new(domain, here(), &WORKERS);
    let load = load(domain);
    assert_eq!(stage.of("controller").ask("pin 0 two").as_deref(), Some("done"));
    for step in steps {
        let seen = stage.settled("controller", &WORKERS);
        // Not the pinned one, which is to stay where it is.
        let giver = seen.owners[1].clone();
        let taker = WORKERS.into_iter().find(|worker| *worker != giver).unwrap();
        let slices: Vec<_> = (1..seen.owners.len())
            .filter(|slice| seen.owners[*slice] == giver)
            .map(|slice| slice.to_string())
            .collect();
        let victim = match party {
            Party::Giver => giver.as_str(),
            Party::Taker => taker,
            Party::Controller => "controller",
        };
        assert_eq!(stage.of(victim).ask(&format!("arm {step}")).as_deref(), Some("armed"));
        let end = Instant::now() + PATIENCE;
        // A handover may be called off before it comes so far: as when the giver still takes what comes again.
        let mut asked = None;
        while !stage.of(victim).has_ended() {
            assert!(Instant::now() < end, "{step}: {victim} lives, {asked:?}");
            let seen = stage.seen_by("controller");
            // It may be over, too, without the victim's having come so far: what is not heard at once may be needed no more.
            if let (true, Some(owner)) = (seen.open.is_empty(), seen.owners.get(1)) {
                let to = if *owner == giver { taker } else { giver.as_str() };
                asked = stage.of("controller").ask(&format!("move {} {to}", slices.join(",")));
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
    stage.until("controller", "the pinned slice is there", |seen| seen.owners[0] == "two");
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
fn a_giver_that_is_killed_at_any_step_loses_nothing() {
    let steps = ["Received release", "Sends cut", "Sent cut", "Received active", "Sends closed"];
    kill_at(151, Party::Giver, &steps);
}

#[test]
fn a_taker_that_is_killed_at_any_step_loses_nothing() {
    let steps = [
        "Received prepare",
        "Sends ready",
        "Sent ready",
        "Received cut",
        "Sends active",
        "Sent active",
    ];
    kill_at(152, Party::Taker, &steps);
}

#[test]
fn a_controller_that_is_killed_at_any_step_is_succeeded_and_nothing_is_done_twice() {
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
    assert_eq!(kill_at(153, Party::Controller, &steps), 0, "no worker was lost");
}

#[test]
fn of_two_controllers_with_one_store_one_moves_slices_and_who_was_stopped_moves_none() {
    let folder = equipoise_testkit::Folder::new("slice-etcd");
    let Some(etcd) = equipoise_testkit::EtcdMembers::start(folder.root(), 1, "http", &[]) else {
        return;
    };
    let place = Here { etcd: Some(etcd.endpoint(0)), ..here() };
    let mut stage = Stage::new(154, place, &["one", "two"]);
    stage.start("controller", "second");
    let load = load(154);
    stage.settled("controller", &["one", "two"]);
    assert_eq!(stage.of("controller").ask("pin 0 two").as_deref(), Some("done"));
    assert!(!stage.seen_by("second").leading);
    // Who owns what follows from the load; this one is to be the first one's.
    let moved = 1;
    stage.until_moved("controller", moved, "one");
    // The leader stands still, as its machine may.
    stage.of("controller").signal(Signal::STOP);
    let seen = stage.settled("second", &["one", "two"]);
    assert_eq!(seen.pins[0], "two", "the next controller knows the pin");
    stage.until("second", "it moves slices", |seen| seen.owners[moved] == "one");
    let asked = format!("move {moved} two");
    let end = Instant::now() + PATIENCE;
    while stage.of("second").ask(&asked).as_deref() != Some("done") {
        // New slices stay for a while.
        assert!(Instant::now() < end, "it does not move");
        std::thread::sleep(Duration::from_millis(20));
    }
    stage.until("second", "it has moved", |seen| {
        seen.open.is_empty() && seen.owners[moved] == "two" && seen.owners[0] == "two"
    });
    // It goes on as if nothing had been, and is asked at once.
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
