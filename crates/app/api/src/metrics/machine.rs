//! Metrics of this machine: the monitor's measurements, independent of planning.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::collector::{describe, ratio};

/// The monitor's last measurements. Values that the kernel does not report are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineReading {
    /// Resource, and its use in per cent of the amount that this process may use.
    pub used: Vec<(&'static str, f64)>,
    /// Resource, and the per cent of the last 10 s in which something waited for it.
    pub pressure: Vec<(&'static str, f64)>,
    /// Interfaces that count as load.
    pub interfaces: Vec<LinkReading>,
}

/// Rates of a network interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkReading {
    /// Its name.
    pub name: String,
    /// Bits received per second.
    pub received_bits_per_second: f64,
    /// Bits sent per second.
    pub sent_bits_per_second: f64,
    /// Use of the link's speed in the busier direction; `None` if the speed is unknown.
    pub used_percent: Option<f64>,
}

pub(super) fn encode(
    machine: &MachineReading,
    out: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    let help = "Use of a resource in the last period, as a part of what this process may use";
    let mut family = describe(out, "used_ratio", help, None, MetricType::Gauge)?;
    for (resource, percent) in &machine.used {
        family.encode_family(&[("resource", *resource)])?.encode_gauge(&ratio(*percent))?;
    }
    let help = "Part of the last 10 s in which something waited for a resource (PSI)";
    let mut family = describe(out, "pressure_ratio", help, None, MetricType::Gauge)?;
    for (resource, percent) in &machine.pressure {
        family.encode_family(&[("resource", *resource)])?.encode_gauge(&ratio(*percent))?;
    }
    let help = "Use of an interface in its busier direction in the last period, as a part of its link's speed";
    let mut family = describe(out, "interface_used_ratio", help, None, MetricType::Gauge)?;
    for link in &machine.interfaces {
        if let Some(percent) = link.used_percent {
            let labels = [("interface", link.name.as_str())];
            family.encode_family(&labels)?.encode_gauge(&ratio(percent))?;
        }
    }
    let help = "Bytes per second through an interface in the last period";
    let mut family = describe(out, "interface_bytes_per_second", help, None, MetricType::Gauge)?;
    for link in &machine.interfaces {
        let (received, sent) = (link.received_bits_per_second, link.sent_bits_per_second);
        for (direction, rate) in [("received", received), ("sent", sent)] {
            let labels = [("interface", link.name.as_str()), ("direction", direction)];
            family.encode_family(&labels)?.encode_gauge(&(rate / 8.0))?;
        }
    }
    Ok(())
}
