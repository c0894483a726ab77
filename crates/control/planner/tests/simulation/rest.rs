//! Shares where load does not come from requests, or only in part.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::load::{ClassRate, ClassRates, Reported};
use equipoise_planner::{
    History, Inventory, NameSpec, NodeSpec, Plan, Policy, Report, Steering, Tick, plan,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::rules::name;

const HOUR: u64 = 3600;
/// CPU of a request a second, in per cent.
const COST: f64 = 0.1;

/// Utilisation of a node by other programs, in per cent.
#[derive(Clone, Copy)]
struct Others {
    cpu: f64,
    memory: f64,
}

/// Shares of each node in a name after `periods`. Each period brings `requests(period)` to the
/// nodes of the name.
fn shares(others: &[Others], periods: u64, requests: impl Fn(u64) -> f64) -> Vec<f64> {
    let names = Steering { settle_periods: 3.0, ..Steering::default() };
    let policy = Policy { names, ..Policy::default() }.checked().unwrap();
    let members: BTreeMap<_, _> =
        (0..others.len()).map(|at| (name(at), NodeSpec::default())).collect();
    let www = NameSpec { nodes: members.keys().cloned().collect() };
    let inventory =
        Inventory::new(members, [("www".to_string(), www)].into(), BTreeMap::new()).unwrap();
    let mut history = History::new(policy.smoothing, Duration::ZERO);
    let mut rng = StdRng::seed_from_u64(7);
    let mut before: Option<Plan> = None;
    let share = |plan: &Option<Plan>, at: usize| {
        let even = 1.0 / others.len() as f64;
        plan.as_ref().map_or(even, |plan| plan.names["www"].shares[&name(at)].probability)
    };
    for period in 1..=periods {
        let now = Duration::from_secs(period);
        for (at, others) in others.iter().enumerate() {
            let arrived = requests(period) * share(&before, at);
            let light = ClassRate { arrived, bytes: 1000.0 * arrived, ..ClassRate::default() };
            let noise = rng.random_range(-1.0..1.0);
            let cpu = (others.cpu + COST * arrived + noise).clamp(0.0, 100.0);
            let load = Reported { cpu, memory: others.memory, net: None };
            let classes = ClassRates { light, ..ClassRates::default() };
            history.record(&name(at), now, &Report { load, classes, ..Report::default() }).unwrap();
        }
        let tick = Tick { now, passed: policy.period() };
        before = Some(plan(&policy, &inventory, &history, before.as_ref(), tick));
    }
    (0..others.len()).map(|at| share(&before, at)).collect()
}

#[test]
fn shares_of_an_idle_name_ignore_other_programs_for_an_hour() {
    let others = [Others { cpu: 60.0, memory: 94.0 }, Others { cpu: 2.0, memory: 12.0 }];
    assert_eq!(shares(&others, HOUR, |_| 0.0), [0.5, 0.5]);
}

#[test]
fn memory_use_does_not_change_shares() {
    let others = [Others { cpu: 5.0, memory: 94.0 }, Others { cpu: 5.0, memory: 12.0 }];
    let found = shares(&others, HOUR, |at| 500.0 + 300.0 * (at as f64 / 60.0).sin());
    assert!(found.iter().all(|share| (0.475..=0.525).contains(share)), "{found:?}");
}

#[test]
fn a_nodes_share_matches_its_cpu_unused_by_other_programs() {
    let others = [Others { cpu: 50.0, memory: 30.0 }, Others { cpu: 0.0, memory: 30.0 }];
    // A minute without requests, then a sine-shaped demand.
    let demand = |at: u64| if at < 60 { 0.0 } else { 600.0 + 500.0 * (at as f64 / 200.0).sin() };
    let found = shares(&others, HOUR, demand);
    println!("half of the CPU of one of two is in use by others: {found:?}");
    assert!((0.28..=0.40).contains(&found[0]), "{found:?}");
}
