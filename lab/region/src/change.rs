//! A backend that loses half of its capacity and later regains it, under constant load.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use equipoise_lab_runner::{Case, Row};

use crate::backends::{self, Sweep};
use crate::balancers::Balancer;
use crate::load::{self, Plan};
use crate::place::Place;
use crate::seen::{Answer, Window, goodput, recovery_s};

/// Of what is possible, from which a pool has recovered.
const ENOUGH: f64 = 0.95;
/// Between two points of the plot.
const STEP_S: f64 = 0.5;

pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row, seed: u64) -> Result<Vec<Row>> {
    let kind = case.word("backend")?;
    let window = Duration::from_secs_f64(case.number("sweep_s")?);
    let sweep = Sweep { warm_up: window / 3, window };
    let full = backends::peak(sweep, || backends::start_changing(place, kind))?;
    let half = backends::peak(sweep, || {
        let backend = backends::start_changing(place, kind)?;
        backends::scale(backend.address, kind, 0.5)?;
        Ok(backend)
    })?;
    let balancer = match case.word("balancer")? {
        "haproxy" => Balancer::leastconn(Some(2 * full.best_n)),
        _ => Balancer::learnt(""),
    };
    let phase_s = case.number("phase_s")?;
    let requests_per_second = case.number("load")? * full.speed;
    let time = Duration::from_secs_f64(3.0 * phase_s);
    let plan = Plan { requests_per_second, time, seed };
    let answers = run(place, kind, &balancer, plan, phase_s)?;
    let after = |from_s: f64| Window { from_s, to_s: from_s + phase_s };
    let mean =
        |from_s: f64| goodput(&answers, Window { from_s: from_s + phase_s / 2.0, ..after(from_s) });
    row.figure("possible", full.speed)
        .figure("possible_halved", half.speed)
        .figure("good_before", mean(0.0) / full.speed)
        .figure("halved_after_s", recovery_s(&answers, ENOUGH * half.speed, after(phase_s)))
        .figure("good_halved", mean(phase_s) / half.speed)
        .figure("doubled_after_s", recovery_s(&answers, ENOUGH * full.speed, after(2.0 * phase_s)))
        .figure("good_doubled", mean(2.0 * phase_s) / full.speed);
    if matches!(balancer, Balancer::Equipoise { .. }) {
        let of = |row: &Row, column: &str| row.number(column).unwrap_or(f64::NAN);
        let (halved, doubled) = (of(row, "halved_after_s"), of(row, "doubled_after_s"));
        row.figure("ours_halved_after_s", halved).figure("ours_doubled_after_s", doubled);
    }
    let label = format!("{kind}_{}", case.word("balancer")?);
    Ok(points(&answers, &label, full.speed, 3.0 * phase_s))
}

/// Full capacity, half of it, and all of it again, for `phase_s` each.
fn run(
    place: &Place,
    kind: &str,
    balancer: &Balancer,
    plan: Plan,
    phase_s: f64,
) -> Result<Vec<Answer>> {
    let backend = backends::start_changing(place, kind)?;
    let guest = balancer.start(place, &[backend.address])?;
    let address = backend.address;
    thread::scope(|scope| {
        let changes = scope.spawn(move || {
            for part in [0.5, 1.0] {
                thread::sleep(Duration::from_secs_f64(phase_s));
                backends::scale(address, kind, part)?;
            }
            anyhow::Ok(())
        });
        let answers = load::open(guest.address, plan)?;
        changes.join().map_err(|_| anyhow!("the thread that changes the backend failed"))??;
        Ok(answers)
    })
}

/// Goodput over time, as a part of the full capacity.
fn points(answers: &[Answer], label: &str, full: f64, total_s: f64) -> Vec<Row> {
    let steps = (total_s / STEP_S) as u32;
    let point = |step: u32| {
        let from_s = f64::from(step) * STEP_S;
        let good = goodput(answers, Window { from_s, to_s: from_s + STEP_S }) / full;
        let mut row = Row::new();
        row.figure("time_s", from_s + STEP_S / 2.0).figure(label, good);
        row
    };
    (0..steps).map(point).collect()
}
