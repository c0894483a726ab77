//! From a step of one node's load to changed instructions at another node.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use equipoise_lab_runner::measure::median;
use equipoise_lab_runner::{Case, Row};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::{Cluster, Shape};
use crate::fleet::{CPU_AT_FIRST, Heard};
use crate::place::Place;

/// A weight has changed when it differs by more than this part: less is what plans differ by
/// anyway.
const CHANGED: f64 = 0.03;
/// It has settled when it stays this near to where it ends.
const SETTLED: f64 = 0.1;

/// The load steps so many times; between, it is as at first.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<()> {
    let period = Duration::from_secs_f64(case.number("period_ms")? / 1e3);
    let shape = Shape { nodes: case.count("nodes")?, period, store: case.word("store")? };
    let cluster = Cluster::start(place, &shape)?;
    // Weights follow the load that requests bring: without requests no weight moves.
    let traffic = cluster.traffic()?;
    let observe = period * case.count("observe_periods")? as u32;
    let mut random = StdRng::seed_from_u64(2);
    let (mut changed, mut settled) = (Vec::new(), Vec::new());
    for _ in 0..case.count("rounds")? {
        // Earlier learning comes to rest.
        cluster.fleet.set_cpu_of_first(CPU_AT_FIRST);
        std::thread::sleep(observe + period.mul_f64(random.random_range(0.0..1.0)));
        ensure!(traffic.answered() > 0, "no request was answered");
        let stepped = Instant::now();
        cluster.fleet.set_cpu_of_first(case.count("cpu")? as u64);
        std::thread::sleep(observe);
        let (first, last) = times(&cluster.fleet.heard(), stepped)?;
        changed.push(1e3 * first.as_secs_f64());
        settled.push(1e3 * last.as_secs_f64());
    }
    let most = |figures: &[f64]| figures.iter().copied().fold(0.0, f64::max);
    row.figure("changed_ms_median", median(&changed))
        .figure("changed_ms_max", most(&changed))
        .figure("changed_periods_max", most(&changed) / 1e3 / period.as_secs_f64())
        .figure("settled_ms_median", median(&settled))
        .figure("settled_ms_max", most(&settled));
    Ok(())
}

/// From the step until the weight has changed, and until it stays where it ends.
fn times(heard: &[Heard], stepped: Instant) -> Result<(Duration, Duration)> {
    let before = heard.iter().rev().find(|one| one.at < stepped).context("no plan came before")?;
    let after: Vec<&Heard> = heard.iter().filter(|one| one.at >= stepped).collect();
    let far = |one: &Heard, from: u16, part: f64| {
        f64::from(one.weight.abs_diff(from)) > part * f64::from(from.max(1))
    };
    let changed = after.iter().find(|one| far(one, before.weight, CHANGED));
    let weights: Vec<u16> = after.iter().map(|one| one.weight).collect();
    let changed =
        changed.with_context(|| format!("the weight stays {}: {weights:?}", before.weight))?;
    let last = after.last().context("no plan came after")?.weight;
    let unsettled = after.iter().rposition(|one| far(one, last, SETTLED));
    let settled = after[unsettled.map_or(0, |at| at + 1)].at;
    ensure!(settled >= stepped, "time runs backwards");
    Ok((changed.at - stepped, settled.max(changed.at) - stepped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_and_its_end_are_found() {
        let begin = Instant::now();
        let heard = |ms: u64, weight| Heard { at: begin + Duration::from_millis(ms), weight };
        let all = [
            heard(0, 100),
            heard(10, 100),
            heard(20, 98),
            heard(30, 60),
            heard(40, 50),
            heard(50, 30),
            heard(60, 31),
            heard(70, 30),
        ];
        let stepped = begin + Duration::from_millis(5);
        let (changed, settled) = times(&all, stepped).expect("it changed");
        assert_eq!((changed.as_millis(), settled.as_millis()), (25, 45));
        assert!(times(&all[..3], stepped).is_err(), "nothing has changed yet");
        assert!(times(&all[1..], begin).is_err(), "there was no plan before");
    }
}
