//! Metrics of the packet level.

use std::collections::BTreeMap;
use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::collector::{counter, describe, gauge};
use crate::wire::packet::{
    FleetPeer, FleetStatus, HeavyTraffic, PacketStatus, SourcePortsStatus, VipBackendStatus,
    VipStatus,
};

pub(super) fn encode(packet: &PacketStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    totals(packet, out)?;
    gauges(packet, out)?;
    interfaces(packet, out)?;
    by_vip(packet, out)?;
    by_backend(packet, out)?;
    packet.heavy.as_ref().map_or(Ok(()), |heavy| heavy_flows(packet, heavy, out))?;
    packet.fleet.as_ref().map_or(Ok(()), |fleet| by_peer(fleet, out))
}

fn totals(packet: &PacketStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    for (name, help, total) in [
        (
            "packet_flows_not_learnt",
            "Flows that were not registered for lack of room, or replaced by a flow with more evidence",
            packet.flows_not_learnt_total,
        ),
        (
            "packet_flows_moved",
            "Flows that lost their backend and moved to another",
            packet.flows_moved_total,
        ),
        ("packet_pins_full", "Flows that were not pinned for lack of room", packet.pins_full_total),
        ("packet_publications", "Publications of tables", packet.publications_total),
    ] {
        let mut family = describe(out, name, help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&total, None)?;
    }
    Ok(())
}

fn gauges(packet: &PacketStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    for (name, help, unit, value) in [
        ("packet_flows_known", "Known flows", None, packet.flows),
        ("packet_flows_max", "Largest number of known flows", None, packet.flows_max),
        ("packet_pins", "Flows with a backend that differs from the table", None, packet.pins),
        ("packet_pins_max", "Largest number of pins", None, packet.pins_max),
        ("packet_pending", "Flows that the program recorded itself", None, packet.pending),
        (
            "packet_registry",
            "Memory of the flow registry",
            Some(&Unit::Bytes),
            packet.registry_bytes,
        ),
        (
            "packet_kernel",
            "Memory of the program's maps in the kernel",
            Some(&Unit::Bytes),
            packet.kernel_bytes,
        ),
    ] {
        let mut family = describe(out, name, help, unit, MetricType::Gauge)?;
        family.encode_gauge(&value)?;
    }
    Ok(())
}

fn interfaces(packet: &PacketStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let help = "Whether the program runs on the interface";
    let mut family = describe(out, "packet_interface_attached", help, None, MetricType::Gauge)?;
    for interface in &packet.interfaces {
        for mode in ["native", "generic"] {
            let labels = [("interface", interface.name.as_str()), ("mode", mode)];
            gauge(&mut family, &labels, u64::from(interface.state == mode))?;
        }
    }
    Ok(())
}

fn by_vip(packet: &PacketStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let help = "Packets forwarded, by the table that chose the backend";
    let mut family = describe(out, "packet_decisions", help, None, MetricType::Counter)?;
    for vip in &packet.vips {
        for (by, count) in &vip.decisions {
            counter(&mut family, &with(vip, ("by", by)), *count)?;
        }
    }
    let help = "Packets dropped, by reason; without the label `vip`: packets of no VIP";
    let mut family = describe(out, "packet_drops", help, None, MetricType::Counter)?;
    words(&mut family, packet, "reason", |vip| &vip.drops, &packet.drops)?;
    let help = "Notes on packets that were not dropped";
    let mut family = describe(out, "packet_notes", help, None, MetricType::Counter)?;
    words(&mut family, packet, "note", |vip| &vip.notes, &packet.notes)?;
    type Of = fn(&SourcePortsStatus) -> u64;
    let gauges: [(&str, &str, Of); 3] = [
        ("packet_source_ports_in_use", "Source ports of full-nat in use", |it| it.in_use),
        ("packet_source_ports_fullest", "Those of the backend with the most", |it| it.fullest),
        ("packet_source_ports_max", "Source ports for each backend and port", |it| it.max),
    ];
    for (name, help, of) in gauges {
        let mut family = describe(out, name, help, None, MetricType::Gauge)?;
        for (vip, ports) in packet.vips.iter().filter_map(|it| Some((it, it.source_ports?))) {
            gauge(&mut family, &of_vip(vip), of(&ports))?;
        }
    }
    let help = "1 while a change of the pool is in progress";
    let mut family = describe(out, "packet_changing", help, None, MetricType::Gauge)?;
    for vip in &packet.vips {
        gauge(&mut family, &of_vip(vip), u64::from(vip.phase != "steady"))?;
    }
    Ok(())
}

type Counts = BTreeMap<String, u64>;

/// Counts by word: those of each VIP, and those of no VIP.
fn words(
    family: &mut MetricEncoder<'_>,
    packet: &PacketStatus,
    label: &str,
    of: fn(&VipStatus) -> &Counts,
    others: &Counts,
) -> Result<(), Error> {
    for vip in &packet.vips {
        for (word, count) in of(vip) {
            counter(family, &with(vip, (label, word)), *count)?;
        }
    }
    for (word, count) in others {
        counter(family, &[("vip", ""), ("pool", ""), (label, word)], *count)?;
    }
    Ok(())
}

