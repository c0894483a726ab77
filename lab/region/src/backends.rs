//! The backends, by name.

use std::time::Duration;

use anyhow::{Result, bail};
use equipoise_lab_runner::guest::Guest;
use equipoise_lab_runner::share;

use crate::load;
use crate::place::Place;

/// Name, title and options of each kind.
pub(crate) const KINDS: [(&str, &str, &[&str]); 7] = [
    ("cpu", "2 ms of CPU time, 0.4 of a core", &["--kind=cpu", "--share=0.4", "--work-ms=2"]),
    (
        "lock",
        "a lock that wakes all its waiters, 0.4 of a core",
        &["--kind=lock", "--share=0.4", "--work-ms=1"],
    ),
    (
        "memory",
        "a MiB for each request in flight, of which few fit",
        &["--kind=memory", "--share=0.25", "--work-ms=80", "--memory-mib=28", "--threads=200"],
    ),
    ("slots", "2 slots of 20 ms", &["--kind=slots", "--share=1", "--slots=2", "--work-ms=20"]),
    (
        "pool",
        "10 database connections, 30 ms exponentially spread",
        &["--kind=pool", "--share=1", "--slots=10", "--work-ms=30"],
    ),
    (
        "mixed",
        "8 workers, 1 ms and every tenth 200 ms",
        &["--kind=mixed", "--share=1", "--slots=8", "--work-ms=200"],
    ),
    (
        "slowing",
        "4 slots of 20 ms that slow as more wait",
        &["--kind=slowing", "--share=1", "--slots=4", "--work-ms=20"],
    ),
];

/// Backends with a capacity that changes while they run, at their full capacity.
const CHANGING: [(&str, &[&str]); 2] = [
    ("cpu", &["--kind=cpu", "--share=0.4", "--work-ms=2"]),
    ("slots", &["--kind=slots", "--share=1", "--slots=8", "--work-ms=20"]),
];

/// A backend of one of [`KINDS`].
pub(crate) fn start(place: &Place, kind: &str) -> Result<Guest> {
    match KINDS.iter().find(|(name, ..)| *name == kind) {
        Some((_, _, options)) => place.backend(kind, options),
        None => bail!("no backend is called `{kind}`"),
    }
}

/// Starts a backend with a capacity that [`scale`] changes.
pub(crate) fn start_changing(place: &Place, kind: &str) -> Result<Guest> {
    match CHANGING.iter().find(|(name, _)| *name == kind) {
        Some((_, options)) => place.backend(kind, options),
        None => bail!("no backend that changes is called `{kind}`"),
    }
}

/// Gives a backend of [`start_changing`] `part` of its full capacity: of its share of a core, or of
/// its slots.
pub(crate) fn scale(backend: std::net::SocketAddr, kind: &str, part: f64) -> Result<()> {
    match kind {
        "cpu" => Ok(share::change("region", kind, 0.4 * part, share::PERIOD)?),
        _ => load::set(backend, &format!("slots={}", (8.0 * part).round())),
    }
}

/// How long each number in flight is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
}

/// The most that a backend can do, asked directly by closed load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peak {
    /// The smallest number in flight that is within 5 % of the fastest.
    pub(crate) best_n: usize,
    /// Answers a second at that number.
    pub(crate) speed: f64,
    /// Speed at four times that number, as a part.
    pub(crate) at_four_times: f64,
}

const TRIED: [usize; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48];
const AS_FAST: f64 = 0.95;

/// Finds the peak of the backends that `start` starts.
pub(crate) fn peak(sweep: Sweep, start: impl Fn() -> Result<Guest>) -> Result<Peak> {
    let run = |count: usize, times: u32| -> Result<f64> {
        let backend = start()?;
        load::closed(backend.address, count, sweep.warm_up, sweep.window * times)
    };
    let mut speeds = Vec::new();
    for count in TRIED {
        speeds.push((count, run(count, 1)?));
        let fastest = speeds.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
        // Three in a row that are slower: the top is behind.
        if speeds.iter().rev().take(3).filter(|(_, speed)| *speed < AS_FAST * fastest).count() == 3
        {
            break;
        }
    }
    let best_n = smallest_best(&speeds);
    let speed = run(best_n, 5)?;
    Ok(Peak { best_n, speed, at_four_times: run(4 * best_n, 1)? / speed })
}

/// The smallest number that is nearly as fast as the fastest.
fn smallest_best(speeds: &[(usize, f64)]) -> usize {
    let fastest = speeds.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
    let enough = |(_, speed): &&(usize, f64)| *speed >= AS_FAST * fastest;
    speeds.iter().find(enough).map_or(1, |(count, _)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_number_is_the_smallest_that_is_nearly_as_fast_as_any() {
        assert_eq!(smallest_best(&[(1, 50.0), (2, 98.0), (4, 100.0), (8, 99.0)]), 2);
        assert_eq!(smallest_best(&[(1, 50.0), (2, 90.0), (4, 100.0), (8, 30.0)]), 4);
    }
}
