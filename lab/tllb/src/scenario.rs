//! The paper's scenarios, with the dispatcher off and on: what clients saw before, during and
//! after.

use std::time::Duration;

use anyhow::{Context, Result};
use equipoise_lab_runner::{Case, Row, Value};

use crate::client::Way;
use crate::crowd::{Asked, Stream, Streams, p99_ms, recovered_after};
use crate::site::{Levels, Place, Shape, Site, door};

/// It has recovered when the 99th percentile of so many seconds in a row is at most so many times
/// what it was, or so much.
const GOOD_SECONDS: usize = 3;
const GOOD_TIMES: f64 = 2.0;
const GOOD_MS: f64 = 500.0;

/// The times of a scenario: quiet until `at`, disturbed until `until`, over at `end`; seconds.
#[derive(Clone, Copy)]
struct Times {
    at: f64,
    until: f64,
    end: f64,
}

impl Times {
    fn of(case: &Case) -> Result<Times> {
        let at = case.number("before_s")?;
        let until = at + case.number("during_s")?;
        Ok(Times { at, until, end: until + case.number("after_s")? })
    }
}

fn site<'a>(place: &'a Place, case: &Case, cores: Vec<f64>) -> Result<Site<'a>> {
    Site::build(place, shape(case, cores)?)
}

fn shape(case: &Case, cores: Vec<f64>) -> Result<Shape> {
    let levels = Levels::of(case.word("levels")?)?;
    let work_ms = case.count("work_ms")?;
    Ok(Shape { levels, cores, work_ms, checks_ms: 500, link_mbit: None })
}

/// Requests that cost CPU, so many a second all the time.
fn computing(label: &'static str, ways: Vec<Way>, rate: f64, from: f64, until: f64) -> Stream {
    let time = Duration::from_secs_f64;
    Stream { label, path: "/work", body: 0, ways, rate, from: time(from), until: time(until) }
}

fn every_node(site: &Site<'_>) -> Vec<Way> {
    site.doors().into_iter().map(Way::Node).collect()
}

/// A crowd comes to one node, and leaves.
pub(crate) fn fluctuation(place: &Place, case: &Case, row: &mut Row) -> Result<Vec<Row>> {
    let (times, nodes) = (Times::of(case)?, case.count("nodes")?);
    let site = site(place, case, vec![case.number("cores")?; nodes])?;
    let usual = computing("all", every_node(&site), case.number("rate")?, 0.0, times.end);
    let crowd = vec![Way::Node(door(0))];
    let crowd = computing("all", crowd, case.number("crowd_rate")?, times.at, times.until);
    let asked = Streams::start(&site.client, vec![usual, crowd], 6).end()?;
    report(&asked, times, row);
    Ok(points(&asked, times, case))
}

/// One node has half of what the others have, and the same share of the requests; light requests go
/// to it, too.
pub(crate) fn unbalanced(place: &Place, case: &Case, row: &mut Row) -> Result<Vec<Row>> {
    let (times, nodes) = (Times::of(case)?, case.count("nodes")?);
    let mut cores = vec![case.number("cores")?; nodes];
    cores[0] /= 2.0;
    let site = site(place, case, cores)?;
    let (few, many) = (case.number("rate")?, case.number("crowd_rate")?);
    let usual = computing("all", every_node(&site), few, 0.0, times.end);
    let more = computing("all", every_node(&site), many, times.at, times.until);
    let light = Stream {
        label: "light",
        path: "/healthz",
        ..computing("light", vec![Way::Node(door(0))], case.number("light_rate")?, 0.0, times.end)
    };
    let asked = Streams::start(&site.client, vec![usual, more, light], 6).end()?;
    let (light, computing): (Vec<Asked>, Vec<Asked>) =
        asked.iter().partition(|one| one.label == "light");
    report(&computing, times, row);
    row.figure("light_p99_before_ms", p99_ms(&light, 0.0, times.at))
        .figure("light_p99_during_ms", p99_ms(&light, times.at, times.until));
    Ok(points(&computing, times, case))
}

/// A node is killed while clients go by the name, those of the dead node's requests among them that
/// it had in hand.
pub(crate) fn failure(place: &Place, case: &Case, row: &mut Row) -> Result<Vec<Row>> {
    let (times, nodes) = (Times::of(case)?, case.count("nodes")?);
    let mut site = site(place, case, vec![case.number("cores")?; nodes])?;
    let killed = nodes - 1;
    // Resolvers ask the others.
    let servers = site.servers()[..killed].to_vec();
    let usual = vec![Way::Name(servers)];
    let usual = computing("all", usual, case.number("rate")?, 0.0, times.end);
    let streams = Streams::start(&site.client, vec![usual], 6);
    let due = streams.began + Duration::from_secs_f64(times.at);
    std::thread::sleep(due.saturating_duration_since(std::time::Instant::now()));
    site.kill(killed)?;
    let at = streams.began.elapsed().as_secs_f64();
    let asked = streams.end()?;
    let dead = door(killed);
    let there = |one: &&Asked| one.node.is_some_and(|(node, _)| node == dead);
    let in_flight = |one: &&Asked| {
        one.node.is_some_and(|(_, since)| since <= at) && one.due + one.took >= at && there(one)
    };
    let last = asked.iter().filter(there).filter_map(|one| Some(one.node?.1)).fold(at, f64::max);
    let failed = asked.iter().filter(|one| !one.is_fine).count();
    let had = asked.iter().filter(in_flight).count();
    row.figure("in_flight_there", had as f64)
        .figure("failed_beyond", failed.saturating_sub(had) as f64)
        .figure("last_connected_after_s", last - at);
    let times = Times { at, ..times };
    report(&asked, times, row);
    Ok(points(&asked, times, case))
}

fn report(asked: &[Asked], times: Times, row: &mut Row) {
    let before = p99_ms(asked, 2.0, times.at);
    let limit = (GOOD_TIMES * before).max(GOOD_MS);
    let failed = asked.iter().filter(|one| !one.is_fine).count();
    row.figure("requests", asked.len() as f64)
        .figure("failed", failed as f64)
        .figure("p99_before_ms", before)
        .figure("p99_during_ms", p99_ms(asked, times.at, times.until))
        .figure("p99_after_ms", p99_ms(asked, times.until, times.end))
        .figure(
            "recovered_after_s",
            recovered_after(asked, times.at, times.end, limit, GOOD_SECONDS),
        );
}

/// A point a second.
fn points(asked: &[Asked], times: Times, case: &Case) -> Vec<Row> {
    let levels = case.word("levels").context("levels").unwrap_or_default();
    let dispatches = levels.contains("disp");
    let point = |second: usize| {
        let (from, to) = (second as f64, second as f64 + 1.0);
        let mut row = Row::new();
        row.figure("time_s", from - times.at.floor());
        let p99 = p99_ms(asked, from, to);
        row.figure(if dispatches { "on_p99_ms" } else { "off_p99_ms" }, p99);
        row.set("levels", Value::Word(levels.to_string()));
        row
    };
    (0..times.end as usize).map(point).collect()
}
