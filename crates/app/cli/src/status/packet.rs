//! The packet level's tables in `equipoise status`.

use equipoise_api::wire::packet::{
    FleetStatus, PacketStatus, SourceAddressStatus, VipBackendStatus, VipStatus,
};

use super::{bytes, errors_cell, reasons};
use crate::table::{Align, Cell, Table, Tone};
use crate::view::View;

/// Tables of VIPs, their backends and the level's counters.
pub(super) fn render(packet: &PacketStatus, view: View, out: &mut String) {
    out.push('\n');
    vips(packet).render(view, out);
    out.push('\n');
    backends(packet).render(view, out);
    for vip in &packet.vips {
        if let Some(ports) = &vip.source_ports {
            out.push_str(&format!(
                "\nsource ports of {}: {} in use, {} of {} at the fullest backend",
                vip.vip, ports.in_use, ports.fullest, ports.max
            ));
        }
    }
    let interfaces: Vec<_> = packet
        .interfaces
        .iter()
        .map(|interface| {
            let role = if interface.role == "replies" { ", replies" } else { "" };
            format!("{} ({}{role})", interface.name, interface.state)
        })
        .collect();
    out.push_str(&format!(
        "\ninterfaces: {} · flows: {} of {} · pins: {} of {} · pending: {} · memory: {} kernel, {} registry\n",
        interfaces.join(", "),
        packet.flows,
        packet.flows_max,
        packet.pins,
        packet.pins_max,
        packet.pending,
        bytes(packet.kernel_bytes as f64),
        bytes(packet.registry_bytes as f64),
    ));
    if let Some(fleet) = &packet.fleet {
        out.push('\n');
        peers(fleet).render(view, out);
    }
}

fn peers(fleet: &FleetStatus) -> Table {
    let mut table = Table::new(&[
        ("PEER", Align::Left),
        ("STATE", Align::Left),
        ("HAS ALL", Align::Left),
        ("GAVE ALL", Align::Left),
        ("FLOWS SENT", Align::Right),
        ("BYTES", Align::Right),
        ("UNPLACED", Align::Right),
        ("NO ROOM", Align::Right),
    ])
    .folding(&["BYTES", "UNPLACED", "NO ROOM"]);
    let word = |is: bool| match is {
        true => Cell::toned("yes", Tone::Good),
        false => Cell::toned("no", Tone::Warning),
    };
    for peer in fleet.peers.iter().filter(|peer| peer.state != "own") {
        let tone = if peer.state == "connected" { Tone::Good } else { Tone::Bad };
        table.row(vec![
            (&peer.address).into(),
            Cell::toned(&peer.state, tone),
            word(peer.has_all),
            word(peer.gave_all),
            peer.sent_total.into(),
            bytes(peer.sent_bytes_total as f64).into(),
            peer.unplaced_total.into(),
            peer.full_total.into(),
        ]);
    }
    table
}

fn vips(packet: &PacketStatus) -> Table {
    let mut table = Table::new(&[
        ("VIP", Align::Left),
        ("POOL", Align::Left),
        ("FORWARD", Align::Left),
        ("SCHEDULER", Align::Left),
        ("PHASE", Align::Left),
        ("FLOWS", Align::Right),
        ("PACKETS", Align::Right),
        ("BYTES", Align::Right),
        ("DROPS", Align::Right),
    ])
    .folding(&["SCHEDULER", "BYTES", "FORWARD", "PHASE"]);
    for vip in &packet.vips {
        let phase = if vip.phase == "steady" { Tone::Plain } else { Tone::Warning };
        table.row(vec![
            (&vip.vip).into(),
            (&vip.pool).into(),
            (&vip.forward).into(),
            (&vip.scheduler).into(),
            Cell::toned(&vip.phase, phase),
            vip.flows.into(),
            vip.packets_total.into(),
            bytes(vip.bytes_total as f64).into(),
            errors_cell(vip.drops.values().sum()),
        ]);
    }
    table
}

