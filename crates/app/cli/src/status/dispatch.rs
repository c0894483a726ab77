//! The dispatch level's part of `equipoise status`.

use equipoise_api::wire::FrontDoorStatus;
use equipoise_api::wire::dispatch::DispatchStatus;

use crate::table::{Align, Table};
use crate::view::View;

/// Kept and delegated requests by class. Writes nothing without a front door in node mode.
pub(super) fn render(doors: &[FrontDoorStatus], view: View, out: &mut String) {
    let nodes: Vec<_> =
        doors.iter().filter_map(|door| Some((door, door.dispatch.as_ref()?))).collect();
    if nodes.is_empty() {
        return;
    }
    let mut table = Table::new(&[
        ("DISPATCH", Align::Left),
        ("CLASS", Align::Left),
        ("KEEP", Align::Right),
        ("BY", Align::Left),
        ("ARRIVED", Align::Right),
        ("DELEGATED", Align::Right),
        ("REFUSED", Align::Right),
        ("TAKEN", Align::Right),
    ])
    .folding(&["BY", "REFUSED", "ARRIVED"]);
    for (door, node) in &nodes {
        for class in &node.classes {
            table.row(vec![
                (&door.name).into(),
                (&class.class).into(),
                format!("{:.0} %", 100.0 * class.keep).into(),
                if node.planned { "plan" } else { "file" }.into(),
                class.arrived_total.into(),
                class.delegated_total.into(),
                class.refused_total.into(),
                class.taken_total.saturating_sub(class.handed_back_total).into(),
            ]);
        }
    }
    out.push('\n');
    table.render(view, out);
}

/// Lines about problems of delegation.
pub(super) fn details(door: &str, node: &DispatchStatus) -> Vec<String> {
    let mut lines = Vec::new();
    if node.returned_total > 0 {
        lines.push(format!(
            "{door}: {} requests were served here after a peer failed",
            node.returned_total
        ));
    }
    if node.failed_open_total > 0 {
        lines.push(format!(
            "{door}: {} requests went to unhealthy backends, because no other place was left",
            node.failed_open_total
        ));
    }
    if node.markers_refused_total > 0 {
        lines.push(format!(
            "{door}: {} requests had an invalid marker: forged, from a node with another secret, or without TLS where `peer-tls` is \"required\"",
            node.markers_refused_total
        ));
    }
    if node.peer_tls == "waiting" {
        lines.push(format!(
            "{door}: nothing is delegated, because this node has no certificate of its cluster yet"
        ));
    }
    lines
}