fn by_backend(packet: &PacketStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    type Of = fn(&VipBackendStatus) -> u64;
    let counters: [(&str, &str, Option<&Unit>, Of); 3] = [
        ("packet_packets", "Packets forwarded to the backend", None, |b| b.packets_total),
        (
            "packet_forwarded",
            "Bytes of packets forwarded to the backend",
            Some(&Unit::Bytes),
            |b| b.bytes_total,
        ),
        ("packet_backend_drops", "Packets dropped after the backend was chosen", None, |b| {
            b.drops_total
        }),
    ];
    for (name, help, unit, of) in counters {
        let mut family = describe(out, name, help, unit, MetricType::Counter)?;
        for (vip, backend) in backends(packet) {
            counter(&mut family, &with(vip, ("backend", &backend.name)), of(backend))?;
        }
    }
    let help = "Known flows of the backend, by state";
    let mut family = describe(out, "packet_flows", help, None, MetricType::Gauge)?;
    for (vip, backend) in backends(packet) {
        for (state, count) in [("open", backend.flows), ("closing", backend.flows_closing)] {
            let [a, b] = of_vip(vip);
            let labels = [a, b, ("backend", backend.name.as_str()), ("state", state)];
            gauge(&mut family, &labels, count)?;
        }
    }
    let gauges: [(&str, &str, Of); 2] = [
        ("packet_backend_up", "Whether the backend accepts new flows", |b| {
            u64::from(b.state == "up")
        }),
        ("packet_backend_reachable", "Whether the next hop to the backend is resolved", |b| {
            u64::from(b.reachable)
        }),
    ];
    for (name, help, of) in gauges {
        let mut family = describe(out, name, help, None, MetricType::Gauge)?;
        for (vip, backend) in backends(packet) {
            gauge(&mut family, &with(vip, ("backend", &backend.name)), of(backend))?;
        }
    }
    Ok(())
}

fn heavy_flows(
    packet: &PacketStatus,
    heavy: &HeavyTraffic,
    out: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    let help = "Bytes per second of the largest flows of the backend, estimated over 10 s";
    let name = "packet_backend_heavy_bytes_per_second";
    let mut family = describe(out, name, help, None, MetricType::Gauge)?;
    for backend in &heavy.backends {
        let Some(vip) = packet.vips.iter().find(|vip| vip.vip == backend.vip) else { continue };
        let labels = with(vip, ("backend", &backend.backend));
        gauge(&mut family, &labels, backend.heavy_bytes_per_second.round() as u64)?;
    }
    Ok(())
}

fn by_peer(fleet: &FleetStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    type Of = fn(&FleetPeer) -> u64;
    for (name, help, total) in [
        ("packet_fleet_received", "Flows received from peers", fleet.received_total),
        ("packet_fleet_added", "Flows received that were not known", fleet.added_total),
        ("packet_fleet_unplaced", "Flows received without a backend here", fleet.unplaced_total),
        ("packet_fleet_full", "Flows received for which there was no room", fleet.full_total),
        ("packet_fleet_conflicts", "Flows at different backends", fleet.conflicts_total),
        ("packet_fleet_overtaken", "Peers that fell behind", fleet.overtaken_total),
        (
            "packet_fleet_held_back",
            "Flows without evidence not sent at once",
            fleet.held_back_total,
        ),
        ("packet_fleet_refused", "Connections refused", fleet.refused_total),
    ] {
        let mut family = describe(out, name, help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&total, None)?;
    }
    let peers = || fleet.peers.iter().filter(|peer| peer.state != "own");
    let counters: [(&str, &str, Option<&Unit>, Of); 2] = [
        ("packet_fleet_sent", "Flows sent to the peer", None, |peer| peer.sent_total),
        ("packet_fleet_messages", "Bytes sent to the peer", Some(&Unit::Bytes), |peer| {
            peer.sent_bytes_total
        }),
    ];
    for (name, help, unit, of) in counters {
        let mut family = describe(out, name, help, unit, MetricType::Counter)?;
        for peer in peers() {
            counter(&mut family, &[("peer", peer.address.as_str())], of(peer))?;
        }
    }
    let gauges: [(&str, &str, Of); 3] = [
        ("packet_fleet_connected", "Whether flows are sent to the peer", |peer| {
            u64::from(peer.state == "connected")
        }),
        ("packet_fleet_has_all", "Whether the peer has all flows", |peer| u64::from(peer.has_all)),
        ("packet_fleet_gave_all", "Whether all flows of the peer are here", |peer| {
            u64::from(peer.gave_all)
        }),
    ];
    for (name, help, of) in gauges {
        let mut family = describe(out, name, help, None, MetricType::Gauge)?;
        for peer in peers() {
            gauge(&mut family, &[("peer", peer.address.as_str())], of(peer))?;
        }
    }
    Ok(())
}

fn backends(packet: &PacketStatus) -> impl Iterator<Item = (&VipStatus, &VipBackendStatus)> {
    packet.vips.iter().flat_map(|vip| vip.backends.iter().map(move |backend| (vip, backend)))
}

fn of_vip(vip: &VipStatus) -> [(&str, &str); 2] {
    [("vip", &vip.vip), ("pool", &vip.pool)]
}

fn with<'a>(vip: &'a VipStatus, label: (&'a str, &'a str)) -> [(&'a str, &'a str); 3] {
    let [a, b] = of_vip(vip);
    [a, b, label]
}
