//! Ten nodes, of which half get all clients: the effect of delegation.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::load::{ClassRate, ClassRates, Coefficients, Reported};
use equipoise_planner::{History, Inventory, NodeSpec, Plan, Policy, Report, Tick, plan};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::rules::{Late, name};

const NODES: usize = 10;
const FED: usize = 5;
/// Periods from a plan until loads show it.
const DELAY: usize = 2;
const PERIODS: usize = 120;
const SETTLING: usize = 60;

/// The kept share of each node, and the targets of the rest: `spread[from][to]`, each row summing
/// to 1 or 0.
#[derive(Clone)]
struct Instructions {
    keep: Vec<f64>,
    spread: Vec<Vec<f64>>,
}

impl Instructions {
    fn none() -> Instructions {
        Instructions { keep: vec![1.0; NODES], spread: vec![vec![0.0; NODES]; NODES] }
    }
}

/// Measurements of each node in a period: CPU per cent, and requests per second; a request costs
/// one per cent of a node.
struct Seen {
    cpu: Vec<f64>,
    rates: Vec<ClassRate>,
}

trait Rule {
    fn decide(&mut self, seen: &Seen) -> Instructions;
}

struct Nothing;

impl Rule for Nothing {
    fn decide(&mut self, _: &Seen) -> Instructions {
        Instructions::none()
    }
}

/// Overloaded: above the average, 1.5 times the lowest and 30 %. Requests are then spread by 1/L of
/// measured loads over all nodes, the node itself included.
struct Onedata;

impl Rule for Onedata {
    fn decide(&mut self, seen: &Seen) -> Instructions {
        let load: Vec<f64> = seen.cpu.iter().map(|cpu| cpu.max(1.0)).collect();
        let mean = load.iter().sum::<f64>() / NODES as f64;
        let lowest = load.iter().copied().fold(f64::MAX, f64::min);
        let total: f64 = load.iter().map(|load| 1.0 / load).sum();
        let mut made = Instructions::none();
        for node in 0..NODES {
            if load[node] > mean && load[node] > 1.5 * lowest && load[node] > 30.0 {
                let keep = 1.0 / load[node] / total;
                let share = |to: usize| {
                    if to == node { 0.0 } else { 1.0 / load[to] / total / (1.0 - keep) }
                };
                made.keep[node] = keep;
                made.spread[node] = (0..NODES).map(share).collect();
            }
        }
        made
    }
}

struct Planner {
    policy: Policy,
    inventory: Inventory,
    history: History,
    before: Option<Plan>,
    at: u64,
}

impl Planner {
    fn new() -> Planner {
        let coefficients = Coefficients { net: 0.0, cpu: 1.0, memory: 0.0 };
        let policy = Policy { coefficients, ..Policy::default() }.checked().unwrap();
        let nodes = (0..NODES).map(|at| (name(at), NodeSpec::default())).collect();
        let inventory = Inventory::new(nodes, BTreeMap::new(), BTreeMap::new()).unwrap();
        let history = History::new(policy.smoothing, Duration::ZERO);
        Planner { policy, inventory, history, before: None, at: 0 }
    }
}

impl Rule for Planner {
    fn decide(&mut self, seen: &Seen) -> Instructions {
        self.at += 1;
        let now = Duration::from_secs(self.at);
        for at in 0..NODES {
            let load = Reported { cpu: seen.cpu[at], memory: 0.0, net: None };
            let classes = ClassRates { small_transfer: seen.rates[at], ..ClassRates::default() };
            self.history
                .record(&name(at), now, &Report { load, classes, ..Report::default() })
                .unwrap();
        }
        let tick = Tick { now, passed: self.policy.period() };
        let next = plan(&self.policy, &self.inventory, &self.history, self.before.as_ref(), tick);
        let keep = next.nodes.values().map(|node| node.keep_by_class.small_transfer).collect();
        let weight = |to| next.dispatch.weights.get(&name(to)).copied().unwrap_or(0.0);
        let weights: Vec<f64> = (0..NODES).map(weight).collect();
        self.before = Some(next);
        Instructions { keep, spread: vec![weights; NODES] }
    }
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Work done, in nodes.
    done: f64,
    /// Half of the range of a node's load, worst node, in per cent points.
    amplitude: f64,
    /// Difference between the highest and the lowest mean load, in per cent points.
    spread: f64,
    /// Delegated requests, as a part of all.
    delegated: f64,
}

