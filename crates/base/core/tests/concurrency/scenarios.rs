//! The backends that every algorithm is tried on.

use rand::RngExt;
use rand::rngs::StdRng;

use super::backend::{Backend, Draw, Job, Service, exponential};

const STEADY: fn(f64) -> f64 = |_| 1.0;

fn job(work: f64) -> Job {
    Job { work, latency: 0.0 }
}

fn mixed(rng: &mut StdRng, _: f64) -> Job {
    job(if rng.random::<f64>() < 0.9 { 0.001 } else { 0.2 })
}

const EXPONENTIAL_20_MS: Draw = |rng, _| job(exponential(rng, 0.02));

fn backend(name: &'static str, service: Service, draw: Draw, capacity: f64) -> Backend {
    Backend {
        name,
        service,
        draw,
        capacity,
        scale: STEADY,
        slowdown: STEADY,
        refuses_above: usize::MAX,
        deadline: 0.5,
    }
}

/// The ten of the first study, in its order.
pub(crate) fn first_ten() -> Vec<Backend> {
    use Service::Sharing;
    let four: fn(f64) -> f64 = |n| n.min(4.0);
    let eight: fn(f64) -> f64 = |n| n.min(8.0);
    let collapse: fn(f64) -> f64 = |n| n.min(4.0) / (1.0 + (n - 8.0).max(0.0) / 16.0);
    let thrash: fn(f64) -> f64 =
        |n| n.min(4.0) * if n <= 16.0 { 1.0 } else { 1.0 / (1.0 + (n - 16.0) / 16.0) };
    let halves = |t| if t < 40.0 { 1.0 } else { 0.5 };
    let doubles = |t| if t < 40.0 { 0.5 } else { 1.0 };
    vec![
        backend("4 slots of 20 ms", Sharing(four), |_, _| job(0.02), 200.0),
        backend("4 slots, exponential", Sharing(four), EXPONENTIAL_20_MS, 200.0),
        backend("collapses past 8", Sharing(collapse), |_, _| job(0.02), 200.0),
        backend(
            "one core, 5 ms",
            Sharing(|n| n.min(1.0)),
            |rng, _| job(exponential(rng, 0.005)),
            200.0,
        ),
        backend("thrashes past 16", Sharing(thrash), EXPONENTIAL_20_MS, 200.0),
        backend("mixed 1/200 ms, 8 slots", Sharing(eight), mixed, 8.0 / 0.0209),
        backend(
            "10 slots of 10 ms behind 100 ms",
            Sharing(|n| n.min(10.0)),
            |rng, _| Job { work: exponential(rng, 0.01), latency: 0.1 },
            1000.0,
        ),
        backend(
            "100 slots of 50 ms",
            Sharing(|n| n.min(100.0)),
            |rng, _| job(exponential(rng, 0.05)),
            2000.0,
        ),
        Backend {
            scale: halves,
            ..backend("8 slots, halve at 40 s", Sharing(eight), EXPONENTIAL_20_MS, 400.0)
        },
        Backend {
            scale: doubles,
            ..backend("8 slots, double at 40 s", Sharing(eight), EXPONENTIAL_20_MS, 400.0)
        },
    ]
}

/// Backends that the first ten leave out.
pub(crate) fn more() -> Vec<Backend> {
    use Service::{Sharing, Slowing, Workers};
    // The speed falls to a third at four times the best number (12).
    let lock: fn(f64) -> f64 = |n| n.min(12.0) / (1.0 + (n - 12.0).max(0.0) / 18.0);
    // Ten times the work at first, half of it gone after about two seconds.
    let cold: fn(f64) -> f64 = |t| 1.0 + 9.0 * (-t / 3.0).exp();
    // Each uses memory, of which there is enough for 24.
    let pages: fn(f64) -> f64 = |n| if n <= 24.0 { n } else { 1.0 };
    vec![
        backend(
            "memory for 24",
            Sharing(pages),
            |rng, _| job(0.04 + exponential(rng, 0.04)),
            300.0,
        ),
        backend("lock collapses past 12", Sharing(lock), EXPONENTIAL_20_MS, 600.0),
        // V falls from 200 at 4 to 160 at 5 and 50 at 16.
        backend("4 workers that slow down", Slowing(4.0, 0.005), |_, _| job(0.02), 200.0),
        backend("2 workers of 40 ms", Workers(2.0), |_, _| job(0.04), 50.0),
        backend(
            "database pool of 10",
            Workers(10.0),
            |rng, _| job(exponential(rng, 0.03)),
            1e3 / 3.0,
        ),
        Backend {
            refuses_above: 20,
            ..backend(
                "pool of 10, refuses above 20",
                Workers(10.0),
                |rng, _| job(exponential(rng, 0.03)),
                1e3 / 3.0,
            )
        },
        backend("mixed 1/200 ms, 8 workers", Workers(8.0), mixed, 8.0 / 0.0209),
        Backend {
            slowdown: cold,
            ..backend("cold caches, 4 slots", Sharing(|n| n.min(4.0)), EXPONENTIAL_20_MS, 200.0)
        },
        backend(
            "8 cores of 100 us",
            Sharing(|n| n.min(8.0)),
            |rng, _| job(exponential(rng, 1e-4)),
            8e4,
        ),
        Backend {
            deadline: 1.5,
            ..backend(
                "2000 in flight of 550 ms",
                Sharing(|n| n.min(2000.0)),
                |rng, _| job(0.5 + exponential(rng, 0.05)),
                2000.0 / 0.55,
            )
        },
        Backend {
            deadline: 4.0,
            ..backend("one worker of 1 s", Workers(1.0), |_, _| job(1.0), 1.0)
        },
        Backend {
            deadline: 120.0,
            ..backend(
                "4 cores, reports of 30 s",
                Sharing(|n| n.min(4.0)),
                |rng, _| job(20.0 + exponential(rng, 10.0)),
                4.0 / 30.0,
            )
        },
    ]
}

/// Backends of other shapes. The learner's form was chosen with them in view, so that they are no
/// independent test of it.
pub(crate) fn others() -> Vec<Backend> {
    use Service::Sharing;
    // Universal scalability law (Gunther): contention and coherence; 13.3 at best, at 35 in flight.
    let scales: fn(f64) -> f64 = |n| n / (1.0 + 0.02 * (n - 1.0) + 8e-4 * n * (n - 1.0));
    // Stands still for 150 ms every two seconds.
    let pauses: fn(f64) -> f64 = |t| if (0.5..0.65).contains(&(t % 2.0)) { 0.01 } else { 1.0 };
    // Bounded Pareto from 5 ms to 1 s, mean 13.9 ms, squared coefficient of variation 5.
    let pareto: Draw = |rng, _| {
        let tail = 1.0 - rng.random::<f64>() * (1.0 - 0.005f64.powf(1.5));
        job(0.005 / tail.powf(1.0 / 1.5))
    };
    vec![
        // The application of a node of lab/delegation.
        backend("0.08 of a core, 5.3 ms", Sharing(|n| 0.08 * n.min(1.0)), |_, _| job(0.0053), 15.1),
        backend("universal scalability", Sharing(scales), EXPONENTIAL_20_MS, 665.0),
        Backend {
            scale: pauses,
            ..backend("pauses of 150 ms", Sharing(|n| n.min(4.0)), EXPONENTIAL_20_MS, 185.0)
        },
        backend("Pareto sizes, 8 slots", Sharing(|n| n.min(8.0)), pareto, 8.0 / 0.013_944),
    ]
}
