//! Several balancers before one backend: each alone, and with reports of the others a second old.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use equipoise_core::concurrency::{Load, Sample, SharedLearner, Tally};

use super::goals::named;
use super::simulator::{Limiter, Outcomes, Setting, simulate};

/// Seconds between two reports, and how old a report is when another balancer reads it.
const PERIOD: f64 = 1.0;
const AGE: f64 = 0.5;

/// Reports of each balancer with the time at which each was sent.
type Reports = Rc<RefCell<Vec<Vec<(f64, Tally)>>>>;

struct Member {
    index: usize,
    learner: SharedLearner,
    reports: Reports,
    next: f64,
    /// No reports arrive in this span of seconds.
    outage: std::ops::Range<f64>,
}

impl Limiter for Member {
    fn limit(&self) -> u32 {
        self.learner.limit()
    }

    fn finished(&mut self, samples: &[Sample], _: &[u32]) {
        self.learner.observe(samples);
    }

    fn step(&mut self, load: Load) {
        self.learner.step(load);
        let now = load.now.as_secs_f64();
        if now < self.next {
            return;
        }
        self.next = now + PERIOD;
        let reports = self.reports.borrow();
        let others = reports.iter().enumerate().filter(|(index, _)| *index != self.index);
        let newest = |(_, sent): (usize, &Vec<(f64, Tally)>)| {
            let old_enough = |(at, _): &&(f64, Tally)| (AGE..3.0).contains(&(now - at));
            sent.iter().rev().find(old_enough).map(|(_, tally)| *tally)
        };
        let heard: Vec<Tally> = match self.outage.contains(&now) {
            true => Vec::new(),
            false => others.filter_map(newest).collect(),
        };
        drop(reports);
        self.learner.exchange(load.now, &heard);
        self.reports.borrow_mut()[self.index].push((now, self.learner.tally()));
    }

    fn describe(&self) -> String {
        format!("{} {:?}", self.index, self.learner)
    }
}

/// A learner for each balancer of a cluster.
pub(crate) fn members(setting: &Setting, outage: std::ops::Range<f64>) -> Vec<Box<dyn Limiter>> {
    let count = setting.skews.len();
    let reports: Reports = Rc::new(RefCell::new(vec![Vec::new(); count]));
    let member = |index: usize| -> Box<dyn Limiter> {
        Box::new(Member {
            index,
            learner: SharedLearner::new(Duration::from_secs_f64(setting.wait), index as u64),
            reports: Rc::clone(&reports),
            next: PERIOD * index as f64 / count as f64,
            outage: outage.clone(),
        })
    };
    (0..count).map(member).collect()
}

fn simulated(name: &str, times: f64, balancers: usize, outage: std::ops::Range<f64>) -> Outcomes {
    let mut setting = Setting::new(&named(name), times, 1);
    setting.skews = vec![0.0; balancers];
    setting.seconds = 120.0;
    let mut members = members(&setting, outage);
    simulate(&setting, &mut members)
}

const NEVER: std::ops::Range<f64> = 0.0..0.0;

#[test]
fn two_and_eight_balancers_of_a_cluster_share_a_backend() {
    let name = "4 slots, exponential";
    for balancers in [2, 8] {
        for times in [2.0, 4.0] {
            let out = simulated(name, times, balancers, NEVER);
            let share = out.goodput(60.0, 120.0) / named(name).capacity;
            println!("{name}, {balancers} at {times}: {share:.3} {:?}", out.answered);
            assert!(share >= 0.93, "{name}, {balancers} balancers at {times}: {share:.3}");
            let least = f64::from(*out.answered.iter().min().unwrap());
            let most = f64::from(*out.answered.iter().max().unwrap());
            assert!(least >= 0.7 * most, "{name}: {:?}", out.answered);
        }
    }
}

#[test]
fn below_capacity_a_cluster_refuses_nothing() {
    let out = simulated("4 slots, exponential", 0.8, 8, NEVER);
    assert!(out.refused(10.0, 120.0) <= 0.005, "{}", out.refused(10.0, 120.0));
}

#[test]
fn a_balancer_which_hears_nothing_goes_on_alone() {
    let out = simulated("4 slots, exponential", 2.0, 2, 60.0..90.0);
    let share = out.goodput(62.0, 120.0) / 200.0;
    println!("{share:.3}");
    assert!(share >= 0.8, "{share:.3}");
}
