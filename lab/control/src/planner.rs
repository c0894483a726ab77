//! How long a plan takes, by number of nodes.
//!
//! Every node dispatches, a tenth is overloaded, and each is in the name of all and in one of ten
//! others; a pool has a backend with weights by load on each. Median and worst of the repetitions,
//! after as many for warming up: CPU time of the thread, and beside it wall time, which other
//! programs lengthen.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use equipoise_core::load::{ClassRate, ClassRates, Reported};
use equipoise_lab_runner::{Case, Row};
use equipoise_planner::{
    BackendSpec, History, Inventory, NameSpec, NodeSpec, Plan, Policy, PoolSpec, Report, Tick, plan,
};

const REPETITIONS: usize = 200;
const NAMES: usize = 10;

fn name(at: usize) -> String {
    format!("node-{at:05}.cluster.example")
}

fn inventory(nodes: usize) -> Result<Inventory> {
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
    let pool = PoolSpec { backends, weights_by_load: true, ..PoolSpec::default() };
    let pools = [("web".to_string(), pool)].into();
    Ok(Inventory::new(all, names, pools)?)
}

fn report(node: usize, at: usize) -> Report {
    // Loads that wander a little; every tenth node has more than it should.
    let wander = ((node * 7919 + at * 104_729) % 101) as f64 / 10.0;
    let cpu = if node.is_multiple_of(10) { 85.0 } else { 35.0 } + wander;
    let rate = ClassRate { arrived: cpu, ..ClassRate::default() };
    let classes = ClassRates { small_transfer: rate, computing: rate, ..ClassRates::default() };
    let load = Reported { cpu, memory: 40.0, net: Some(20.0 + wander) };
    Report { load, classes, ..Report::default() }
}

/// CPU time of this thread in microseconds.
fn cpu_us() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on Linux, and `time` is a timespec to write to.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "the thread has a CPU clock");
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Of a plan: CPU time, median and worst, and wall time, median; and the mean CPU time of taking a
/// report.
pub(crate) fn measure(case: &Case, row: &mut Row) -> Result<()> {
    let nodes = case.count("nodes")?;
    let policy = Policy::default();
    let inventory = inventory(nodes)?;
    let mut history = History::new(policy.smoothing, Duration::ZERO);
    let mut before: Option<Plan> = None;
    let (mut cpu, mut wall, mut reports_us) = (Vec::new(), Vec::new(), 0.0);
    let names: Vec<String> = (0..nodes).map(name).collect();
    for at in 0..2 * REPETITIONS {
        let now = Duration::from_secs(at as u64 + 1);
        let start = cpu_us();
        for (node, name) in names.iter().enumerate() {
            history.record(name, now, &report(node, at)).context("a report is refused")?;
        }
        reports_us += (cpu_us() - start) / (2 * REPETITIONS * nodes) as f64;
        let tick = Tick { now, passed: policy.period() };
        let (start, begin) = (cpu_us(), Instant::now());
        let next = plan(&policy, &inventory, &history, before.as_ref(), tick);
        if at >= REPETITIONS {
            cpu.push((cpu_us() - start) / 1e3);
            wall.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        before = Some(next);
    }
    cpu.sort_by(f64::total_cmp);
    wall.sort_by(f64::total_cmp);
    row.figure("plan_cpu_ms_median", cpu[REPETITIONS / 2])
        .figure("plan_cpu_ms_max", cpu[REPETITIONS - 1])
        .figure("plan_wall_ms_median", wall[REPETITIONS / 2])
        .figure("report_cpu_us", reports_us);
    Ok(())
}
