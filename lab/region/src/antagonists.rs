//! Eight backends, of which other work takes a part that changes.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use equipoise_lab_runner::guest::Guest;
use equipoise_lab_runner::measure::{median, ratio};
use equipoise_lab_runner::{Case, Row, share};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::balancers::{Balancer, set_weight};
use crate::load::{self, AFTER_WINDOW, Plan};
use crate::place::Place;
use crate::seen::{Answer, End, Window, goodput, latency_ms, percent};

/// Shares that other work takes of the backends.
const TAKEN: [f64; 8] = [0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8];
const BACKENDS: usize = TAKEN.len();
/// Mean time until two backends change places.
const CHANGES_S: f64 = 2.0;
/// Of a core, for a backend alone. All eight with their antagonists leave room for balancer and
/// clients on two cores.
const SHARE: f64 = 0.15;
/// The kernel's least quota is 1 ms: this leaves 1.2 ms to the slowest backend.
const PERIOD: Duration = Duration::from_millis(40);
const OPTIONS: [&str; 3] = ["--kind=cpu", "--share=0.15", "--work-ms=3"];
/// How often weighted round robin receives what is left of the CPUs.
const WEIGHTS_EACH: Duration = Duration::from_secs(1);

/// From a time on, a backend's part of its share.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Change {
    at_s: f64,
    backend: usize,
    speed: f64,
}

/// The changes until `total_s`, in the order of time. The remaining capacity of all backends
/// together is constant; otherwise the tail would be that of the times when no scheduler can help.
fn changes(total_s: f64, seed: u64) -> Vec<Change> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut speeds = TAKEN.map(|taken| 1.0 - taken);
    let mut all = Vec::new();
    let change = |at_s, backend, speeds: &[f64; BACKENDS]| {
        let speed: f64 = speeds[backend];
        Change { at_s, backend, speed }
    };
    all.extend((0..BACKENDS).map(|backend| change(0.0, backend, &speeds)));
    let mut at_s = 0.0;
    loop {
        let uniform: f64 = random.random_range(0.0..1.0);
        at_s -= (1.0 - uniform).ln() * CHANGES_S;
        if at_s >= total_s {
            return all;
        }
        let one = random.random_range(0..BACKENDS);
        let other = random.random_range(0..BACKENDS);
        speeds.swap(one, other);
        all.extend([one, other].map(|backend| change(at_s, backend, &speeds)));
    }
}

/// A balancer by its name in a case.
fn balancer(name: &str) -> Balancer {
    match name {
        "haproxy" => Balancer::leastconn(None),
        "wrr" => Balancer::Haproxy { balance: "roundrobin", maxconn: None },
        "default" => Balancer::equipoise(""),
        "learnt" => Balancer::learnt(""),
        "hedged" => Balancer::equipoise("scheduler = \"prequal\"\nhedge = \"p95\""),
        scheduler => {
            Balancer::equipoise(&format!("scheduler = \"{}\"", scheduler.replace('_', "-")))
        }
    }
}

/// Results of a balancer's clients, by round.
#[derive(Default)]
struct Rounds {
    p50: Vec<f64>,
    p99: Vec<f64>,
    good: Vec<f64>,
    refused: Vec<f64>,
}

