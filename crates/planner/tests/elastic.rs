//! Pools that grow and shrink, in closed loop with backends that slow down as L3B's do.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_core::AdminState;
use equipoise_planner::elastic::{
    BackendSample, Elasticity, KNOWN_MAX, Mode, PoolSample, Scaling, ScalingPlan, Size,
};
use equipoise_planner::{BackendSpec, History, Inventory, Plan, Policy, PoolSpec, Tick, plan};

const PERIOD: Duration = Duration::from_secs(1);
/// What a backend of speed 1 does at once, and how long it takes for one request.
const WORKERS: f64 = 8.0;
const SERVICE_S: f64 = 0.02;
/// Requests per second of a backend of speed 1 at its best.
const SPEED: f64 = WORKERS / SERVICE_S;

/// A pool whose backends appear and go as planned, a period later.
struct World {
    policy: Policy,
    history: History,
    pool: PoolSpec,
    plan: Option<Plan>,
    at: u32,
    made: u32,
    /// Whether its driver takes no steps.
    is_deaf: bool,
}

impl World {
    /// A pool that was calm when it began, so that it is known how fast its backends are at their fastest.
    fn new(elastic: Elasticity, size: Option<&str>) -> World {
        let mut world = World::blind(elastic, size);
        world.run(5, 0.05 * SPEED);
        world
    }

    /// A pool of which nothing is known.
    fn blind(elastic: Elasticity, size: Option<&str>) -> World {
        let policy = Policy::default();
        let first = backend(size, Duration::from_secs(3600));
        let backends = [("first".to_string(), first)].into();
        World {
            history: History::new(policy.smoothing, Duration::ZERO),
            pool: PoolSpec { backends, elastic: Some(elastic), ..PoolSpec::default() },
            policy,
            plan: None,
            at: 0,
            made: 0,
            is_deaf: false,
        }
    }

    /// One period in which clients ask for `rate` requests a second, spread by speed.
    fn step(&mut self, rate: f64) -> ScalingPlan {
        self.step_as(|part, speed| answered(rate * part, speed))
    }

    /// One period in which so many clients ask again as soon as they are answered.
    fn step_closed(&mut self, clients: f64, work: &Work) -> ScalingPlan {
        let jitter = 1.0 + 0.04 * f64::from(self.at * 7).sin();
        self.step_as(|part, _| {
            let in_flight = clients * part;
            (in_flight, jitter * work.service_s * (in_flight / work.at_once).max(1.0))
        })
    }

    /// One period; `seen` says what is in flight and how long an answer takes at a backend with a part of the pool's
    /// speed, and with this speed.
    fn step_as(&mut self, seen: impl Fn(f64, f64) -> (f64, f64)) -> ScalingPlan {
        self.at += 1;
        let now = PERIOD * self.at;
        let speeds: BTreeMap<String, f64> =
            self.up().map(|(name, it)| (name.clone(), self.speed(it))).collect();
        let total: f64 = speeds.values().sum();
        let sample = |(name, speed): (&String, &f64)| {
            let (in_flight, response_s) = seen(speed / total, *speed);
            let response = Some(Duration::from_secs_f64(response_s));
            let size = self.pool.backends[name].size.clone();
            (name.clone(), BackendSample { in_flight, response, size, ..BackendSample::default() })
        };
        let sample = PoolSample { backends: speeds.iter().map(sample).collect(), queued: 0.0 };
        self.history.record_pool("web", now, &sample);
        let pools = [("web".to_string(), self.pool.clone())].into();
        let inventory = Inventory::new(BTreeMap::new(), BTreeMap::new(), pools).unwrap();
        let tick = Tick { now, passed: PERIOD };
        self.plan.iter().for_each(|plan| self.history.recall(plan));
        let next = plan(&self.policy, &inventory, &self.history, self.plan.as_ref(), tick);
        let scaling = next.pools["web"].scaling.clone().unwrap();
        self.plan = Some(next);
        if !self.is_deaf {
            self.drive(&scaling.action);
        }
        scaling
    }

    /// Its process ends and another begins: what was measured is gone, and the plan is there.
    fn restart(&mut self) {
        self.history = History::new(self.policy.smoothing, PERIOD * self.at);
    }

