use proptest::prelude::*;

use super::*;
use crate::Backoff;
use crate::scaler::desire::{Desired, Wish};

const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits {
        parallel: 3,
        drain_timeout: 30 * SECOND,
        retry: Backoff { first: SECOND, most: 8 * SECOND },
    }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn roster() -> Roster {
    Roster::new("web", limits(), Maker { name: None, outlives: true })
}

/// Wants `count` more backends of a size. Returns their names.
fn out(roster: &mut Roster, now: Duration, size: Option<&str>, count: u32) -> Vec<String> {
    let one = |_| {
        let (number, phase) = (roster.next_number, Phase::Wanted { not_before: now });
        let (name, size) = (format!("web-e{number}"), size.map(str::to_string));
        let member = Member::new(number, size, format!("key-{number}"), phase);
        roster.members.insert(name.clone(), member);
        roster.next_number += 1;
        name
    };
    (0..count).map(one).collect()
}

fn wish(roster: &mut Roster, now: Duration, name: &str, wish: Wish) {
    let (name, key) = (name.to_string(), format!("key-{}", &name[5..]));
    let (size, added, driver, replaces) = (None, None, None, None);
    roster.heed(now, &Desired { name, key, size, wish, added, driver, outlives: true, replaces });
}

/// Acts as the leader: a backend that serves drains first.
fn leave(roster: &mut Roster, now: Duration, names: &[&str]) {
    for name in names {
        let serves = state(roster, name) == Some(BackendState::Ready);
        wish(roster, now, name, if serves { Wish::Drain } else { Wish::Leave });
    }
}

fn made(port: u16) -> Added {
    Added { address: SocketAddr::from(([127, 0, 0, 1], port)), id: format!("id-{port}") }
}

/// The due tasks, as `+name` and `-name`.
fn due(roster: &mut Roster, now: Duration) -> Vec<String> {
    let text = |task: Task| match task {
        Task::Add(ask) => format!("+{}", ask.name),
        Task::Remove(ask) => format!("-{}", ask.name),
    };
    roster.due(now).into_iter().map(text).collect()
}

fn states(roster: &Roster) -> Vec<(String, BackendState)> {
    let members = roster.members();
    members.into_iter().map(|(name, one)| (name.clone(), one.state())).collect()
}

fn state(roster: &Roster, name: &str) -> Option<BackendState> {
    roster.members.get(name).map(Member::state)
}

/// A pool with `count` ready backends at second 0.
fn serving(count: u32) -> Roster {
    let mut roster = roster();
    out(&mut roster, at(0), None, count);
    while let Some(task) = {
        let tasks = roster.due(at(0));
        (!tasks.is_empty()).then_some(tasks)
    } {
        for one in task {
            let Task::Add(ask) = one else { panic!("nothing is removed") };
            roster.added(at(0), &ask.name, Ok(made(80)));
        }
    }
    roster
}

#[test]
fn a_new_backend_is_listed_as_starting_and_ready_once_added() {
    let mut roster = roster();
    assert_eq!(out(&mut roster, at(0), Some("small"), 2), ["web-e1", "web-e2"]);
    assert_eq!(state(&roster, "web-e1"), Some(BackendState::Starting));
    assert_eq!(due(&mut roster, at(0)), ["+web-e1", "+web-e2"]);
    assert_eq!(due(&mut roster, at(9)), [""; 0], "each is asked for once");
    roster.added(at(9), "web-e2", Ok(made(82)));
    let expected =
        [("web-e1".into(), BackendState::Starting), ("web-e2".into(), BackendState::Ready)];
    assert_eq!(states(&roster), expected);
}

