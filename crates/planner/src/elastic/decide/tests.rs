//! Each reason for which a pool stays as it is.

use super::*;
use crate::elastic::{BackendSample, PoolSample, Size};
use crate::policy::Policy;

const PERIOD: Duration = Duration::from_secs(1);
/// Requests in flight at which the backends of these tests top out.
const TOP: f64 = 8.0;

/// A pool of backends that are measured for a while, with the same load each.
struct Case {
    elastic: Elasticity,
    pool: PoolSpec,
    /// In flight at each; `None`: nobody has looked.
    in_flight: Option<f64>,
    queued: f64,
    was: ScalingPlan,
}

impl Case {
    /// `count` backends made by the driver, of 1 to 4, each half used.
    fn of(count: usize) -> Case {
        let spec = BackendSpec { is_elastic: true, ..BackendSpec::default() };
        let backends = (1..=count).map(|n| (format!("e{n}"), spec.clone())).collect();
        Case {
            elastic: Elasticity { min: 1, max: 4, ..Elasticity::default() },
            pool: PoolSpec { backends, ..PoolSpec::default() },
            in_flight: Some(TOP / 2.0),
            queued: 0.0,
            was: ScalingPlan {
                action: Scaling::Hold,
                reason: String::new(),
                in_use: None,
                since_out: LONG_AGO,
                since_in: LONG_AGO,
                low_for: LONG_AGO,
                after: None,
                learnt: Learnt::default(),
            },
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Case)) -> Case {
        change(&mut self);
        self
    }

    fn each(self, change: impl Fn(&mut BackendSpec)) -> Case {
        self.with(|case| case.pool.backends.values_mut().for_each(change))
    }

    fn one(self, name: &str, change: impl FnOnce(&mut BackendSpec)) -> Case {
        self.with(|case| change(case.pool.backends.get_mut(name).unwrap()))
    }

    fn decide(&self) -> ScalingPlan {
        let mut history = History::new(Policy::default().smoothing, Duration::ZERO);
        for second in 1..=60 {
            let Some(in_flight) = self.in_flight else { break };
            let limit = Some(TOP);
            let response = Some(Duration::from_millis(10));
            let one = |(name, spec): (&String, &BackendSpec)| {
                let size = spec.size.clone();
                (name.clone(), BackendSample { in_flight, response, limit, size, cpu: None })
            };
            let backends = self.pool.backends.iter().map(one).collect();
            let sample = PoolSample { backends, queued: self.queued };
            history.record_pool("web", PERIOD * second, &sample);
        }
        decide(&self.elastic, &self.pool, &history, "web", Some(&self.was), PERIOD)
    }

    fn held(&self) -> String {
        let plan = self.decide();
        assert_eq!(plan.action, Scaling::Hold, "{}", plan.reason);
        plan.reason
    }
}

fn cold(age_s: u64) -> impl Fn(&mut BackendSpec) {
    move |spec| spec.age = Duration::from_secs(age_s)
}

fn failing(spec: &mut BackendSpec) {
    spec.health = Health::Unhealthy;
}

fn busy(case: &mut Case) {
    case.in_flight = Some(0.9 * TOP);
}

fn idle(case: &mut Case) {
    case.in_flight = Some(0.0);
}

/// Cheap and dear ones, of which the backends are dear.
fn sized(case: &mut Case) {
    let size = |speed, price| Size { speed, price };
    case.elastic.sizes =
        [("large".to_string(), size(4.0, 4.0)), ("small".to_string(), size(1.0, 1.0))].into();
    case.pool.backends.values_mut().for_each(|spec| spec.size = Some("large".to_string()));
}

#[test]
fn nothing_is_known() {
    let none = Case::of(0).with(|case| case.elastic.min = 0);
    assert_eq!(
        none.held(),
        "there is no backend and none is asked for (min = 0), so no load shows"
    );
    let failing = Case::of(2).each(failing);
    assert_eq!(failing.held(), "none of its 2 backends passes its checks, so no load shows");
    let new = Case::of(1).each(cold(3));
    assert_eq!(new.held(), "e1 is warming up, 7s left");
    let unseen = Case::of(1).with(|case| case.in_flight = None);
    assert_eq!(unseen.held(), "no backend has shown its speed yet: no request was answered");
}

#[test]
fn nothing_can_be_taken_away() {
    let smallest = Case::of(1).with(idle);
    assert_eq!(
        smallest.held(),
        "0.00 of the speed shown is in use; the pool is at its smallest: 1 backend, min = 1"
    );
    let listed = Case::of(2).each(|spec| spec.is_elastic = false).with(idle);
    assert_eq!(
        listed.held(),
        "0.00 of the speed shown is in use; its driver made none of the backends, so it takes none away"
    );
    let queued = Case::of(2).with(|case| case.queued = 1.5);
    assert_eq!(queued.held(), "0.50 of the speed shown is in use; 1.5 requests wait for a backend");
    let new = Case::of(3).one("e3", cold(4));
    assert_eq!(new.held(), "0.50 of the speed shown is in use; e3 is warming up, 6s left");
    let needed = Case::of(2);
    assert_eq!(
        needed.held(),
        "0.50 of the speed shown is in use; without e1 it would be 1.00, and a pool shrinks to at \
         most 0.59 (headroom = 0.3)"
    );
}

