//! Rules that compute shares from loads: the planner's, and those of others.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use equipoise_core::load::{Coefficients, Reported};
use equipoise_planner::{
    History, Inventory, NameSpec, NodeSpec, Plan, Policy, Report, Steering, Tick, plan,
};

/// A rule that turns measured loads (per cent) into shares, once a period.
pub(crate) trait Rule {
    fn name(&self) -> &'static str;
    fn shares(&mut self, loads: &[f64]) -> Vec<f64>;
}

/// `1/L`. Onedata's first-address probability `(Lmin/Li) / sum(Lmin/Lj)` is the same: Lmin cancels.
pub(crate) struct Inverse;

impl Rule for Inverse {
    fn name(&self) -> &'static str {
        "1/L, Onedata"
    }

    fn shares(&mut self, loads: &[f64]) -> Vec<f64> {
        let inverse: Vec<f64> = loads.iter().map(|load| 1.0 / load.max(1.0)).collect();
        let total: f64 = inverse.iter().sum();
        inverse.iter().map(|one| one / total).collect()
    }
}

/// `1/L` of loads averaged over about ten periods, the usual first remedy.
#[derive(Default)]
pub(crate) struct SmoothedInverse {
    smoothed: Vec<f64>,
}

impl Rule for SmoothedInverse {
    fn name(&self) -> &'static str {
        "1/L smoothed"
    }

    fn shares(&mut self, loads: &[f64]) -> Vec<f64> {
        if self.smoothed.is_empty() {
            self.smoothed = loads.to_vec();
        }
        for (mean, load) in self.smoothed.iter_mut().zip(loads) {
            *mean += 0.1 * (load - *mean);
        }
        Inverse.shares(&self.smoothed)
    }
}

/// Shares that never change.
pub(crate) struct Even;

impl Rule for Even {
    fn name(&self) -> &'static str {
        "even"
    }

    fn shares(&mut self, loads: &[f64]) -> Vec<f64> {
        vec![1.0 / loads.len() as f64; loads.len()]
    }
}

/// The planner, without knowledge of capacities.
pub(crate) struct Planner {
    policy: Policy,
    inventory: Inventory,
    history: History,
    before: Option<Plan>,
    at: u64,
}

impl Planner {
    pub(crate) fn new(nodes: usize, settle_periods: f64) -> Planner {
        let policy = Policy {
            coefficients: Coefficients { net: 0.0, cpu: 1.0, memory: 0.0 },
            names: Steering { settle_periods, ..Steering::default() },
            ..Policy::default()
        };
        let policy = policy.checked().unwrap();
        let node = NodeSpec { dispatches: false, ..NodeSpec::default() };
        let members: BTreeMap<_, _> = (0..nodes).map(|at| (name(at), node)).collect();
        let www = NameSpec { nodes: members.keys().cloned().collect() };
        let names = [("www".to_string(), www)].into();
        let inventory = Inventory::new(members, names, BTreeMap::new()).unwrap();
        let history = History::new(policy.smoothing, Duration::ZERO);
        Planner { policy, inventory, history, before: None, at: 0 }
    }
}

impl Rule for Planner {
    fn name(&self) -> &'static str {
        "planner"
    }

    fn shares(&mut self, loads: &[f64]) -> Vec<f64> {
        self.at += 1;
        let now = Duration::from_secs(self.at);
        for (at, cpu) in loads.iter().enumerate() {
            let load = Reported { cpu: *cpu, memory: 0.0, net: None };
            let report = Report { load, ..Report::default() };
            self.history.record(&name(at), now, &report).unwrap();
        }
        let tick = Tick { now, passed: self.policy.period() };
        let next = plan(&self.policy, &self.inventory, &self.history, self.before.as_ref(), tick);
        let shares = next.names["www"].shares.values().map(|share| share.probability).collect();
        self.before = Some(next);
        shares
    }
}

pub(crate) fn name(at: usize) -> String {
    format!("n{at:03}")
}

/// A message that arrives a few periods late.
pub(crate) struct Late<T> {
    under_way: VecDeque<T>,
    delay: usize,
}

impl<T> Late<T> {
    pub(crate) fn new(delay: usize) -> Late<T> {
        Late { under_way: VecDeque::new(), delay }
    }

    /// Sends a message, and returns the one sent `delay` periods before; `None` until then.
    pub(crate) fn say(&mut self, what: T) -> Option<T> {
        self.under_way.push_back(what);
        if self.under_way.len() > self.delay { self.under_way.pop_front() } else { None }
    }
}
