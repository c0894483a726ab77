use std::ops::RangeInclusive;

use equipoise_planner::NameSpec;
use equipoise_planner::elastic::Elasticity;

use super::*;
use crate::SizeWish;
use equipoise_planner::elastic::Mode;

fn second(at: u64) -> Duration {
    Duration::from_secs(at)
}

fn report(cpu: f64) -> NodeReport {
    let load = Some(Reported { cpu, memory: 20.0, net: None });
    NodeReport { version: "0.1.0".into(), capacity: 2.0, load, ..NodeReport::default() }
}

fn roll() -> Roll {
    Roll::new(Smoothing::default(), 2, Duration::ZERO)
}

/// No other controller.
fn alone() -> Witnesses {
    Witnesses::default()
}

/// The node reports in each of these seconds, and the controller listens.
fn hears(roll: &mut Roll, node: &str, seconds: RangeInclusive<u64>) {
    for at in seconds {
        roll.take(second(at), node, report(10.0)).unwrap();
        roll.hear_of(second(at), &alone());
    }
}

fn enrolled(roll: &Roll, at: u64) -> Vec<String> {
    roll.enrolled(second(at), &BTreeMap::new(), second(600), &alone()).into_keys().collect()
}

#[test]
fn whoever_reports_is_a_member_until_it_was_silent_for_long() {
    let mut roll = roll();
    roll.take(second(1), "a", report(10.0)).unwrap();
    roll.take(second(500), "b", report(10.0)).unwrap();
    assert_eq!(enrolled(&roll, 500), ["a", "b"]);
    // Silence that falls on all at once is no evidence.
    assert!(roll.forget_silent(second(650), second(600), &alone()).is_empty());
    hears(&mut roll, "b", 640..=650);
    assert_eq!(roll.forget_silent(second(650), second(600), &alone()), ["a"]);
    assert_eq!(enrolled(&roll, 650), ["b"]);
    assert!(roll.load("a").is_none());
}

#[test]
fn a_liar_is_refused_counted_and_not_late() {
    let mut roll = roll();
    roll.take(second(1), "a", report(10.0)).unwrap();
    for (at, cpu) in [(2, f64::NAN), (3, -1.0), (4, 1e9)] {
        let refused = roll.take(second(at), "a", report(cpu)).unwrap_err();
        assert_eq!(refused.fault, Fault::Load);
    }
    assert_eq!(roll.members()["a"].refused, 3);
    assert_eq!(roll.refused().find(|(fault, _)| *fault == Fault::Load).unwrap().1, 3);
    assert_eq!(roll.history().missed_beats("a", second(5)), 0.0);
    let load = roll.load("a").unwrap();
    assert_eq!(load.coming().cpu, 10.0, "nothing of it is used");
}

#[test]
fn nobody_joins_by_lying_and_members_have_a_limit() {
    let mut roll = roll();
    assert!(roll.take(second(1), "liar", report(-1.0)).is_err());
    assert_eq!(roll.take(second(1), "", report(1.0)).unwrap_err().fault, Fault::Node);
    roll.take(second(1), "a", report(1.0)).unwrap();
    roll.take(second(1), "b", report(1.0)).unwrap();
    let refused = roll.take(second(1), "c", report(1.0)).unwrap_err();
    assert_eq!(refused.fault, Fault::TooManyMembers);
    assert_eq!(enrolled(&roll, 1), ["a", "b"]);
    roll.take(second(2), "a", report(2.0)).unwrap();
}

#[test]
fn a_node_whose_application_is_dead_is_unhealthy() {
    let mut roll = roll();
    roll.take(second(1), "a", NodeReport { application_down: true, ..report(1.0) }).unwrap();
    roll.take(second(1), "b", NodeReport { dispatches: true, ..report(90.0) }).unwrap();
    let enrolled = roll.enrolled(second(1), &BTreeMap::new(), second(600), &alone());
    let inventory = roll.inventory(&Premises::default(), &enrolled, &Wishes::default()).unwrap();
    let health: Vec<Health> = inventory.nodes().values().map(|node| node.health).collect();
    assert_eq!(health, [Health::Unhealthy, Health::Unknown]);
}

