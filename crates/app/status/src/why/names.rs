//! Answers of the DNS level in explanations.

use equipoise_api::wire::why as wire;
use equipoise_dns::{NameStatus, NodeStatus, Preview, Standing};

use super::step;
use super::words::percent;

/// The answer about a query.
pub fn name_answer(subject: String, preview: &Preview) -> wire::WhyAnswer {
    let mut steps = vec![step("dns", found(preview))];
    if let Some(name) = &preview.balanced {
        steps.push(step("dns", balanced(preview, name)));
        steps.extend(name.nodes.iter().map(|node| step("dns", member(name, node))));
    }
    let outcome = match &preview.records[..] {
        [] => format!("{} without records", preview.code),
        records => data(records).join(", "),
    };
    let taken = preview.code != "REFUSED";
    wire::WhyAnswer { subject, outcome, taken, backend: None, steps }
}

/// The decision about the host of a request, in one line.
pub fn host_step(preview: &Preview) -> wire::WhyStep {
    let text = match (&preview.addresses[..], &preview.balanced) {
        ([], _) => found(preview),
        (addresses, balanced) => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            let drawn = if balanced.is_some() { ", drawn for each answer" } else { "" };
            format!("{} has the address {}{drawn}", preview.name, addresses.join(", "))
        }
    };
    step("dns", text)
}

fn found(preview: &Preview) -> String {
    let Preview { name, code, records, .. } = preview;
    match (&code[..], &records[..]) {
        ("REFUSED", _) => format!("{name}: no zone of this process has it"),
        ("NXDOMAIN", _) => format!("{name}: the zone has no such name"),
        (_, []) => format!("{name}: {code}, without records of this type"),
        (_, records) => format!("{name}: {}", records.join("; ")),
    }
}

/// Type and data of each record.
fn data(records: &[String]) -> Vec<&str> {
    records.iter().filter_map(|record| record.splitn(3, ' ').nth(2)).collect()
}

fn balanced(preview: &Preview, name: &NameStatus) -> String {
    let chosen = match preview.by_load {
        true => {
            "the load of this client is known: it gets the backends furthest behind their shares"
        }
        false => "the backends are drawn by share for each answer",
    };
    let NameStatus { name, mode, ttl, fail_open, .. } = name;
    let fail_open = match fail_open {
        true => "; no backend serves, so answers have some that do not",
        false => "",
    };
    format!("{name} is balanced ({}, TTL {ttl} s): {chosen}{fail_open}", mode.word())
}

fn member(name: &NameStatus, node: &NodeStatus) -> String {
    let addresses: Vec<_> = node.addresses.iter().map(ToString::to_string).collect();
    let state = match node.standing {
        Standing::Serving => "serving",
        Standing::Draining => "draining",
        Standing::DrainingUnhealthy => "draining, and its checks fail",
        Standing::Unhealthy => "its checks fail",
        Standing::Down => "disabled by an operator",
    };
    let is_in = match (node.share > 0.0, node.standing) {
        (true, Standing::Serving) => format!("in, {} of clients: {state}", percent(node.share)),
        (true, _) if name.fail_open => {
            format!("in, {} of clients: {state}, and no backend serves", percent(node.share))
        }
        (true, _) => format!("in, {} of clients: {state}", percent(node.share)),
        (false, Standing::Serving) => "out: its share is 0".into(),
        (false, _) => format!("out: {state}"),
    };
    format!("backend {}/{} ({}): {is_in}", node.pool, node.name, addresses.join(", "))
}
