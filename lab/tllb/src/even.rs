//! The paper's first figure: what the levels cost where load is even.

use std::time::Duration;

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};

use crate::client::Way;
use crate::crowd::{Rate, closed};
use crate::site::{Levels, Place, Shape, Site};

/// One node without levels is measured in each case, too, so that a disturbance of the machine
/// disturbs both.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<()> {
    let nodes = case.count("nodes")?;
    let one = rate(place, case, Levels::of("none")?, 1)?;
    row.figure("one_per_s", one.per_second);
    let words = ["none", "dns", "disp", "dns_disp"];
    let mut rates = Vec::new();
    for word in words {
        let rate = rate(place, case, Levels::of(word)?, nodes)?;
        row.figure(&format!("{word}_per_s"), rate.per_second)
            .figure(&format!("{word}_failed"), rate.failed as f64)
            .figure(word, rate.per_second / one.per_second);
        rates.push(rate.per_second);
    }
    for (word, rate) in words.iter().zip(&rates).skip(1) {
        row.figure(&format!("{word}_cost_percent"), 100.0 * (1.0 - rate / rates[0]));
    }
    Ok(())
}

fn rate(place: &Place, case: &Case, levels: Levels, nodes: usize) -> Result<Rate> {
    let shape = Shape {
        levels,
        cores: vec![case.number("cores")?; nodes],
        work_ms: case.count("work_ms")?,
        checks_ms: 2000,
        link_mbit: None,
    };
    let site = Site::build(place, shape)?;
    let ways: Vec<Way> = match levels.dns {
        true => vec![Way::Name(site.servers()); nodes],
        false => site.doors().into_iter().map(Way::Node).collect(),
    };
    let time = |name: &str| Ok::<_, anyhow::Error>(Duration::from_secs_f64(case.number(name)?));
    let (clients, warm_up, window) =
        (case.count("clients")?, time("warm_up_s")?, time("window_s")?);
    closed(&site.client, &ways, clients, warm_up, window)
}
