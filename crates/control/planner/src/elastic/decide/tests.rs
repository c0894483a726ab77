//! Each reason for which a pool stays as it is.

use super::*;
use crate::elastic::{BackendSample, PoolSample, Size};
use crate::policy::Policy;

const PERIOD: Duration = Duration::from_secs(1);
/// Concurrency limit of the backends of these tests.
const TOP: f64 = 8.0;
/// Names every backend in [`Case::guess`].
const ALL: &str = "*";

/// A pool of backends that are measured for a while, all with the same load.
struct Case {
    elastic: Elasticity,
    pool: PoolSpec,
    /// Requests in flight at each; `None`: not measured.
    in_flight: Option<f64>,
    queued: f64,
    excess: f64,
    /// Open requests at each without a permit.
    open: u32,
    limit: Option<f64>,
    /// One that no balancer has yet.
    coming: Option<&'static str>,
    /// A backend with a limit that is not learnt yet, eight times the others'; or [`ALL`].
    guess: Option<&'static str>,
    /// A balancer of the pool does not report.
    is_partial: bool,
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
            excess: 0.0,
            open: 0,
            limit: Some(TOP),
            coming: None,
            guess: None,
            is_partial: false,
            was: ScalingPlan {
                action: Scaling::Hold,
                reason: String::new(),
                in_use: None,
                since_out: LONG_AGO,
                since_in: LONG_AGO,
                low_for: LONG_AGO,
                peak: 0.0,
                limit: None,
                full: None,
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
            let limit = self.limit;
            let response = Some(Duration::from_millis(10));
            let one = |(name, spec): (&String, &BackendSpec)| {
                let is_guess = self.guess.is_some_and(|it| it == name || it == ALL);
                let size = spec.size.clone();
                let limit =
                    limit.map(|limit| if is_guess && limit < TOP { TOP * limit } else { limit });
                let open = self.open;
                let one = BackendSample { in_flight, response, limit, is_guess, open, size };
                (name.clone(), one)
            };
            let seen = |it: &(&String, &BackendSpec)| Some(&**it.0) != self.coming;
            let backends = self.pool.backends.iter().filter(seen).map(one).collect();
            let (queued, is_standing) = (self.queued, self.queued > 0.0);
            let sample = PoolSample { backends, queued, is_standing, excess: self.excess };
            history.record_pool("web", PERIOD * second, &sample);
            if self.is_partial {
                history.doubt_pool("web");
            }
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
    case.in_flight = Some(0.95 * TOP);
}

fn idle(case: &mut Case) {
    case.in_flight = Some(0.0);
}

/// A cheap and an expensive size; the backends have the expensive one.
fn sized(case: &mut Case) {
    let size = |speed, price| Size { speed, price };
    case.elastic.sizes =
        [("large".to_string(), size(4.0, 4.0)), ("small".to_string(), size(1.0, 1.0))].into();
    case.pool.backends.values_mut().for_each(|spec| spec.size = Some("large".to_string()));
}

#[test]
fn a_pool_with_unknown_use_is_held_with_the_reason() {
    let none = Case::of(0).with(|case| case.elastic.min = 0);
    assert_eq!(none.held(), "there is no backend, and no request waits (min = 0)");
    let failing = Case::of(2).each(failing);
    assert_eq!(failing.held(), "none of its 2 backends passes its checks");
    let unseen = Case::of(1).with(|case| case.in_flight = None);
    let expected = "no balancer with the pool reports, so the pool's use is not known";
    assert_eq!(unseen.held(), expected);
    let unlimited = Case::of(1).with(|case| case.limit = None);
    let expected = "no backend has a concurrency limit, so the pool's use is not known";
    assert_eq!(unlimited.held(), expected);
}

#[test]
fn a_forwarded_pool_is_scaled_only_by_pin_and_minimum() {
    let forwarded = |change: fn(&mut Case)| {
        Case::of(3).with(|case| (case.elastic.min, case.pool.is_forwarded) = (0, true)).with(change)
    };
    for case in [forwarded(idle), forwarded(busy)] {
        let plan = case.decide();
        assert_eq!((plan.action, plan.low_for), (Scaling::Hold, Duration::ZERO));
        assert!(plan.reason.contains("`plan pin` sets its size"), "{}", plan.reason);
    }
    let pinned = forwarded(|case| case.elastic.mode = Mode::Pinned(1)).decide().action;
    assert!(matches!(&pinned, Scaling::In { backends } if backends.len() == 2), "{pinned:?}");
    let few = forwarded(|case| case.elastic.min = 4).decide().action;
    assert_eq!(few, Scaling::Out { size: None, count: 1 });
}

#[test]
fn a_pool_does_not_shrink_while_a_balancer_is_silent() {
    let case = |change: fn(&mut Case)| Case::of(3).with(|case| case.is_partial = true).with(change);
    let idle = case(idle).decide();
    assert_eq!((idle.action, idle.low_for), (Scaling::Hold, Duration::ZERO));
    assert!(idle.reason.contains("a balancer of the pool does not report"), "{}", idle.reason);
    assert_eq!(case(busy).decide().action, Scaling::Out { size: None, count: 1 });
}

#[test]
fn a_pool_that_cannot_shrink_is_held_with_the_reason() {
    let smallest = Case::of(1).with(idle);
    assert_eq!(
        smallest.held(),
        "0.00 of the backends' limits is in use; the pool is at its smallest: 1 backend, min = 1"
    );
    let listed = Case::of(2).each(|spec| spec.is_elastic = false).with(idle);
    assert_eq!(
        listed.held(),
        "0.00 of the backends' limits is in use; its driver created none of the backends, so it removes none"
    );
    let new = Case::of(3).one("e3", cold(4));
    assert_eq!(new.held(), "0.50 of the backends' limits is in use; e3 is warming up, 6s left");
    let needed = Case::of(2);
    assert_eq!(
        needed.held(),
        "0.50 of the backends' limits is in use; without e1 it would be 1.00, and a pool shrinks to at \
         most 0.72 (target = 0.80)"
    );
    let last = Case::of(1).with(|case| case.elastic.min = 0);
    let expected = "; e1 is the last serving backend, and requests arrive";
    assert!(last.held().ends_with(expected), "{}", last.held());
    let idle = Case::of(1).with(idle).with(|case| case.elastic.min = 0).decide();
    assert_eq!(idle.action, Scaling::In { backends: vec!["e1".to_string()] });
}

#[test]
fn a_pool_does_not_shrink_while_its_queue_stands() {
    let backlog = Case::of(4).with(|case| {
        (case.in_flight, case.queued, case.excess) = (Some(TOP / 8.0), 9.0, -300.0);
    });
    let plan = backlog.decide();
    assert_eq!((plan.action, plan.low_for), (Scaling::Hold, Duration::ZERO));
    assert!(plan.reason.ends_with("9.0 requests wait in a standing queue"), "{}", plan.reason);
}

#[test]
fn open_tunnels_keep_the_last_backend() {
    let case =
        |count| Case::of(count).with(idle).with(|case| (case.elastic.min, case.open) = (0, 2));
    for limit in [Some(TOP), None] {
        let last = case(1).with(|case| case.limit = limit).held();
        let expected = "; e1 is the last serving backend, and 2 tunnels or slow requests are open";
        assert!(last.ends_with(expected), "{last}");
    }
    let more = case(2).decide().action;
    assert!(matches!(&more, Scaling::In { backends } if backends.len() == 1), "{more:?}");
}

#[test]
fn a_standing_queue_grows_the_pool_during_a_cool_down() {
    let case = |count| {
        Case::of(count).with(|case| {
            (case.in_flight, case.queued) = (Some(TOP), 1.5);
            case.was.since_out = Duration::ZERO;
        })
    };
    let grown = case(2).decide();
    assert_eq!(grown.action, Scaling::Out { size: None, count: 1 });
    assert_eq!(grown.reason, "1.5 requests wait in a standing queue");
    let largest = case(4).held();
    assert!(largest.ends_with("the pool is at its largest: max = 4"), "{largest}");
    let coming = case(3).with(|case| case.coming = Some("e3")).held();
    assert_eq!(coming, "1.09 of the backends' limits is in use; e3 does not serve yet");
    // Limits of several balancers add up, while only one of them has a queue.
    let uneven = case(2).with(|case| case.in_flight = Some(1.0)).decide();
    assert_eq!(uneven.action, Scaling::Out { size: None, count: 1 });
}

#[test]
fn a_pool_without_backends_adds_one_when_a_request_waits() {
    let empty = Case::of(0).with(|case| (case.elastic.min, case.queued) = (0, 0.1)).decide();
    assert_eq!(empty.action, Scaling::Out { size: None, count: 1 });
    assert_eq!(empty.reason, "requests wait for a first backend, there are 0");
}

#[test]
fn several_backends_leave_at_once_if_unneeded_during_the_cool_down() {
    let case = |rate, peak| {
        Case::of(8).with(idle).with(|case| {
            (case.elastic.max, case.elastic.scale_in_rate, case.was.peak) = (8, rate, peak);
        })
    };
    let leave = |case: Case| match case.decide().action {
        Scaling::In { backends } => backends.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(leave(case(0.25, 0.0)), 2);
    assert_eq!(leave(case(1.0, 0.0)), 7, "at least min stay");
    assert_eq!(leave(case(0.01, 0.0)), 1);
    // At the busiest moment the load needed three of eight, with some spare capacity.
    assert_eq!(leave(case(1.0, 0.71 * 3.0 * TOP)), 5);
    let several = case(0.25, 0.0).decide();
    assert!(several.reason.ends_with("2 fewer would have sufficed for 120s"), "{}", several.reason);
}

#[test]
fn an_unlearnt_limit_is_assumed_to_equal_the_others() {
    // 1.5 of two in flight at each: one backend fewer would not suffice.
    let new = Case::of(2).with(|case| {
        (case.in_flight, case.limit, case.guess) = (Some(1.5), Some(2.0), Some("e2"));
    });
    let why = new.held();
    assert!(why.starts_with("0.75 of the backends' limits is in use; without"), "{why}");
    assert_eq!(new.decide().limit, Some(2.0));
    // If it is the only one, its limit is used, but not remembered.
    let alone = Case::of(1).with(|case| (case.guess, case.was.limit) = (Some("e1"), None));
    assert!(alone.held().starts_with("0.50 of"), "{}", alone.held());
    assert_eq!(alone.decide().limit, None);
    let known = Case::of(1).with(|case| (case.guess, case.was.limit) = (Some("e1"), Some(20.0)));
    assert!(known.held().starts_with("0.20 of"), "{}", known.held());
}

#[test]
fn an_unlearnt_pool_does_not_shrink_to_a_load_that_queued() {
    let full = Case::of(1).with(|case| {
        (case.guess, case.in_flight, case.queued) = (Some(ALL), Some(TOP), 1.5);
    });
    let full = full.decide().full.unwrap();
    assert_eq!(full, FullRate { rate: 100.0 * TOP, age: Duration::ZERO });
    // A quarter of the initial limit is in use, at 400 requests a second.
    let two = |rate: f64, age: Duration| {
        Case::of(2).with(|case| {
            (case.guess, case.in_flight) = (Some(ALL), Some(TOP / 4.0));
            case.was.full = Some(FullRate { rate, age });
        })
    };
    let minute = Duration::from_secs(60);
    let why = two(500.0, minute).held();
    let wanted = "its backends' limits are not learnt yet, and 61s ago a queue stood at 500.0 requests a second for \
                  each; without e1 there would be 400.0 for each";
    assert!(why.ends_with(wanted), "{why}");
    let leaves = |case: Case| assert!(matches!(case.decide().action, Scaling::In { .. }));
    leaves(two(600.0, minute));
    leaves(two(500.0, FULL_FOR));
    leaves(two(500.0, minute).with(|case| case.was.limit = Some(TOP)));
    // A new backend makes each of them do less.
    let starting = two(500.0, minute).with(|case| case.queued = 1.0);
    assert_eq!(starting.decide().full.unwrap().rate, 500.0);
}

#[test]
fn a_target_may_be_stated_for_each_backend() {
    // 10 ms for each request: 400 a second at each backend, with 4 in flight.
    let case = |target| Case::of(2).with(|case| case.elastic.target = target);
    for (target, grows) in [
        (Target::Concurrency(3.9), true),
        (Target::Concurrency(4.1), false),
        (Target::Requests(390.0), true),
        (Target::Requests(410.0), false),
    ] {
        let plan = case(target).decide();
        assert_eq!(plan.action != Scaling::Hold, grows, "{}", plan.reason);
    }
    let concurrency = case(Target::Concurrency(3.9)).decide().reason;
    let expected = "1.03 of 3.9 requests in flight for each backend is in use, the target is 1.00";
    assert_eq!(concurrency, expected);
}

#[test]
fn a_pool_waits_out_its_cool_downs_before_it_shrinks() {
    let would = "0.00 of the backends' limits is in use; one fewer would suffice, ";
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
    assert!(done.reason.ends_with("and one fewer would have sufficed for 120s"), "{}", done.reason);
}

#[test]
fn a_pool_grows_neither_past_its_maximum_nor_while_cooling_down() {
    let why = "0.95 of the backends' limits is in use, the target is 0.80";
    let largest = Case::of(4).with(busy).with(|case| case.was.since_out = Duration::ZERO);
    assert_eq!(largest.held(), format!("{why}; the pool is at its largest: max = 4"));
    let cooling = Case::of(2).with(busy).with(|case| case.was.since_out = Duration::from_secs(2));
    assert_eq!(cooling.held(), format!("{why}; the last step out is cooling down, 12s left"));
    assert_eq!(Case::of(2).with(busy).decide().action, Scaling::Out { size: None, count: 1 });
}

#[test]
fn the_reason_states_whether_a_cheaper_size_would_suffice() {
    let at_min = "the pool is at its smallest: 1 backend, min = 1; ";
    let case = Case::of(1).with(sized);
    let needed = case.held();
    let expected = "no cheaper size would suffice";
    assert!(needed.ends_with(&format!("{at_min}{expected}")), "{needed}");
    let idle = Case::of(1).with(sized).with(idle).with(|case| case.was.low_for = Duration::ZERO);
    assert!(
        idle.held().ends_with("a cheaper one would suffice, if it lasts 119s more"),
        "{}",
        idle.held()
    );
    let small = |case: &mut Case| {
        case.in_flight = Some(0.0);
        case.pool.backends.values_mut().for_each(|spec| spec.size = Some("small".to_string()));
    };
    let cheapest = Case::of(1).with(sized).with(small).held();
    assert!(cheapest.ends_with("no cheaper size would suffice"), "{cheapest}");
}

#[test]
fn a_pinned_or_paused_pool_is_held_with_the_reason() {
    let pinned = |count| Case::of(2).with(|case| case.elastic.mode = Mode::Pinned(count));
    assert_eq!(pinned(2).held(), "pinned at 2, there are 2");
    let listed = pinned(1).each(|spec| spec.is_elastic = false);
    assert_eq!(listed.held(), "pinned at 1, there are 2, and its driver created none of them");
    let paused = |count| Case::of(count).with(busy).with(|case| case.elastic.mode = Mode::Paused);
    let why = "0.95 of the backends' limits is in use, the target is 0.80";
    assert_eq!(paused(2).held(), format!("paused; it would add 1: {why}"));
    let hold = format!("paused; it would hold: {why}; the pool is at its largest: max = 4");
    assert_eq!(paused(4).held(), hold);
    let shrinks = Case::of(2).with(idle).with(|case| case.elastic.mode = Mode::Paused).held();
    assert!(shrinks.starts_with("paused; it would drain e1: 0.00 of"), "{shrinks}");
}

#[test]
fn the_reason_mentions_draining_and_failing_backends() {
    let drain = |spec: &mut BackendSpec| spec.admin = AdminState::Drain;
    let few = |case: &mut Case| case.in_flight = Some(1.0);
    let one = Case::of(2).one("e2", drain).with(few).held();
    assert!(one.ends_with("1 backend, min = 1; e2 is still draining"), "{one}");
    let more = Case::of(3).one("e2", drain).one("e3", drain).with(few).held();
    assert!(more.ends_with("min = 1; e2 and 1 more are still draining"), "{more}");
    let fails = Case::of(4).one("e4", failing).with(busy).held();
    assert!(fails.ends_with("max = 4; 1 of 4 fail their checks"), "{fails}");
}
