//! Elastic pools in a closed loop with simulated backends: slots, a queue before them, random
//! arrivals.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::AdminState;
use equipoise_planner::elastic::{Elasticity, Mode, Scaling, ScalingPlan, Size, Target};
use equipoise_planner::{BackendSpec, History, Inventory, Plan, Policy, PoolSpec, Tick, plan};

mod slots;

use slots::Slots;

const PERIOD: Duration = Duration::from_secs(1);
/// Concurrent requests of a backend of speed 1, and the time of each.
const LIMIT: usize = 8;
const SERVICE_S: f64 = 0.1;
/// Greatest number of requests a second of a backend of speed 1.
const SPEED: f64 = LIMIT as f64 / SERVICE_S;

/// A pool with backends that are added and removed as planned, a period later.
struct World {
    policy: Policy,
    history: History,
    pool: PoolSpec,
    plan: Option<Plan>,
    slots: Slots,
    limit: usize,
    at: u32,
    made: u32,
}

impl World {
    /// A pool that has one backend of `size`.
    fn new(elastic: Elasticity, size: Option<&str>) -> World {
        let mut world = World::empty(elastic, LIMIT, SERVICE_S);
        let first = backend(size, Duration::from_secs(3600));
        world.pool.backends.insert("first".to_string(), first);
        world
    }

    /// A pool without a backend. Added backends serve `limit` requests at once, each in
    /// `service_s`.
    fn empty(elastic: Elasticity, limit: usize, service_s: f64) -> World {
        let policy = Policy::default();
        World {
            history: History::new(policy.smoothing, Duration::ZERO),
            pool: PoolSpec { elastic: Some(elastic), ..PoolSpec::default() },
            policy,
            plan: None,
            slots: Slots::new(service_s),
            limit,
            at: 0,
            made: 0,
        }
    }

    /// One period with `rate` requests a second.
    fn step(&mut self, rate: f64) -> ScalingPlan {
        self.step_as(|slots| slots.ask_at(rate, PERIOD))
    }

    /// One period in which `clients` clients send the next request after each response.
    fn step_closed(&mut self, clients: usize) -> ScalingPlan {
        self.step_as(|slots| slots.ask_again(clients))
    }

    fn step_as(&mut self, ask: impl Fn(&mut Slots)) -> ScalingPlan {
        self.at += 1;
        let now = PERIOD * self.at;
        let limits: Vec<(String, Option<String>, usize)> = self
            .up()
            .map(|(name, it)| (name.clone(), it.size.clone(), self.limit_of(it)))
            .collect();
        self.slots.follow(&limits);
        ask(&mut self.slots);
        let sample = self.slots.run(PERIOD);
        self.history.record_pool("web", now, &sample);
        let pools = [("web".to_string(), self.pool.clone())].into();
        let inventory = Inventory::new(BTreeMap::new(), BTreeMap::new(), pools).unwrap();
        let tick = Tick { now, passed: PERIOD };
        let next = plan(&self.policy, &inventory, &self.history, self.plan.as_ref(), tick);
        let scaling = next.pools["web"].scaling.clone().unwrap();
        self.plan = Some(next);
        self.drive(&scaling.action);
        scaling
    }

    /// A restart of the process: the measurements are lost, and the plan remains.
    fn restart(&mut self) {
        self.history = History::new(self.policy.smoothing, PERIOD * self.at);
    }

    fn drive(&mut self, action: &Scaling) {
        self.pool.backends.values_mut().for_each(|it| it.age = it.age.saturating_add(PERIOD));
        self.pool.backends.retain(|_, it| it.admin == AdminState::Up);
        match action {
            Scaling::Hold => {}
            Scaling::Out { size, count } => (0..*count).for_each(|_| self.add(size.clone())),
            Scaling::In { backends } => backends.iter().for_each(|name| {
                self.pool.backends.get_mut(name).unwrap().admin = AdminState::Drain;
            }),
            Scaling::Replace { size, backend } => {
                self.add(size.clone());
                self.pool.backends.get_mut(backend).unwrap().admin = AdminState::Drain;
            }
        }
    }

