//! Throughput, CPU and delay over time, as workers join one by one: the paper's Figures 26, 27 and
//! 28.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};

use crate::cluster::{Cluster, Shape};
use crate::image;
use crate::load::{Load, NEVER, Offer};
use crate::times::mean_ms;
use crate::usage;

/// A second of the run.
struct Second {
    to: Instant,
    workers: usize,
    /// Of the share that each worker has, in per cent.
    cpu: BTreeMap<String, f64>,
}

/// The paper's timeline, `pace` times as fast.
pub(crate) fn measure(case: &Case, row: &mut Row) -> Result<Vec<Row>> {
    let (slices, share) = (case.count("slices")? as u32, case.number("share")?);
    let cost = Duration::from_micros(case.count("item_us")? as u64);
    let round = Duration::from_millis(500);
    let shape = Shape { round, cost, share, ..Shape::new(slices) };
    let mut cluster = Cluster::with_workers(shape, &["worker-1"])?;
    let bytes = case.count("item_bytes")?;
    let message = image::of_bytes(bytes);
    let offered = |mb: f64| mb * 1e6 / bytes as f64;
    let (first, then) = (offered(case.number("mb_per_s")?), offered(case.number("mb_per_s_then")?));
    let window = case.count("window")?;
    let load = Load::start(
        &cluster.stream,
        Offer { items_per_second: first, message, slices, window, resend: NEVER },
    )?;
    let pace = case.number("pace")?;
    let joins = [0.0, 18.0, 25.0, 35.0, 45.0].map(|at| at / pace);
    let (more_at, end_at) = (59.0 / pace, 80.0 / pace);
    let begun = Instant::now();
    let (mut seconds, mut joined, mut is_more) = (Vec::new(), 1, false);
    let mut cpu: BTreeMap<String, Duration> = BTreeMap::new();
    while begun.elapsed().as_secs_f64() < end_at {
        let at = begun.elapsed().as_secs_f64();
        if joined < joins.len() && at >= joins[joined] {
            joined += 1;
            cluster.start_worker(&format!("worker-{joined}"))?;
        }
        if !is_more && at >= more_at {
            is_more = true;
            load.set_rate(then);
        }
        std::thread::sleep(Duration::from_secs(1));
        let mut used = BTreeMap::new();
        for (name, pid) in cluster.pids() {
            let now = usage::cpu(pid)?;
            let before = cpu.insert(name.clone(), now).unwrap_or_default();
            used.insert(name, 100.0 * (now - before).as_secs_f64() / share);
        }
        seconds.push(Second { to: Instant::now(), workers: joined, cpu: used });
    }
    let sessions = cluster.status().handovers_done;
    load.set_rate(0.0);
    let (answered, ended) = (load.answered(), Instant::now());
    let outcome = load.finish()?;
    let backlog_s = ended.elapsed().as_secs_f64();
    let backlog = outcome.published as f64 - answered as f64;
    let (lost, twice) = cluster.lost_and_twice(outcome.published)?;
    let client = case.word("client")?;
    let rate_column = format!("items_per_second_{client}");
    let points = points(client, begun, &seconds, |from, to| outcome.between(from, to));
    for workers in 1..=joins.len() {
        // The last two seconds before the next one joins, or the load rises.
        let of = seconds.iter().zip(&points).filter(|(second, _)| second.workers == workers);
        let of: Vec<_> = of.filter(|(s, _)| (s.to - begun).as_secs_f64() < more_at).collect();
        let last = &of[of.len().saturating_sub(2)..];
        let rates = last.iter().filter_map(|(_, point)| point.number(&rate_column));
        row.figure(&format!("items_per_second_{workers}"), rates.sum::<f64>() / last.len() as f64);
    }
    let after = points.iter().filter(|point| point.number("time_s") > Some(more_at + 3.0));
    let after: Vec<f64> = after.filter_map(|point| point.number(&rate_column)).collect();
    let rate_then = after.iter().sum::<f64>() / after.len().max(1) as f64;
    if client == "unbounded" {
        row.figure("backlog_then", backlog)
            .figure("backlog_s", backlog_s)
            .figure("backlog_ratio", backlog_s / (backlog / rate_then));
    }
    row.figure("items_per_second_then", rate_then)
        .figure("sessions", sessions as f64)
        .figure("items", outcome.published as f64)
        .figure("lost", lost as f64)
        .figure("twice", twice as f64);
    Ok(points)
}

/// A row of each second. Columns have the client's kind in their names: plots show both.
fn points(
    client: &str,
    begun: Instant,
    seconds: &[Second],
    between: impl Fn(Instant, Instant) -> (f64, Vec<Duration>),
) -> Vec<Row> {
    let mut from = begun;
    let mut points = Vec::new();
    for second in seconds {
        let (rate, delays) = between(from, second.to);
        from = second.to;
        let mut point = Row::new();
        point
            .figure("time_s", (second.to - begun).as_secs_f64())
            .figure("workers", second.workers as f64)
            .figure(&format!("items_per_second_{client}"), rate)
            .figure(&format!("delay_ms_{client}"), mean_ms(&delays));
        for (name, cpu) in &second.cpu {
            point.figure(&format!("cpu_percent_{client}_{name}"), *cpu);
        }
        points.push(point);
    }
    points
}
