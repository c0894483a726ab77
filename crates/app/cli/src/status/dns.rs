//! The DNS level's tables in `equipoise status`.

use equipoise_api::wire::dns::{DnsBackendStatus, DnsStatus};

use super::reasons;
use crate::table::{Align, Cell, Table, Tone};
use crate::view::View;

/// Largest number of resolvers in the output.
const RESOLVERS: usize = 5;

/// Tables of names, their backends and shares, and of the level's counters.
pub(super) fn render(dns: &DnsStatus, view: View, out: &mut String) {
    out.push('\n');
    names(dns).render(view, out);
    let count = |transport: &str| dns.queries.get(transport).copied().unwrap_or_default();
    out.push_str(&format!(
        "\ndns: {} on {} · queries: {} udp, {} tcp · connections: {} · snapshot {}\n",
        dns.zones.join(", "),
        dns.listen.join(", "),
        count("udp"),
        count("tcp"),
        dns.connections_open,
        dns.generation,
    ));
    if !dns.rcodes.is_empty() {
        out.push_str(&format!("dns responses: {}\n", reasons(&dns.rcodes)));
    }
    let busiest: Vec<_> = dns
        .top_resolvers
        .iter()
        .take(RESOLVERS)
        .map(|r| format!("{} ~{}", r.address, r.queries))
        .collect();
    if !busiest.is_empty() {
        out.push_str(&format!("dns busiest resolvers: {}\n", busiest.join(", ")));
    }
}

fn names(dns: &DnsStatus) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("MODE", Align::Left),
        ("TTL", Align::Right),
        ("BACKEND", Align::Left),
        ("ADDRESSES", Align::Left),
        ("STATE", Align::Left),
        ("SHARE", Align::Right),
        ("ANSWERS", Align::Right),
    ])
    .folding(&["MODE", "ADDRESSES", "TTL", "ANSWERS"]);
    for name in &dns.names {
        for backend in &name.backends {
            let answers =
                dns.answers.iter().find(|a| a.pool == backend.pool && a.backend == backend.name);
            table.row(vec![
                (&name.name).into(),
                (&name.mode).into(),
                format!("{} s", name.ttl_seconds).into(),
                format!("{}/{}", backend.pool, backend.name).into(),
                backend.addresses.join(" ").into(),
                Cell::toned(&backend.state, tone(backend)),
                format!("{:.1}%", backend.share * 100.0).into(),
                answers.map_or(0, |answers| answers.answers_total).into(),
            ]);
        }
    }
    table
}

fn tone(backend: &DnsBackendStatus) -> Tone {
    match backend.state.as_str() {
        "serving" => Tone::Good,
        "draining" => Tone::Warning,
        _ => Tone::Bad,
    }
}

/// Lines that explain the counts; none if there are no problems.
pub(super) fn details(dns: &DnsStatus) -> Vec<String> {
    let mut lines = Vec::new();
    for name in dns.names.iter().filter(|name| name.fail_open) {
        lines.push(format!(
            "{}: NO BACKEND serves; answers have backends that do not serve (fail open)",
            name.name
        ));
    }
    if !dns.drops.is_empty() {
        lines.push(format!("dns: dropped {}", reasons(&dns.drops)));
    }
    if !dns.notes.is_empty() {
        lines.push(format!("dns: noted {}", reasons(&dns.notes)));
    }
    lines
}
