//! Throughput and delay while sessions run, beside those without: the paper's Table 2.

use std::time::{Duration, Instant};

use anyhow::Result;
use equipoise_lab_runner::measure::median;
use equipoise_lab_runner::{Case, Row};

use crate::cluster::{Cluster, Shape};
use crate::image;
use crate::load::{Load, NEVER, Offer};
use crate::times::mean_ms;

/// Workers have all that they can do. In every second window each gives slices to the next, twice a
/// second, so that the load stays even; a session is open most of that time.
pub(crate) fn measure(case: &Case, row: &mut Row) -> Result<()> {
    let slices = case.count("slices")? as u32;
    let workers = case.count("workers")?;
    let cost = Duration::from_micros(case.count("item_us")? as u64);
    let share = case.number("share")?;
    let shape = Shape { cost, share, logs: false, ..Shape::new(slices) };
    let names: Vec<String> = (1..=workers).map(|number| format!("worker-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cluster = Cluster::with_workers(shape, &names)?;
    let message = image::of_bytes(case.count("item_bytes")?);
    let window = workers * case.count("window")?;
    let offer = Offer { items_per_second: f64::INFINITY, message, slices, window, resend: NEVER };
    let load = Load::start(&cluster.stream, offer)?;
    std::thread::sleep(Duration::from_secs(2));
    let length = Duration::from_secs_f64(case.number("seconds")?);
    let mut windows = Vec::new();
    for _ in 0..case.count("windows")? {
        let [without, with] = [false, true].map(|moving| {
            let from = Instant::now();
            while from.elapsed() < length {
                if moving {
                    rotate(&cluster, &names);
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            (from, Instant::now())
        });
        cluster.settled()?;
        windows.push((without, with));
    }
    let sessions = cluster.status().handovers_done;
    let outcome = load.finish()?;
    let (mut rates, mut delays) = (Vec::new(), Vec::new());
    let (mut rate_losses, mut delay_rises) = (Vec::new(), Vec::new());
    for ((from, to), (from_with, to_with)) in windows {
        let (rate, delay) = outcome.between(from, to);
        let (rate_with, delay_with) = outcome.between(from_with, to_with);
        let (delay, delay_with) = (mean_ms(&delay), mean_ms(&delay_with));
        rates.push(rate);
        delays.push(delay);
        rate_losses.push(100.0 * (1.0 - rate_with / rate));
        delay_rises.push(100.0 * (delay_with / delay - 1.0));
    }
    row.figure("items_per_second", median(&rates))
        .figure("delay_ms", median(&delays))
        .figure("throughput_loss_percent", median(&rate_losses))
        .figure("delay_rise_percent", median(&delay_rises))
        .figure("sessions", sessions as f64)
        .figure("unanswered", outcome.unanswered as f64);
    Ok(())
}

/// Each worker gives a tenth of its slices to the next.
fn rotate(cluster: &Cluster, names: &[&str]) {
    let status = cluster.status();
    for (at, name) in names.iter().enumerate() {
        let next = names[(at + 1) % names.len()];
        let free = status
            .slices
            .iter()
            .filter(|slice| slice.blocked.is_none() && slice.owner.as_deref() == Some(name));
        let count = status.slices.len() / names.len() / 10;
        let some: Vec<_> = free.map(|slice| slice.slice).take(count.max(1)).collect();
        // Refused are those that are not over with the last session.
        if !some.is_empty() {
            let _ = cluster.move_slices(some, next);
        }
    }
}
