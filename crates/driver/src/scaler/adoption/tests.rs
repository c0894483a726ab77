use std::collections::BTreeSet;

use super::*;
use crate::Backoff;
use crate::scaler::Limits;
use crate::scaler::desire::DesiredState;
use crate::scaler::roster::Task;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn roster() -> Roster {
    let retry = Backoff { first: at(1), most: at(8) };
    let limits = Limits { retry, ..Limits::default() };
    Roster::new("web", limits, "new".to_string())
}

fn added(port: u16) -> Added {
    Added { address: ([10, 0, 0, 1], port).into(), id: format!("i-{port}") }
}

fn recorded(number: u16, state: RecordedState) -> Recorded {
    let made = (state != RecordedState::Adding).then(|| added(number));
    Recorded {
        name: format!("web-e{number}"),
        size: Some("small".to_string()),
        key: format!("web-e{number}-old"),
        state,
        address: made.as_ref().map(|made| made.address),
        id: made.map(|made| made.id),
        maker: 0,
    }
}

fn record() -> Record {
    use RecordedState::{Adding, Draining, Leaving, Ready};
    let states = [Adding, Ready, Draining, Leaving];
    let backends = (1..).zip(states).map(|(number, state)| recorded(number, state)).collect();
    Record { next_number: 7, backends, ..Record::empty("web") }
}

fn listed(name: &str, port: u16) -> Listed {
    Listed { name: name.to_string(), added: added(port), size: None }
}

fn adopted(listed: Option<&[Listed]>) -> Roster {
    let mut roster = roster();
    let listings = [(0, listed.map(<[Listed]>::to_vec))].into();
    roster.adopt(at(5), &record(), &listings);
    roster
}

fn states(roster: &Roster) -> Vec<(&str, BackendState)> {
    roster.members().into_iter().map(|(name, one)| (name.as_str(), one.state())).collect()
}

#[test]
fn without_a_listing_the_record_is_believed() {
    use BackendState::{Draining, Leaving, Ready, Starting};
    let mut roster = adopted(None);
    let expected =
        [("web-e1", Starting), ("web-e2", Ready), ("web-e3", Draining), ("web-e4", Leaving)];
    assert_eq!(states(&roster), expected);
    let tasks = roster.due(at(5));
    let [Task::Remove(gone), Task::Add(again)] = &tasks[..] else {
        let [Task::Add(again), Task::Remove(gone)] = &tasks[..] else { panic!("{tasks:?}") };
        assert_eq!((again.key.as_str(), gone.id.as_deref()), ("web-e1-old", Some("i-4")));
        return;
    };
    assert_eq!((again.key.as_str(), gone.id.as_deref()), ("web-e1-old", Some("i-4")));
}

#[test]
fn what_is_listed_decides_over_what_is_recorded() {
    use BackendState::{Leaving, Ready, Starting};
    // The first was made although we never heard; the second is gone; the ninth nobody recorded.
    let there = [
        listed("web-e1", 81),
        listed("web-e4", 84),
        listed("web-e9", 89),
        listed("db-e1", 1),
        listed("web-e01", 2),
        listed("web-static", 3),
    ];
    let roster = adopted(Some(&there));
    assert_eq!(states(&roster), [("web-e1", Ready), ("web-e4", Leaving), ("web-e9", Ready)]);
    assert_eq!(roster.members["web-e1"].address(), Some(added(81).address));
    assert_eq!(roster.next_number, 10, "names go on after the last");
    let none_there = adopted(Some(&[]));
    assert_eq!(states(&none_there), [("web-e1", Starting)]);
}

#[test]
fn one_that_may_have_been_made_is_removed_by_the_driver_even_if_it_was_not_asked_again() {
    let mut roster = adopted(None);
    let (backends, kept) = (Vec::new(), BTreeSet::new());
    roster.desire(at(5), &DesiredState { backends, kept, next_number: 7, is_shared: false });
    let tasks = roster.due(at(5));
    let is_removed = |task: &Task| matches!(task, Task::Remove(ask) if ask.name == "web-e1");
    assert!(tasks.iter().any(is_removed), "{tasks:?}");
}

#[test]
fn a_record_is_gone_on_with_as_it_was_written() {
    let roster = adopted(None);
    assert_eq!(roster.record(&BTreeMap::new()), record());
}

/// Killed in the middle of a driver's change: the first two were made by the one before.
fn changing() -> Record {
    use RecordedState::{Adding, Ready};
    let states = [Ready, Ready, Ready, Adding];
    let of = |(number, state)| Recorded { maker: u32::from(number > 2), ..recorded(number, state) };
    let backends = (1..).zip(states).map(of).collect();
    Record { next_number: 5, maker: 1, backends, ..Record::empty("web") }
}

#[test]
fn a_change_of_the_driver_that_was_cut_off_is_gone_on_with() {
    let mut roster = roster();
    roster.maker = 1;
    roster.adopt(at(5), &changing(), &[(0, None), (1, None)].into());
    let outdated = ["web-e1", "web-e2", "web-e3", "web-e4"].map(|it| roster.is_outdated(it));
    assert_eq!(outdated, [true, true, false, false]);
    // The fourth is asked for again.
    let asked = roster.due(at(5));
    let [Task::Add(again)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((again.name.as_str(), roster.maker_of("web-e4")), ("web-e4", 1));
    assert_eq!(roster.maker_of("web-e1"), 0, "its own driver takes it away");
}

#[test]
fn what_died_with_its_process_is_not_there() {
    use BackendState::{Ready, Starting};
    let of = |maker: u32| {
        let mut roster = roster();
        roster.maker = 1;
        roster.adopt(at(5), &changing(), &[(maker, None)].into());
        assert_eq!(roster.next_number, 5, "no name comes twice");
        roster
    };
    assert_eq!(states(&of(0)), [("web-e1", Ready), ("web-e2", Ready)]);
    assert_eq!(states(&of(1)), [("web-e3", Ready), ("web-e4", Starting)]);
}
