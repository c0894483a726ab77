//! The learner's goals on each backend: the mean over three seeds, and the worst of them.

use super::backend::Backend;
use super::measure::{learned, possible};
use super::scenarios::{first_ten, more, others};
use super::simulator::Setting;

const SEEDS: [u64; 3] = [1, 2, 3];

pub(crate) fn named(name: &str) -> Backend {
    let mut all = first_ten().into_iter().chain(more()).chain(others());
    all.find(|backend| backend.name == name).expect("a backend of this name")
}

/// Goodput over what is possible after a third of the time: the mean and the worst of the seeds.
fn share(backend: &Backend, times: f64) -> (f64, f64) {
    let shares = SEEDS.map(|seed| {
        let mut setting = Setting::new(backend, times, seed);
        setting.seconds = match backend.capacity {
            _ if backend.name.contains("at 40 s") => 80.0,
            ..1000.0 => 40.0,
            ..10_000.0 => 24.0,
            _ => 2.0,
        };
        let out = learned(&setting);
        let (from, to) = ((setting.seconds / 3.0).floor(), setting.seconds);
        out.goodput(from, to) / possible(backend, times, from, to)
    });
    let worst = shares.iter().copied().fold(f64::INFINITY, f64::min);
    (shares.iter().sum::<f64>() / shares.len() as f64, worst)
}

fn assert_reaches(name: &str, times: f64, mean_min: f64, worst_min: f64) {
    let (mean, worst) = share(&named(name), times);
    println!("{name} at {times}: {mean:.3} ({worst:.3})");
    assert!(mean >= mean_min && worst >= worst_min, "{name} at {times}: {mean:.3} ({worst:.3})");
}

#[test]
fn at_twice_and_four_times_the_capacity_goodput_stays_at_its_top() {
    // backend, mean and worst of the seeds
    let rows = [
        ("4 slots of 20 ms", 0.95, 0.95),
        ("4 slots, exponential", 0.95, 0.95),
        ("collapses past 8", 0.95, 0.95),
        ("one core, 5 ms", 0.95, 0.95),
        ("thrashes past 16", 0.95, 0.95),
        ("10 slots of 10 ms behind 100 ms", 0.95, 0.93),
        ("100 slots of 50 ms", 0.95, 0.95),
        ("4 workers that slow down", 0.95, 0.95),
        ("2 workers of 40 ms", 0.95, 0.95),
        ("database pool of 10", 0.95, 0.93),
        ("8 cores of 100 us", 0.95, 0.95),
        ("8 slots, halve at 40 s", 0.95, 0.93),
        ("8 slots, double at 40 s", 0.95, 0.93),
        ("cold caches, 4 slots", 0.93, 0.80),
        ("Pareto sizes, 8 slots", 0.95, 0.90),
        ("pauses of 150 ms", 0.93, 0.88),
        ("universal scalability", 0.93, 0.90),
        // Misses 0.95: a limit beside the best one costs 5 % here, and so do the measurements.
        ("lock collapses past 12", 0.90, 0.84),
    ];
    for (name, mean, worst) in rows {
        assert_reaches(name, 2.0, mean, worst);
        assert_reaches(name, 4.0, mean, worst);
    }
}

/// Requests that take half of the queue's wait.
#[test]
fn a_limit_of_thousands_in_flight_is_learnt() {
    let backend = named("2000 in flight of 550 ms");
    for times in [2.0, 4.0] {
        let mut setting = Setting::new(&backend, times, 1);
        setting.wait = 1.0;
        let out = learned(&setting);
        let (share, limit) = (out.goodput(13.0, 40.0) / backend.capacity, out.limit());
        println!("at {times}: {share:.3}, limit {limit:.0}");
        assert!(share >= 0.95 && (2000.0..4000.0).contains(&limit), "{share:.3}, {limit:.0}");
    }
}

#[test]
fn the_limit_of_a_fast_backend_allows_two_milliseconds_of_work() {
    let backend = named("8 cores of 100 us");
    let mut setting = Setting::new(&backend, 2.0, 1);
    setting.seconds = 4.0;
    let out = learned(&setting);
    let (limit, share) = (out.limit(), out.goodput(1.0, 4.0) / backend.capacity);
    assert!((100.0..=200.0).contains(&limit) && share >= 0.97, "{limit:.0}, {share:.3}");
}

