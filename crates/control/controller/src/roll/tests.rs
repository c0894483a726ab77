use std::ops::RangeInclusive;

use equipoise_planner::NameSpec;
use equipoise_planner::elastic::{BackendSample, Elasticity};

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

/// Records without another controller.
fn alone() -> Witnesses {
    Witnesses::default()
}

/// The node reports in each of these seconds, and the controller judges.
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
fn a_reporting_node_is_a_member_until_it_is_long_silent() {
    let mut roll = roll();
    roll.take(second(1), "a", report(10.0)).unwrap();
    roll.take(second(500), "b", report(10.0)).unwrap();
    assert_eq!(enrolled(&roll, 500), ["a", "b"]);
    // Silence of all members at once is not evidence.
    assert!(roll.forget_silent(second(650), second(600), &alone()).is_empty());
    hears(&mut roll, "b", 640..=650);
    assert_eq!(roll.forget_silent(second(650), second(600), &alone()), ["a"]);
    assert_eq!(enrolled(&roll, 650), ["b"]);
    assert!(roll.load("a").is_none());
}

#[test]
fn balancers_receive_each_others_recent_tallies_of_shared_backends() {
    let mut roll = roll();
    let with = |backends: &[&str], finished: f64| {
        let tally = |backend: &&str| (backend.to_string(), Tally { finished, ..Tally::default() });
        NodeReport { tallies: backends.iter().map(tally).collect(), ..report(10.0) }
    };
    roll.take(second(1), "a", with(&["x", "y"], 1.0)).unwrap();
    roll.take(second(2), "b", with(&["y", "z"], 2.0)).unwrap();
    let of_b = Tally { finished: 2.0, ..Tally::default() };
    assert_eq!(roll.tallies(second(2), "a"), [("y".to_string(), vec![of_b])].into());
    assert_eq!(roll.tallies(second(4), "b")["y"][0].finished, 1.0);
    assert!(roll.tallies(second(5), "b").is_empty(), "what is old counts as none");
    assert!(roll.tallies(second(2), "c").is_empty());
    roll.take(second(3), "b", NodeReport { leaves: true, ..report(10.0) }).unwrap();
    assert!(roll.tallies(second(3), "a").is_empty(), "one that has left");
}

#[test]
fn an_invalid_report_is_refused_and_counted_but_still_a_heartbeat() {
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
fn an_invalid_report_adds_no_member_and_members_are_limited() {
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
fn a_node_with_its_application_down_is_unhealthy() {
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
fn members_of_the_previous_plan_stay_until_their_reports_are_due() {
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
fn an_agent_reports_load_but_is_not_planned_as_a_node() {
    let mut roll = roll();
    roll.take(second(1), "a", report(10.0)).unwrap();
    roll.take(second(1), "b", NodeReport { kind: NodeKind::Agent, ..report(10.0) }).unwrap();
    let members = roll.enrolled(second(1), &BTreeMap::new(), second(600), &alone());
    let inventory = roll.inventory(&Premises::default(), &members, &Wishes::default()).unwrap();
    assert_eq!(inventory.nodes().keys().collect::<Vec<_>>(), ["a"]);
    assert!(roll.load("b").is_some());
}

#[test]
fn a_configured_node_is_planned_even_if_it_never_reported() {
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
fn an_operators_pin_of_a_pool_overrides_its_configuration() {
    let pool = PoolSpec { elastic: Some(Elasticity::default()), ..PoolSpec::default() };
    let premises = Premises { pools: [("web".to_string(), pool)].into(), ..Premises::default() };
    let said = |name: &str, mode| (name.to_string(), SizeWish::Mode(mode));
    let sizes = [said("web", Mode::Pinned(3)), said("gone", Mode::Paused)].into();
    let wishes = Wishes { sizes, ..Wishes::default() };
    let inventory = roll().inventory(&premises, &BTreeMap::new(), &wishes).unwrap();
    assert_eq!(inventory.pools()["web"].elastic.as_ref().unwrap().mode, Mode::Pinned(3));
}

/// A pool with one request in flight at its only backend.
fn sample() -> PoolSample {
    let one = BackendSample { in_flight: 1.0, ..BackendSample::default() };
    PoolSample { backends: [("a".to_string(), one)].into(), ..PoolSample::default() }
}

fn has(pool: &str) -> NodeReport {
    NodeReport { pools: [(pool.to_string(), sample())].into(), ..report(10.0) }
}

/// The requests in flight at the backend by the controller's count after this second; `None`:
/// unknown.
fn settled(roll: &mut Roll, at: u64, enrolled: &BTreeMap<String, Enrolled>) -> Option<f64> {
    roll.hear_of(second(at), &alone());
    roll.settle_pools(second(at), ["web".to_string()].iter(), enrolled, &alone());
    roll.history().pool("web").and_then(|pool| pool.in_flight("a"))
}

#[test]
fn a_pool_without_recent_valid_reports_has_no_figures() {
    let (mut roll, none) = (roll(), BTreeMap::new());
    roll.take(second(1), "a", has("web")).unwrap();
    assert_eq!(settled(&mut roll, 4, &none), Some(1.0));
    assert_eq!(settled(&mut roll, 5, &none), None, "it is silent");
    roll.take(second(6), "a", has("web")).unwrap();
    assert_eq!(settled(&mut roll, 6, &none), Some(1.0));
    for at in 7..=9 {
        roll.take(second(at), "a", report(f64::NAN)).unwrap_err();
        assert_eq!(settled(&mut roll, at, &none), Some(1.0), "{at}");
    }
    roll.take(second(10), "a", report(f64::NAN)).unwrap_err();
    assert_eq!(settled(&mut roll, 10, &none), None, "it lives, and says nothing that is believed");
}

#[test]
fn pool_figures_are_partial_while_a_balancer_of_it_is_silent() {
    let doubt = |roll: &mut Roll, at, enrolled: &BTreeMap<String, Enrolled>| {
        assert!(settled(roll, at, enrolled).is_some());
        roll.history().pool("web").unwrap().is_partial()
    };
    let none = BTreeMap::new();
    for (pool, expected) in [("web", true), ("other", false)] {
        let mut roll = roll();
        roll.take(second(1), "b", has(pool)).unwrap();
        for at in 1..=10 {
            roll.take(second(at), "a", has("web")).unwrap();
            assert_eq!(doubt(&mut roll, at, &none), expected && at > 4, "{pool} {at}");
        }
        for at in 11..=20 {
            roll.take(second(at), "a", has("web")).unwrap();
            doubt(&mut roll, at, &none);
        }
        assert!(!doubt(&mut roll, 20, &none), "it is surely gone");
    }
    let mut before = roll();
    before.take(second(1), "b", has("web")).unwrap();
    let enrolled = before.enrolled(second(1), &none, second(600), &alone());
    let mut next = roll();
    next.take(second(1), "a", has("web")).unwrap();
    assert!(doubt(&mut next, 1, &enrolled), "it has not reported to this controller");
    next.take(second(2), "b", has("web")).unwrap();
    assert!(!doubt(&mut next, 2, &enrolled));
}
