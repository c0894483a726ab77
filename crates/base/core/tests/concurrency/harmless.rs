//! Where the learner has nothing to say, nothing is refused that is served today.

use std::time::Duration;

use equipoise_core::concurrency::{Learner, Load, Outcome, Region, Sample};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::backend::{Backend, Job, Service, exponential};
use super::measure::learned;
use super::simulator::{Outcomes, Setting};

fn backend(draw: super::backend::Draw) -> Backend {
    Backend {
        name: "4 slots of 5 ms",
        service: Service::Sharing(|n| n.min(4.0)),
        draw,
        capacity: 800.0,
        scale: |_| 1.0,
        slowdown: |_| 1.0,
        refuses_above: usize::MAX,
        deadline: 100.0,
    }
}

fn run(backend: &Backend, offered: fn(f64) -> f64, seconds: f64) -> Outcomes {
    let mut setting = Setting::new(backend, 1.0, 11);
    setting.offered = offered;
    setting.factor = 1.0;
    setting.seconds = seconds;
    // The default queue.
    setting.wait = 1.0;
    setting.queue_length = 1000;
    learned(&setting)
}

#[test]
fn a_thousand_long_polls_are_all_let_through() {
    let backend = backend(|_, _| Job { work: 0.0, latency: 30.0 });
    let out = run(&backend, |t| if t < 1.0 { 1000.0 } else { 33.0 }, 90.0);
    assert_eq!(out.refused(0.0, 90.0), 0.0);
}

#[test]
fn rare_requests_of_a_minute_do_not_block_short_requests() {
    let backend = backend(|rng, _| {
        let long = rng.random::<f64>() < 0.001;
        Job { work: exponential(rng, 0.005), latency: if long { 60.0 } else { 0.0 } }
    });
    let out = run(&backend, |_| 400.0, 120.0);
    assert_eq!(out.refused(0.0, 120.0), 0.0);
    // One second to see that they are long is all that they may cost others.
    assert!(out.latency(0.99, 5.0, 60.0) < 0.2, "{}", out.latency(0.99, 5.0, 60.0));
}

#[test]
fn connections_that_never_end_cause_no_refusals() {
    let backend = backend(|rng, _| {
        let tunnel = rng.random::<f64>() < 0.005;
        Job { work: exponential(rng, 0.005), latency: if tunnel { 1e6 } else { 0.0 } }
    });
    let out = run(&backend, |_| 400.0, 120.0);
    assert_eq!(out.refused(0.0, 120.0), 0.0);
}

#[test]
fn a_pool_without_earlier_load_refuses_nothing_under_sudden_load() {
    let backend = backend(|rng, _| Job { work: exponential(rng, 0.005), latency: 0.1 });
    let out = run(&backend, |t| if t < 20.0 { 1.0 } else { 640.0 }, 40.0);
    assert_eq!(out.refused(0.0, 40.0), 0.0);
}

#[test]
fn a_handful_of_requests_a_second_is_not_enough_to_learn_from() {
    let mut learner = Learner::new(Duration::from_secs(1));
    let first = learner.limit();
    for step in 0..60_000u64 {
        let now = Duration::from_millis(5 * step);
        if step.is_multiple_of(50) {
            learner.observe(&[Sample {
                finished: now,
                service_time: Duration::from_millis(100),
                outcome: Outcome::Answered,
            }]);
        }
        learner.step(Load { now, in_flight: u32::from(step % 50 < 20), ..Load::default() });
    }
    assert_eq!(learner.limit(), first);
    assert_eq!(learner.report().region, Region::NotEnoughSeen);
    assert_eq!(learner.report().knee, None);
}

#[test]
fn unmeasured_requests_do_not_train_the_learner() {
    let mut learner = Learner::new(Duration::from_secs(1));
    for step in 0..6_000u64 {
        let now = Duration::from_millis(5 * step);
        let one = Sample {
            finished: now,
            service_time: Duration::from_millis(step % 900),
            outcome: Outcome::NotMeasured,
        };
        learner.observe(&[one; 4]);
        learner.step(Load { now, in_flight: 16, waiting: 5, ..Load::default() });
    }
    assert_eq!(learner.report().region, Region::NotEnoughSeen);
}

#[test]
fn no_input_makes_the_limit_fall_below_one_or_fail() {
    let mut rng = StdRng::seed_from_u64(3);
    let mut learner = Learner::new(Duration::from_millis(300));
    let mut now = Duration::ZERO;
    let outcomes = [Outcome::Answered, Outcome::Failed, Outcome::TimedOut, Outcome::NotMeasured];
    for _ in 0..50_000 {
        // Steps of no time at all, and steps of a minute.
        now += Duration::from_secs_f64(rng.random::<f64>().powi(20) * 60.0);
        let one = Sample {
            finished: now,
            service_time: Duration::from_secs_f64(rng.random::<f64>().powi(9) * 100.0),
            outcome: outcomes[rng.random_range(0..4)],
        };
        learner.observe(&[one; 40][..rng.random_range(0..40)]);
        let (in_flight, waiting) = (rng.random_range(0..100), rng.random_range(0..9));
        learner.step(Load { now, in_flight, waiting, oldest_wait: Duration::ZERO });
        let report = learner.report();
        assert!((1..=10_000_000).contains(&report.limit), "{report:?}");
        assert!(report.knee.is_none_or(|knee| knee >= 1.0 && knee.is_finite()), "{report:?}");
    }
}

#[test]
fn the_limit_rises_for_long_polls_that_follow_short_requests() {
    let mut learner = Learner::new(Duration::from_secs(1));
    for step in 0..2_000u64 {
        let now = Duration::from_millis(5 * step);
        // A few short requests, then nothing but long polls: 1,000 of them.
        if step < 30 {
            learner.observe(&[Sample {
                finished: now,
                service_time: Duration::from_millis(5),
                outcome: Outcome::Answered,
            }]);
        }
        let in_flight = learner.limit().min(1000);
        learner.step(Load { now, in_flight, waiting: 1000 - in_flight, ..Load::default() });
        if learner.limit() >= 1000 {
            assert!(now < Duration::from_secs(2), "{now:?}");
            return;
        }
    }
    panic!("{:?}", learner.report());
}

#[test]
fn the_first_limit_rises_beside_requests_that_started_without_one() {
    let mut learner = Learner::new(Duration::from_secs(1));
    for step in 0..200u64 {
        let now = Duration::from_millis(5 * step);
        if learner.limit() >= 80 {
            return;
        }
        learner.step(Load { now, in_flight: 40, waiting: 40, ..Load::default() });
    }
    panic!("{:?}", learner.report());
}