#[test]
fn a_draining_backend_leaves_on_the_leaders_wish_or_after_timeout() {
    let mut roster = serving(2);
    leave(&mut roster, at(1), &["web-e1", "web-e2", "web-e9"]);
    assert_eq!(state(&roster, "web-e1"), Some(BackendState::Draining));
    assert_eq!(due(&mut roster, at(1)), [""; 0]);
    assert_eq!(roster.next_at(), Some(at(31)));
    wish(&mut roster, at(5), "web-e2", Wish::Leave);
    assert_eq!(state(&roster, "web-e2"), Some(BackendState::Leaving));
    assert_eq!(due(&mut roster, at(5)), ["-web-e2"]);
    assert_eq!(due(&mut roster, at(30)), [""; 0]);
    assert_eq!(due(&mut roster, at(31)), ["-web-e1"]);
    roster.removed(at(31), "web-e1", Ok(()));
    roster.removed(at(31), "web-e2", Ok(()));
    assert!(roster.members.is_empty());
}

#[test]
fn failures_to_add_wait_longer_each_time_and_do_not_hold_up_another_size() {
    let mut roster = roster();
    out(&mut roster, at(0), Some("large"), 2);
    assert_eq!(due(&mut roster, at(0)), ["+web-e1", "+web-e2"]);
    for name in ["web-e1", "web-e2"] {
        roster.added(at(0), name, Err("out of stock".to_string()));
    }
    assert_eq!(state(&roster, "web-e1"), Some(BackendState::Failed));
    assert!(roster.members["web-e1"].problem().unwrap().contains("out of stock"));
    out(&mut roster, at(0), Some("small"), 1);
    assert_eq!(due(&mut roster, at(0)), ["+web-e3"], "the other size goes on");
    roster.added(at(0), "web-e3", Ok(made(83)));
    // After two failures of the size the wait is two seconds, and then there is one attempt at a
    // time.
    assert_eq!(roster.next_at(), Some(at(2)));
    assert_eq!(due(&mut roster, at(1)), [""; 0]);
    assert_eq!(due(&mut roster, at(2)), ["+web-e1"]);
    roster.added(at(2), "web-e1", Err("out of stock".to_string()));
    assert_eq!(due(&mut roster, at(5)), [""; 0]);
    assert_eq!(due(&mut roster, at(6)), ["+web-e2"], "the one that failed less often");
    roster.added(at(6), "web-e2", Ok(made(82)));
    assert_eq!(due(&mut roster, at(6)), ["+web-e1"], "a success opens the gate");
    assert_eq!(roster.members["web-e1"].key, "key-1", "the key is the same for every try");
}

#[test]
fn the_number_of_parallel_adds_is_limited() {
    let mut roster = roster();
    out(&mut roster, at(0), None, 5);
    assert_eq!(due(&mut roster, at(0)).len(), 3);
    assert_eq!(roster.next_at(), None, "an outcome is waited for, not a time");
    roster.added(at(0), "web-e2", Ok(made(82)));
    assert_eq!(due(&mut roster, at(0)), ["+web-e4"]);
}

#[test]
fn a_failed_removal_is_retried_with_backoff() {
    let mut roster = serving(1);
    leave(&mut roster, at(0), &["web-e1"]);
    wish(&mut roster, at(0), "web-e1", Wish::Leave);
    for (now, next) in [(0, 1), (1, 3), (3, 7), (7, 15), (15, 23)] {
        assert_eq!(due(&mut roster, at(now)), ["-web-e1"]);
        roster.removed(at(now), "web-e1", Err("no permission".to_string()));
        assert_eq!(roster.next_at(), Some(at(next)));
    }
    assert!(roster.members["web-e1"].problem().unwrap().contains("no permission"));
}

#[test]
fn a_backend_unwanted_while_being_added_is_removed_after_the_attempt() {
    for outcome in [Ok(made(80)), Err("half made".to_string())] {
        let mut roster = roster();
        out(&mut roster, at(0), None, 1);
        due(&mut roster, at(0));
        leave(&mut roster, at(1), &["web-e1"]);
        assert_eq!(state(&roster, "web-e1"), Some(BackendState::Leaving));
        assert_eq!(due(&mut roster, at(1)), [""; 0]);
        roster.added(at(2), "web-e1", outcome);
        assert_eq!(due(&mut roster, at(2)), ["-web-e1"], "something may have been left of it");
    }
}