/// An elastic pool counts its backends by their knee.
#[test]
fn two_slots_yield_a_mean_limit_of_two_to_three() {
    let backend = named("2 workers of 40 ms");
    for (times, worst_max) in [(1.2, 7.0), (2.0, 3.0), (4.0, 3.0)] {
        let limit = |seed| learned(&Setting::new(&backend, times, seed)).limit();
        let limits: Vec<f64> = (1..=8).map(limit).collect();
        let mean = limits.iter().sum::<f64>() / limits.len() as f64;
        let worst = limits.iter().copied().fold(0.0, f64::max);
        println!("at {times}: {mean:.2} {limits:.2?}");
        assert!((2.0..=3.5).contains(&mean) && worst <= worst_max, "at {times}: {limits:.2?}");
    }
}

/// With a few answers a second it takes ten seconds and more to find out that one is enough.
#[test]
fn a_slow_backend_is_not_flooded_while_samples_are_few() {
    // Name, times, seconds, wait, and the mean of the seeds.
    let rows = [
        ("0.08 of a core, 5.3 ms", 2.0, 40.0, 0.3, 0.8),
        ("0.08 of a core, 5.3 ms", 4.0, 40.0, 0.3, 0.5),
        ("one worker of 1 s", 2.0, 300.0, 1.0, 0.75),
        ("one worker of 1 s", 4.0, 300.0, 1.0, 0.75),
    ];
    for (name, times, seconds, wait, share_min) in rows {
        let backend = named(name);
        let goodput = |seed| {
            let mut setting = Setting::new(&backend, times, seed);
            (setting.seconds, setting.wait) = (seconds, wait);
            learned(&setting).goodput(seconds / 2.0, seconds) / backend.capacity
        };
        let share = (1..=8).map(goodput).sum::<f64>() / 8.0;
        println!("{name} at {times}: {share:.3}");
        assert!(share >= share_min, "{name} at {times}: {share:.3}");
    }
}

/// Misses 0.95 for some seeds: a few dear requests among many cheap ones are a noise that takes
/// minutes to see through.
#[test]
fn mixed_sizes_keep_most_of_the_goodput() {
    for name in ["mixed 1/200 ms, 8 slots", "mixed 1/200 ms, 8 workers"] {
        assert_reaches(name, 2.0, 0.90, 0.80);
        assert_reaches(name, 4.0, 0.87, 0.80);
    }
}

#[test]
fn below_capacity_requests_are_answered_and_almost_none_is_refused() {
    for backend in first_ten().into_iter().chain(more()).chain(others()) {
        // Some are above their capacity for a time, and some take as long as the queue's wait.
        let is_slow = backend.deadline > 1.5;
        if is_slow || backend.name.contains("at 40 s") || backend.name.contains("cold") {
            continue;
        }
        let mut setting = Setting::new(&backend, 0.8, 7);
        setting.wait = 1.0;
        setting.seconds = if backend.capacity > 10_000.0 { 4.0 } else { 40.0 };
        let (from, to) = (setting.seconds / 4.0, setting.seconds);
        let out = learned(&setting);
        let refused = out.refused(from, to);
        println!("{}: {:.4} then {refused:.4}", backend.name, out.refused(0.0, from));
        // Cheap requests wait for dear ones. A lock that collapses and memory that is gone are
        // nearly full at 0.8.
        let allowed = match backend.name {
            name if name.contains("mixed") || name.contains("lock") => 0.02,
            name if name.contains("memory") => 0.05,
            _ => 0.0,
        };
        assert!(refused <= allowed, "{}: {refused}", backend.name);
        // Nearly as many are under way at the end as at the beginning; the slowest backend has up
        // to a second's dozen more.
        let arrived: u32 = out.offered[from as usize..to as usize].iter().sum();
        let answered = out.answers_within(f64::INFINITY, from, to) * (to - from);
        println!("    {arrived} arrived, {answered:.0} answered");
        let answered_min = f64::from(arrived) * (0.99 - allowed);
        assert!(answered + 12.0 >= answered_min, "{}: {answered} of {arrived}", backend.name);
    }
}

