//! Clients that wait for their responses, nodes that pause when their share of a core is used up,
//! and the planner: the results of dispatch rules, request by request.
//!
//! Each fed node has [`CLIENTS`] clients that send the next request after each response. A node may
//! use its quota in each turn of a tenth of a second. Then it pauses, its proxy too, and requests
//! and responses wait. A dispatcher knows only its plan, which arrives a period late, and its own
//! counts.

mod cluster;

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::{CLIENTS, Cluster, Rule, STEP, Shape};
use equipoise_core::load::Coefficients;
use equipoise_planner::{History, Inventory, NodeSpec, Policy, Tick, plan};

use crate::rules::{Late, name};

const SECONDS: usize = 60;
const SETTLING: usize = 25;

/// After [`SETTLING`].
#[derive(Debug)]
struct Outcome {
    per_second: f64,
    refused: u64,
    /// CPU utilisation of each node, as a part of its quota.
    used: Vec<f64>,
    /// Least and greatest planned keep share of a fed node.
    keep: (f64, f64),
    /// Part of the delegated requests that the last node got.
    to_last: f64,
    /// Greatest number of requests at a target at once, except at the last node.
    queued: usize,
}

fn run(shape: Shape, rule: Rule) -> Outcome {
    let mut cluster = Cluster::new(shape, rule);
    let coefficients = Coefficients { net: 0.0, cpu: 1.0, memory: 0.0 };
    let policy = Policy { coefficients, ..Policy::default() }.checked().unwrap();
    let nodes = (0..shape.nodes).map(|at| (name(at), NodeSpec::default())).collect();
    let inventory = Inventory::new(nodes, BTreeMap::new(), BTreeMap::new()).unwrap();
    let mut history = History::new(policy.smoothing, Duration::ZERO);
    let (mut before, mut planned) = (None, Late::new(1));
    let (mut used, mut keep) = (vec![0.0; shape.nodes], (1.0_f64, 0.0_f64));
    for second in 0..SECONDS {
        for step in 0..(1000.0 / STEP) as usize {
            let now = 1000.0 * second as f64 + STEP * step as f64;
            (0..shape.nodes).for_each(|at| cluster.step(at, now));
        }
        let reports = cluster.reports();
        let now = Duration::from_secs(1 + second as u64);
        for (at, report) in reports.iter().enumerate() {
            history.record(&name(at), now, report).unwrap();
        }
        if rule != Rule::Alone {
            let tick = Tick { now, passed: policy.period() };
            let next = plan(&policy, &inventory, &history, before.as_ref(), tick);
            if let Some(heard) = planned.say(next.clone()) {
                cluster.follow(&heard);
            }
            before = Some(next);
        }
        if second < SETTLING {
            (cluster.answered, cluster.refused, cluster.given) = (0, 0, 0);
            (cluster.to_last, cluster.queued) = (0, 0);
            continue;
        }
        let weight = 0.01 / (SECONDS - SETTLING) as f64;
        used.iter_mut().zip(&reports).for_each(|(sum, it)| *sum += weight * it.load.cpu);
        for kept in before.iter().flat_map(|plan| plan.nodes.values()).take(shape.fed) {
            keep = (keep.0.min(kept.keep), keep.1.max(kept.keep));
        }
    }
    Outcome {
        per_second: cluster.answered as f64 / (SECONDS - SETTLING) as f64,
        refused: cluster.refused,
        used,
        keep,
        to_last: cluster.to_last as f64 / cluster.given.max(1) as f64,
        queued: cluster.queued,
    }
}

fn half_of(nodes: usize) -> Shape {
    Shape { nodes, fed: nodes / 2, last_may: 1.0, last_fails: false }
}

fn least(used: &[f64]) -> f64 {
    used.iter().copied().fold(f64::MAX, f64::min)
}

#[test]
fn with_half_of_the_nodes_fed_by_clients_that_wait_all_work_all_the_time() {
    println!("\nhalf of the nodes fed, {CLIENTS} clients each that wait; answers a second");
    for nodes in [2, 4, 12] {
        let alone = run(half_of(nodes), Rule::Alone).per_second;
        let [ours, by_plan] = [Rule::Ours, Rule::ByPlan].map(|rule| run(half_of(nodes), rule));
        for (rule, it) in [("ours", &ours), ("by plan", &by_plan)] {
            println!(
                "{nodes:>2} nodes, {rule:<8} {:>7.1} of {alone:.1}: {:.3} times; kept {:.2} to {:.2}, least used {:.2}, {} refused",
                it.per_second,
                it.per_second / alone,
                it.keep.0,
                it.keep.1,
                least(&it.used),
                it.refused
            );
        }
        let times = ours.per_second / alone;
        assert!(times >= 1.9, "{ours:?}");
        assert!(least(&ours.used) > 0.96, "{ours:?}");
        assert!(
            times > by_plan.per_second / alone + 0.05,
            "else this test shows nothing: {by_plan:?}"
        );
        assert_eq!(ours.refused, 0, "{ours:?}");
    }
}

#[test]
fn fifty_nodes_do_not_herd_to_one_that_is_slow_or_fails_at_once() {
    println!("\n25 of 50 nodes fed, something wrong with one of the others");
    let well = half_of(50);
    // With the ratio of working nodes to nodes with clients.
    let cases = [
        ("nothing", well, 50.0 / 25.0, 0.08),
        ("half as fast", Shape { last_may: 0.5, ..well }, 49.5 / 25.0, 0.03),
        ("fails at once", Shape { last_fails: true, ..well }, 49.0 / 25.0, 0.01),
    ];
    let alone = run(half_of(2), Rule::Alone).per_second;
    for (what, shape, there_is, to_last) in cases {
        let found = run(shape, Rule::Ours);
        let times = found.per_second / (25.0 * alone);
        println!(
            "{what:<14} {times:.3} times; least used {:.2}, at most {} at a taker, {:.3} of all given to it",
            least(&found.used[..49]),
            found.queued,
            found.to_last
        );
        assert!(times > 0.94 * there_is, "{what}: {found:?}");
        assert!(found.to_last < to_last, "{what}: {found:?}");
        assert!(least(&found.used[..49]) > 0.7, "{what}: {found:?}");
        assert!(found.queued < 3 * CLIENTS, "{what}: {found:?}");
        assert_eq!(found.refused, 0, "{what}: {found:?}");
    }
}