fn backends(packet: &PacketStatus) -> Table {
    let mut table = Table::new(&[
        ("VIP", Align::Left),
        ("BACKEND", Align::Left),
        ("ADDRESS", Align::Left),
        ("STATE", Align::Left),
        ("NEXT HOP", Align::Left),
        ("FLOWS", Align::Right),
        ("CLOSING", Align::Right),
        ("PACKETS", Align::Right),
        ("BYTES", Align::Right),
        ("DROPS", Align::Right),
    ])
    .folding(&["BYTES", "DROPS", "CLOSING", "ADDRESS", "PACKETS"]);
    for vip in &packet.vips {
        for backend in &vip.backends {
            let hop = match backend.reachable {
                true => Cell::toned("resolved", Tone::Plain),
                false => Cell::toned("unresolved", Tone::Bad),
            };
            table.row(vec![
                (&vip.vip).into(),
                (&backend.name).into(),
                (&backend.address).into(),
                Cell::toned(state(backend), tone(backend)),
                hop,
                backend.flows.into(),
                backend.flows_closing.into(),
                backend.packets_total.into(),
                bytes(backend.bytes_total as f64).into(),
                backend.drops_total.into(),
            ]);
        }
    }
    table
}

fn state(backend: &VipBackendStatus) -> String {
    match backend.listed {
        true => backend.state.clone(),
        false => format!("{}, removed", backend.state),
    }
}

fn tone(backend: &VipBackendStatus) -> Tone {
    match backend.state.as_str() {
        "up" => Tone::Good,
        "draining" => Tone::Warning,
        "standby" => Tone::Plain,
        _ => Tone::Bad,
    }
}

/// Lines about source addresses that new flows do not get.
fn sources(vip: &VipStatus) -> Vec<String> {
    let name = &vip.vip;
    let line = |it: &SourceAddressStatus| match &*it.state {
        "absent" => Some(format!(
            "{name}: this machine does not have the source address {}: `ip addr add` it",
            it.address
        )),
        "draining" => Some(format!(
            "{name}: source address {} drains: {} flows keep it",
            it.address, it.ports_in_use
        )),
        _ => None,
    };
    vip.source_addresses.iter().filter_map(line).collect()
}

/// Lines that explain the counts; none if there are no problems.
pub(super) fn details(packet: &PacketStatus) -> Vec<String> {
    let mut lines = Vec::new();
    for interface in &packet.interfaces {
        if let Some(detail) = &interface.detail {
            lines.push(format!("interface {}: {detail}", interface.name));
        }
    }
    for peer in packet.fleet.iter().flat_map(|fleet| &fleet.peers) {
        if let Some(detail) = &peer.detail {
            lines.push(format!("peer {}: {detail}", peer.address));
        }
    }
    for vip in &packet.vips {
        lines.extend(sources(vip));
        let gone = vip.backends.iter().filter_map(|it| Some((&it.name, it.reason.as_ref()?)));
        lines.extend(gone.map(|(name, why)| format!("{}: backend {name} is gone: {why}", vip.vip)));
        if !vip.drops.is_empty() {
            lines.push(format!("{}: dropped {}", vip.vip, reasons(&vip.drops)));
        }
        if !vip.notes.is_empty() {
            lines.push(format!("{}: noted {}", vip.vip, reasons(&vip.notes)));
        }
    }
    if !packet.drops.is_empty() {
        lines.push(format!("packets of no VIP: dropped {}", reasons(&packet.drops)));
    }
    if packet.flows_moved_total > 0 {
        lines.push(format!(
            "{} flows lost their backend and moved to another",
            packet.flows_moved_total
        ));
    }
    if packet.flows_not_learnt_total > 0 {
        lines.push(format!(
            "{} flows were not registered, or replaced by flows with more evidence (registry_full): forged addresses, or \
             [flows] max is too small",
            packet.flows_not_learnt_total
        ));
    }
    lines
}

#[cfg(test)]
mod tests;
