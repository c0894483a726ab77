//! docs/operations has every metric and every drop reason. The alerts and charts of
//! packaging/examples are of existing metrics, and Prometheus accepts them.

mod common;

use std::path::Path;
use std::process::Command;

use equipoise_api::metrics::{
    FrontDoorReading, MachineReading, PlanningReading, Reading, SpansReading, StreamReading,
    TimeReading, render,
};
use equipoise_api::wire::dispatch::DispatchStatus;
use equipoise_api::wire::dns::DnsStatus;
use equipoise_api::wire::tls::{AutomaticStatus, TlsStatus};
use equipoise_session::Reason;

use common::{Folder, stderr, stdout};
use equipoise_testkit::{python_programs, workspace};

const RULES: &str = include_str!("../../../packaging/examples/prometheus/equipoise.rules.yml");
const DASHBOARD: &str = include_str!("../../../packaging/examples/grafana/equipoise.json");
const METRICS: &str = include_str!("../../../docs/operations/metrics.md");
const DROPS: &str = include_str!("../../../docs/operations/drops.md");

/// The names of all metric families that a scrape may have, as samples have them.
fn exported() -> Vec<String> {
    let packet = serde_json::json!({
        "interfaces": [], "vips": [], "flows": 0, "flows_max": 0, "flows_not_learnt_total": 0, "flows_moved_total": 0,
        "pins": 0, "pins_max": 0, "pins_full_total": 0, "pending": 0, "publications_total": 0, "registry_bytes": 0,
        "kernel_bytes": 0, "drops": {}, "notes": {},
        "fleet": {
            "connected": 0, "refused_total": 0, "received_total": 0, "added_total": 0, "unplaced_total": 0,
            "full_total": 0, "conflicts_total": 0, "overtaken_total": 0, "held_back_total": 0, "peers": [],
        },
    });
    let stream = serde_json::json!({
        "name": "images", "slices_total": 1, "domain": 0, "leading": true, "imbalance": 0.0, "workers": [], "slices": [],
        "handovers": [], "hot": [], "unread": [],
        "connections_strange_total": 0, "handovers_moved_total": 0, "handovers_called_off_total": 0,
    });
    let status = serde_json::from_value(stream).expect("as the API has it");
    let text = render(Reading {
        streams: vec![StreamReading { status, handover_time: TimeReading::default() }],
        packet: Some(serde_json::from_value(packet).expect("as the API has it")),
        spans: Some(SpansReading::default()),
        dns: Some(DnsStatus::default()),
        machine: Some(MachineReading::default()),
        planning: Some(PlanningReading { runs: Some(true), ..PlanningReading::default() }),
        front_doors: vec![FrontDoorReading {
            http: true,
            dispatch: Some(DispatchStatus::default()),
            tls: Some(TlsStatus {
                automatic: vec![AutomaticStatus::default()],
                ..TlsStatus::default()
            }),
            ..FrontDoorReading::default()
        }],
        ..Reading::default()
    });
    let text = text.expect("nothing odd is in it");
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let family = |line: &str| {
        let (name, kind) = line.split_once(' ').expect("a name and a type");
        let end = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        format!("{name}{end}")
    };
    described.map(family).collect()
}

/// Whether a page lists a metric: by its name, or by the end of it, `_end`, behind one that begins
/// alike.
fn lists(page: &str, name: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    page.lines().any(|line| {
        let words: Vec<&str> = line.split(|c| !is_name(c)).collect();
        let begins = |beginning: &str| words.iter().any(|word| word.starts_with(beginning));
        let is_end = |word: &&&str| word.starts_with('_') && word.len() > 1;
        words.contains(&name)
            || words.iter().filter(is_end).any(|end| name.strip_suffix(end).is_some_and(begins))
    })
}

#[test]
fn the_page_lists_every_metric() {
    let exported = exported();
    let of_ours = exported.iter().filter(|name| name.starts_with("equipoise_"));
    let is_listed = |name: &str| lists(METRICS, name) || lists(METRICS, &format!("{name}_bucket"));
    let missing: Vec<_> = of_ours.filter(|name| !is_listed(name)).collect();
    assert!(missing.is_empty(), "docs/operations/metrics.md lacks {missing:#?}");
}

/// The metrics in expressions.
fn metrics(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("equipoise_") || word.starts_with("process_")).collect()
}

/// Fails for metrics that no scrape can have.
fn check_names(mut named: Vec<&str>) {
    let exported = exported();
    let is_known = |name: &&str| {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        exported.iter().any(|it| it == name || Some(it.as_str()) == family)
    };
    named.retain(|name| !is_known(name));
    assert!(named.is_empty(), "no such metrics: {named:?}; there are {exported:#?}");
}