#[test]
fn a_failed_backend_is_removed_by_the_driver_without_a_drain() {
    let mut roster = roster();
    out(&mut roster, at(0), None, 1);
    due(&mut roster, at(0));
    roster.added(at(0), "web-e1", Err("timed out".to_string()));
    leave(&mut roster, at(0), &["web-e1"]);
    assert_eq!(due(&mut roster, at(0)), ["-web-e1"]);
}

#[test]
fn driver_events_update_the_state_of_a_backend() {
    let mut roster = serving(1);
    let name = || "web-e1".to_string();
    let reason = "exit code 1".to_string();
    roster.noticed(&Event::Down { name: name(), reason, again_in: SECOND, is_loop: true });
    assert_eq!(state(&roster, "web-e1"), Some(BackendState::Failed));
    let problem = roster.members["web-e1"].problem().cloned().unwrap();
    assert!(problem.contains("repeatedly: exit code 1"), "{problem}");
    roster.noticed(&Event::Up { name: name(), id: "77".to_string() });
    assert_eq!(state(&roster, "web-e1"), Some(BackendState::Ready));
    assert_eq!(roster.members["web-e1"].id().unwrap(), "77");
    // A draining backend continues to drain, up or down.
    leave(&mut roster, at(0), &["web-e1"]);
    let reason = String::new();
    roster.noticed(&Event::Down { name: name(), reason, again_in: SECOND, is_loop: false });
    assert_eq!(state(&roster, "web-e1"), Some(BackendState::Draining));
}

/// Applies the event of a column of the table below.
fn happen(roster: &mut Roster, it: &str, column: usize) {
    let name = it.to_string();
    match column {
        0 => roster.added(at(0), it, Ok(made(80))),
        1 => roster.added(at(0), it, Err("no".to_string())),
        2 => roster.removed(at(0), it, Ok(())),
        3 => roster.removed(at(0), it, Err("no".to_string())),
        4 => {
            let (reason, again_in, is_loop) = (String::new(), SECOND, false);
            roster.noticed(&Event::Down { name, reason, again_in, is_loop });
        }
        5 => roster.noticed(&Event::Up { name, id: "1".to_string() }),
        6 => wish(roster, at(0), it, Wish::Leave),
        7 => wish(roster, at(0), it, Wish::Drain),
        _ => wish(roster, at(0), it, Wish::Serve),
    }
}

