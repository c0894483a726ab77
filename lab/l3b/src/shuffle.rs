//! Experiment B: 300 integers are shuffled, with so many requests in flight, by a bare endpoint and
//! by 1 to 8 behind equipoise.

use std::time::Duration;

use anyhow::{Result, ensure};
use equipoise_lab_runner::{Case, Row, Value};

use crate::client::closed;
use crate::endpoints::{Place, UNLIMITED, pool};
use crate::regions::{self, plateau, top};

/// Differences of S between repetitions, as a part.
const MARGIN: f64 = 0.05;
/// The paper's numbers.
const NUMBERS: i32 = 300;

pub(crate) fn request() -> Vec<u8> {
    let body = (1..=NUMBERS).map(|one| one.to_string()).collect::<Vec<_>>().join(",");
    let length = body.len();
    let head = format!(
        "POST /shuffle HTTP/1.1\r\nhost: l3b\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    (head + &body).into_bytes()
}

/// T is N over the answers a second: with N in flight at all times that is the mean response time
/// (Little), and what is still in flight at the end counts too.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<()> {
    let (n, share) = (case.number("n")?, case.number("share")?);
    let most = case.count("endpoints_max")?;
    let warm_up = Duration::from_secs_f64(case.number("warm_up")?);
    let window = Duration::from_secs_f64(case.number("seconds")?);
    let request = request();
    let mut failed = 0.0_f64;
    let mut run = |address| -> Result<f64> {
        let seen = closed(address, &request, n as usize, warm_up, window)?;
        failed = failed.max(seen.failed_percent());
        Ok(seen.answered as f64 / window.as_secs_f64())
    };
    // Fresh ones for each: what the clients before left behind is still being worked off by those
    // that they asked.
    let endpoints = place.endpoints("shuffle", 1, share, 0.0)?;
    let bare = run(endpoints[0].address)?;
    drop(endpoints);
    ensure!(bare > 0.0, "the bare endpoint answered nothing: a longer window is needed");
    row.figure("v_bare", bare);
    time(row, "bare", n, bare);
    for count in 1..=most {
        let endpoints = place.endpoints("shuffle", count, share, 0.0)?;
        let balancer = place.balancer(&pool(&endpoints, UNLIMITED))?;
        let speed = run(balancer.address)?;
        let speedup = speed / bare;
        time(row, &count.to_string(), n, speed);
        row.figure(&format!("v_{count}"), speed)
            .figure(&format!("s_{count}"), speedup)
            .figure(&format!("e_{count}"), speedup / count as f64);
    }
    row.figure("failed_percent_max", failed);
    Ok(())
}

/// T, unless nothing was answered.
fn time(row: &mut Row, of: &str, n: f64, speed: f64) {
    if speed > 0.0 {
        row.figure(&format!("t_ms_{of}"), 1e3 * n / speed);
    }
}

/// The regions and the top of one number of endpoints.
pub(crate) fn regions(measured: &[Row], case: &Case, row: &mut Row) -> Result<()> {
    let count = case.count("endpoints")?;
    let curve = regions::curve(measured, &format!("s_{count}"));
    let texts: Vec<String> =
        regions::regions(&curve, count as f64, MARGIN).iter().map(ToString::to_string).collect();
    let (at, most) = top(&curve).unwrap_or((f64::NAN, f64::NAN));
    row.figure("s_max", most).figure("at_n", at).figure("e_max", most / count as f64);
    if let Some((from, until)) = plateau(&regions::curve(measured, &format!("v_{count}"))) {
        row.figure("v_top_from_n", from);
        let until = until.map_or("never".to_string(), |until| until.to_string());
        row.set("v_falls_from_n", Value::Word(until));
    }
    row.set("regions", Value::Word(texts.join("; ")));
    Ok(())
}
