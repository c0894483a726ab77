//! Experiment B with concurrency limits: does V stay at its top as N grows?

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use equipoise_lab_runner::measure::median;
use equipoise_lab_runner::{Case, Row};

use crate::client::{Seen, closed};
use crate::endpoints::{Place, pool};
use crate::regions::{curve, top};
use crate::shuffle::request;

/// Nothing has to be learnt of a bare endpoint.
const BARE_WARM_UP: Duration = Duration::from_millis(500);
const BARE_WINDOW: Duration = Duration::from_millis(1500);

/// One pool under each N of the case: a row for all, and a point for each N.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<Vec<Row>> {
    let numbers: Result<Vec<usize>, _> =
        case.word("numbers")?.split_whitespace().map(str::parse).collect();
    let mut points = Vec::new();
    let mut failed = 0.0_f64;
    for n in numbers.context("`numbers` are whole numbers")? {
        let (point, failed_percent) = point(place, case, n)?;
        failed = failed.max(failed_percent);
        points.push(point);
    }
    let speeds = curve(&points, "v");
    let (at, most) = top(&speeds).context("nothing was measured")?;
    let beyond = speeds.iter().filter(|(n, _)| *n >= at).map(|(_, speed)| *speed);
    let least = beyond.fold(f64::INFINITY, f64::min);
    let efficiency = top(&curve(&points, "e")).map_or(f64::NAN, |(_, e)| e);
    row.figure("limited", f64::from(u8::from(case.word("concurrency")? != "none")))
        .figure("v_top", most)
        .figure("at_n", at)
        .figure("v_least_beyond", least)
        .figure("kept", least / most)
        .figure("e_max", efficiency)
        .figure("failed_percent_max", failed);
    Ok(points)
}

/// Medians of several rounds. Beside the point, the largest part of requests that failed.
fn point(place: &Place, case: &Case, n: usize) -> Result<(Row, f64)> {
    let (mut bare, mut balanced, mut failed) = (Vec::new(), Vec::new(), 0.0_f64);
    for _ in 0..case.count("rounds")? {
        let round = round(place, case, n)?;
        bare.push(round.bare);
        balanced.push(round.balanced);
        failed = failed.max(round.failed_percent);
    }
    let (count, concurrency) = (case.count("endpoints")?, case.word("concurrency")?);
    let (bare, v) = (median(&bare), median(&balanced));
    let mut point = Row::new();
    point
        .figure("n", n as f64)
        .figure("v_bare", bare)
        .figure("v", v)
        .figure(&format!("v_{count}_{concurrency}"), v)
        .figure("e", v / bare / count as f64)
        .figure("failed_percent", failed);
    Ok((point, failed))
}

/// Answers a second.
struct Round {
    bare: f64,
    balanced: f64,
    failed_percent: f64,
}

/// The bare endpoint, then endpoints behind equipoise; all are fresh, as what clients before left
/// behind is still worked off.
fn round(place: &Place, case: &Case, n: usize) -> Result<Round> {
    let (share, count) = (case.number("share")?, case.count("endpoints")?);
    let seconds = |name| anyhow::Ok(Duration::from_secs_f64(case.number(name)?));
    let (warm_up, window) = (seconds("warm_up")?, seconds("seconds")?);
    let request = request();
    let speed = |seen: &Seen, window: Duration| seen.answered as f64 / window.as_secs_f64();
    let endpoints = place.endpoints("limits", 1, share, 0.0)?;
    let bare = closed(endpoints[0].address, &request, n, BARE_WARM_UP, BARE_WINDOW)?;
    let bare = speed(&bare, BARE_WINDOW);
    drop(endpoints);
    ensure!(bare > 0.0, "the bare endpoint answered nothing: a longer window is needed");
    let endpoints = place.endpoints("limits", count, share, 0.0)?;
    let balancer = place.balancer(&pool(&endpoints, &options(case.word("concurrency")?)))?;
    let seen = closed(balancer.address, &request, n, warm_up, window)?;
    let failed_percent = seen.failed_percent();
    Ok(Round { bare, balanced: speed(&seen, window), failed_percent })
}

/// Options of the pool. As many requests as clients have may wait, for as long as N/V takes.
fn options(concurrency: &str) -> String {
    let value = match concurrency.parse::<u32>() {
        Ok(limit) => limit.to_string(),
        Err(_) => format!("\"{concurrency}\""),
    };
    format!("concurrency = {value}\nqueue = {{ wait = \"20s\", length = 1000 }}\n")
}