#[test]
fn every_event_in_every_phase_yields_the_state_in_the_table() {
    use BackendState::{Draining, Failed, Leaving, Ready, Starting};
    let phases = [
        ("wanted", Phase::Wanted { not_before: at(0) }),
        ("adding", Phase::Adding { is_unwanted: false }),
        ("unwanted-adding", Phase::Adding { is_unwanted: true }),
        ("ready", Phase::Ready),
        ("broken", Phase::Broken),
        ("draining", Phase::Draining { until: at(9) }),
        ("unwanted", Phase::Unwanted { not_before: at(0) }),
        ("removing", Phase::Removing),
    ];
    // Columns: added, not added, removed, not removed, down, up, Leave, Drain, Serve. `None`:
    // removed.
    let all = |state: BackendState| [Some(state); 9];
    // A row in which only these columns differ from the phase's own state.
    let but = |state: BackendState, others: &[(usize, Option<BackendState>)]| {
        let mut row = all(state);
        others.iter().for_each(|(column, other)| row[*column] = *other);
        row
    };
    let s = Some;
    let table: [[Option<BackendState>; 9]; 8] = [
        but(Starting, &[(6, s(Leaving))]),
        but(Starting, &[(0, s(Ready)), (1, s(Failed)), (6, s(Leaving))]),
        all(Leaving),
        but(Ready, &[(4, s(Failed)), (6, s(Leaving)), (7, s(Draining))]),
        but(Failed, &[(5, s(Ready)), (6, s(Leaving))]),
        but(Draining, &[(6, s(Leaving)), (8, s(Ready))]),
        all(Leaving),
        but(Leaving, &[(2, None)]),
    ];
    for ((name, phase), row) in phases.into_iter().zip(table) {
        for (column, expected) in row.into_iter().enumerate() {
            let mut roster = serving(1);
            let it = "web-e1";
            roster.member(it).phase = phase.clone();
            happen(&mut roster, it, column);
            assert_eq!(state(&roster, it), expected, "phase {name}, column {column}");
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Out(u8, u8),
    Wish(u8, Wish),
    Finish(u8, bool),
    Crash(u8),
    Wait(u8),
}

fn act() -> impl Strategy<Value = Act> {
    let wish = prop_oneof![Just(Wish::Serve), Just(Wish::Drain), Just(Wish::Leave)];
    prop_oneof![
        (0..3u8, 1..4u8).prop_map(|(size, count)| Act::Out(size, count)),
        (any::<u8>(), wish).prop_map(|(which, wish)| Act::Wish(which, wish)),
        (any::<u8>(), any::<bool>()).prop_map(|(which, fine)| Act::Finish(which, fine)),
        any::<u8>().prop_map(Act::Crash),
        (0..20u8).prop_map(Act::Wait),
    ]
}

proptest! {
    /// In every sequence of events: a backend has at most one task at a time, no name repeats, and
    /// in the end all backends can be removed.
    #[test]
    fn roster_invariants_hold_in_every_sequence_of_events(acts in proptest::collection::vec(act(), 1..120)) {
        let (mut roster, mut now) = (roster(), at(0));
        let mut asked: Vec<Task> = Vec::new();
        let mut names = std::collections::BTreeSet::new();
        let finish = |roster: &mut Roster, now, task: Task, fine: bool| match task {
            Task::Add(ask) => {
                let outcome = if fine { Ok(made(80)) } else { Err("no".to_string()) };
                roster.added(now, &ask.name, outcome);
            }
            Task::Remove(ask) => {
                let outcome = if fine { Ok(()) } else { Err("no".to_string()) };
                roster.removed(now, &ask.name, outcome);
            }
        };
        for act in acts {
            let all: Vec<String> = roster.members.keys().cloned().collect();
            let pick = |which: u8| all.get(which as usize % all.len().max(1)).cloned();
            match act {
                Act::Out(size, count) => {
                    let size = [None, Some("small"), Some("large")][size as usize];
                    for name in out(&mut roster, now, size, u32::from(count)) {
                        prop_assert!(names.insert(name));
                    }
                }
                Act::Wish(which, it) => if let Some(name) = pick(which) {
                    wish(&mut roster, now, &name, it);
                },
                Act::Finish(which, fine) => if !asked.is_empty() {
                    let task = asked.swap_remove(which as usize % asked.len());
                    finish(&mut roster, now, task, fine);
                },
                Act::Crash(which) => if let Some(name) = pick(which) {
                    let (reason, again_in) = (String::new(), SECOND);
                    roster.noticed(&Event::Down { name, reason, again_in, is_loop: false });
                },
                Act::Wait(seconds) => now += at(u64::from(seconds)),
            }
            asked.extend(roster.due(now));
            let mut about: Vec<&str> = asked.iter().map(|task| match task {
                Task::Add(ask) | Task::Remove(ask) => ask.name.as_str(),
            }).collect();
            let count = about.len();
            about.sort_unstable();
            about.dedup();
            prop_assert_eq!(about.len(), count, "asked twice about one");
            prop_assert!(about.iter().all(|name| roster.members.contains_key(*name)));
        }
        roster.remove_all(now, |_| true);
        for _ in 0..200 {
            now += at(10);
            asked.extend(roster.due(now));
            for task in std::mem::take(&mut asked) {
                finish(&mut roster, now, task, true);
            }
        }
        prop_assert!(roster.members.is_empty(), "{:?}", roster.members);
    }
}
