use super::super::Limits;
use super::super::change::Maker;
use super::super::roster::Task;
use super::super::view::BackendState::{self, Draining, Leaving, Ready, Starting};
use super::*;

const NOW: Duration = Duration::from_secs(100);

/// A roster with a driver of this name. Process drivers have no name.
fn roster(driver: Option<&str>) -> Roster {
    let maker = Maker { name: driver.map(str::to_string), outlives: driver.is_some() };
    Roster::new("web", Limits::default(), maker)
}

/// Applies a desired state of a leader that has named nine backends.
fn desire(roster: &mut Roster, all: &[Desired], others: &[&str]) {
    let (backends, kept) = (all.to_vec(), BTreeSet::new());
    let others = others.iter().map(ToString::to_string).collect();
    roster.desire(NOW, &DesiredState { backends, kept, others, next_number: 10 });
}

fn added() -> Added {
    Added { address: ([127, 0, 0, 1], 80).into(), id: "i".to_string() }
}

/// A desired backend of the driver of this name, or of a process driver.
fn desired(number: u32, wish: Wish, is_added: bool, driver: Option<&str>) -> Desired {
    Desired {
        name: format!("web-e{number}"),
        key: format!("key-{number}"),
        size: None,
        wish,
        added: is_added.then(added),
        driver: driver.map(str::to_string),
        outlives: driver.is_some(),
        replaces: None,
    }
}

fn asked(roster: &mut Roster) -> Vec<String> {
    let text = |task: Task| match task {
        Task::Add(ask) => format!("+{} {}", ask.name, ask.key),
        Task::Remove(ask) => format!("-{}", ask.name),
    };
    roster.due(NOW).into_iter().map(text).collect()
}

fn states(roster: &Roster) -> Vec<(&str, BackendState)> {
    roster.members().into_iter().map(|(name, one)| (name.as_str(), one.state())).collect()
}

fn listed(name: &str, port: u16) -> Listed {
    let added = Added { address: ([10, 0, 0, 1], port).into(), id: format!("i-{port}") };
    Listed { name: name.to_string(), added, size: None }
}

/// Four backends of driver `a`: one being added, one that serves, one that drains, one that leaves.
fn four() -> Vec<Desired> {
    let by_a = |number, wish, is_added| desired(number, wish, is_added, Some("a"));
    let wishes = [Wish::Serve, Wish::Serve, Wish::Drain, Wish::Leave];
    (1..).zip(wishes).map(|(number, wish)| by_a(number, wish, number > 1)).collect()
}

fn adopted(has: &[Desired], listed: Option<&[Listed]>) -> Roster {
    let mut roster = roster(Some("a"));
    let listings = listed.map(|listed| (0, listed.to_vec())).into_iter().collect();
    roster.adopt(NOW, has, 7, listings);
    roster
}

const ALL_FOUR: [(&str, BackendState); 4] =
    [("web-e1", Starting), ("web-e2", Ready), ("web-e3", Draining), ("web-e4", Leaving)];

#[test]
fn a_desired_backend_is_requested_once_under_its_key() {
    let mut roster = roster(None);
    let both = [3, 4].map(|number| desired(number, Wish::Serve, false, None));
    desire(&mut roster, &both, &[]);
    assert_eq!(asked(&mut roster), ["+web-e3 key-3", "+web-e4 key-4"]);
    desire(&mut roster, &both, &[]);
    assert_eq!(asked(&mut roster), [""; 0]);
}

#[test]
fn processes_follow_the_desired_state_and_undesired_processes_are_removed() {
    let mut roster = roster(None);
    let with = |wish| [desired(1, wish, true, None), desired(2, Wish::Serve, true, None)];
    let both = [1, 2].map(|number| desired(number, Wish::Serve, false, None));
    desire(&mut roster, &both, &[]);
    asked(&mut roster);
    roster.added(NOW, "web-e1", Ok(added()));
    roster.added(NOW, "web-e2", Ok(added()));
    desire(&mut roster, &with(Wish::Drain), &[]);
    assert_eq!(states(&roster)[0].1, Draining);
    desire(&mut roster, &with(Wish::Serve), &[]);
    assert_eq!(states(&roster)[0].1, Ready);
    desire(&mut roster, &with(Wish::Leave)[..1], &[]);
    assert_eq!(asked(&mut roster), ["-web-e1", "-web-e2"]);
}

#[test]
fn a_backend_undesired_while_being_added_is_removed_once_added() {
    let mut roster = roster(None);
    desire(&mut roster, &[desired(1, Wish::Serve, false, None)], &[]);
    asked(&mut roster);
    desire(&mut roster, &[], &[]);
    roster.added(NOW, "web-e1", Ok(added()));
    assert_eq!(asked(&mut roster), ["-web-e1"]);
}

#[test]
fn a_leaders_roster_restores_script_backends_but_not_processes() {
    let mut scripts = roster(Some("a"));
    scripts.next_number = 7;
    desire(&mut scripts, &four(), &[]);
    assert_eq!(states(&scripts), ALL_FOUR);
    assert_eq!(asked(&mut scripts), ["+web-e1 key-1", "-web-e4"]);
    let as_process = |one: Desired| Desired { driver: None, outlives: false, ..one };
    let mut local = roster(None);
    local.next_number = 7;
    desire(&mut local, &four().into_iter().map(as_process).collect::<Vec<_>>(), &[]);
    assert_eq!(states(&local), []);
}

