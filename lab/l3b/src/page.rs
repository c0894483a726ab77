//! Experiment A: a page of 56 KB at so many requests a second, from a bare endpoint and from two
//! behind equipoise.

use std::time::Duration;

use anyhow::Result;
use equipoise_lab_runner::{Case, Row, Value};

use crate::client::open;
use crate::endpoints::{Place, UNLIMITED, pool};
use crate::regions::{self, top};

/// Differences of S between repetitions, as a part.
const MARGIN: f64 = 0.05;
const ENDPOINTS: usize = 2;
const REQUEST: &[u8] = b"GET /page HTTP/1.1\r\nhost: l3b\r\nconnection: close\r\n\r\n";

/// Both are asked at the same time, so that what disturbs the machine disturbs them alike: no
/// endpoint has more than its share, and together they leave the machine room.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<()> {
    let (n, share) = (case.number("n")?, case.number("share")?);
    let window = Duration::from_secs_f64(case.number("seconds")?);
    let all = place.endpoints("page", ENDPOINTS + 1, share, case.number("page_ms")?)?;
    let balancer = place.balancer(&pool(&all[1..], UNLIMITED))?;
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
    Ok(())
}

/// The curve's regions and its top.
pub(crate) fn regions(measured: &[Row], row: &mut Row) -> Result<()> {
    let curve = regions::curve(measured, "s");
    let texts: Vec<String> = regions::regions(&curve, ENDPOINTS as f64, MARGIN)
        .iter()
        .map(ToString::to_string)
        .collect();
    let (at, most) = top(&curve).unwrap_or((f64::NAN, f64::NAN));
    row.figure("s_max", most).figure("at_n", at).set("regions", Value::Word(texts.join("; ")));
    for (column, of) in [("bare_saturates_from_n", "t1_ms"), ("two_saturate_from_n", "t2b_ms")] {
        let from = regions::saturation(&regions::curve(measured, of));
        row.figure(column, from.unwrap_or(f64::NAN));
    }
    Ok(())
}