    fn add(&mut self, size: Option<String>) {
        self.made += 1;
        let one = backend(size.as_deref(), Duration::ZERO);
        self.pool.backends.insert(format!("e{:02}", self.made), one);
    }

    fn up(&self) -> impl Iterator<Item = (&String, &BackendSpec)> {
        self.pool.backends.iter().filter(|(_, it)| it.admin == AdminState::Up)
    }

    fn count(&self) -> usize {
        self.up().count()
    }

    fn limit_of(&self, one: &BackendSpec) -> usize {
        let sizes = &self.pool.elastic.as_ref().unwrap().sizes;
        let speed = one.size.as_ref().map_or(1.0, |size| sizes[size].speed);
        (speed * self.limit as f64) as usize
    }

    /// The pool's size after each of `periods` at this rate.
    fn run(&mut self, periods: u32, rate: f64) -> Vec<usize> {
        let period = |_| {
            self.step(rate);
            self.count()
        };
        (0..periods).map(period).collect()
    }
}

fn backend(size: Option<&str>, age: Duration) -> BackendSpec {
    let size = size.map(str::to_string);
    BackendSpec { size, age, is_elastic: true, ..BackendSpec::default() }
}

fn elastic() -> Elasticity {
    Elasticity { min: 1, max: 8, ..Elasticity::default() }
}

/// Two slots of 40 ms each: at most 50 requests a second.
fn two_slots(max: u32) -> World {
    World::empty(Elasticity { min: 1, max, ..Elasticity::default() }, 2, 0.04)
}

#[test]
fn pools_at_steady_load_stay_at_two_backends_for_ten_minutes() {
    let mut world = two_slots(20);
    world.run(300, 47.0);
    assert_eq!(world.count(), 2);
    let steps: Vec<_> = (0..600).map(|_| world.step(47.0)).collect();
    let steps: Vec<_> = steps.iter().filter(|step| step.action != Scaling::Hold).collect();
    assert!(steps.is_empty(), "{steps:#?}");
}

/// Backends accept more than two requests at a time, and their number of slots is not configured.
#[test]
fn pools_with_learned_limits_stay_at_two_backends_for_ten_minutes() {
    let mut world = two_slots(20);
    world.slots.are_learned = true;
    world.run(300, 47.0);
    assert_eq!(world.count(), 2);
    let steps: Vec<_> = (0..600).map(|_| world.step(47.0)).collect();
    let steps: Vec<_> = steps.iter().filter(|step| step.action != Scaling::Hold).collect();
    assert!(steps.is_empty(), "{steps:#?}");
    assert_eq!(world.slots.refused, 0);
    let sizes = world.run(60, 150.0);
    assert!(sizes[1] >= 4, "three are at their limit: {sizes:?}");
    assert!(*sizes.iter().max().unwrap() <= 6, "no more than needed: {sizes:?}");
}

#[test]
fn a_step_to_three_times_the_load_has_enough_backends_within_two_periods() {
    for phase in 0..5 {
        let mut world = two_slots(20);
        world.run(300 + phase, 47.0);
        let sizes = world.run(60, 150.0);
        assert!(sizes[1] >= 4, "three are at their limit: {sizes:?}");
        assert!(*sizes.iter().max().unwrap() <= 6, "no more than needed: {sizes:?}");
        assert!(world.slots.refused < 100, "{} were refused", world.slots.refused);
    }
}

#[test]
fn a_request_starts_an_empty_pool_which_empties_again_when_idle() {
    let elastic = Elasticity { min: 0, max: 8, ..Elasticity::default() };
    let mut world = World::empty(elastic, 2, 0.04);
    assert_eq!(world.run(20, 0.0), [0; 20]);
    let held = world.step(0.0);
    assert_eq!(held.reason, "there is no backend, and no request waits (min = 0)");
    let first = world.step_closed(1);
    assert_eq!(first.action, Scaling::Out { size: None, count: 1 }, "{}", first.reason);
    world.step(0.0);
    assert_eq!((world.slots.served, world.slots.refused), (1, 0));
    // A request a minute keeps the last backend.
    for _ in 0..10 {
        world.step_closed(1);
        assert_eq!(world.run(59, 0.0), [1; 59]);
    }
    world.run(200, 0.0);
    assert_eq!(world.count(), 0);
    // The planner still knows the capacity of a backend after a restart.
    world.restart();
    world.run(20, 400.0);
    assert!(world.count() == 8, "{}", world.count());
}