    /// What a driver does.
    fn drive(&mut self, action: &Scaling) {
        self.pool.backends.values_mut().for_each(|it| it.age = it.age.saturating_add(PERIOD));
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

    fn speed(&self, one: &BackendSpec) -> f64 {
        let sizes = &self.pool.elastic.as_ref().unwrap().sizes;
        one.size.as_ref().map_or(1.0, |size| sizes[size].speed)
    }

    /// The pool's size after each of `periods` at this rate.
    fn run(&mut self, periods: u32, rate: f64) -> Vec<usize> {
        (0..periods)
            .map(|_| {
                self.step(rate);
                self.count()
            })
            .collect()
    }
}

fn backend(size: Option<&str>, age: Duration) -> BackendSpec {
    let size = size.map(str::to_string);
    BackendSpec { size, age, is_elastic: true, ..BackendSpec::default() }
}

/// What a backend does of what clients ask that wait for each answer.
struct Work {
    /// How many at once; others wait.
    at_once: f64,
    /// How long it takes for each.
    service_s: f64,
}

/// In flight and response time of a backend that is asked for `rate` a second: a queue before its workers, whose
/// clients give up at half a second.
fn answered(rate: f64, speed: f64) -> (f64, f64) {
    let best = SPEED * speed;
    let used = (rate / best).min(0.999);
    let response_s = (SERVICE_S * (1.0 + used.powf(WORKERS * speed) / (1.0 - used))).min(0.5);
    (rate.min(best) * response_s, response_s)
}

fn elastic() -> Elasticity {
    Elasticity { min: 1, max: 8, ..Elasticity::default() }
}

#[test]
fn as_load_climbs_and_falls_a_pool_grows_from_1_to_8_and_back() {
    let mut world = World::new(elastic(), None);
    let mut largest = Vec::new();
    println!("\nrequests/s as a multiple of one backend's best: backends at the end");
    for load in [0.3, 0.9, 1.8, 3.0, 4.5, 5.4, 3.0, 1.2, 0.3] {
        // Long enough to shrink by one a cool-down.
        let sizes = world.run(1000, load * SPEED);
        println!("{load:>4}  {}", sizes.last().unwrap());
        let enough = load / 0.7;
        let now = *sizes.last().unwrap();
        assert!(now as f64 >= enough.floor(), "{now} for {load}");
        assert!(now as f64 <= enough / 0.85 + 2.0, "{now} for {load}");
        largest.push(now);
    }
    assert!(largest.iter().any(|now| *now >= 7), "{largest:?}");
    assert_eq!(largest.last(), Some(&1));
}

#[test]
fn a_steady_pool_does_not_flap() {
    for load in [0.5, 1.3, 2.0, 2.9, 4.0] {
        let mut world = World::new(elastic(), None);
        world.run(1500, load * SPEED);
        let sizes = world.run(1500, load * SPEED);
        let changes = sizes.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes, 0, "{load}: {sizes:?}");
    }
}

#[test]
fn a_jump_is_answered_in_steps_that_double_at_most_and_not_twice_for_one_reason() {
    let mut world = World::new(elastic(), None);
    world.run(60, 0.4 * SPEED);
    let sizes = world.run(200, 4.0 * SPEED);
    for pair in sizes.windows(2) {
        assert!(pair[1] <= 2 * pair[0], "{sizes:?}");
    }
    let first = sizes.iter().position(|now| *now > 1).unwrap();
    assert!(first < 10, "{sizes:?}");
    let cool = elastic().out_cool_down.as_secs() as usize;
    assert_eq!(
        sizes[first],
        sizes[first + cool - 2],
        "no second step before the first has warmed up"
    );
    assert!((6..=8).contains(sizes.last().unwrap()), "{sizes:?}");
}

#[test]
fn the_bounds_hold_whatever_the_load_and_a_pin_whatever_the_bounds() {
    let mut world = World::new(Elasticity { min: 3, max: 4, ..elastic() }, None);
    assert_eq!(world.run(5, 1.0), [3; 5]);
    assert!(world.run(300, 50.0 * SPEED).iter().all(|now| *now <= 4));
    world.pool.elastic.as_mut().unwrap().mode = Mode::Pinned(6);
    assert_eq!(world.run(3, 1.0), [6; 3]);
    world.pool.elastic.as_mut().unwrap().mode = Mode::Pinned(2);
    assert_eq!(world.run(3, 50.0 * SPEED), [2; 3]);
}

