//! Checks that the names of all metrics follow the rules of Prometheus.
//!
//! Source: Prometheus documentation, "Metric and label naming"; OpenMetrics 1.0, section "Units and
//! base units".

use std::collections::BTreeMap;

use super::*;
use crate::wire::dns::{DnsAnswers, DnsBackendStatus, DnsNameStatus, DnsResolver, DnsStatus};

/// A reading with figures of every level.
fn whole() -> Reading {
    Reading { machine: Some(machine()), dns: Some(dns()), ..reading() }
}

fn dns() -> DnsStatus {
    let count = |word: &str| BTreeMap::from([(word.to_owned(), 1)]);
    let backend = DnsBackendStatus {
        pool: "web".into(),
        name: "b1".into(),
        addresses: vec!["192.0.2.10".into()],
        state: "serving".into(),
        share: 0.125,
    };
    let name = DnsNameStatus {
        name: "www.example.com.".into(),
        mode: "pair".into(),
        ttl_seconds: 30,
        fail_open: false,
        backends: vec![backend],
    };
    DnsStatus {
        names: vec![name],
        answers: vec![DnsAnswers { pool: "web".into(), backend: "b1".into(), answers_total: 1 }],
        queries: count("udp"),
        types: count("a"),
        rcodes: count("noerror"),
        modes: count("pair"),
        drops: count("too_short"),
        notes: count("truncated"),
        latency: vec![(Some(0.001), 1), (None, 0)],
        top_resolvers: vec![DnsResolver { address: "192.0.2.53".into(), queries: 1 }],
        ..DnsStatus::default()
    }
}

/// Units in which metrics are exported.
const BASE_UNITS: [&str; 4] = ["seconds", "bytes", "ratio", "cores"];
/// Multiples, parts and abbreviations of these.
#[rustfmt::skip]
const OTHER_UNITS: [&str; 27] = [
    "percent", "permille", "percentage", "bits", "bit", "byte", "octets", "kilobytes", "megabytes", "kib", "mib", "kb",
    "mb", "second", "sec", "secs", "s", "ms", "us", "ns", "milliseconds", "microseconds", "nanoseconds", "minutes",
    "hours", "days", "core",
];
/// Names of types, which a metric's name must not repeat.
const TYPES: [&str; 5] = ["counter", "gauge", "histogram", "summary", "metric"];

/// The naming rule that a family breaks.
fn fault(name: &str, kind: &str) -> Option<&'static str> {
    let words: Vec<&str> = name.split('_').collect();
    let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if words.iter().any(|word| word.is_empty() || !word.bytes().all(is_lower)) {
        return Some("is not in snake_case");
    }
    if !["equipoise", "process"].contains(&words[0]) {
        return Some("has no prefix of the application");
    }
    if words.iter().any(|word| TYPES.contains(word)) {
        return Some("repeats its type");
    }
    if (kind == "counter") != name.ends_with("_total") {
        return Some("does not end with `_total` as a counter, or does as something else");
    }
    let base = name.strip_suffix("_total").unwrap_or(name);
    let rate = base.strip_suffix("_per_second");
    let words: Vec<&str> = rate.unwrap_or(base).split('_').collect();
    let (last, others) = words.split_last()?;
    if words.iter().any(|word| OTHER_UNITS.contains(word)) {
        return Some("has a unit that is no base unit");
    }
    if others.iter().any(|word| BASE_UNITS.contains(word)) {
        return Some("has its unit elsewhere than at the end");
    }
    if ["count", "sum", "bucket"].contains(last) {
        return Some("ends as the samples of a histogram do");
    }
    if (kind == "histogram" || rate.is_some()) && !BASE_UNITS.contains(last) {
        return Some("lacks its unit");
    }
    None
}

/// Name and type of every family.
fn families(text: &str) -> Vec<(&str, &str)> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|rest| rest.split_once(' ').expect("a name and a type")).collect()
}

#[test]
fn every_name_follows_the_naming_rules_of_prometheus() {
    let text = to_plain_text(&render(whole()).unwrap());
    let families = families(&text);
    assert!(families.len() > 90, "every level has some: {}", families.len());
    for (name, kind) in families {
        assert_eq!(fault(name, kind), None, "{name}, a {kind}");
        let help = text.lines().any(|line| line.starts_with(&format!("# HELP {name} ")));
        assert!(help, "{name} has no help");
    }
}

#[test]
fn every_sample_is_of_a_described_family() {
    let text = to_plain_text(&render(whole()).unwrap());
    let families = families(&text);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let described = families.iter().any(|(family, kind)| match name.strip_prefix(family) {
            Some("") => *kind != "histogram",
            Some("_bucket" | "_sum" | "_count") => *kind == "histogram",
            _ => false,
        });
        assert!(described, "{line}");
    }
}

#[test]
fn ratios_are_parts_of_one() {
    let text = render(whole()).unwrap();
    let ratios = text.lines().filter(|line| !line.starts_with('#') && line.contains("_ratio{"));
    let values: Vec<f64> =
        ratios.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(values.len() > 10, "{values:?}");
    assert!(values.iter().all(|value| (0.0..=1.0).contains(value)), "{values:?}");
    let share =
        r#"equipoise_dns_share_ratio{name="www.example.com.",pool="web",backend="b1"} 0.125"#;
    assert!(text.lines().any(|line| line == share), "{text}");
}

#[test]
fn a_name_that_breaks_a_rule_is_found() {
    for (name, kind) in [
        ("equipoise_used_percent", "gauge"),
        ("equipoise_dns_share_permille", "gauge"),
        ("equipoise_interface_bits_per_second", "gauge"),
        ("equipoise_requests", "counter"),
        ("equipoise_requests_total", "gauge"),
        ("equipoise_bytes_received_total", "counter"),
        ("equipoise_latency_ms", "gauge"),
        ("equipoise_latency", "histogram"),
        ("equipoise_thread_count", "gauge"),
        ("equipoise_Threads", "gauge"),
        ("equipoise_load_gauge", "gauge"),
        ("threads", "gauge"),
    ] {
        assert!(fault(name, kind).is_some(), "{name}, a {kind}");
    }
}