/// Clients demand `offered` per cent of each fed node; `background` is other work on node 9.
fn run(rule: &mut dyn Rule, offered: f64, background: f64) -> Outcome {
    let mut rng = StdRng::seed_from_u64(5);
    let mut planned = Late::new(DELAY);
    let mut made = Instructions::none();
    let (mut least, mut most, mut mean) = ([f64::MAX; NODES], [f64::MIN; NODES], [0.0; NODES]);
    let (mut done, mut sent, mut all) = (0.0, 0.0, 0.0);
    for at in 0..PERIODS {
        let mut rates = vec![ClassRate::default(); NODES];
        for from in 0..FED {
            let arrived = offered * rng.random_range(0.95..1.05);
            let delegated = arrived * (1.0 - made.keep[from]);
            rates[from].arrived = arrived;
            rates[from].delegated = delegated;
            for (to, part) in rates.iter_mut().zip(&made.spread[from]) {
                to.taken += delegated * part;
            }
        }
        let cpu = |node: usize| {
            let other = if node == NODES - 1 { background } else { 0.0 };
            (2.0 + other + rates[node].done()).min(100.0)
        };
        let cpu: Vec<f64> = (0..NODES).map(cpu).collect();
        if at >= SETTLING {
            let weight = 1.0 / (PERIODS - SETTLING) as f64;
            for node in 0..NODES {
                least[node] = cpu[node].min(least[node]);
                most[node] = cpu[node].max(most[node]);
                mean[node] += weight * cpu[node];
                let other = if node == NODES - 1 { background } else { 0.0 };
                done += weight * (cpu[node] - 2.0 - other).min(rates[node].done()) / 100.0;
                sent += rates[node].delegated;
                all += rates[node].arrived;
            }
        }
        if let Some(heard) = planned.say(rule.decide(&Seen { cpu, rates })) {
            made = heard;
        }
    }
    let swing = |node: usize| (most[node] - least[node]) / 2.0;
    let highest = mean.iter().copied().fold(0.0, f64::max);
    let lowest = mean.iter().copied().fold(f64::MAX, f64::min);
    let amplitude = (0..NODES).map(swing).fold(0.0, f64::max);
    Outcome { done, amplitude, spread: highest - lowest, delegated: sent / all }
}

#[test]
fn with_half_of_the_nodes_fed_the_others_do_their_part() {
    println!("\n{FED} of {NODES} nodes fed, delegation shows {DELAY} periods late");
    println!(
        "{:<12}{:<12}{:<10}{:>12}{:>11}{:>9}{:>12}",
        "asked of", "other work", "rule", "done, nodes", "amplitude", "spread", "delegated"
    );
    for (offered, background) in [(60.0, 0.0), (90.0, 0.0), (90.0, 40.0), (190.0, 0.0)] {
        let mut rules: [(&str, Box<dyn Rule>); 3] = [
            ("planner", Box::new(Planner::new())),
            ("Onedata", Box::new(Onedata)),
            ("none", Box::new(Nothing)),
        ];
        let found = rules.each_mut().map(|(rule, it)| {
            let found = run(it.as_mut(), offered, background);
            println!(
                "{:<12}{:<12}{rule:<10}{:>12.2}{:>11.1}{:>9.1}{:>12.2}",
                format!("{offered} %"),
                format!("{background} %"),
                found.done,
                found.amplitude,
                found.spread,
                found.delegated
            );
            found
        });
        let [ours, onedata, none] = found;
        assert!(ours.amplitude < 10.0, "{ours:?}");
        assert!(ours.amplitude < onedata.amplitude / 2.0, "{ours:?} {onedata:?}");
        assert!(ours.done >= onedata.done - 0.05, "{ours:?} {onedata:?}");
        if offered == 190.0 {
            assert!(ours.done / none.done > 1.8, "{ours:?} {none:?}");
        } else {
            assert!(ours.spread < 6.0, "{ours:?}");
        }
    }
}
