//! The levels before the session level: names, and VIPs.

use equipoise_api::wire::Status;
use equipoise_api::wire::dns::{DnsBackendStatus, DnsNameStatus, DnsStatus};
use equipoise_api::wire::packet::{VipBackendStatus, VipStatus};

use super::super::figures::{number, percent};
use super::super::sheet::{Row, Sheet, Value, left, right};
use super::backends::find;
use super::doors::CLIENT;
use crate::table::Tone;

pub(super) fn dns(status: &Status) -> Sheet {
    let mut sheet = Sheet::new(&[
        left("NAME", 0),
        left("BACKEND", 0),
        left("STATE", 0),
        right("SHARE", 0),
        right("ANSWERS", 1),
        right("TTL", 3),
        left("MODE", 2),
        left("ADDRESSES", 4),
        left("WHY", 0),
    ]);
    let Some(dns) = &status.dns else { return sheet };
    for name in &dns.names {
        for backend in &name.backends {
            sheet.add(dns_row(status, dns, name, backend));
        }
    }
    sheet
}

fn dns_row(status: &Status, dns: &DnsStatus, name: &DnsNameStatus, of: &DnsBackendStatus) -> Row {
    let backend = format!("{}/{}", of.pool, of.name);
    let answers = dns.answers.iter().find(|it| it.pool == of.pool && it.backend == of.name);
    let (tone, trouble) = match &*of.state {
        "serving" => (Tone::Good, 5),
        "draining" => (Tone::Warning, 1),
        "down" => (Tone::Bad, 3),
        _ => (Tone::Bad, 0),
    };
    let why = match name.fail_open {
        true => "no backend serves, so answers have some that do not",
        false => "",
    };
    Row {
        id: format!("{} {backend}", name.name),
        values: vec![
            Value::text(&name.name),
            Value::text(backend),
            Value::text(&of.state).toned(tone),
            Value::figure(of.share, percent(of.share)),
            Value::count(answers.map_or(0, |answers| answers.answers_total)),
            Value::figure(name.ttl_seconds.into(), format!("{} s", name.ttl_seconds)),
            Value::text(&name.mode),
            Value::text(of.addresses.join(", ")),
            Value::text(why),
        ],
        trouble: if name.fail_open { 0 } else { trouble },
        target: find(status, &of.pool, &of.name),
        question: format!("name {}", name.name),
    }
}

pub(super) fn packet(status: &Status) -> Sheet {
    let mut sheet = Sheet::new(&[
        left("VIP", 0),
        left("BACKEND", 0),
        left("STATE", 0),
        right("FLOWS", 0),
        right("CLOSING", 2),
        right("PACKETS", 1),
        right("BYTES", 3),
        left("ADDRESS", 4),
        left("WHY", 0),
    ]);
    for vip in status.packet.iter().flat_map(|packet| &packet.vips) {
        for backend in &vip.backends {
            sheet.add(packet_row(status, vip, backend));
        }
    }
    sheet
}

fn packet_row(status: &Status, vip: &VipStatus, backend: &VipBackendStatus) -> Row {
    let why = [
        backend.detail.clone(),
        backend.tunnel_detail.clone(),
        (!backend.reachable).then(|| "the MAC address of the next hop is not known".into()),
        (vip.phase != "steady").then(|| format!("the VIP's change: {}", vip.phase)),
    ];
    let why: Vec<String> = why.into_iter().flatten().collect();
    let (tone, trouble) = match &*backend.state {
        "up" if backend.reachable && backend.detail.is_none() => (Tone::Good, 5),
        "standby" => (Tone::Plain, 6),
        "draining" => (Tone::Warning, 1),
        _ => (Tone::Bad, 0),
    };
    Row {
        id: format!("{} {}", vip.vip, backend.name),
        values: vec![
            Value::text(&vip.vip),
            Value::text(&backend.name),
            Value::text(&backend.state).toned(tone),
            Value::count(backend.flows),
            Value::count(backend.flows_closing),
            Value::figure(backend.packets_total as f64, number(backend.packets_total as f64)),
            Value::figure(backend.bytes_total as f64, number(backend.bytes_total as f64)),
            Value::text(&backend.address),
            Value::text(why.join("; ")),
        ],
        trouble,
        target: find(status, &vip.pool, &backend.name),
        question: question(&vip.vip),
    }
}

/// A question for "Why?" about a client of a VIP, such as `192.0.2.10:443/tcp`.
fn question(vip: &str) -> String {
    match vip.rsplit_once('/') {
        Some((to, protocol @ ("tcp" | "udp"))) => format!("{protocol} {CLIENT} {to}"),
        _ => String::new(),
    }
}
