use std::time::Duration;

use super::super::Limits;
use super::super::desire::{Desired, DesiredState, Wish};
use super::super::roster::Task;
use super::super::view::BackendState::{self, Draining, Leaving, Ready, Starting};
use super::*;
use crate::driver::Added;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn maker(name: &str) -> Maker {
    Maker { name: Some(name.to_string()), outlives: true }
}

/// Desires exactly these backends: number, wish, driver's name.
fn desire(roster: &mut Roster, now: Duration, wishes: &[(u64, Wish, &str)]) {
    let one = |(number, wish, driver): &(u64, Wish, &str)| Desired {
        name: format!("web-e{number}"),
        key: format!("web-e{number}-key"),
        size: None,
        wish: *wish,
        added: None,
        driver: Some((*driver).to_string()),
        outlives: true,
        replaces: None,
    };
    let backends = wishes.iter().map(one).collect();
    let next_number = wishes.iter().map(|(number, ..)| number + 1).max().unwrap_or(1);
    roster.desire(now, &DesiredState { backends, next_number, ..DesiredState::default() });
}

/// A roster of `count` backends of driver `a`, which has number 0.
fn roster(count: u64) -> Roster {
    let mut roster = Roster::new("web", Limits::default(), maker("a"));
    let wishes: Vec<_> = (1..=count).map(|number| (number, Wish::Serve, "a")).collect();
    desire(&mut roster, at(0), &wishes);
    roster
}

/// The due tasks, each with the number of the driver.
fn asked(roster: &mut Roster, now: Duration) -> Vec<(String, u32)> {
    let text = |task: &Task| match task {
        Task::Add(ask) => (format!("+{}", ask.name), ask.name.clone()),
        Task::Remove(ask) => (format!("-{}", ask.name), ask.name.clone()),
    };
    let due = roster.due(now);
    due.iter().map(text).map(|(what, name)| (what, roster.maker_of(&name))).collect()
}

fn add(roster: &mut Roster, now: Duration, name: &str) {
    let added = Added { address: ([127, 0, 0, 1], 80).into(), id: name.to_string() };
    roster.added(now, name, Ok(added));
}

fn states(roster: &Roster) -> Vec<(&str, BackendState)> {
    roster.members().into_iter().map(|(name, one)| (name.as_str(), one.state())).collect()
}

fn of(all: &[(&str, u32)]) -> Vec<(String, u32)> {
    all.iter().map(|(what, maker)| ((*what).to_string(), *maker)).collect()
}

#[test]
fn a_new_driver_adds_backends_and_each_driver_removes_its_own() {
    use Wish::{Drain, Leave, Serve};
    let mut roster = roster(2);
    assert_eq!(asked(&mut roster, at(0)), of(&[("+web-e1", 0), ("+web-e2", 0)]));
    add(&mut roster, at(1), "web-e1");
    add(&mut roster, at(1), "web-e2");
    roster.change_driver(maker("b"));
    assert!(roster.is_outdated("web-e1") && roster.is_outdated("web-e2"));
    assert_eq!(asked(&mut roster, at(20)), [], "nothing leaves by itself");
    let with = |first| [(1, first, "a"), (2, Serve, "a"), (3, Serve, "b"), (4, Serve, "b")];
    desire(&mut roster, at(21), &with(Serve));
    assert_eq!(asked(&mut roster, at(21)), of(&[("+web-e3", 1), ("+web-e4", 1)]));
    add(&mut roster, at(22), "web-e3");
    assert!(!roster.is_outdated("web-e3") && !roster.is_outdated("web-e4"));
    desire(&mut roster, at(31), &with(Drain));
    let expected =
        [("web-e1", Draining), ("web-e2", Ready), ("web-e3", Ready), ("web-e4", Starting)];
    assert_eq!(states(&roster), expected);
    assert!(!roster.is_outdated("web-e1"), "it leaves already");
    desire(&mut roster, at(32), &with(Leave));
    assert_eq!(asked(&mut roster, at(32)), of(&[("-web-e1", 0)]));
    roster.removed(at(33), "web-e1", Ok(()));
    assert!(roster.has_of(0), "the other is still there");
}

#[test]
fn an_earlier_driver_receives_no_further_add_requests() {
    let mut roster = roster(3);
    roster.limits.parallel = 1;
    assert_eq!(asked(&mut roster, at(0)), of(&[("+web-e1", 0)]));
    roster.change_driver(maker("b"));
    let outdated = ["web-e1", "web-e2", "web-e3"].map(|name| roster.is_outdated(name));
    assert_eq!(outdated, [true; 3]);
    add(&mut roster, at(1), "web-e1");
    assert_eq!(asked(&mut roster, at(1)), [], "the leader names others");
    assert_eq!(roster.next_at(), None);
    use Wish::{Leave, Serve};
    let all = [(1, Serve, "a"), (2, Leave, "a"), (3, Leave, "a"), (4, Serve, "b")];
    desire(&mut roster, at(2), &all);
    assert_eq!(states(&roster), [("web-e1", Ready), ("web-e4", Starting)]);
    assert_eq!(asked(&mut roster, at(2)), of(&[("+web-e4", 1)]));
}

#[test]
fn failures_of_an_earlier_driver_do_not_block_the_next_driver() {
    let mut roster = roster(1);
    asked(&mut roster, at(0));
    roster.added(at(0), "web-e1", Err("no such program".to_string()));
    assert_eq!(asked(&mut roster, at(0)), []);
    roster.change_driver(maker("b"));
    desire(&mut roster, at(0), &[(1, Wish::Leave, "a"), (2, Wish::Serve, "b")]);
    // The driver that failed removes what may be left.
    assert_eq!(asked(&mut roster, at(0)), of(&[("-web-e1", 0), ("+web-e2", 1)]));
    assert_eq!(states(&roster), [("web-e1", Leaving), ("web-e2", Starting)]);
}

#[test]
fn a_driver_that_returns_owns_its_earlier_backends_again() {
    let mut roster = roster(1);
    asked(&mut roster, at(0));
    add(&mut roster, at(1), "web-e1");
    roster.change_driver(maker("b"));
    roster.forget_makers(|_| false);
    assert_eq!(roster.change_driver(maker("a")), 0);
    assert!(!roster.is_outdated("web-e1"));
}
