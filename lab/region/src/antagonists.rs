//! Eight backends, from single ones of which other work takes a part, now and then.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use equipoise_lab_runner::guest::Guest;
use equipoise_lab_runner::{Case, Row};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::balancers::{Balancer, set_weight};
use crate::load::{self, AFTER_WINDOW, Plan};
use crate::place::Place;
use crate::seen::{Answer, End, Window, goodput, latency_ms, percent};

const BACKENDS: usize = 8;
/// Of each, alone: four slots of 40 ms.
const CAPACITY: f64 = 100.0;
const OPTIONS: [&str; 4] = ["--kind=slots", "--share=0.2", "--slots=4", "--work-ms=40"];
/// Mean time until the work beside a backend changes.
const CHANGES_S: f64 = 1.0;
/// The most that other work takes.
const TAKEN_MAX: f64 = 0.8;
/// How often weighted round robin hears what is left of the CPUs.
const WEIGHTS_EACH: Duration = Duration::from_secs(1);

/// At a time, what is left of a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Change {
    at_s: f64,
    backend: usize,
    speed: f64,
}

/// Each backend's changes until `total_s`, in the order of time.
fn changes(total_s: f64, seed: u64) -> Vec<Change> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut all = Vec::new();
    for backend in 0..BACKENDS {
        let mut at_s = 0.0;
        while at_s < total_s {
            let speed = 1.0 - TAKEN_MAX * random.random_range(0.0..1.0);
            all.push(Change { at_s, backend, speed });
            let uniform: f64 = random.random_range(0.0..1.0);
            at_s -= (1.0 - uniform).ln() * CHANGES_S;
        }
    }
    all.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    all
}

/// Mean over time of the sum of all speeds.
fn mean_speed(changes: &[Change], total_s: f64) -> f64 {
    let of = |backend: usize| {
        let own: Vec<&Change> = changes.iter().filter(|one| one.backend == backend).collect();
        let ends = own.iter().skip(1).map(|one| one.at_s).chain([total_s]);
        own.iter().zip(ends).map(|(one, end)| one.speed * (end - one.at_s)).sum::<f64>() / total_s
    };
    (0..BACKENDS).map(of).sum()
}

/// A row: every balancer with the same arrivals and the same antagonists.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row, seed: u64) -> Result<()> {
    let (warm_up, window) = (case.number("warm_up_s")?, case.number("window_s")?);
    let measured = Window { from_s: warm_up, to_s: warm_up + window };
    let total_s = measured.to_s + AFTER_WINDOW.as_secs_f64();
    let changes = changes(total_s, seed);
    let possible = CAPACITY * mean_speed(&changes, total_s);
    let requests_per_second = case.number("load")? * possible;
    let time = Duration::from_secs_f64(total_s);
    row.figure("offered", requests_per_second);
    for name in case.word("balancers")?.split(' ') {
        let balancer = match name {
            "haproxy" => Balancer::leastconn(None),
            "wrr" => Balancer::Haproxy { balance: "roundrobin", maxconn: None },
            "equipoise" => Balancer::learnt(""),
            scheduler => {
                Balancer::learnt(&format!("scheduler = \"{}\"", scheduler.replace('_', "-")))
            }
        };
        if !balancer.is_accepted(place)? {
            eprintln!("this equipoise has no scheduler `{name}`: it is left out");
            continue;
        }
        let plan = Plan { requests_per_second, time, seed };
        let answers = run(place, &balancer, plan, &changes)?;
        row.figure(&format!("p50_{name}"), latency_ms(&answers, 0.5, measured))
            .figure(&format!("p99_{name}"), latency_ms(&answers, 0.99, measured))
            .figure(&format!("good_{name}"), goodput(&answers, measured) / possible)
            .figure(&format!("refused_{name}"), percent(&answers, End::Refused, measured));
    }
    if let (Some(ours), Some(theirs)) = (row.number("p99_equipoise"), row.number("p99_haproxy")) {
        row.figure("p99_over_haproxy", ours / theirs);
    }
    Ok(())
}

fn run(place: &Place, balancer: &Balancer, plan: Plan, changes: &[Change]) -> Result<Vec<Answer>> {
    let start = |number: usize| place.backend(&format!("antagonist{number}"), &OPTIONS);
    let backends: Vec<Guest> = (0..BACKENDS).map(start).collect::<Result<_>>()?;
    let addresses: Vec<SocketAddr> = backends.iter().map(|one| one.address).collect();
    let guest = balancer.start(place, &addresses)?;
    let is_weighted = matches!(balancer, Balancer::Haproxy { balance: "roundrobin", .. });
    thread::scope(|scope| {
        let antagonists = scope.spawn(|| disturb(place, &addresses, changes, is_weighted));
        let answers = load::open(guest.address, plan)?;
        antagonists.join().map_err(|_| anyhow!("the antagonists' thread failed"))??;
        Ok(answers)
    })
}

/// Slows the backends as planned, and tells HAProxy the weights where it goes by them.
fn disturb(
    place: &Place,
    backends: &[SocketAddr],
    changes: &[Change],
    is_weighted: bool,
) -> Result<()> {
    let begin = Instant::now();
    let mut speeds = [1.0; BACKENDS];
    let mut weights_due = Duration::ZERO;
    for change in changes {
        let at = Duration::from_secs_f64(change.at_s);
        thread::sleep(at.saturating_sub(begin.elapsed()));
        load::set(backends[change.backend], &format!("speed={}", change.speed))?;
        speeds[change.backend] = change.speed;
        if is_weighted && begin.elapsed() >= weights_due {
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
    fn antagonists_come_from_the_seed_and_leave_what_they_are_said_to() {
        let all = changes(1000.0, 7);
        assert_eq!(all, changes(1000.0, 7));
        assert!(all.is_sorted_by(|one, other| one.at_s <= other.at_s));
        // Evenly spread from 0.2 to 1: 0.6 of each on average.
        let mean = mean_speed(&all, 1000.0) / BACKENDS as f64;
        assert!((0.58..0.62).contains(&mean), "{mean}");
        let two = [
            Change { at_s: 0.0, backend: 0, speed: 1.0 },
            Change { at_s: 9.0, backend: 0, speed: 0.5 },
        ];
        assert!((mean_speed(&two, 10.0) - 0.95).abs() < 1e-9);
    }
}