/// Nothing is done above 24 in flight, so that a limit above it is seen by silence alone.
#[test]
fn a_backend_that_stalls_under_overload_keeps_most_of_its_goodput() {
    let backend = named("memory for 24");
    for (times, mean_min) in [(0.8, 0.92), (2.0, 0.85), (4.0, 0.85)] {
        let goodput = |seed| {
            let out = learned(&Setting::new(&backend, times, seed));
            out.goodput(13.0, 40.0) / possible(&backend, times, 13.0, 40.0)
        };
        let all: Vec<f64> = (1..=8).map(goodput).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        println!("at {times}: {mean:.3} {all:.2?}");
        let worst = all.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(mean >= mean_min && worst >= 0.7, "at {times}: {mean:.3} {all:.2?}");
    }
}

/// In these seeds requests cease to wait while the limit descends.
#[test]
fn an_interrupted_limit_measurement_causes_almost_no_refusals() {
    let backend = named("mixed 1/200 ms, 8 workers");
    for seed in [4, 6, 12] {
        let mut setting = Setting::new(&backend, 0.8, seed);
        setting.wait = 1.0;
        let refused = learned(&setting).refused(10.0, 40.0);
        assert!(refused <= 0.02, "seed {seed}: {refused:.4}");
    }
}

/// Means of three seeds. Requests of 50 ms and more need a second until their limit is high enough.
#[test]
fn a_start_into_full_load_refuses_nothing_below_capacity_and_keeps_the_goodput_above() {
    let names = [
        "4 slots of 20 ms",
        "4 slots, exponential",
        "collapses past 8",
        "one core, 5 ms",
        "thrashes past 16",
        "4 workers that slow down",
        "database pool of 10",
        "8 cores of 100 us",
    ];
    for name in names {
        let backend = named(name);
        let start = |times: f64, seed: u64| {
            let mut setting = Setting::new(&backend, times, seed);
            (setting.wait, setting.queue_length, setting.seconds) = (1.0, 1000, 10.0);
            learned(&setting)
        };
        for seed in SEEDS {
            let refused = start(0.8, seed).refused(0.0, 10.0);
            assert!(refused <= 0.001, "{name}, seed {seed}: {refused:.4}");
        }
        for times in [2.0, 4.0] {
            let good = |seed: u64| start(times, seed).answers_within(backend.deadline, 0.5, 10.0);
            let mean = SEEDS.map(good).iter().sum::<f64>() / SEEDS.len() as f64;
            let share = mean / backend.capacity;
            println!("{name} at {times}: {share:.3}");
            assert!(share >= 0.95, "{name} at {times}: {share:.3}");
        }
    }
}

#[test]
fn a_backend_that_refuses_beyond_its_own_limit_is_held_below_it() {
    let backend = named("pool of 10, refuses above 20");
    for seed in SEEDS {
        let setting = Setting::new(&backend, 2.0, seed);
        let out = learned(&setting);
        let (share, failed) = (out.goodput(10.0, 40.0) / backend.capacity, out.failed(10.0, 40.0));
        println!("seed {seed}: {share:.3}, failed {failed:.4}");
        assert!(share >= 0.93 && failed <= 0.01, "seed {seed}: {share:.3}, failed {failed:.4}");
    }
}

#[test]
fn after_capacity_halved_goodput_is_back_within_five_seconds() {
    let backend = named("8 slots, halve at 40 s");
    for seed in SEEDS {
        let mut setting = Setting::new(&backend, 2.0, seed);
        setting.seconds = 55.0;
        let share = learned(&setting).goodput(45.0, 55.0) / 200.0;
        assert!(share >= 0.95, "seed {seed}: {share:.3}");
    }
}

#[test]
fn after_capacity_doubled_goodput_follows_within_fifteen_seconds() {
    let backend = named("8 slots, double at 40 s");
    for seed in SEEDS {
        let mut setting = Setting::new(&backend, 2.0, seed);
        setting.seconds = 65.0;
        let share = learned(&setting).goodput(55.0, 65.0) / 400.0;
        assert!(share >= 0.93, "seed {seed}: {share:.3}");
    }
}

#[test]
fn two_balancers_without_a_cluster_share_a_backend_fairly() {
    let mut setting = Setting::new(&named("collapses past 8"), 2.0, 1);
    setting.skews = vec![0.0, 0.002];
    let out = learned(&setting);
    let share = out.goodput(20.0, 40.0) / 200.0;
    assert!(share >= 0.95, "{share:.3}");
    let (least, most) =
        (out.answered[0].min(out.answered[1]), out.answered[0].max(out.answered[1]));
    assert!(f64::from(least) >= 0.7 * f64::from(most), "{:?}", out.answered);
}