#[test]
fn a_paused_pool_says_what_it_would_do_and_does_nothing() {
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
    for load in [0.3, 3.0, 0.3] {
        for _ in 0..400 {
            let scaling = world.step(load * SPEED);
            assert!(!scaling.reason.is_empty());
            if scaling.action != Scaling::Hold {
                reasons.push(scaling.reason);
            }
        }
    }
    println!("{reasons:#?}");
    assert!(reasons[0].contains("of the speed shown is in use, at most 0.70 is wanted"));
    assert!(reasons.last().unwrap().contains("one fewer would have done for 120s"));
}

#[test]
fn sizes_are_chosen_by_what_they_cost_for_the_speed_that_is_missing() {
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
    // Falling again, those with less speed for their price leave first.
    world.run(600, 2.2 * SPEED);
    assert_eq!((count(&world, "small"), count(&world, "large")), (0, 1));
}

#[test]
fn when_one_fewer_would_not_do_a_dear_one_is_replaced_by_a_cheap_one_and_stays_so() {
    let size = |speed, price| Size { speed, price };
    let sizes: BTreeMap<_, _> =
        [("small".to_string(), size(1.0, 1.0)), ("large".to_string(), size(4.0, 2.0))].into();
    let mut world = World::new(Elasticity { max: 1, sizes, ..elastic() }, Some("large"));
    // Its top is seen.
    world.run(60, 5.0 * SPEED);
    let mut replaced = Vec::new();
    for _ in 0..1000 {
        let scaling = world.step(0.3 * SPEED);
        if scaling.action != Scaling::Hold {
            replaced.push(scaling);
        }
    }
    let [step] = &replaced[..] else { panic!("{replaced:?}") };
    let small = Some("small".to_string());
    assert_eq!(step.action, Scaling::Replace { size: small.clone(), backend: "first".into() });
    assert!(step.reason.contains("a cheaper one would have done for 120s"), "{}", step.reason);
    assert_eq!(world.up().map(|(_, it)| it.size.clone()).collect::<Vec<_>>(), [small]);
}

