//! Properties of every plan, for any reports.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::load::{ClassRate, ClassRates, Reported, RequestClass};
use equipoise_core::{AdminState, Health};
use equipoise_planner::{
    History, Inventory, NameSpec, NodeSpec, Plan, Policy, Report, Standing, Steering, Tick, plan,
};
use proptest::prelude::*;

const PERIOD: Duration = Duration::from_secs(1);

/// Events of one node in one period.
#[derive(Clone, Debug)]
struct Said {
    report: Option<Report>,
    admin: AdminState,
    health: Health,
    is_unreachable: bool,
}

/// Mostly a percentage, sometimes an invalid number.
fn any_number() -> BoxedStrategy<f64> {
    const NONSENSE: [f64; 6] = [f64::NAN, f64::INFINITY, -1.0, 1e9, 1e300, 0.0];
    let number = |(which, fine)| NONSENSE.get(which).copied().unwrap_or(fine);
    (0usize..30, 0.0..100.0).prop_map(number).boxed()
}

fn any_report() -> BoxedStrategy<Report> {
    let numbers = prop::collection::vec(any_number(), 19);
    (numbers, any::<bool>())
        .prop_map(|(n, has_net)| {
            let load = Reported { cpu: n[0], memory: n[1], net: has_net.then_some(n[18]) };
            let classes = ClassRates::from_fn(|class: RequestClass| {
                let of = &n[2 + 4 * class as usize..];
                let [arrived, delegated, taken, bytes, ..] = *of else {
                    unreachable!("19 numbers")
                };
                ClassRate { arrived, delegated, refused: of[0] - of[1], taken, bytes }
            });
            Report { load, classes, ..Report::default() }
        })
        .boxed()
}

fn any_said() -> BoxedStrategy<Said> {
    let report = prop_oneof![8 => any_report().prop_map(Some), 2 => Just(None)];
    let admin = prop_oneof![8 => Just(AdminState::Up), 1 => Just(AdminState::Drain), 1 => Just(AdminState::Down)];
    let health = prop_oneof![8 => Just(Health::Healthy), 2 => Just(Health::Unhealthy)];
    let said =
        |(report, admin, health, is_unreachable)| Said { report, admin, health, is_unreachable };
    (report, admin, health, prop::bool::weighted(0.2)).prop_map(said).boxed()
}

/// Capacities, and periods with the events of every node.
fn any_life() -> impl Strategy<Value = (Vec<f64>, Vec<Vec<Said>>)> {
    (1usize..8).prop_flat_map(|nodes| {
        let period = prop::collection::vec(any_said(), nodes);
        (prop::collection::vec(0.5..8.0, nodes), prop::collection::vec(period, 1..25))
    })
}

fn name(at: usize) -> String {
    format!("n{at}")
}

fn inventory(capacities: &[f64], said: &[Said], label: &dyn Fn(usize) -> String) -> Inventory {
    let spec = |(at, said): (usize, &Said)| {
        let (admin, health, capacity) = (said.admin, said.health, capacities[at]);
        (label(at), NodeSpec { admin, health, capacity, dispatches: true, permits: None })
    };
    let nodes: BTreeMap<_, _> = said.iter().enumerate().map(spec).collect();
    let all = NameSpec { nodes: nodes.keys().cloned().collect() };
    let first = NameSpec { nodes: [label(0)].into() };
    let names = [("all".to_string(), all), ("first".to_string(), first)].into();
    Inventory::new(nodes, names, BTreeMap::new()).unwrap()
}

/// Every plan of a sequence of periods.
fn lived(capacities: &[f64], life: &[Vec<Said>], label: &dyn Fn(usize) -> String) -> Vec<Plan> {
    let policy = policy();
    let mut history = History::new(policy.smoothing, Duration::ZERO);
    let mut plans: Vec<Plan> = Vec::new();
    for (at, said) in (1..).zip(life) {
        let now = PERIOD * at;
        for (node, said) in said.iter().enumerate() {
            if let Some(report) = &said.report {
                let _ = history.record(&label(node), now, report);
            }
            history.record_sighting("watcher", &label(node), now, !said.is_unreachable);
        }
        history.record("watcher", now, &Report::default()).unwrap();
        let inventory = inventory(capacities, said, label);
        let tick = Tick { now, passed: PERIOD };
        plans.push(plan(&policy, &inventory, &history, plans.last(), tick));
    }
    plans
}