#[test]
fn a_drivers_listing_overrides_the_roster_of_an_earlier_process() {
    assert_eq!(states(&adopted(&four(), None)), ALL_FOUR);
    // The first exists although no answer came, the second is gone, and no roster names the ninth.
    let there = [
        listed("web-e1", 81),
        listed("web-e4", 84),
        listed("web-e9", 89),
        listed("db-e1", 1),
        listed("web-e01", 2),
        listed("web-e18446744073709551615", 3),
        listed("web-e4503599627370496", 4),
    ];
    let expected = [("web-e1", Ready), ("web-e4", Leaving), ("web-e9", Ready)];
    let mut kept = adopted(&four(), Some(&there));
    assert_eq!(states(&kept), expected);
    assert_eq!(kept.members["web-e1"].address(), Some(there[0].added.address));
    assert_eq!(kept.next_number, 10, "names go on after the last");
    // The same if only the leader's roster is left. Backends that it does not know are removed.
    let mut lost = adopted(&[], Some(&there));
    for roster in [&mut kept, &mut lost] {
        desire(roster, &four(), &[]);
        assert_eq!(states(roster), [expected[0], expected[1], ("web-e9", Leaving)]);
        assert_eq!(roster.members["web-e1"].key, "key-1");
    }
    assert_eq!(states(&adopted(&four(), Some(&[]))), [("web-e1", Starting)]);
}

#[test]
fn a_listing_does_not_affect_backends_of_an_unknown_driver() {
    let of_z = [desired(2, Wish::Serve, true, Some("z"))];
    let roster = adopted(&of_z, Some(&[listed("web-e5", 5)]));
    assert_eq!(states(&roster), [("web-e2", Ready), ("web-e5", Ready)]);
    assert_eq!(roster.members()[0].1.address(), Some(added().address));
    let of_a = [desired(2, Wish::Serve, true, Some("a"))];
    assert_eq!(states(&adopted(&of_a, Some(&[]))), [], "its own driver says that it is gone");
}

#[test]
fn an_expired_listing_does_not_remove_desired_backends() {
    let mut roster = adopted(&[], Some(&[]));
    let later = NOW + LISTING_AGE_MAX + Duration::from_secs(1);
    let backends = four();
    roster.desire(later, &DesiredState { backends, next_number: 10, ..DesiredState::default() });
    assert_eq!(states(&roster), ALL_FOUR);
}

#[test]
fn a_possibly_created_backend_is_removed_without_another_add() {
    let mut roster = adopted(&four(), None);
    desire(&mut roster, &[], &[]);
    let tasks = asked(&mut roster);
    assert!(tasks.contains(&"-web-e1".to_string()), "{tasks:?}");
}

#[test]
fn backends_are_removed_by_their_own_driver_and_outdated_under_another() {
    let mut roster = roster(None);
    let earlier = roster.know(Maker { name: Some("a".to_string()), outlives: true });
    roster.adopt(NOW, &four()[1..2], 7, Listings::new());
    assert!(roster.is_outdated("web-e2"));
    desire(&mut roster, &[desired(2, Wish::Leave, true, Some("a"))], &[]);
    assert_eq!((asked(&mut roster), roster.maker_of("web-e2")), (vec!["-web-e2".into()], earlier));
    // No driver here can remove the backend of an unknown one.
    desire(&mut roster, &[desired(1, Wish::Serve, true, Some("b"))], &[]);
    assert!(!roster.members.contains_key("web-e1"));
}

#[test]
fn a_backend_owned_by_another_member_is_dropped_without_removal() {
    for adds_processes in [false, true] {
        let mut roster = adopted(&four()[1..2], None);
        if adds_processes {
            roster.change_driver(Maker { name: None, outlives: false });
        }
        desire(&mut roster, &[], &["web-e2"]);
        assert_eq!(states(&roster), [], "{adds_processes}");
        assert_eq!(asked(&mut roster), [""; 0], "{adds_processes}");
    }
}

#[test]
fn an_undesired_process_is_removed_after_the_driver_changed_to_scripts() {
    let mut roster = roster(None);
    desire(&mut roster, &[desired(1, Wish::Serve, false, None)], &[]);
    asked(&mut roster);
    roster.added(NOW, "web-e1", Ok(added()));
    roster.change_driver(Maker { name: Some("a".to_string()), outlives: true });
    desire(&mut roster, &[], &[]);
    assert_eq!(asked(&mut roster), ["-web-e1"]);
}

#[test]
fn a_backend_kept_for_adoption_by_the_leader_is_not_removed() {
    for driver in [None, Some("a")] {
        let mut roster = roster(driver);
        let both = [8, 9].map(|number| desired(number, Wish::Serve, false, driver));
        desire(&mut roster, &both, &[]);
        asked(&mut roster);
        roster.added(NOW, "web-e8", Ok(added()));
        roster.added(NOW, "web-e9", Ok(added()));
        let kept = ["web-e9".to_string()].into();
        let older = DesiredState { kept, next_number: 9, ..DesiredState::default() };
        roster.desire(NOW, &older);
        assert_eq!(states(&roster), [("web-e8", Leaving), ("web-e9", Ready)]);
        assert_eq!(roster.next_number, 10, "names go on after the last");
    }
}

#[test]
fn a_never_requested_backend_is_dropped_without_removal() {
    let mut roster = roster(None);
    desire(&mut roster, &[desired(1, Wish::Serve, false, None)], &[]);
    desire(&mut roster, &[desired(1, Wish::Leave, false, None)], &[]);
    assert!(roster.members.is_empty());
}

#[test]
fn a_process_with_an_already_used_number_is_not_created_again() {
    for (known, expected) in [(2, vec![]), (1, vec![("web-e1", Starting)])] {
        let mut roster = roster(None);
        roster.next_number = known;
        desire(&mut roster, &[desired(1, Wish::Serve, false, None)], &[]);
        assert_eq!(states(&roster), expected);
    }
}