/// A row: medians of rounds. In each round every balancer has the same arrivals and the same
/// antagonists, and another one begins.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row, seed: u64) -> Result<()> {
    let (warm_up, window) = (case.number("warm_up_s")?, case.number("window_s")?);
    let measured = Window { from_s: warm_up, to_s: warm_up + window };
    let total_s = measured.to_s + AFTER_WINDOW.as_secs_f64();
    let free: f64 = TAKEN.iter().map(|taken| 1.0 - taken).sum();
    let possible = free * capacity(place)?;
    let requests_per_second = case.number("load")? * possible;
    row.figure("offered", requests_per_second);
    let mut all = Vec::new();
    for name in case.word("balancers")?.split(' ') {
        let balancer = balancer(name);
        if balancer.is_accepted(place)? {
            all.push((name, balancer, Rounds::default()));
        } else {
            eprintln!("this equipoise does not accept `{name}`: it is left out");
        }
    }
    for round in 0..case.count("rounds")? {
        let seed = seed + round as u64;
        let changes = changes(total_s, seed);
        let plan = Plan { requests_per_second, time: Duration::from_secs_f64(total_s), seed };
        let count = all.len();
        for turn in 0..count {
            let (_, balancer, rounds) = &mut all[(round + turn) % count];
            let answers = run(place, balancer, plan, &changes)?;
            rounds.p50.push(latency_ms(&answers, 0.5, measured));
            rounds.p99.push(latency_ms(&answers, 0.99, measured));
            rounds.good.push(goodput(&answers, measured) / possible);
            rounds.refused.push(percent(&answers, End::Refused, measured));
        }
    }
    let haproxy = all.iter().find(|(name, ..)| *name == "haproxy");
    for (name, _, rounds) in &all {
        row.figure(&format!("p50_{name}"), median(&rounds.p50))
            .figure(&format!("p99_{name}"), median(&rounds.p99))
            .figure(&format!("good_{name}"), median(&rounds.good))
            .figure(&format!("refused_{name}"), median(&rounds.refused));
        if let Some((_, _, theirs)) = haproxy {
            row.figure(&format!("over_haproxy_{name}"), ratio(&rounds.p99, &theirs.p99));
        }
    }
    Ok(())
}

fn start(place: &Place, number: usize) -> Result<Guest> {
    place.backend(&group(number), &OPTIONS)
}

/// The control group of a backend.
fn group(number: usize) -> String {
    format!("antagonist{number}")
}

/// Leaves this part of its share to a backend.
fn leave(number: usize, speed: f64) -> Result<()> {
    Ok(share::change("region", &group(number), SHARE * speed, PERIOD)?)
}

/// Answers a second of a backend alone.
fn capacity(place: &Place) -> Result<f64> {
    let backend = start(place, 0)?;
    leave(0, 1.0)?;
    load::closed(backend.address, 4, Duration::from_secs(1), Duration::from_secs(4))
}

fn run(place: &Place, balancer: &Balancer, plan: Plan, changes: &[Change]) -> Result<Vec<Answer>> {
    let backends: Vec<Guest> =
        (0..BACKENDS).map(|number| start(place, number)).collect::<Result<_>>()?;
    let addresses: Vec<SocketAddr> = backends.iter().map(|one| one.address).collect();
    let guest = balancer.start(place, &addresses)?;
    let is_weighted = matches!(balancer, Balancer::Haproxy { balance: "roundrobin", .. });
    thread::scope(|scope| {
        let antagonists = scope.spawn(|| disturb(place, changes, is_weighted));
        let answers = load::open(guest.address, plan)?;
        antagonists.join().map_err(|_| anyhow!("the antagonists' thread failed"))??;
        Ok(answers)
    })
}

/// Slows the backends as planned, and sets HAProxy's weights where they follow the CPUs.
fn disturb(place: &Place, changes: &[Change], is_weighted: bool) -> Result<()> {
    let begin = Instant::now();
    let mut speeds = [1.0; BACKENDS];
    let mut weights_due = Duration::ZERO;
    for (number, change) in changes.iter().enumerate() {
        let at = Duration::from_secs_f64(change.at_s);
        thread::sleep(at.saturating_sub(begin.elapsed()));
        leave(change.backend, change.speed)?;
        speeds[change.backend] = change.speed;
        let is_last = changes.get(number + 1).is_none_or(|next| next.at_s > change.at_s);
        if is_weighted && is_last && begin.elapsed() >= weights_due {
            for (server, speed) in speeds.iter().enumerate() {
                set_weight(place, server, (100.0 * speed) as u32)?;
            }
            weights_due = begin.elapsed() + WEIGHTS_EACH;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn antagonists_come_from_the_seed_and_leave_the_same_in_all() {
        let all = changes(1000.0, 7);
        assert_eq!(all, changes(1000.0, 7));
        assert!(all.is_sorted_by(|one, other| one.at_s <= other.at_s));
        let mut speeds = [0.0; BACKENDS];
        for pair in all.chunks(2) {
            for change in pair {
                speeds[change.backend] = change.speed;
            }
            if pair[0].at_s > 0.0 {
                assert!((speeds.iter().sum::<f64>() - 5.6).abs() < 1e-9, "{speeds:?}");
            }
        }
        // One in two seconds on average, each of two backends.
        assert!((800..1200).contains(&all.len()), "{}", all.len());
    }
}
