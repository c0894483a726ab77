//! The paper's unbalanced resources: one node's network is exhausted and another's CPU.

use std::time::{Duration, Instant};

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};

use crate::client::Way;
use crate::crowd::{Asked, Stream, Streams, p99_ms};
use crate::site::{Levels, Place, Shape, Site, door};

/// A transfer: so much goes to the node, and comes back.
const TRANSFER_BYTES: usize = 64 << 10;
/// Time before the end at which the plan is read, in seconds.
const BEFORE_THE_END: f64 = 2.0;

/// Transfers fill the first node's link, computing requests the second node's CPU; new clients use
/// the name. With both levels new clients should go to the second node rather than to the first,
/// and computing requests the other way.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<()> {
    let at = case.number("before_s")?;
    let until = at + case.number("during_s")?;
    let shape = Shape {
        levels: Levels::of(case.word("levels")?)?,
        cores: vec![case.number("cores")?; 2],
        work_ms: case.count("work_ms")?,
        checks_ms: 500,
        link_mbit: Some(case.count("link_mbit")?),
    };
    let site = Site::build(place, shape)?;
    let stream = |label, path, ways, rate| Stream {
        label,
        path,
        body: 0,
        ways,
        rate,
        from: Duration::from_secs_f64(at),
        until: Duration::from_secs_f64(until),
    };
    let new = vec![Way::Name(site.servers())];
    let new =
        Stream { from: Duration::ZERO, ..stream("new", "/healthz", new, case.number("new_rate")?) };
    let transfers = vec![Way::Node(door(0))];
    let transfers = Stream {
        body: TRANSFER_BYTES,
        ..stream("transfer", "/echo", transfers, case.number("transfer_rate")?)
    };
    let computing = vec![Way::Node(door(1))];
    let computing = stream("computing", "/work", computing, case.number("rate")?);
    let streams = Streams::start(&site.client, vec![new, transfers, computing], 6);
    let due = streams.began + Duration::from_secs_f64(until - BEFORE_THE_END);
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    let keeps = site.keeps().unwrap_or_default();
    let asked = streams.end()?;
    let of = |label: &'static str| asked.iter().filter(move |one| one.label == label);
    let to_first = |from: f64, to: f64| {
        let within = |one: &&Asked| (from..to).contains(&one.due);
        let first = |one: &&Asked| one.node.is_some_and(|(node, _)| node == door(0));
        let count = of("new").filter(within).count();
        of("new").filter(within).filter(first).count() as f64 / count.max(1) as f64
    };
    let failed = |label| of(label).filter(|one| !one.is_fine).count() as f64;
    row.figure("new_to_first_before", to_first(0.0, at))
        .figure("new_to_first_at_the_end", to_first(until - (until - at) / 4.0, until))
        .figure("second_keeps", keeps.get(1).copied().unwrap_or(f64::NAN))
        .figure("computing_p99_ms", p99_ms(of("computing"), at, until))
        .figure("computing_failed", failed("computing"))
        .figure("transfer_p99_ms", p99_ms(of("transfer"), at, until))
        .figure("transfer_failed", failed("transfer"))
        .figure("new_p99_ms", p99_ms(of("new"), at, until));
    Ok(())
}
