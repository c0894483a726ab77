//! Prints the goodput of each algorithm over several seeds:
//! `cargo test --release -p equipoise-core --test concurrency -- --ignored --nocapture`.
//!
//! `BACKEND`, `ALGORITHM` and `QUEUE` in the environment choose rows, `LOADS` multiples of the
//! capacity (such as `0.5,2`), `SEEDS` how many seeds, `WAIT` the queue's wait in seconds,
//! `BALANCERS` how many stand before the backend, `CLUSTER` that they exchange reports, `FROM` and
//! `TO` the seconds that count, `TRACE` prints the learner every 100 ms.

use super::backend::Backend;
use super::climb::Climb;
use super::cluster::members;
use super::measure::{learner, possible};
use super::others::{Delivery, Envoy, Fixed, Gradient2, Vegas};
use super::queue::Discipline;
use super::scenarios::{first_ten, more, others};
use super::simulator::{Limiter, Setting, simulate};

type Maker = fn(&Setting) -> Box<dyn Limiter>;

const ALGORITHMS: [(&str, Maker); 7] = [
    ("none", |_| Box::new(Fixed(u32::MAX))),
    ("gradient2", |_| Box::new(Gradient2::new())),
    ("vegas", |_| Box::new(Vegas::new())),
    ("envoy", |_| Box::new(Envoy::new())),
    ("rate-floor", |_| Box::new(Delivery::new())),
    ("climb", |_| Box::new(Climb::new())),
    ("learner", learner),
];

const DISCIPLINES: [(&str, Discipline); 7] = [
    ("fifo", Discipline::Fifo),
    ("lifo", Discipline::Lifo),
    ("adaptive-lifo", Discipline::AdaptiveLifo),
    ("late-lifo", Discipline::LateLifo),
    ("codel", Discipline::CoDel),
    ("adaptive-lifo-codel", Discipline::AdaptiveLifoCoDel),
    ("short-fifo", Discipline::ShortFifo),
];

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<f64> {
    text(name)?.parse().ok()
}

/// Multiples of the capacity.
fn loads() -> Vec<f64> {
    let all = text("LOADS").unwrap_or("0.8,2,4".into());
    all.split(',').map(|load| load.parse().expect("a number")).collect()
}

fn setting(backend: &Backend, times: f64, seed: u64) -> Setting {
    let mut setting = Setting::new(backend, times, seed);
    if backend.name.contains("at 40 s") {
        setting.seconds = 80.0;
    } else if backend.deadline > 1.0 {
        setting.seconds = if backend.deadline > 10.0 { 3000.0 } else { 300.0 };
        setting.wait = 1.0;
    }
    setting.wait = number("WAIT").unwrap_or(setting.wait);
    setting.seconds = number("DURATION").unwrap_or(setting.seconds);
    setting.skews = vec![0.0; number("BALANCERS").unwrap_or(1.0) as usize];
    let spread = number("SKEW").unwrap_or(0.0);
    for (index, skew) in setting.skews.iter_mut().enumerate() {
        *skew = spread * index as f64;
    }
    setting.trace = text("TRACE").is_some();
    setting
}

/// Mean and worst share of what is possible, share refused, p99 in ms, and the mean limit.
fn cell(backend: &Backend, make: Maker, discipline: Discipline, times: f64) -> String {
    let seeds = number("SEEDS").unwrap_or(5.0) as u64;
    let first = number("FIRST").unwrap_or(1.0) as u64;
    let (mut mean, mut worst, mut refused, mut late, mut limit) = (0.0, 9f64, 0.0, 0.0, 0.0);
    for seed in first..first + seeds {
        let mut setting = setting(backend, times, seed);
        setting.discipline = discipline;
        let mut limiters: Vec<_> = match text("CLUSTER") {
            Some(_) => members(&setting, 0.0..0.0),
            None => setting.skews.iter().map(|_| make(&setting)).collect(),
        };
        let out = simulate(&setting, &mut limiters);
        let from = number("FROM").unwrap_or(setting.seconds / 4.0);
        let to = number("TO").unwrap_or(setting.seconds);
        let share = out.goodput(from, to) / possible(backend, times, from, to);
        let of = 1.0 / seeds as f64;
        mean += share * of;
        worst = worst.min(share);
        refused += out.refused(from, to) * of;
        late += 1e3 * out.latency(0.99, from, to) * of;
        limit += out.limit() * of;
    }
    format!("{mean:.3} ({worst:.2}) {refused:.4} {late:5.0} ms L {limit:6.1}")
}

