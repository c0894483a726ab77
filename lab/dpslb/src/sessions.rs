//! The duration of a load balancing session while items flow; and many sessions, after which every
//! item is counted.
//!
//! # Source
//! Vasconcelos, DPSLB, Table 3: 401 to 491 ms. A session is measured here from the controller's
//! decision until it has received the target's ACTIVE: all of it but the writing of the new owner,
//! on which no item waits.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use equipoise_lab_runner::{Case, Row};
use equipoise_slices::HandoverSteps;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::{Cluster, Shape};
use crate::image;
use crate::load::{Load, Offer, Outcome, USUAL};
use crate::times::{at_ms, ms};

const PATIENCE: Duration = Duration::from_secs(30);

/// All slices go to and fro between two workers.
pub(crate) fn measure(case: &Case, row: &mut Row) -> Result<()> {
    let slices = case.count("slices")? as u32;
    let loss_permille = case.number("loss_permille").unwrap_or(0.0) as u16;
    let shape = Shape { loss_permille, ..Shape::new(slices) };
    let cluster = Cluster::with_workers(shape, &["one", "two"])?;
    gather(&cluster, "one")?;
    let load = Load::start(&cluster.stream, offer(case, slices)?)?;
    // The first session has to create readers: while the client met every group, unneeded ones were
    // closed.
    let before = cluster.status().handovers_done;
    gather(&cluster, "two")?;
    let cold = cluster.steps_after(before).iter().map(|steps| steps.active).max();
    row.figure("first_ms", cold.map_or(0.0, ms));
    gather(&cluster, "one")?;
    let before = cluster.status().handovers_done;
    let mut random = StdRng::seed_from_u64(3);
    for session in 0..case.count("sessions")? {
        // Not in step with anything.
        std::thread::sleep(Duration::from_millis(random.random_range(5..25)));
        gather(&cluster, if session % 2 == 0 { "two" } else { "one" })?;
    }
    let outcome = load.finish()?;
    let steps = cluster.steps_after(before);
    tell_steps(&steps, row);
    tell_items(&cluster, &outcome, row)
}

/// Many sessions at a time: some slices of one worker go to another, whoever it is.
pub(crate) fn measure_many(case: &Case, row: &mut Row) -> Result<()> {
    let slices = case.count("slices")? as u32;
    let names = ["one", "two", "three"];
    let cluster = Cluster::with_workers(Shape::new(slices), &names)?;
    let load = Load::start(&cluster.stream, offer(case, slices)?)?;
    let (before, sessions) = (cluster.status().handovers_done, case.count("sessions")? as u64);
    let mut random = StdRng::seed_from_u64(4);
    let end = Instant::now() + Duration::from_secs(case.count("seconds_max")? as u64);
    while cluster.status().handovers_done < before + sessions {
        anyhow::ensure!(Instant::now() < end, "too slow: {:?}", cluster.status().handovers);
        let from = random.random_range(0..names.len());
        let to = (from + random.random_range(1..names.len())) % names.len();
        let status = cluster.status();
        let free = status
            .slices
            .iter()
            .filter(|slice| slice.blocked.is_none() && slice.owner.as_deref() == Some(names[from]));
        let some: Vec<_> = free.map(|slice| slice.slice).take(random.random_range(1..8)).collect();
        // The status is slightly old: slices that have entered a handover since are refused.
        if !some.is_empty() {
            let _ = cluster.move_slices(some, names[to]);
        }
        std::thread::sleep(Duration::from_millis(random.random_range(1..20)));
    }
    let outcome = load.finish()?;
    tell_steps(&cluster.steps_after(before), row);
    tell_items(&cluster, &outcome, row)
}

fn offer(case: &Case, slices: u32) -> Result<Offer> {
    let bytes = case.count("item_bytes")?;
    let message = image::of_bytes(bytes);
    let items_per_second = case.number("mb_per_s")? * 1e6 / bytes as f64;
    Ok(Offer { items_per_second, message, slices, window: 20_000, resend: USUAL })
}

/// Has all slices on one worker, in one session.
fn gather(cluster: &Cluster, to: &str) -> Result<()> {
    let status = cluster.status();
    let away = status.slices.iter().filter(|s| s.owner.as_deref().is_some_and(|o| o != to));
    let away: Vec<_> = away.map(|slice| slice.slice).collect();
    if away.is_empty() {
        return Ok(());
    }
    cluster.move_slices(away, to)?;
    let there = cluster.until("the slices are there", PATIENCE, |status| {
        status.handovers.is_empty()
            && status.slices.iter().all(|slice| slice.owner.as_deref() == Some(to))
    });
    there.with_context(|| format!("{:#?}", cluster.status().handovers)).map(|_| ())
}

fn tell_steps(steps: &[HandoverSteps], row: &mut Row) {
    let mut figure = |name: &str, permille, of: fn(&HandoverSteps) -> Duration| {
        let mut times: Vec<_> = steps.iter().map(of).collect();
        row.figure(name, at_ms(&mut times, permille));
    };
    figure("session_ms_median", 500, |steps| steps.active);
    figure("session_ms_p99", 990, |steps| steps.active);
    figure("session_ms_max", 1000, |steps| steps.active);
    figure("ready_ms_median", 500, |steps| steps.ready);
    figure("cut_ms_median", 500, |steps| steps.cut);
    figure("held_ms_median", 500, |steps| steps.active - steps.cut);
    figure("held_ms_max", 1000, |steps| steps.active - steps.cut);
    row.figure("sessions_measured", steps.len() as f64);
}

fn tell_items(cluster: &Cluster, outcome: &Outcome, row: &mut Row) -> Result<()> {
    let (lost, twice) = cluster.lost_and_twice(outcome.published)?;
    let mut delays = outcome.delays();
    row.figure("items", outcome.published as f64)
        .figure("lost", lost as f64)
        .figure("twice", twice as f64)
        .figure("unanswered", outcome.unanswered as f64)
        .figure("resent", outcome.resent as f64)
        .figure("delay_ms_median", at_ms(&mut delays, 500))
        .figure("delay_ms_p99", at_ms(&mut delays, 990));
    Ok(())
}
