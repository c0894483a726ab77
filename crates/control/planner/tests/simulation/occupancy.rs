//! Two nodes of one name with equal CPUs. The application of one of them waits for a slow database
//! for a while, so that its concurrency limit is reached and requests queue.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use equipoise_core::load::{ClassRate, ClassRates, Occupancy, Reported};
use equipoise_planner::{
    History, Inventory, NameSpec, NodeSpec, Plan, Policy, Report, Steering, Tick, plan,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::rules::{Late, name};

const HOUR: usize = 3600;
/// Periods from a plan until clients follow it.
const DELAY: usize = 3;
/// Requests a second at both nodes together.
const DEMAND: f64 = 100.0;
/// CPU of a request a second, in per cent.
const COST: f64 = 0.8;
/// Requests that each application serves at once.
const LIMIT: f64 = 20.0;
/// Seconds in service, with the usual and with the slow database: 200 and 20 requests a second.
const SERVICE: [f64; 2] = [0.1, 1.0];
/// The database of the second node is slow in these periods.
const SLOW: Range<usize> = 600..1800;
/// Longest wait in the queue, in seconds. Requests that would wait longer are refused.
const WAIT: f64 = 1.0;

/// One application in one period.
struct Period {
    served: f64,
    refused: f64,
    occupancy: Occupancy,
}

/// Serves `arrived` requests a second. `queued` wait from the period before.
fn serve(arrived: f64, queued: f64, service: f64) -> Period {
    let capacity = LIMIT / service;
    let asked = arrived + queued;
    let served = asked.min(capacity);
    let queued = (asked - served).min(capacity * WAIT);
    let in_flight = (served * service).min(LIMIT);
    let occupancy = Occupancy { in_flight, queued, limit: LIMIT };
    Period { served, refused: asked - served - queued, occupancy }
}

/// The second node's share, and the refused part of all requests, in each period.
struct Course {
    share: Vec<f64>,
    refused: Vec<f64>,
}

impl Course {
    fn mean(of: &[f64], periods: Range<usize>) -> f64 {
        let some = &of[periods];
        some.iter().sum::<f64>() / some.len() as f64
    }

    /// Half of the range of the share.
    fn amplitude(&self, periods: Range<usize>) -> f64 {
        let some = self.share[periods].iter();
        let (least, most) = some
            .fold((1.0f64, 0.0f64), |(least, most), share| (least.min(*share), most.max(*share)));
        (most - least) / 2.0
    }
}

/// The course of two hours. The nodes report their occupancy if `reports`.
fn run(reports: bool) -> Course {
    let names = Steering { settle_periods: DELAY as f64, ..Steering::default() };
    let policy = Policy { names, ..Policy::default() }.checked().unwrap();
    let members: BTreeMap<_, _> = (0..2).map(|at| (name(at), NodeSpec::default())).collect();
    let www = NameSpec { nodes: members.keys().cloned().collect() };
    let inventory =
        Inventory::new(members, [("www".to_string(), www)].into(), BTreeMap::new()).unwrap();
    let mut history = History::new(policy.smoothing, Duration::ZERO);
    let mut rng = StdRng::seed_from_u64(3);
    let mut before: Option<Plan> = None;
    let (mut planned, mut in_force, mut queued) = (Late::new(DELAY), 0.5, [0.0; 2]);
    let mut course = Course { share: Vec::new(), refused: Vec::new() };
    for period in 0..2 * HOUR {
        let now = Duration::from_secs(1 + period as u64);
        let mut refused = 0.0;
        for (at, share) in [1.0 - in_force, in_force].into_iter().enumerate() {
            let arrived = DEMAND * share * rng.random_range(0.8..1.2);
            let service = SERVICE[usize::from(at == 1 && SLOW.contains(&period))];
            let done = serve(arrived, queued[at], service);
            queued[at] = done.occupancy.queued;
            refused += done.refused / DEMAND;
            let cpu = (COST * done.served + rng.random_range(-1.0..1.0)).clamp(0.0, 100.0);
            let light = ClassRate { arrived, bytes: 1000.0 * arrived, ..ClassRate::default() };
            let report = Report {
                load: Reported { cpu, memory: 30.0, net: None },
                classes: ClassRates { light, ..ClassRates::default() },
                occupancy: reports.then_some(done.occupancy),
            };
            history.record(&name(at), now, &report).unwrap();
        }
        let tick = Tick { now, passed: policy.period() };
        let next = plan(&policy, &inventory, &history, before.as_ref(), tick);
        if let Some(share) = planned.say(next.names["www"].shares[&name(1)].probability) {
            in_force = share;
        }
        course.share.push(in_force);
        course.refused.push(refused);
        before = Some(next);
    }
    course
}

#[test]
fn a_node_with_a_full_queue_gets_less_until_it_ends_and_nothing_flaps_in_an_hour() {
    let course = run(true);
    let every: Vec<_> = course.share.iter().step_by(60).map(|it| (it * 100.0).round()).collect();
    println!("share of the second node each minute, in per cent: {every:?}");
    let (early, slow) = (60..SLOW.start, SLOW.start + 300..SLOW.end);
    let (back, last) = (SLOW.end + 600..SLOW.end + HOUR, HOUR..2 * HOUR);
    let share = |periods: &Range<usize>| Course::mean(&course.share, periods.clone());
    assert!((share(&early) - 0.5).abs() < 0.02, "at first: {}", share(&early));
    // It can serve a fifth of the demand.
    assert!((0.08..0.2).contains(&share(&slow)), "with a queue: {}", share(&slow));
    let refused = Course::mean(&course.refused, slow.clone());
    assert!(refused < 0.01, "{refused} are refused");
    assert!((share(&back) - 0.5).abs() < 0.03, "afterwards: {}", share(&back));
    for periods in [slow, back, last] {
        let amplitude = course.amplitude(periods.clone());
        println!("{periods:?}: {:.3} +- {amplitude:.3}", share(&periods));
        assert!(amplitude < 0.03, "{periods:?}: {amplitude}");
    }
}

#[test]
fn without_its_occupancy_a_full_node_would_keep_its_share() {
    let course = run(false);
    let slow = SLOW.start + 300..SLOW.end;
    let (share, refused) =
        (Course::mean(&course.share, slow.clone()), Course::mean(&course.refused, slow));
    println!("by CPU alone: share {share:.2}, {:.0} % refused", 100.0 * refused);
    assert!(share > 0.4 && refused > 0.2, "share {share}, refused {refused}");
}
