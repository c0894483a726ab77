//! `/metrics`: a [`Reading`] of every figure, rendered when Prometheus scrapes.
//!
//! The data plane keeps plain counters, sharded by thread. Nothing is registered or updated in
//! addition. A scrape sums the shards once, and a collector writes the sums.

mod collector;
mod dispatch;
mod dns;
mod machine;
mod packet;
mod plain;
mod planning;
mod process;
mod reading;
mod slice;
mod source;
mod tls;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

pub use machine::{LinkReading, MachineReading};
pub(crate) use plain::to_plain_text;
pub use planning::{NodeReading, PlanningReading};
pub use reading::{
    AccessReading, BackendReading, FrontDoorReading, MemoryReading, PoolReading, Reading,
    ReloadReading, SpansReading, TimeReading,
};
pub use slice::StreamReading;

/// Content type of [`render`]: OpenMetrics, which Prometheus prefers.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Content type of [`to_plain_text`], for clients that do not accept OpenMetrics.
pub(crate) const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes a reading and the process's own figures as OpenMetrics text.
///
/// # Errors
/// None in practice: writing to a string fails only for a label or unit that the format forbids.
pub fn render(reading: Reading) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(process::Process));
    registry
        .sub_registry_with_prefix("equipoise")
        .register_collector(Box::new(collector::Collected(reading)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[cfg(test)]
mod tests;
