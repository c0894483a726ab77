//! 50 nodes of one name. Measured loads show shares three periods after they were planned.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::rules::{Even, Inverse, Late, Planner, Rule, SmoothedInverse};

const NODES: usize = 50;
const DELAY: usize = 3;
const PERIODS: usize = 800;
/// Periods after which the load no longer changes.
const SETTLING: usize = 500;

/// Behaviour of the clients and of the nodes' other programs.
struct Shape {
    name: &'static str,
    /// Total work in a period, as a part of the capacity of all nodes.
    demand: fn(usize) -> f64,
    /// Load of a node that does not come from clients, in per cent.
    background: fn(usize, usize) -> f64,
    /// Largest capacity relative to the smallest.
    capacity_max: f64,
    /// Noise of measurements, in per cent points.
    noise: f64,
}

/// The planner's goals in per cent points of load: the oscillation of the worst node, and its
/// distance from the mean. The dead band is two.
const AMPLITUDE_MAX: f64 = 1.0;
const WORST_MAX: f64 = 2.5;

fn none(_: usize, _: usize) -> f64 {
    0.0
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "steady, alike",
        demand: |_| 0.6,
        background: none,
        capacity_max: 1.0,
        noise: 1.0,
    },
    Shape {
        name: "steady, capacities 1 to 4",
        demand: |_| 0.6,
        background: none,
        capacity_max: 4.0,
        noise: 1.0,
    },
    Shape {
        name: "step 40 to 75 %",
        demand: |at| if at < 300 { 0.4 } else { 0.75 },
        background: none,
        capacity_max: 2.0,
        noise: 1.0,
    },
    Shape {
        name: "sine 30 to 70 %",
        demand: |at| 0.5 + 0.2 * (at as f64 / 20.0).sin(),
        background: none,
        capacity_max: 2.0,
        noise: 1.0,
    },
    Shape {
        name: "bursts of a third",
        demand: |at| if at % 40 < 5 { 0.7 } else { 0.5 },
        background: none,
        capacity_max: 2.0,
        noise: 3.0,
    },
    Shape {
        name: "five nodes get 25 % of other work",
        demand: |_| 0.5,
        background: |node, at| if node < 5 && at >= 300 { 25.0 } else { 0.0 },
        capacity_max: 2.0,
        noise: 1.0,
    },
];

/// Distribution of loads after [`SETTLING`], in per cent points.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Half of the range of a node's distance from the mean, worst node.
    amplitude: f64,
    /// Distance of the worst node from the mean, averaged over time.
    worst: f64,
    /// The first period from which 95 of 100 nodes stay within 5 points of the mean.
    settled: Option<usize>,
}

/// `caches` is the time constant, in periods, with which clients follow new shares; 0: at once.
fn run(shape: &Shape, rule: &mut dyn Rule, caches: f64) -> Outcome {
    let mut rng = StdRng::seed_from_u64(11);
    let capacities: Vec<f64> =
        (0..NODES).map(|_| rng.random_range(1.0..=shape.capacity_max)).collect();
    let total: f64 = capacities.iter().sum();
    let mut in_force = vec![1.0 / NODES as f64; NODES];
    let (mut planned, mut heard) = (Late::new(DELAY), in_force.clone());
    let (mut least, mut most) = (vec![f64::MAX; NODES], vec![f64::MIN; NODES]);
    let (mut sum_worst, mut settled) = (0.0, None);
    for at in 0..PERIODS {
        let work = shape.demand_of(at, total);
        let load = |node: usize| {
            let own = 100.0 * work * in_force[node] / capacities[node];
            (own + (shape.background)(node, at)).min(100.0)
        };
        let loads: Vec<f64> = (0..NODES).map(load).collect();
        let carried: f64 = loads.iter().zip(&capacities).map(|(load, of)| load * of).sum();
        let mean = carried / total;
        let mut apart: Vec<f64> = loads.iter().map(|load| (load - mean).abs()).collect();
        if at >= SETTLING {
            for (node, load) in loads.iter().enumerate() {
                least[node] = least[node].min(load - mean);
                most[node] = most[node].max(load - mean);
            }
            sum_worst += apart.iter().copied().fold(0.0, f64::max);
        }
        apart.sort_by(f64::total_cmp);
        let is_even = apart[NODES * 95 / 100] <= 5.0;
        settled = if is_even { settled.or(Some(at)) } else { None };
        let mut measured =
            |load: &f64| (load + rng.random_range(-1.0..1.0) * shape.noise).clamp(0.0, 100.0);
        let seen: Vec<f64> = loads.iter().map(&mut measured).collect();
        if let Some(now) = planned.say(rule.shares(&seen)) {
            heard = now;
        }
        for (follows, heard) in in_force.iter_mut().zip(&heard) {
            *follows += (heard - *follows) / (1.0 + caches);
        }
    }
    let swings = least.iter().zip(&most).map(|(least, most)| (most - least) / 2.0);
    let worst = sum_worst / (PERIODS - SETTLING) as f64;
    Outcome { amplitude: swings.fold(0.0, f64::max), worst, settled }
}

impl Shape {
    fn demand_of(&self, at: usize, total: f64) -> f64 {
        (self.demand)(at) * total
    }
}

#[test]
fn loads_of_50_nodes_converge_with_feedback_three_periods_late() {
    println!(
        "\n50 nodes, shares show {DELAY} periods late; points of load after period {SETTLING}"
    );
    println!("{:<36}{:<16}{:>10}{:>9}{:>10}", "shape", "rule", "amplitude", "worst", "settled");
    for shape in SHAPES {
        let mut rules: [Box<dyn Rule>; 4] = [
            Box::new(Planner::new(NODES, DELAY as f64)),
            Box::new(Inverse),
            Box::new(SmoothedInverse::default()),
            Box::new(Even),
        ];
        for rule in &mut rules {
            let name = rule.name();
            let Outcome { amplitude, worst, settled } = run(shape, rule.as_mut(), 0.0);
            let settled_at = settled.map_or("never".to_string(), |at| at.to_string());
            println!("{:<36}{name:<16}{amplitude:>10.1}{worst:>9.1}{settled_at:>10}", shape.name);
            if name == "planner" {
                let is_even = amplitude <= AMPLITUDE_MAX && worst <= WORST_MAX;
                assert!(is_even && settled.is_some(), "{}: {amplitude} {worst}", shape.name);
            }
            if name == "1/L, Onedata" {
                assert!(
                    amplitude > 10.0,
                    "{}: 1/L swings, else this test shows nothing",
                    shape.name
                );
            }
        }
    }
}

#[test]
fn a_wrong_idea_of_the_delay_by_a_factor_of_two_makes_nothing_swing() {
    for settle_periods in [1.5, 6.0] {
        let mut rule = Planner::new(NODES, settle_periods);
        let found = run(&SHAPES[1], &mut rule, 0.0);
        println!("settle {settle_periods} where it is {DELAY}: {found:?}");
        assert!(found.amplitude <= AMPLITUDE_MAX && found.worst <= WORST_MAX, "{found:?}");
    }
}

#[test]
fn behind_caches_of_60_periods_loads_converge_slowly_and_do_not_swing() {
    let mut rule = Planner::new(NODES, 60.0);
    let found = run(&SHAPES[1], &mut rule, 60.0);
    println!("caches of 60 periods, capacities 1 to 4: {found:?}");
    assert!(found.amplitude <= 2.0 * AMPLITUDE_MAX && found.worst <= 2.0 * WORST_MAX, "{found:?}");
    assert!(found.settled.is_some_and(|at| at < 400), "{found:?}");
}