/// The expressions of the dashboard's charts.
fn charts() -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("a list").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|it| it["expr"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn every_alert_and_chart_is_about_metrics_that_there_are() {
    let rules: Vec<_> = RULES.lines().filter(|line| !line.contains("summary:")).collect();
    let rules = rules.join("\n");
    let alerts = metrics(&rules);
    assert!(alerts.len() > 20, "{alerts:?}");
    check_names(alerts);
    for alert in ["equipoise_controller_running == 0", "equipoise_plan_age_seconds > 30"] {
        assert!(RULES.lines().any(|line| line.trim() == format!("expr: {alert}")), "{alert}");
    }
    let charts = charts();
    assert!(charts.len() > 25, "{charts:?}");
    check_names(charts.iter().flat_map(|chart| metrics(chart)).collect());
}

#[test]
fn panels_of_the_dashboard_have_places_and_numbers_of_their_own() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("it is JSON");
    let mut ids = std::collections::HashSet::new();
    let mut cells = std::collections::HashSet::new();
    for panel in dashboard["panels"].as_array().expect("a list") {
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{panel}");
        let at = |side: &str| panel["gridPos"][side].as_u64().expect("a number");
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(cells.insert((x, y)), "{panel} lies on another");
            }
        }
    }
}

/// Needs Python: `make grafana-python`.
#[test]
fn grafana_reads_every_field_of_the_dashboard() {
    let Some(programs) = python_programs("grafana-python") else { return };
    let mut check = Command::new(programs.join("python"));
    check.arg(workspace().join("crates/equipoise/tests/grafana/check.py"));
    check.arg(workspace().join("packaging/examples/grafana/equipoise.json"));
    let output = check.output().expect("it runs");
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn prometheus_accepts_the_alerts_and_charts() {
    if !Path::new("/usr/bin/promtool").exists() {
        println!("skipped: there is no promtool; `make test-setup` installs it");
        return;
    }
    let folder = Folder::new("promtool");
    let examples = workspace().join("packaging/examples");
    let promtool = |arguments: &[&str]| {
        let output =
            Command::new("/usr/bin/promtool").args(arguments).current_dir(&examples).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{arguments:?}: {}{}", stdout(&output), stderr(&output));
    };
    promtool(&["check", "config", "prometheus/prometheus.yml"]);
    promtool(&["test", "rules", "prometheus/equipoise.test.yml"]);
    // Charts as rules, so that their syntax is checked.
    let rules = charts().into_iter().enumerate().map(|(number, chart)| {
        let expr = chart.replace("$__rate_interval", "1m");
        serde_json::json!({ "record": format!("chart:{number}"), "expr": expr })
    });
    let group = serde_json::json!({ "name": "charts", "rules": rules.collect::<Vec<_>>() });
    // JSON is YAML.
    let file = folder.write("charts.yml", &serde_json::json!({ "groups": [group] }).to_string());
    promtool(&["check", "rules", common::text(&file)]);
}

#[test]
fn every_reason_of_the_packet_level_is_explained_as_drop_or_note() {
    for reason in equipoise_packet::Reason::ALL {
        let kind = if reason.is_drop() { "drop" } else { "note" };
        let row = format!("| `{}` | {kind} |", reason.name());
        assert!(
            DROPS.lines().any(|line| line.starts_with(&row)),
            "docs/operations/drops.md lacks {row}"
        );
    }
}

#[test]
fn every_reason_of_the_dns_level_is_explained() {
    for reason in equipoise_dns::Reason::ALL {
        let row = format!("| `{}` | dns |", reason.name());
        assert!(
            DROPS.lines().any(|line| line.starts_with(&row)),
            "docs/operations/drops.md lacks {row}"
        );
    }
}

#[cfg(feature = "slice")]
#[test]
fn every_reason_of_the_slice_level_is_explained() {
    let protocol = equipoise_slice::worker::Reason::ALL.map(|reason| reason.name());
    let runtime = equipoise_slice_dds::DropReason::ALL.map(|reason| reason.name());
    for name in protocol.into_iter().chain(runtime) {
        let row = format!("| `{name}` | slice |");
        assert!(
            DROPS.lines().any(|line| line.starts_with(&row)),
            "docs/operations/drops.md lacks {row}"
        );
    }
}

/// The drop reasons of every level.
fn reasons_of_every_level() -> Vec<&'static str> {
    let session = Reason::ALL.iter().map(|reason| reason.name());
    let packet = equipoise_packet::Reason::ALL.iter().map(|reason| reason.name());
    let dns = equipoise_dns::Reason::ALL.iter().map(|reason| reason.name());
    let slice = equipoise_slice::worker::Reason::ALL.into_iter().map(|reason| reason.name());
    let mut names: Vec<_> = session.chain(packet).chain(dns).chain(slice).collect();
    #[cfg(feature = "slice")]
    names.extend(equipoise_slice_dds::DropReason::ALL.map(|reason| reason.name()));
    names
}

#[test]
fn every_drop_reason_is_in_snake_case_at_every_level() {
    for name in reasons_of_every_level() {
        // A protocol's name may end with its version.
        let words = name.split('_').map(|word| word.trim_end_matches(['2', '3']));
        let mut words = words.map(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()));
        assert!(words.all(|lower| lower) && !name.contains("__"), "{name}");
    }
}

#[test]
fn every_drop_reason_is_explained_with_the_status_that_clients_see() {
    for reason in Reason::ALL {
        let row = DROPS.lines().find(|line| line.starts_with(&format!("| `{}` |", reason.name())));
        let row =
            row.unwrap_or_else(|| panic!("docs/operations/drops.md lacks `{}`", reason.name()));
        let status = reason.status();
        assert!(status == 0 || row.contains(&status.to_string()), "{status} in: {row}");
    }
}