#[test]
fn a_smaller_pool_would_do_and_has_to_wait() {
    let would = "0.00 of the speed shown is in use; one fewer would do, ";
    type Change = fn(&mut ScalingPlan);
    let rows: [(Change, &str); 3] = [
        (|was| was.low_for = Duration::from_secs(29), "if it lasts 90s more"),
        (
            |was| was.since_out = Duration::from_secs(19),
            "but the last step out is cooling down for 100s more",
        ),
        (
            |was| (was.since_in, was.low_for) = (Duration::ZERO, Duration::ZERO),
            "but the last step in is cooling down for 119s more",
        ),
    ];
    for (change, why) in rows {
        let case = Case::of(2).with(idle).with(|case| change(&mut case.was));
        assert_eq!(case.held(), format!("{would}{why}"));
    }
    let done = Case::of(2).with(idle).decide();
    assert_eq!(done.action, Scaling::In { backends: vec!["e1".to_string()] });
    assert!(done.reason.ends_with("and one fewer would have done for 120s"), "{}", done.reason);
}

#[test]
fn a_larger_pool_is_needed_and_cannot_be_had() {
    let why = "0.90 of the speed shown is in use, at most 0.70 is wanted";
    let largest = Case::of(4).with(busy).with(|case| case.was.since_out = Duration::ZERO);
    assert_eq!(largest.held(), format!("{why}; the pool is at its largest: max = 4"));
    let cooling = Case::of(2).with(busy).with(|case| case.was.since_out = Duration::from_secs(2));
    assert_eq!(cooling.held(), format!("{why}; the last step out is cooling down, 12s left"));
    assert_eq!(Case::of(2).with(busy).decide().action, Scaling::Out { size: None, count: 1 });
}

#[test]
fn a_cheaper_size_would_do_or_would_not() {
    let at_min = "the pool is at its smallest: 1 backend, min = 1; ";
    let case = Case::of(1).with(sized);
    let unknown = case.held();
    let expected =
        "whether a cheaper size would do is not known, since e1 has not shown its top speed";
    assert!(unknown.ends_with(&format!("{at_min}{expected}")), "{unknown}");
    let idle = Case::of(1).with(sized).with(idle).with(|case| case.was.low_for = Duration::ZERO);
    assert!(
        idle.held().ends_with("a cheaper one would do, if it lasts 119s more"),
        "{}",
        idle.held()
    );
    let small = |case: &mut Case| {
        case.in_flight = Some(0.0);
        case.pool.backends.values_mut().for_each(|spec| spec.size = Some("small".to_string()));
    };
    let cheapest = Case::of(1).with(sized).with(small).held();
    assert!(cheapest.ends_with("there is no cheaper size that would do"), "{cheapest}");
}

#[test]
fn an_operator_keeps_it() {
    let pinned = |count| Case::of(2).with(|case| case.elastic.mode = Mode::Pinned(count));
    assert_eq!(pinned(2).held(), "pinned at 2, there are 2");
    let listed = pinned(1).each(|spec| spec.is_elastic = false);
    assert_eq!(listed.held(), "pinned at 1, there are 2, and its driver made none of them");
    let paused = |count| Case::of(count).with(busy).with(|case| case.elastic.mode = Mode::Paused);
    let why = "0.90 of the speed shown is in use, at most 0.70 is wanted";
    assert_eq!(paused(2).held(), format!("paused; it would add 1: {why}"));
    let hold = format!("paused; it would hold: {why}; the pool is at its largest: max = 4");
    assert_eq!(paused(4).held(), hold);
    let shrinks = Case::of(2).with(idle).with(|case| case.elastic.mode = Mode::Paused).held();
    assert!(shrinks.starts_with("paused; it would drain e1: 0.00 of"), "{shrinks}");
}

#[test]
fn who_drains_and_who_fails_is_said_beside_the_reason() {
    let drain = |spec: &mut BackendSpec| spec.admin = AdminState::Drain;
    let one = Case::of(2).one("e2", drain).held();
    assert!(one.ends_with("1 backend, min = 1; e2 is still draining"), "{one}");
    let more = Case::of(3).one("e2", drain).one("e3", drain).held();
    assert!(more.ends_with("min = 1; e2 and 1 more are still draining"), "{more}");
    let fails = Case::of(4).one("e4", failing).with(busy).held();
    assert!(fails.ends_with("max = 4; 1 of 4 fail their checks"), "{fails}");
}
