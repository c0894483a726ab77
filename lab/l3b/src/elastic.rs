//! The elastic run: load climbs, the pool grows from 1 to 8 endpoints, load falls, the pool
//! shrinks.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use equipoise_lab_runner::{Case, Row, Value};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

use crate::client::{Varying, runtime};
use crate::endpoints::Place;
use crate::shuffle::request;

/// Between two points of the plot.
const STEP: Duration = Duration::from_millis(500);

/// The pool with endpoints that equipoise starts itself, as a user writes it.
fn pool(place: &Place, case: &Case) -> Result<String> {
    let endpoint = place.endpoint.display();
    let (share, most) = (case.number("share")?, case.count("endpoints_max")?);
    let (out, back) = (case.count("out_cool_down_s")?, case.count("in_cool_down_s")?);
    Ok(format!(
        "[load]\nperiod = \"500ms\"\n\n[controller]\nstate = \"{state}\"\n\n\
         [[pool]]\nname = \"endpoints\"\nscheduler = \"least-connection\"\nretries = 1\nidle-sessions-max = 256\n\n\
         [pool.elastic]\nmin = 1\nmax = {most}\nout-cool-down = \"{out}s\"\nin-cool-down = \"{back}s\"\nwarm-up = \"1500ms\"\n\n\
         [pool.elastic.process]\ncommand = [\"{endpoint}\", \"--listen\", \"{{address}}:{{port}}\", \"--share\", \"{share}\", \
         \"--name\", \"{{name}}\"]\nready-timeout = \"10s\"\n",
        state = place.folder.display(),
    ))
}

/// Why this equipoise has no elastic pools; `None` if it has.
fn refusal(place: &Place, pool: &str) -> Result<Option<String>> {
    let file = place.folder.join("elastic.toml");
    std::fs::write(&file, pool)?;
    let checked = Command::new(&place.equipoise).arg("check").arg(&file).output()?;
    if checked.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&checked.stderr).into_owned()
        + &String::from_utf8_lossy(&checked.stdout);
    Ok(Some(said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason").to_string()))
}

/// Clients after so many seconds: up in a line, at the top, down in a line, low.
fn wanted(at_s: f64, most: f64, ramp_s: f64, hold_s: f64) -> usize {
    let up = at_s / ramp_s;
    let down = (2.0 * ramp_s + hold_s - at_s) / ramp_s;
    (most * up.min(down).clamp(0.0, 1.0)).max(2.0) as usize
}

/// Without elastic pools the row says so, and nothing is measured.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<Vec<Row>> {
    let pool = pool(place, case)?;
    if let Some(reason) = refusal(place, &pool)? {
        eprintln!(
            "the elastic run is skipped: this equipoise takes no elastic pool with a driver: {reason}"
        );
        row.set("outcome", Value::Word("skipped: this equipoise has no elastic pools".to_string()));
        return Ok(Vec::new());
    }
    let balancer = place.balancer(&pool)?;
    wait_for_first(place)?;
    let (most, ramp_s) = (case.number("clients_max")?, case.number("ramp_seconds")?);
    let (hold_s, low_s) = (case.number("hold_seconds")?, case.number("low_seconds")?);
    let total_s = 2.0 * ramp_s + hold_s + low_s;
    let pause = Duration::from_secs_f64(case.number("pause_ms")? / 1e3);
    let load = Rc::new(Varying::new(pause));
    let begin = Instant::now();
    let until = begin + Duration::from_secs_f64(total_s);
    let local = LocalSet::new();
    local.spawn_local(load.clone().run(balancer.address, request().into(), until));
    let watch = async {
        let mut points = Vec::new();
        let mut failed = 0;
        while Instant::now() < until {
            let at_s = begin.elapsed().as_secs_f64();
            load.wanted.set(wanted(at_s, most, ramp_s, hold_s));
            sleep_until((begin + Duration::from_secs_f64(at_s) + STEP).min(until)).await;
            let seen = load.seen.take();
            failed += seen.failed;
            let mut point = Row::new();
            point
                .figure("time_s", at_s)
                .figure("clients", load.wanted.get() as f64)
                .figure("clients_tens", load.wanted.get() as f64 / 10.0)
                .figure("v", seen.answered as f64 / STEP.as_secs_f64())
                .figure("v_hundreds", seen.answered as f64 / STEP.as_secs_f64() / 100.0)
                .figure("t_ms", if seen.answered == 0 { 0.0 } else { seen.mean_ms() })
                .figure("endpoints", serving(place)? as f64)
                .figure("failed", seen.failed as f64);
            points.push(point);
        }
        anyhow::Ok((points, failed))
    };
    let (points, failed) = runtime()?.block_on(local.run_until(watch))?;
    summarise(row, &points, failed as f64);
    Ok(points)
}

/// The driver makes the first endpoint after equipoise is ready.
fn wait_for_first(place: &Place) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(20);
    while serving(place)? == 0 {
        ensure!(Instant::now() < end, "the elastic pool never got its first endpoint");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn summarise(row: &mut Row, points: &[Row], failed: f64) {
    let number = |point: &Row, column: &str| point.number(column).unwrap_or_default();
    let mut endpoints = points.iter().map(|point| number(point, "endpoints"));
    let most = endpoints.clone().fold(0.0, f64::max);
    let fastest = points.iter().map(|point| number(point, "v")).fold(0.0, f64::max);
    let reached = points.iter().find(|point| number(point, "endpoints") >= most);
    row.set("outcome", Value::Word("ran".to_string()))
        .figure("endpoints_first", endpoints.clone().next().unwrap_or_default())
        .figure("endpoints_most", most)
        .figure("endpoints_last", endpoints.next_back().unwrap_or_default())
        .figure("most_after_s", reached.map_or(f64::NAN, |point| number(point, "time_s")))
        .figure("v_max", fastest)
        .figure("failed", failed);
}

/// Endpoints that may get new requests, as the API says.
fn serving(place: &Place) -> Result<usize> {
    let mut stream = UnixStream::connect(place.socket()).context("the API's socket")?;
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").context("the API's answer has no body")?.1;
    let status: serde_json::Value = serde_json::from_str(body).context("the API's answer")?;
    let backends = status.pointer("/pools/0/backends").and_then(serde_json::Value::as_array);
    let backends = backends.context("the status has no pool")?;
    Ok(backends.iter().filter(|one| one["state"] == "up").count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_climbs_stays_falls_and_stays() {
        let at = |second: f64| wanted(second, 100.0, 10.0, 5.0);
        assert_eq!([0.0, 5.0, 10.0, 14.0, 20.0, 25.0, 40.0].map(at), [2, 50, 100, 100, 50, 2, 2]);
    }
}