fn print(backend: &Backend, label: &str, make: Maker, discipline: Discipline) {
    let loads = loads();
    let row: Vec<String> =
        loads.into_iter().map(|times| cell(backend, make, discipline, times)).collect();
    println!("{:34} {label:20} {}", backend.name, row.join(" | "));
}

fn backends() -> Vec<Backend> {
    let which = text("BACKEND").unwrap_or_default();
    let all = first_ten().into_iter().chain(more()).chain(others());
    all.filter(|backend| backend.name.contains(&which)).collect()
}

#[test]
#[ignore = "prints a table"]
fn algorithms() {
    let only = text("ALGORITHM").unwrap_or_default();
    let queue = text("QUEUE").unwrap_or("late-lifo".into());
    let discipline = DISCIPLINES.iter().find(|(name, _)| *name == queue).unwrap().1;
    for backend in backends() {
        for (label, make) in ALGORITHMS.iter().filter(|(label, _)| label.contains(&only)) {
            print(&backend, label, *make, discipline);
        }
    }
}

#[test]
#[ignore = "prints a table"]
fn disciplines() {
    for backend in backends() {
        for (label, discipline) in DISCIPLINES {
            print(&backend, label, learner, discipline);
        }
    }
}

/// Prints how many are in flight in each of the first seconds after a start with the default queue.
#[test]
#[ignore = "prints a table"]
fn in_flight() {
    for backend in backends() {
        for times in loads() {
            let mut setting = setting(&backend, times, 1);
            (setting.wait, setting.queue_length, setting.seconds) = (1.0, 1000, 40.0);
            let out = simulate(&setting, &mut [learner(&setting)]);
            let rows = out.in_flight.iter().map(|n| format!("{n:.0}")).collect::<Vec<_>>();
            println!("{:34} {times:.1} {}", backend.name, rows.join(" "));
        }
    }
}

/// Prints the first seconds after a start with the default queue: share of the possible goodput in
/// spans of time, refused share of the first ten seconds, and the limit at the end.
#[test]
#[ignore = "prints a table"]
fn cold_starts() {
    let spans = [(0.0, 0.5), (0.5, 1.0), (1.0, 2.0), (2.0, 5.0), (5.0, 10.0)];
    let seeds = number("SEEDS").unwrap_or(5.0) as u64;
    for backend in backends() {
        for times in loads() {
            let (mut shares, mut refused, mut worst, mut limit) = ([0.0; 5], 0.0, 0f64, 0.0);
            for seed in 1..=seeds {
                let mut setting = setting(&backend, times, seed);
                (setting.wait, setting.queue_length, setting.seconds) = (1.0, 1000, 10.0);
                let out = simulate(&setting, &mut [learner(&setting)]);
                for (share, (from, to)) in shares.iter_mut().zip(spans) {
                    let good = out.answers_within(backend.deadline, from, to);
                    *share += good / possible(&backend, times, from.floor(), to.ceil());
                }
                refused += out.refused(0.0, 10.0);
                worst = worst.max(out.refused(0.0, 10.0));
                limit += out.limit();
            }
            let of = seeds as f64;
            let shares: Vec<_> = shares.iter().map(|sum| format!("{:.2}", sum / of)).collect();
            println!(
                "{:34} {times:.1} {} refused {:.4} ({worst:.4}) L {:.0}",
                backend.name,
                shares.join(" "),
                refused / of,
                limit / of
            );
        }
    }
}
