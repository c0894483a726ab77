//! Metrics of the DNS level.

use std::collections::BTreeMap;
use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::collector::{counter, describe, gauge};
use crate::wire::dns::DnsStatus;

pub(super) fn encode(dns: &DnsStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    counts(dns, out)?;
    names(dns, out)?;
    let help = "Open TCP connections";
    let mut family = describe(out, "dns_connections_open", help, None, MetricType::Gauge)?;
    family.encode_gauge(&dns.connections_open)?;
    let help = "Accepted TCP connections";
    let mut family = describe(out, "dns_connections", help, None, MetricType::Counter)?;
    family.encode_counter::<NoLabelSet, _, u64>(&dns.connections_total, None)?;
    let help = "Sources with known load";
    let mut family = describe(out, "dns_sources_known", help, None, MetricType::Gauge)?;
    family.encode_gauge(&dns.sources_known)?;
    let help = "From receiving a query to sending its answer";
    let unit = Some(&Unit::Seconds);
    let mut family = describe(out, "dns_latency", help, unit, MetricType::Histogram)?;
    let buckets: Vec<_> =
        dns.latency.iter().map(|(bound, count)| (bound.unwrap_or(f64::INFINITY), *count)).collect();
    let count = buckets.iter().map(|(_, count)| count).sum();
    family.encode_histogram::<NoLabelSet>(dns.latency_seconds_sum, count, &buckets, None)?;
    // The number of labels is bounded by the table's size. Estimates fall as queries age.
    let help = "Estimated queries of the busiest resolvers; a query counts half after ten minutes";
    let mut family = describe(out, "dns_top_resolver_queries", help, None, MetricType::Gauge)?;
    for resolver in &dns.top_resolvers {
        gauge(&mut family, &[("resolver", resolver.address.as_str())], resolver.queries)?;
    }
    Ok(())
}

fn counts(dns: &DnsStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let families: [(&str, &str, &str, &BTreeMap<String, u64>); 6] = [
        ("dns_queries", "Queries", "transport", &dns.queries),
        ("dns_queries_by_type", "Queries by type", "type", &dns.types),
        ("dns_responses", "Responses by response code", "rcode", &dns.rcodes),
        ("dns_balanced_answers", "Answers of balanced names", "mode", &dns.modes),
        (
            "dns_drops",
            "Messages, datagrams and connections dropped, by reason",
            "reason",
            &dns.drops,
        ),
        ("dns_notes", "Notes on responses", "note", &dns.notes),
    ];
    for (name, help, label, counts) in families {
        let mut family = describe(out, name, help, None, MetricType::Counter)?;
        for (word, count) in counts {
            counter(&mut family, &[(label, word.as_str())], *count)?;
        }
    }
    let help = "Answers with the backend";
    let mut family = describe(out, "dns_answers", help, None, MetricType::Counter)?;
    for answers in &dns.answers {
        let labels = [("pool", answers.pool.as_str()), ("backend", answers.backend.as_str())];
        counter(&mut family, &labels, answers.answers_total)?;
    }
    Ok(())
}

fn names(dns: &DnsStatus, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let help = "Share of clients that answers of the name aim at";
    let mut family = describe(out, "dns_share_ratio", help, None, MetricType::Gauge)?;
    for name in &dns.names {
        for backend in &name.backends {
            let labels = [
                ("name", name.name.as_str()),
                ("pool", backend.pool.as_str()),
                ("backend", backend.name.as_str()),
            ];
            family.encode_family(&labels)?.encode_gauge(&backend.share)?;
        }
    }
    let help = "1 while none of the name's backends serves, and answers have backends that do not";
    let mut family = describe(out, "dns_fail_open", help, None, MetricType::Gauge)?;
    for name in &dns.names {
        gauge(&mut family, &[("name", name.name.as_str())], u64::from(name.fail_open))?;
    }
    Ok(())
}