#[test]
fn as_load_climbs_and_falls_a_pool_grows_from_1_to_8_and_back() {
    let mut world = World::new(elastic(), None);
    let mut largest = Vec::new();
    for load in [0.3, 0.9, 1.8, 3.0, 4.5, 6.2, 3.0, 1.2, 0.3] {
        let now = *world.run(700, load * SPEED).last().unwrap();
        let enough = load / 0.8;
        assert!(now as f64 >= enough, "{now} for {load}");
        assert!(now as f64 <= enough / 0.9 + 1.5, "{now} for {load}");
        largest.push(now);
    }
    assert!(largest.contains(&8), "{largest:?}");
    assert_eq!(largest.last(), Some(&1));
}

#[test]
fn a_steady_pool_does_not_flap() {
    for load in [0.5, 1.3, 2.0, 2.9, 4.0] {
        let mut world = World::new(elastic(), None);
        world.run(600, load * SPEED);
        let sizes = world.run(600, load * SPEED);
        let changes = sizes.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 1 && sizes.is_sorted_by(|a, b| a >= b), "{load}: {sizes:?}");
    }
}

#[test]
fn a_load_jump_at_most_doubles_the_pool_each_step() {
    let mut world = World::new(elastic(), None);
    world.run(60, 0.4 * SPEED);
    let sizes = world.run(100, 5.0 * SPEED);
    assert!(sizes.windows(2).all(|pair| pair[1] <= 2 * pair[0]), "{sizes:?}");
    assert!(sizes[7] >= 7, "{sizes:?}");
}

#[test]
fn bounds_hold_at_any_load_and_a_pin_overrides_the_bounds() {
    let mut world = World::new(Elasticity { min: 3, max: 4, ..elastic() }, None);
    assert_eq!(world.run(5, 1.0), [3; 5]);
    assert!(world.run(100, 20.0 * SPEED).iter().all(|now| *now <= 4));
    world.pool.elastic.as_mut().unwrap().mode = Mode::Pinned(6);
    assert_eq!(world.run(3, 1.0), [6; 3]);
    world.pool.elastic.as_mut().unwrap().mode = Mode::Pinned(2);
    assert_eq!(world.run(3, 20.0 * SPEED), [2; 3]);
}

#[test]
fn a_paused_pool_reports_its_intended_step_and_holds() {
    let mut world = World::new(Elasticity { mode: Mode::Paused, ..elastic() }, None);
    world.run(50, 0.3 * SPEED);
    assert_eq!(world.run(50, 5.0 * SPEED), [1; 50]);
    let last = world.step(5.0 * SPEED);
    assert_eq!(last.action, Scaling::Hold);
    assert!(last.reason.starts_with("paused; it would add "), "{}", last.reason);
}

#[test]
fn every_decision_has_its_reason_in_words() {
    let mut world = World::new(elastic(), None);
    assert!(world.step(0.0).reason.contains("the pool is at its smallest: 1 backend, min = 1"));
    let mut reasons = Vec::new();
    for load in [0.3, 0.75, 0.85, 3.0, 0.3] {
        for _ in 0..400 {
            let scaling = world.step(load * SPEED);
            assert!(!scaling.reason.is_empty());
            if scaling.action != Scaling::Hold {
                reasons.push(scaling.reason);
            }
        }
    }
    for expected in [
        "of the backends' limits is in use, the target is 0.80",
        "requests wait in a standing queue",
    ] {
        assert!(reasons.iter().any(|it| it.contains(expected)), "{reasons:#?}");
    }
    assert!(reasons.last().unwrap().contains("would have sufficed for 120s"), "{reasons:#?}");
}

