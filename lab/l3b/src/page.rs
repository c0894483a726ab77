//! Experiment A: a page of 56 KB at so many requests a second, from a bare endpoint and from two behind equipoise.

use std::time::Duration;

use anyhow::{Result, ensure};
use equipoise_lab_runner::{Case, Row, Value};

use crate::client::open;
use crate::endpoints::{Place, pool};
use crate::regions::{self, top};

/// Differences of S between repetitions, as a part.
const MARGIN: f64 = 0.05;
const ENDPOINTS: usize = 2;
const REQUEST: &[u8] = b"GET /page HTTP/1.1\r\nhost: l3b\r\nconnection: close\r\n\r\n";

/// S by N.
#[derive(Default)]
pub(crate) struct Curve(Vec<(f64, f64)>);

/// Both are asked at the same time, so that what disturbs the machine disturbs them alike: no endpoint has more than its
/// share, and together they leave the machine room.
pub(crate) fn measure(place: &Place, curve: &mut Curve, case: &Case, row: &mut Row) -> Result<()> {
    let (n, share) = (case.number("n")?, case.number("share")?);
    let window = Duration::from_secs_f64(case.number("seconds")?);
    let all = place.endpoints("page", ENDPOINTS + 1, share, case.count("work")?)?;
    let balancer = place.balancer(&pool(&all[1..]))?;
    let seen = open(&[all[0].address, balancer.address], REQUEST, n, window)?;
    let (bare, balanced) = (&seen[0], &seen[1]);
    let speedup = bare.mean_ms() / balanced.mean_ms();
    row.figure("t1_ms", bare.mean_ms())
        .figure("t2b_ms", balanced.mean_ms())
        .figure("v1", 1e3 * n / bare.mean_ms())
        .figure("v2b", 1e3 * n / balanced.mean_ms())
        .figure("s", speedup)
        .figure("e", speedup / ENDPOINTS as f64)
        .figure("failed_1_percent", bare.failed_percent())
        .figure("failed_2b_percent", balanced.failed_percent());
    curve.0.push((n, speedup));
    Ok(())
}

/// The curve's regions and its top.
pub(crate) fn regions(curve: &Curve, row: &mut Row) -> Result<()> {
    ensure!(!curve.0.is_empty(), "the regions are those of `page`: run both");
    let texts: Vec<String> = regions::regions(&curve.0, ENDPOINTS as f64, MARGIN)
        .iter()
        .map(ToString::to_string)
        .collect();
    let (at, most) = top(&curve.0).unwrap_or_default();
    row.figure("s_max", most).figure("at_n", at).set("regions", Value::Word(texts.join("; ")));
    Ok(())
}