#[test]
fn with_all_backends_there_the_slowest_is_replaced_by_a_faster_one() {
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

#[test]
fn a_step_that_was_not_taken_is_planned_again_without_waiting_for_its_cool_down() {
    let mut world = World::new(elastic(), None);
    world.pool.steps = Some(7);
    world.run(20, 0.5 * SPEED);
    world.is_deaf = true;
    let rises = |world: &mut World| loop {
        let step = world.step(0.95 * SPEED);
        if step.action != Scaling::Hold {
            break step;
        }
    };
    let first = rises(&mut world);
    assert_eq!(first.after, Some(7));
    for _ in 0..5 {
        let again = world.step(0.95 * SPEED);
        assert_eq!((&again.action, again.after), (&first.action, Some(7)), "{}", again.reason);
    }
    world.is_deaf = false;
    world.step(0.95 * SPEED);
    world.pool.steps = Some(8);
    let cooling = world.step(0.95 * SPEED);
    assert_eq!((cooling.action, cooling.since_out), (Scaling::Hold, PERIOD), "{}", cooling.reason);
}

/// Steps out and in of a closed loop of 24 clients, and the pool's size at the end.
fn closed(world: &mut World, periods: u32, work: &Work) -> (Vec<ScalingPlan>, usize) {
    let steps = (0..periods).map(|_| world.step_closed(24.0, work));
    let steps = steps.filter(|step| step.action != Scaling::Hold).collect();
    (steps, world.count())
}

const FULL: Work = Work { at_once: 1.0, service_s: 0.025 };
const WAITS: Work = Work { at_once: 1000.0, service_s: 0.1 };

#[test]
fn a_pool_that_is_full_from_the_first_moment_grows_to_what_is_needed_and_stays() {
    for load in [1.3, 2.0, 2.9, 4.0] {
        let mut world = World::blind(elastic(), None);
        let sizes = world.run(600, load * SPEED);
        let now = *sizes.last().unwrap() as f64;
        assert!((load / 0.7).floor() <= now && now <= load / 0.7 / 0.85 + 2.0, "{load}: {sizes:?}");
        let later = world.run(1500, load * SPEED);
        assert!(
            later.windows(2).filter(|pair| pair[0] != pair[1]).count() <= 1,
            "{load}: {later:?}"
        );
    }
    let mut world = World::blind(elastic(), None);
    let (steps, count) = closed(&mut world, 300, &FULL);
    assert_eq!(count, 8, "24 clients that do not pause fill as many as there may be");
    assert!(steps[0].reason.starts_with("probing: it isn't known yet whether the 24.0 requests"));
    assert!(steps[1..].iter().all(|step| step.reason.contains("is wanted")), "{steps:#?}");
}

#[test]
fn a_pool_that_was_full_once_is_known_to_be_so_after_a_restart() {
    let mut world = World::blind(elastic(), None);
    closed(&mut world, 300, &FULL);
    world.restart();
    // Its processes died with it.
    world.pool.backends.retain(|name, _| name == "first");
    let (steps, count) = closed(&mut world, 120, &FULL);
    assert_eq!(count, 8);
    assert!(steps.iter().all(|step| !step.reason.contains("probing")), "{steps:#?}");
}

#[test]
fn a_pool_whose_backends_wait_themselves_is_probed_once_and_never_again() {
    let mut world = World::blind(elastic(), None);
    let (steps, count) = closed(&mut world, 400, &WAITS);
    let actions: Vec<_> = steps.iter().map(|step| &step.action).collect();
    let [Scaling::Out { count: 1, .. }, Scaling::In { .. }] = &actions[..] else {
        panic!("{steps:#?}")
    };
    assert_eq!(count, 1, "as before");
    // Longer than a profile remembers, and through restarts.
    for periods in [9000, 1, 30, 400] {
        world.restart();
        assert_eq!(closed(&mut world, periods, &WAITS), (vec![], 1), "{periods}");
    }
    let held = world.step_closed(24.0, &WAITS);
    assert!(!held.reason.contains("probing"), "{}", held.reason);
}

#[test]
fn what_a_probe_showed_is_forgotten_after_a_day_and_then_one_more_is_made() {
    let mut world = World::blind(elastic(), None);
    closed(&mut world, 400, &WAITS);
    world.restart();
    let pool = world.plan.as_mut().unwrap().pools.get_mut("web").unwrap();
    pool.scaling.as_mut().unwrap().learnt.known[0].age = KNOWN_MAX;
    let (steps, count) = closed(&mut world, 400, &WAITS);
    assert_eq!((steps.len(), count), (2, 1), "{steps:#?}");
    assert!(steps[0].reason.starts_with("probing"), "{}", steps[0].reason);
    // The application is another by now.
    world.restart();
    let pool = world.plan.as_mut().unwrap().pools.get_mut("web").unwrap();
    pool.scaling.as_mut().unwrap().learnt.known[0].age = KNOWN_MAX;
    assert_eq!(closed(&mut world, 400, &FULL).1, 8);
}

#[test]
fn with_hardly_anything_in_flight_nothing_is_probed() {
    for load in [0.02, 0.1, 0.2] {
        let mut world = World::blind(elastic(), None);
        assert_eq!(world.run(600, load * SPEED), [1; 600], "{load}");
    }
}

#[test]
fn a_probe_waits_for_room_for_operators_and_for_its_driver() {
    let mut world = World::blind(Elasticity { max: 1, ..elastic() }, None);
    assert_eq!(closed(&mut world, 60, &FULL), (vec![], 1));
    let held = world.step_closed(24.0, &FULL);
    assert!(held.reason.contains("no backend can be added to see: max = 1"), "{}", held.reason);

    let mut world = World::blind(Elasticity { mode: Mode::Paused, ..elastic() }, None);
    assert_eq!(closed(&mut world, 60, &FULL), (vec![], 1));
    let held = world.step_closed(24.0, &FULL);
    assert!(held.reason.starts_with("paused; it would add 1: probing"), "{}", held.reason);
    world.pool.elastic.as_mut().unwrap().mode = Mode::Pinned(3);
    closed(&mut world, 60, &WAITS);
    assert_eq!(world.count(), 3);

    let mut world = World::blind(elastic(), None);
    (world.pool.steps, world.is_deaf) = (Some(7), true);
    let (steps, _) = closed(&mut world, 60, &FULL);
    assert!(steps.len() > 40, "it is asked for again and again");
    assert!(steps.iter().all(|step| step.learnt.probe.as_ref().unwrap().since.is_zero()));
    world.is_deaf = false;
    closed(&mut world, 1, &FULL);
    world.pool.steps = Some(8);
    let (steps, count) = closed(&mut world, 5, &FULL);
    assert_eq!((steps.len(), count), (0, 2), "{steps:#?}");
}
