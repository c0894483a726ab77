//! A worker is killed repeatedly (`kill -9`) and restarted, while items flow. Every item is
//! accounted for by its id.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use equipoise_lab_runner::{Case, Row};
use equipoise_slice::SliceId;

use crate::cluster::{Cluster, Shape};
use crate::image;
use crate::load::{Load, Offer, Outcome, USUAL};
use crate::times::at_ms;

/// A worker that was killed.
struct Killed {
    at: Instant,
    slices: BTreeSet<SliceId>,
}

pub(crate) fn measure(case: &Case, row: &mut Row) -> Result<()> {
    let slices = case.count("slices")? as u32;
    let shape = Shape { sleep: Duration::from_micros(100), ..Shape::new(slices) };
    let names = ["one", "two", "three"];
    let mut cluster = Cluster::with_workers(shape, &names)?;
    let message = image::of_bytes(case.count("item_bytes")?);
    let items_per_second = case.number("items_per_second")?;
    let load = Load::start(
        &cluster.stream,
        Offer { items_per_second, message, slices, window: 20_000, resend: USUAL },
    )?;
    let (mut kills, mut owned) = (Vec::new(), Vec::new());
    for kill in 0..case.count("kills")? {
        // The slices of the previous worker are recovered, and the restarted worker is connected.
        std::thread::sleep(Duration::from_secs(3));
        // The busiest worker, because its loss matters most.
        let count = |name: &&&str| cluster.slices_of(name).len();
        let victim = *names.iter().max_by_key(count).context("there are workers")?;
        let killed =
            Killed { at: Instant::now(), slices: cluster.slices_of(victim).into_iter().collect() };
        cluster.kill_worker(victim)?;
        let succeeded =
            cluster.until("its slices have owners", Duration::from_secs(60), |status| {
                status
                    .slices
                    .iter()
                    .all(|s| s.owner.as_deref().is_some_and(|owner| owner != victim))
            });
        owned.push(succeeded.with_context(|| format!("after kill {kill}"))?);
        kills.push(killed);
        cluster.start_worker(victim)?;
        cluster.until("it is back", Duration::from_secs(60), |status| {
            status.workers.iter().any(|worker| worker.name == victim && !worker.lost)
        })?;
    }
    // Unfinished items are republished.
    std::thread::sleep(Duration::from_secs(3));
    let outcome = load.finish()?;
    let mut served: Vec<_> =
        kills.iter().map(|killed| served_after(killed, slices, &outcome)).collect();
    let (lost, twice) = cluster.lost_and_twice(outcome.published)?;
    row.figure("owned_ms_median", at_ms(&mut owned, 500))
        .figure("owned_ms_max", at_ms(&mut owned, 1000))
        .figure("served_ms_median", at_ms(&mut served, 500))
        .figure("served_ms_max", at_ms(&mut served, 1000))
        .figure("items", outcome.published as f64)
        .figure("lost", lost as f64)
        .figure("unanswered", outcome.unanswered as f64)
        .figure("twice", twice as f64)
        .figure("resent", outcome.resent as f64)
        .figure("second_replies", outcome.strange as f64);
    Ok(())
}

/// Time until each slice of the worker had a response to an item published after its end.
fn served_after(killed: &Killed, slices: u32, outcome: &Outcome) -> Duration {
    let mut unserved = killed.slices.clone();
    let first = outcome.answers.partition_point(|answer| answer.at <= killed.at);
    for answer in &outcome.answers[first..] {
        let slice = SliceId((answer.id % i64::from(slices)) as u32);
        if answer.at - answer.delay > killed.at {
            unserved.remove(&slice);
        }
        if unserved.is_empty() {
            return answer.at - killed.at;
        }
    }
    // The load ended before, so this is a lower bound.
    outcome.answers.last().map_or(Duration::ZERO, |last| last.at - killed.at)
}
