//! Several balancers before one backend: each alone, and with reports of the others a second old.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use equipoise_core::concurrency::{Load, Sample, SharedLearner, Tally};

use super::backend::{Backend, Job};
use super::goals::named;
use super::measure::learned;
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

/// Each balancer begins with a limit that suits it alone. Eight of them begin with too many.
#[test]
fn a_backend_that_eight_balancers_made_slow_recovers() {
    let cases = [("thrashes past 16", 0.8), ("thrashes past 16", 4.0), ("4 slots of 20 ms", 2.0)];
    for (name, times) in cases {
        let mut setting = Setting::new(&named(name), times, 1);
        setting.skews = vec![0.0; 8];
        (setting.wait, setting.seconds) = (1.0, 100.0);
        let out = simulate(&setting, &mut members(&setting, NEVER));
        let share = out.goodput(60.0, 100.0) / (times.min(1.0) * named(name).capacity);
        println!("{name} at {times}: {share:.3}");
        assert!(share >= 0.9, "{name} at {times}: {share:.3}");
    }
}

/// Nothing finishes while the first of them wait, so that there is no limit to share.
#[test]
fn long_polls_at_balancers_of_a_cluster_are_all_let_through() {
    let polls = Backend {
        draw: |_, _| Job { work: 0.0, latency: 30.0 },
        deadline: 100.0,
        ..named("4 slots, exponential")
    };
    let mut setting = Setting::new(&polls, 1.0, 11);
    setting.offered = |t| if t < 1.0 { 1000.0 } else { 33.0 };
    setting.factor = 1.0;
    (setting.wait, setting.seconds) = (1.0, 90.0);
    setting.skews = vec![0.0; 2];
    let mut members = members(&setting, NEVER);
    let out = simulate(&setting, &mut members);
    assert_eq!(out.refused(0.0, 90.0), 0.0);
}

/// Goodput of what is possible: of balancers that learn alone, and of a cluster's.
#[test]
#[ignore = "a table"]
fn clusters() {
    for balancers in [2, 8] {
        for name in [
            "4 slots of 20 ms",
            "4 slots, exponential",
            "collapses past 8",
            "thrashes past 16",
            "100 slots of 50 ms",
            "lock collapses past 12",
            "4 workers that slow down",
            "database pool of 10",
            "8 cores of 100 us",
        ] {
            for times in [0.8, 2.0, 4.0] {
                let backend = named(name);
                let mut setting = Setting::new(&backend, times, 1);
                setting.skews = vec![0.0; balancers];
                setting.wait = 1.0;
                setting.seconds = if backend.capacity > 10_000.0 { 6.0 } else { 120.0 };
                let mut members = members(&setting, NEVER);
                let outs = [learned(&setting), simulate(&setting, &mut members)];
                let part = |out: &Outcomes, from: f64, to: f64| {
                    let (from, to) = (from * setting.seconds, to * setting.seconds);
                    out.goodput(from, to) / (times.min(1.0) * backend.capacity)
                };
                let [alone, shared] = outs.map(|out| {
                    [(0.01, 0.1), (0.1, 0.3), (0.3, 0.5), (0.5, 1.0)]
                        .map(|(from, to)| (100.0 * part(&out, from, to)).round())
                });
                println!("{balancers} {times} {name:24} alone {alone:?} shared {shared:?}");
            }
        }
    }
}

#[test]
fn balancers_without_reports_keep_most_of_their_goodput() {
    let out = simulated("4 slots, exponential", 2.0, 2, 60.0..90.0);
    let share = out.goodput(62.0, 120.0) / 200.0;
    println!("{share:.3}");
    assert!(share >= 0.8, "{share:.3}");
}
