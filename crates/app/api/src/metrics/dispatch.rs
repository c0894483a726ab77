//! Metrics of front doors in node mode.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::FrontDoorReading;
use super::collector::{counter, describe};
use crate::wire::dispatch::{ClassStatus, DispatchStatus};

/// Writes the metrics, if there is such a front door.
pub(super) fn encode(
    doors: &[FrontDoorReading],
    out: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    let nodes: Vec<(&str, &DispatchStatus)> =
        doors.iter().filter_map(|it| Some((it.name.as_str(), it.dispatch.as_ref()?))).collect();
    if nodes.is_empty() {
        return Ok(());
    }
    let help = "Share of a class of requests that this node keeps, by plan or file";
    let mut family = describe(out, "dispatch_keep_ratio", help, None, MetricType::Gauge)?;
    for (door, class) in classes(&nodes) {
        let labels = [("front_door", door), ("class", class.class.as_str())];
        family.encode_family(&labels)?.encode_gauge(&class.keep)?;
    }
    let help = "Share of a class of requests that is refused, because all nodes are overloaded";
    let mut family = describe(out, "dispatch_refuse_ratio", help, None, MetricType::Gauge)?;
    for (door, class) in classes(&nodes) {
        let labels = [("front_door", door), ("class", class.class.as_str())];
        family.encode_family(&labels)?.encode_gauge(&class.refuse)?;
    }
    let help = "Whether a controller plans the kept shares";
    let mut family = describe(out, "dispatch_planned", help, None, MetricType::Gauge)?;
    for (door, node) in &nodes {
        family.encode_family(&[("front_door", *door)])?.encode_gauge(&u64::from(node.planned))?;
    }
    type Of = fn(&ClassStatus) -> u64;
    let flows: [(&str, Of); 5] = [
        ("arrived", |it| it.arrived_total),
        ("delegated", |it| it.delegated_total),
        ("refused", |it| it.refused_total),
        ("taken", |it| it.taken_total),
        ("handed_back", |it| it.handed_back_total),
    ];
    let help = "Requests by class: arrived from clients, delegated to peers, refused, taken from peers, and of these handed back for lack of room";
    let mut family = describe(out, "dispatch_requests", help, None, MetricType::Counter)?;
    for (door, class) in classes(&nodes) {
        for (flow, of) in flows {
            let labels = [("front_door", door), ("class", &class.class), ("flow", flow)];
            counter(&mut family, &labels, of(class))?;
        }
    }
    let help = "Bytes of requests and responses that were served here, by class";
    let unit = Some(&Unit::Bytes);
    let mut family = describe(out, "dispatch_done", help, unit, MetricType::Counter)?;
    for (door, class) in classes(&nodes) {
        let labels = [("front_door", door), ("class", class.class.as_str())];
        counter(&mut family, &labels, class.bytes_total)?;
    }
    type OfNode = fn(&DispatchStatus) -> u64;
    let counters: [(&str, &str, OfNode); 3] = [
        ("dispatch_returned", "Requests that a peer failed, and that were served here", |it| {
            it.returned_total
        }),
        (
            "dispatch_failed_open",
            "Requests that unhealthy backends were given, because no other place was left",
            |it| it.failed_open_total,
        ),
        ("dispatch_markers_refused", "Requests with a marker that no peer has signed", |it| {
            it.markers_refused_total
        }),
    ];
    for (name, help, of) in counters {
        let mut family = describe(out, name, help, None, MetricType::Counter)?;
        for (door, node) in &nodes {
            counter(&mut family, &[("front_door", *door)], of(node))?;
        }
    }
    Ok(())
}

fn classes<'a>(
    nodes: &'a [(&'a str, &'a DispatchStatus)],
) -> impl Iterator<Item = (&'a str, &'a ClassStatus)> {
    nodes.iter().flat_map(|(door, node)| node.classes.iter().map(move |class| (*door, class)))
}