#[test]
fn a_report_without_load_is_a_sign_of_life() {
    let mut roll = roll();
    roll.take(second(9), "a", NodeReport { load: None, ..report(0.0) }).unwrap();
    assert_eq!(roll.history().missed_beats("a", second(10)), 0.0);
    assert!(roll.load("a").is_none());
}

#[test]
fn members_of_the_plan_before_stay_until_they_had_time_to_report() {
    let mut first = roll();
    first.take(second(1), "a", report(10.0)).unwrap();
    let before = first.enrolled(second(1), &BTreeMap::new(), second(600), &alone());
    let mut next = roll();
    assert_eq!(next.enrolled(second(1), &before, second(600), &alone()), before);
    assert_eq!(next.enrolled(second(601), &before, second(600), &alone()), before, "none is heard");
    hears(&mut next, "b", 601..=611);
    let others = next.enrolled(second(611), &before, second(600), &alone());
    assert_eq!(others.into_keys().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn agents_are_machines_and_no_nodes() {
    let mut roll = roll();
    roll.take(second(1), "a", report(10.0)).unwrap();
    roll.take(second(1), "b", NodeReport { kind: NodeKind::Agent, ..report(10.0) }).unwrap();
    let members = roll.enrolled(second(1), &BTreeMap::new(), second(600), &alone());
    let inventory = roll.inventory(&Premises::default(), &members, &Wishes::default()).unwrap();
    assert_eq!(inventory.nodes().keys().collect::<Vec<_>>(), ["a"]);
    assert!(roll.load("b").is_some());
}

#[test]
fn a_names_node_that_never_reported_is_planned_for_all_the_same() {
    let roll = roll();
    let name = NameSpec { nodes: ["x".to_string()].into() };
    let premises = Premises { names: [("www".to_string(), name)].into(), ..Premises::default() };
    let inventory = roll.inventory(&premises, &BTreeMap::new(), &Wishes::default()).unwrap();
    assert!(inventory.nodes().contains_key("x"));
}

#[test]
fn a_backend_at_a_members_address_runs_on_that_machine() {
    let mut roll = roll();
    let at = |last| NodeReport {
        addresses: vec![[10, 0, 0, last].into(), [127, 0, 0, 1].into()],
        ..report(10.0)
    };
    roll.take(second(1), "a", at(1)).unwrap();
    roll.take(second(1), "b", at(2)).unwrap();
    let addresses = ["10.0.0.2", "127.0.0.1", "10.0.0.3"];
    let backends = addresses.map(|it| (it.to_string(), Default::default())).into();
    let pool = PoolSpec { backends, ..PoolSpec::default() };
    let places = addresses.map(|it| (it.to_string(), it.parse().unwrap())).into();
    let premises = Premises {
        pools: [("web".to_string(), pool)].into(),
        addresses: [("web".to_string(), places)].into(),
        ..Premises::default()
    };
    let members = roll.enrolled(second(1), &BTreeMap::new(), second(600), &alone());
    let inventory = roll.inventory(&premises, &members, &Wishes::default()).unwrap();
    let machine = |name: &str| inventory.pools()["web"].backends[name].machine.clone();
    let found = addresses.map(machine);
    assert_eq!(found, [Some("b".to_string()), None, None]);
}

#[test]
fn what_an_operator_said_of_a_pool_wins_over_the_file() {
    let pool = PoolSpec { elastic: Some(Elasticity::default()), ..PoolSpec::default() };
    let premises = Premises { pools: [("web".to_string(), pool)].into(), ..Premises::default() };
    let said = |name: &str, mode| (name.to_string(), SizeWish::Mode(mode));
    let sizes = [said("web", Mode::Pinned(3)), said("gone", Mode::Paused)].into();
    let wishes = Wishes { sizes, ..Wishes::default() };
    let inventory = roll().inventory(&premises, &BTreeMap::new(), &wishes).unwrap();
    assert_eq!(inventory.pools()["web"].elastic.as_ref().unwrap().mode, Mode::Pinned(3));
}
