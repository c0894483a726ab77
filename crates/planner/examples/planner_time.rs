//! How long a plan takes, by number of nodes.
//!
//! ```text
//! cargo run --release -p equipoise-planner --example planner_time
//! ```
//!
//! Every node dispatches, a tenth is overloaded, and each is in the name of all and in one of ten others; a pool has a
//! backend with weights by load on each. Median and worst of the repetitions, after as many for warming up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use equipoise_core::load::{ClassRate, ClassRates, Reported};
use equipoise_planner::{
    BackendSpec, History, Inventory, NameSpec, NodeSpec, Plan, Policy, PoolSpec, Report, Tick, plan,
};

const REPETITIONS: usize = 200;
const NAMES: usize = 10;

fn main() {
    println!("{:>6}{:>14}{:>14}{:>20}", "nodes", "median us", "worst us", "report us a node");
    for nodes in [10, 100, 1000, 5000] {
        let (median_us, worst_us, report_us) = measure(nodes);
        println!("{nodes:>6}{median_us:>14.0}{worst_us:>14.0}{report_us:>20.2}");
    }
}

fn name(at: usize) -> String {
    format!("node-{at:05}.cluster.example")
}

fn inventory(nodes: usize) -> Inventory {
    let all: BTreeMap<_, _> = (0..nodes).map(|at| (name(at), NodeSpec::default())).collect();
    let mut names: BTreeMap<String, NameSpec> =
        [("all".to_string(), NameSpec { nodes: all.keys().cloned().collect() })].into();
    for at in 0..nodes {
        names.entry(format!("service-{}", at % NAMES)).or_default().nodes.insert(name(at));
    }
    let backend = |at| {
        let machine = Some(name(at));
        (format!("b{at:05}"), BackendSpec { machine, ..BackendSpec::default() })
    };
    let backends = (0..nodes).map(backend).collect();
    let pool = PoolSpec { backends, weights_by_load: true, elastic: None };
    let pools = [("web".to_string(), pool)].into();
    Inventory::new(all, names, pools).expect("its parts fit")
}

fn report(node: usize, at: usize) -> Report {
    // Loads that wander a little; every tenth node has more than it should.
    let wander = ((node * 7919 + at * 104_729) % 101) as f64 / 10.0;
    let cpu = if node.is_multiple_of(10) { 85.0 } else { 35.0 } + wander;
    let rate = ClassRate { arrived: cpu, ..ClassRate::default() };
    let classes = ClassRates { small_transfer: rate, computing: rate, ..ClassRates::default() };
    Report { load: Reported { cpu, memory: 40.0, net: Some(20.0 + wander) }, classes }
}

/// Median and worst time of a plan, and the mean time of taking a report, in microseconds.
fn measure(nodes: usize) -> (f64, f64, f64) {
    let policy = Policy::default();
    let inventory = inventory(nodes);
    let mut history = History::new(policy.smoothing, Duration::ZERO);
    let mut before: Option<Plan> = None;
    let (mut times_us, mut reports_us) = (Vec::new(), 0.0);
    for at in 0..2 * REPETITIONS {
        let now = Duration::from_secs(at as u64 + 1);
        let start = Instant::now();
        for node in 0..nodes {
            history.record(&name(node), now, &report(node, at)).expect("a fine report");
        }
        reports_us += start.elapsed().as_secs_f64() * 1e6 / (2 * REPETITIONS * nodes) as f64;
        let tick = Tick { now, passed: policy.period() };
        let start = Instant::now();
        let next = plan(&policy, &inventory, &history, before.as_ref(), tick);
        if at >= REPETITIONS {
            times_us.push(start.elapsed().as_secs_f64() * 1e6);
        }
        before = Some(next);
    }
    times_us.sort_by(f64::total_cmp);
    (times_us[REPETITIONS / 2], times_us[REPETITIONS - 1], reports_us)
}
