//! The paper's second figure: only half of the nodes receive requests.

use std::time::Duration;

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};

use crate::client::Way;
use crate::crowd::closed;
use crate::site::{Levels, Place, Shape, Site, door};

/// The same clients with nodes that have no dispatcher, and with nodes that have one.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<()> {
    let nodes = case.count("nodes")?;
    let time = |name: &str| Ok::<_, anyhow::Error>(Duration::from_secs_f64(case.number(name)?));
    let mut rates = Vec::new();
    for (word, name) in [("none", "off"), ("disp", "on")] {
        let shape = Shape {
            levels: Levels::of(word)?,
            cores: vec![case.number("cores")?; nodes],
            work_ms: case.count("work_ms")?,
            checks_ms: 2000,
            link_mbit: None,
        };
        let site = Site::build(place, shape)?;
        let ways: Vec<Way> = (0..nodes / 2).map(|node| Way::Node(door(node))).collect();
        let warm_up = if name == "on" { time("settle_s")? } else { time("warm_up_s")? };
        let rate = closed(&site.client, &ways, case.count("clients")?, warm_up, time("window_s")?)?;
        row.figure(&format!("{name}_per_s"), rate.per_second);
        row.figure(&format!("{name}_failed"), rate.failed as f64);
        rates.push(rate.per_second);
        if name == "on" {
            let kept = site.keeps()?;
            let fed = &kept[..nodes / 2];
            row.figure("keep_of_fed", fed.iter().sum::<f64>() / fed.len() as f64);
        }
    }
    row.figure("times", rates[1] / rates[0]);
    Ok(())
}
