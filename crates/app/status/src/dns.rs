//! The state of the DNS level.

use std::net::SocketAddr;

use equipoise_api::wire::dns as wire;
use equipoise_dns::Standing;
use equipoise_dns::stats::{BUCKETS_US, Figures};
use equipoise_planes::RunningDns;

/// Largest number of resolvers in status and metrics.
const RESOLVERS_TOLD: usize = 20;

/// The level's status, zero counts included.
pub fn status(running: &RunningDns) -> wire::DnsStatus {
    let RunningDns { engine, config, unwritten } = running;
    let published = engine.published();
    let snapshot = &*published.snapshot;
    let figures = engine.figures();
    let answers = snapshot.tallies().sums().into_iter().map(|((pool, backend), answers_total)| {
        wire::DnsAnswers { pool: pool.to_string(), backend: backend.to_string(), answers_total }
    });
    let resolvers = engine.top_resolvers(RESOLVERS_TOLD).into_iter();
    let mut status = wire::DnsStatus {
        listen: engine.addresses().iter().map(SocketAddr::to_string).collect(),
        zones: config.zones.iter().map(|zone| zone.origin.fmt_with_dot().to_string()).collect(),
        generation: snapshot.generation.0,
        names: snapshot.names_told.iter().map(name).collect(),
        answers: answers.collect(),
        connections_open: engine.connections_open() as u64,
        sources_known: published.loads.len() as u64,
        top_resolvers: resolvers
            .map(|(address, queries)| wire::DnsResolver { address: address.to_string(), queries })
            .collect(),
        ..wire::DnsStatus::default()
    };
    counted(&mut status, &figures);
    *status.notes.entry("query_log_dropped".to_owned()).or_default() += unwritten;
    status
}

fn counted(status: &mut wire::DnsStatus, figures: &Figures) {
    let named = |counts: &[(&str, u64)]| {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    status.queries = named(&[("udp", figures.queries_udp), ("tcp", figures.queries_tcp)]);
    status.types = named(&figures.types);
    status.rcodes = named(&figures.rcodes);
    status.modes = named(&figures.modes);
    status.drops = named(&figures.drops);
    status.notes = named(&[
        ("truncated", figures.truncated),
        ("slipped", figures.slipped),
        ("fail_open", figures.fail_open),
        ("by_deficit", figures.by_deficit),
        ("cookies_valid", figures.cookies_valid),
        ("query_log_dropped", figures.log_dropped),
    ]);
    status.connections_total = figures.connections;
    let bounds = BUCKETS_US.iter().map(|us| Some(*us as f64 / 1e6)).chain([None]);
    status.latency = bounds.zip(figures.latency.iter().copied()).collect();
    status.latency_seconds_sum = figures.latency_us_sum as f64 / 1e6;
}

/// Removes zero counts, for people.
pub fn without_zeros(status: &mut wire::DnsStatus) {
    let counts = [
        &mut status.types,
        &mut status.rcodes,
        &mut status.modes,
        &mut status.drops,
        &mut status.notes,
    ];
    counts.into_iter().for_each(|counts| counts.retain(|_, count| *count > 0));
}

fn name(name: &equipoise_dns::NameStatus) -> wire::DnsNameStatus {
    let backends = name.nodes.iter().map(|node| wire::DnsBackendStatus {
        pool: node.pool.to_string(),
        name: node.name.to_string(),
        addresses: node.addresses.iter().map(ToString::to_string).collect(),
        state: match node.standing {
            Standing::Serving => "serving",
            Standing::Draining | Standing::DrainingUnhealthy => "draining",
            Standing::Unhealthy => "unhealthy",
            Standing::Down => "down",
        }
        .into(),
        share: node.share,
    });
    wire::DnsNameStatus {
        name: name.name.clone(),
        mode: name.mode.word().into(),
        ttl_seconds: name.ttl,
        fail_open: name.fail_open,
        backends: backends.collect(),
    }
}
