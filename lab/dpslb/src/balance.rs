//! How even the load is after a worker has joined, and how much moves when it is even.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};

use crate::cluster::{Cluster, Shape};
use crate::image;
use crate::load::{Load, NEVER, Offer};

/// Time from the join until the load should be even.
const EVEN_AFTER: Duration = Duration::from_secs(3);
/// Least duration of a measurement of the load.
const LOOK: Duration = Duration::from_secs(2);
/// Time from the start until equal workers should be left alone, and duration of the measurement.
const STILL_AFTER: Duration = Duration::from_secs(10);

/// Workers join one by one, while one of them could do all the work.
pub(crate) fn measure(case: &Case, row: &mut Row) -> Result<()> {
    let slices = case.count("slices")? as u32;
    let sleep = Duration::from_micros(case.count("item_us")? as u64);
    let round = Duration::from_millis(500);
    let shape = Shape { round, sleep, ..Shape::new(slices) };
    let mut cluster = Cluster::with_workers(shape, &["worker-1"])?;
    let message = image::of_bytes(case.count("item_bytes")?);
    let items_per_second = case.number("load")? / sleep.as_secs_f64();
    let load = Load::start(
        &cluster.stream,
        Offer { items_per_second, message, slices, window: 20_000, resend: NEVER },
    )?;
    // The client publishes slice by slice. In a part of a turn, some slices have one item more than
    // others.
    let turn = f64::from(slices) / items_per_second;
    let look = Duration::from_secs_f64((LOOK.as_secs_f64() / turn).ceil() * turn);
    std::thread::sleep(EVEN_AFTER);
    let workers = case.count("workers")?;
    let mut worst = 0.0_f64;
    for joined in 2..=workers {
        cluster.start_worker(&format!("worker-{joined}"))?;
        cluster.until("it has joined", Duration::from_secs(30), |status| {
            status.workers.len() == joined
        })?;
        std::thread::sleep(EVEN_AFTER);
        let before = cluster.done_by_each()?;
        std::thread::sleep(look);
        let imbalance = imbalance(&before, &cluster.done_by_each()?);
        worst = worst.max(imbalance);
        row.figure(&format!("imbalance_percent_{joined}"), imbalance);
    }
    let outcome = load.finish()?;
    row.figure("imbalance_percent_max", worst)
        .figure("sessions", cluster.status().handovers_done as f64)
        .figure("items", outcome.published as f64)
        .figure("unanswered", outcome.unanswered as f64);
    Ok(())
}

/// Three equal workers with an even load, from their start on.
pub(crate) fn measure_still(case: &Case, row: &mut Row) -> Result<()> {
    let slices = case.count("slices")? as u32;
    let sleep = Duration::from_micros(case.count("item_us")? as u64);
    let shape = Shape { round: Duration::from_millis(500), sleep, ..Shape::new(slices) };
    let cluster = Cluster::with_workers(shape, &["one", "two", "three"])?;
    let message = image::of_bytes(case.count("item_bytes")?);
    let items_per_second = 3.0 * case.number("load")? / sleep.as_secs_f64();
    let load = Load::start(
        &cluster.stream,
        Offer { items_per_second, message, slices, window: usize::MAX, resend: NEVER },
    )?;
    std::thread::sleep(STILL_AFTER);
    let before = cluster.status().handovers_done;
    let seconds = case.count("seconds")? as u64;
    std::thread::sleep(Duration::from_secs(seconds));
    let handovers = cluster.status().handovers_done - before;
    let answered = load.answered();
    let outcome = load.finish()?;
    row.figure("handovers_before", before as f64)
        .figure("handovers_per_minute", 60.0 * handovers as f64 / seconds as f64)
        .figure("waiting", outcome.published as f64 - answered as f64)
        .figure("unanswered", outcome.unanswered as f64);
    Ok(())
}

/// Load of the busiest worker above the mean, in per cent of the mean.
fn imbalance(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> f64 {
    let done = after.iter().map(|(name, done)| (done - before.get(name).unwrap_or(&0)) as f64);
    let mean = done.clone().sum::<f64>() / after.len().max(1) as f64;
    100.0 * (done.fold(0.0, f64::max) / mean - 1.0)
}