fn policy() -> Policy {
    let names = Steering { settle_periods: 0.0, step_max: 0.1, ..Steering::default() };
    Policy { names, ..Policy::default() }.checked().unwrap()
}

fn is_share(value: f64) -> bool {
    (0.0..=1.0).contains(&value)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn plan_numbers_are_finite_and_probabilities_sum_to_one((capacities, life) in any_life()) {
        for plan in lived(&capacities, &life, &name) {
            for (name, of) in &plan.names {
                let total: f64 = of.shares.values().map(|share| share.probability).sum();
                let is_any_wanted = of.shares.keys().any(|node| plan.nodes[node].standing.is_wanted());
                if is_any_wanted {
                    prop_assert!((total - 1.0).abs() < 1e-9, "{name}: {total}");
                } else {
                    prop_assert_eq!(total, 0.0);
                }
                for share in of.shares.values() {
                    prop_assert!(is_share(share.probability) && share.learnt.is_finite());
                    prop_assert!(share.learnt > 0.0);
                }
            }
            let given: f64 = plan.dispatch.weights.values().sum();
            prop_assert!(plan.dispatch.weights.is_empty() || (given - 1.0).abs() < 1e-9);
            for node in plan.nodes.values() {
                prop_assert!(is_share(node.presence) && is_share(node.keep), "{node:?}");
                for class in RequestClass::ALL {
                    prop_assert!(is_share(node.keep_by_class[class]), "{node:?}");
                }
                if let Some(load) = node.load {
                    prop_assert!(load.l1.is_finite() && load.l2.is_finite());
                    prop_assert!(load.l2_offered.is_finite());
                }
            }
        }
    }

    #[test]
    fn a_node_that_delegates_receives_no_delegated_requests((capacities, life) in any_life()) {
        for plan in lived(&capacities, &life, &name) {
            for (node, weight) in &plan.dispatch.weights {
                let to = &plan.nodes[node];
                prop_assert!(*weight > 0.0 && to.keep == 1.0, "{node}: {to:?}");
                let may_take = [Standing::Present, Standing::Joining, Standing::Late];
                prop_assert!(may_take.contains(&to.standing) && to.presence > 0.0);
            }
            if plan.dispatch.weights.is_empty() {
                prop_assert!(plan.nodes.values().all(|node| node.keep == 1.0));
            }
        }
    }

    #[test]
    fn steps_are_bounded_while_the_same_nodes_are_fully_present((capacities, life) in any_life()) {
        let policy = policy();
        let whole = |plan: &Plan| -> Vec<bool> {
            plan.nodes.values().map(|node| node.presence == 1.0).collect()
        };
        for pair in lived(&capacities, &life, &name).windows(2) {
            let (was, is) = (&pair[0], &pair[1]);
            for (was, is) in was.nodes.values().zip(is.nodes.values()) {
                // A node that no other node can relieve keeps everything at once.
                let step = (was.keep - is.keep).abs();
                prop_assert!(is.keep == 1.0 || step <= policy.dispatch.step_max + 1e-9);
            }
            if whole(was) != whole(is) || whole(is).contains(&false) {
                continue;
            }
            // A step of the node and one of the rest, because the sum stays one.
            let bound = (1.0 + policy.names.step_max).powi(2) + 1e-9;
            for (was, is) in was.names["all"].shares.values().zip(is.names["all"].shares.values()) {
                let step = is.probability / was.probability;
                prop_assert!((1.0 / bound..=bound).contains(&step), "{was:?} {is:?}");
            }
        }
    }

    #[test]
    fn plans_do_not_depend_on_node_names((capacities, life) in any_life()) {
        let count = capacities.len();
        let turned = move |at: usize| name(count - 1 - at);
        let (here, there) = (lived(&capacities, &life, &name), lived(&capacities, &life, &turned));
        // Only one result depends on a name: which of several nodes with equal silence panic mode
        // restores.
        let is_panicking = |plan: &Plan| plan.names["all"].is_panicking;
        for (here, there) in here.iter().zip(&there).take_while(|(here, _)| !is_panicking(here)) {
            for at in 0..count {
                let (one, other) = (name(at), turned(at));
                let (a, b) = (here.names["all"].shares[&one], there.names["all"].shares[&other]);
                prop_assert!((a.probability - b.probability).abs() < 1e-9, "{a:?} {b:?}");
                let (a, b) = (&here.nodes[&one], &there.nodes[&other]);
                prop_assert_eq!(a.standing, b.standing);
                prop_assert!((a.keep - b.keep).abs() < 1e-6, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn the_same_events_yield_the_same_plans((capacities, life) in any_life()) {
        prop_assert_eq!(lived(&capacities, &life, &name), lived(&capacities, &life, &name));
    }

    #[test]
    fn a_plan_survives_serialization((capacities, life) in any_life()) {
        let plans = lived(&capacities, &life, &name);
        for (at, plan) in (1..).zip(&plans) {
            let stored = serde_json::to_string(plan).unwrap();
            let read: Plan = serde_json::from_str(&stored).unwrap();
            prop_assert_eq!(read.generation.0, at);
            // JSON may lose the last digit of a number.
            for (was, is) in plan.names["all"].shares.values().zip(read.names["all"].shares.values()) {
                prop_assert!((was.probability - is.probability).abs() < 1e-12);
                prop_assert!((was.learnt / is.learnt - 1.0).abs() < 1e-12);
            }
            for (was, is) in plan.nodes.values().zip(read.nodes.values()) {
                prop_assert_eq!((was.standing, was.is_overloaded), (is.standing, is.is_overloaded));
                prop_assert!((was.presence - is.presence).abs() < 1e-12);
                prop_assert!((was.keep - is.keep).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn an_answer_contains_at_least_the_panic_share_of_wanted_nodes((capacities, life) in any_life()) {
        for plan in lived(&capacities, &life, &name) {
            let shares = &plan.names["all"].shares;
            let wanted = shares.keys().filter(|node| plan.nodes[*node].standing.is_wanted()).count();
            let given = shares.values().filter(|share| share.probability > 0.0).count();
            prop_assert!(given as f64 >= policy().liveness.panic_share * wanted as f64, "{shares:?}");
            for (node, share) in shares {
                let standing = plan.nodes[node].standing;
                prop_assert!(standing.is_wanted() || share.probability == 0.0, "{node} {standing}");
            }
        }
    }
}

#[test]
fn a_stored_plan_with_invalid_numbers_does_no_harm() {
    let policy = policy();
    let said = Said {
        report: None,
        admin: AdminState::Up,
        health: Health::Healthy,
        is_unreachable: false,
    };
    let inventory = inventory(&[1.0, 1.0], &[said.clone(), said], &name);
    let history = History::new(policy.smoothing, Duration::ZERO);
    let tick = Tick { now: PERIOD, passed: Duration::MAX };
    let mut before = plan(&policy, &inventory, &history, None, tick);
    for node in before.nodes.values_mut() {
        (node.presence, node.keep) = (f64::NAN, -7.0);
    }
    for share in before.names.get_mut("all").unwrap().shares.values_mut() {
        (share.learnt, share.probability) = (f64::INFINITY, f64::NAN);
    }
    let next = plan(&policy, &inventory, &history, Some(&before), tick);
    let shares: Vec<f64> =
        next.names["all"].shares.values().map(|share| share.probability).collect();
    assert_eq!(shares, [0.5, 0.5]);
    assert!(next.nodes.values().all(|node| node.keep == 1.0), "{next:?}");
}