#[test]
fn several_backends_leave_at_once_up_to_the_scale_in_rate() {
    for (scale_in_rate, sizes) in [(0.5, vec![8, 4, 2, 1]), (1.0, vec![8, 1])] {
        // The first step uses the demand at the beginning of its cool-down.
        let mut world = World::new(Elasticity { scale_in_rate, ..elastic() }, None);
        world.run(100, 6.0 * SPEED);
        world.run(200, 5.9 * SPEED);
        let mut seen = world.run(600, 0.05 * SPEED);
        seen.dedup();
        seen.retain(|count| *count != 7);
        assert_eq!(seen, sizes);
    }
}

#[test]
fn closed_loop_clients_get_as_many_backends_as_they_fill() {
    let mut world = two_slots(20);
    world.run(30, 0.0);
    (0..120).for_each(|_| drop(world.step_closed(24)));
    // Each client has a request in flight, and four of five slots are in use.
    assert!((15..=17).contains(&world.count()), "{}", world.count());
}

#[test]
fn a_target_may_be_requests_a_second_for_each_backend() {
    let target = Target::Requests(40.0);
    let mut world = World::new(Elasticity { target, ..elastic() }, None);
    world.run(300, 130.0);
    assert_eq!(world.count(), 4);
}

#[test]
fn sizes_are_chosen_by_price_for_the_missing_capacity() {
    let size = |speed, price| Size { speed, price };
    let sizes: BTreeMap<_, _> =
        [("small".to_string(), size(1.0, 1.0)), ("large".to_string(), size(4.0, 2.0))].into();
    let elastic = Elasticity { sizes, growth_max: 10.0, ..elastic() };
    let mut world = World::new(elastic, Some("small"));
    world.run(60, 0.3 * SPEED);
    world.run(300, 4.0 * SPEED);
    let count = |world: &World, size: &str| {
        world.up().filter(|(_, it)| it.size.as_deref() == Some(size)).count()
    };
    assert!(count(&world, "large") >= 1, "{:?}", world.pool.backends);
    // As load falls, those with less capacity for their price leave first.
    world.run(600, 2.2 * SPEED);
    assert_eq!((count(&world, "small"), count(&world, "large")), (0, 1));
}

#[test]
fn an_oversized_backend_is_replaced_once_by_a_cheaper_size() {
    let size = |speed, price| Size { speed, price };
    let sizes: BTreeMap<_, _> =
        [("small".to_string(), size(1.0, 1.0)), ("large".to_string(), size(4.0, 2.0))].into();
    let mut world = World::new(Elasticity { max: 1, sizes, ..elastic() }, Some("large"));
    let steps: Vec<_> = (0..1000).map(|_| world.step(0.3 * SPEED)).collect();
    let steps: Vec<_> = steps.into_iter().filter(|it| it.action != Scaling::Hold).collect();
    let [step] = &steps[..] else { panic!("{steps:?}") };
    let small = Some("small".to_string());
    assert_eq!(step.action, Scaling::Replace { size: small.clone(), backend: "first".into() });
    assert!(step.reason.contains("a cheaper one would have sufficed for 120s"), "{}", step.reason);
    assert_eq!(world.up().map(|(_, it)| it.size.clone()).collect::<Vec<_>>(), [small]);
}

#[test]
fn at_the_maximum_a_faster_size_replaces_a_slow_backend() {
    let size = |speed, price| Size { speed, price };
    let sizes: BTreeMap<_, _> =
        [("small".to_string(), size(1.0, 1.0)), ("huge".to_string(), size(8.0, 20.0))].into();
    let mut world = World::new(Elasticity { max: 2, sizes, ..elastic() }, Some("small"));
    world.run(60, 0.3 * SPEED);
    let mut replaced = 0;
    for _ in 0..300 {
        if matches!(world.step(6.0 * SPEED).action, Scaling::Replace { .. }) {
            replaced += 1;
        }
        assert!(world.count() <= 2, "the one that goes is drained as soon as the other comes");
    }
    assert!(replaced >= 1);
    assert!(world.up().any(|(_, it)| it.size.as_deref() == Some("huge")));
}
