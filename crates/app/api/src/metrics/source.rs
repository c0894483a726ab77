//! Metrics of the sources of pools' backends.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::PoolReading;
use super::collector::{counter, describe, gauge};
use crate::wire::SourceStatus;

/// Writes the metrics, if a pool has a source.
pub(super) fn encode(pools: &[PoolReading], out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let with_source: Vec<(&str, &SourceStatus)> =
        pools.iter().filter_map(|it| Some((it.name.as_str(), it.source.as_ref()?))).collect();
    if with_source.is_empty() {
        return Ok(());
    }
    let help = "Backends of the set in use of the pool's source";
    let mut family = describe(out, "source_backends", help, None, MetricType::Gauge)?;
    for (pool, source) in &with_source {
        gauge(&mut family, &[("pool", pool)], source.backends as u64)?;
    }
    let help =
        "Whether the last answer of the pool's source confirmed the set in use, and lacked nothing";
    let mut family = describe(out, "source_good", help, None, MetricType::Gauge)?;
    for (pool, source) in &with_source {
        gauge(&mut family, &[("pool", pool)], u64::from(source.problem.is_none()))?;
    }
    let help = "Time since the pool's source confirmed the set in use";
    let mut family = describe(out, "source_age", help, Some(&Unit::Seconds), MetricType::Gauge)?;
    for (pool, source) in &with_source {
        if let Some(age) = source.age_seconds {
            family.encode_family(&[("pool", *pool)])?.encode_gauge(&age)?;
        }
    }
    type Count = fn(&SourceStatus) -> u64;
    let of: [(&str, &str, Count); 2] = [
        ("source_failures", "Failures of the pool's source", |it| it.failures_total),
        ("source_changes", "Sets of the pool's source that differed", |it| it.changes_total),
    ];
    for (name, help, count) in of {
        let mut family = describe(out, name, help, None, MetricType::Counter)?;
        for (pool, source) in &with_source {
            counter(&mut family, &[("pool", pool)], count(source))?;
        }
    }
    Ok(())
}
