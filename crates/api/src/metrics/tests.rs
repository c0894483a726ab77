use super::*;
use crate::wire::{Admin, BackendState, Health};

fn reading() -> Reading {
    Reading {
        version: "1.2.3".into(),
        instance: "edge-1".into(),
        threads: 2,
        reload: ReloadReading {
            succeeded: 3,
            failed: 1,
            last_succeeded: false,
            last_success_unix_seconds: 1_700_000_000,
        },
        front_doors: vec![
            FrontDoorReading {
                name: "http:127.0.0.1:80".into(),
                pool: "web".into(),
                http: true,
                responses: [0, 40, 0, 2, 1],
                request_time: TimeReading {
                    buckets: vec![(0.001, 40), (0.1, 2), (f64::INFINITY, 1)],
                    sum_seconds: 1.5,
                },
                bytes_in: 1000,
                drops: vec![("no_backend", 1), ("client_gone", 0)],
                ..FrontDoorReading::default()
            },
            FrontDoorReading {
                name: "raw".into(),
                pool: "db".into(),
                ..FrontDoorReading::default()
            },
        ],
        pools: vec![PoolReading {
            name: "web".into(),
            backends: vec![BackendReading {
                name: "10.0.0.1:80".into(),
                admin: Admin::Drain,
                health: Health::Healthy,
                state: BackendState::Draining,
                weight: 7,
                requests: 43,
                in_flight: 2,
                responses: [0, 40, 0, 2, 1],
                response_time: TimeReading { buckets: vec![(f64::INFINITY, 43)], sum_seconds: 0.5 },
                failures: vec![("connect_refused", 5)],
                sessions_open: 3,
                sessions_opened: 4,
                sessions_reused: 39,
                bytes_out: 10,
                bytes_in: 20,
            }],
        }],
    }
}

#[test]
fn figures_are_exported_under_conventional_names() {
    let text = render(reading()).unwrap();
    for line in [
        r#"equipoise_build_info{version="1.2.3",instance="edge-1"} 1"#,
        r#"equipoise_requests_total{front_door="http:127.0.0.1:80",pool="web",code="2xx"} 40"#,
        r#"equipoise_request_duration_seconds_bucket{le="0.1",front_door="http:127.0.0.1:80",pool="web"} 42"#,
        r#"equipoise_request_duration_seconds_bucket{le="+Inf",front_door="http:127.0.0.1:80",pool="web"} 43"#,
        r#"equipoise_request_duration_seconds_count{front_door="http:127.0.0.1:80",pool="web"} 43"#,
        r#"equipoise_received_bytes_total{front_door="http:127.0.0.1:80",pool="web"} 1000"#,
        r#"equipoise_drops_total{front_door="http:127.0.0.1:80",pool="web",reason="client_gone"} 0"#,
        r#"equipoise_backend_up{pool="web",backend="10.0.0.1:80"} 0"#,
        r#"equipoise_backend_health{pool="web",backend="10.0.0.1:80",health="healthy"} 1"#,
        r#"equipoise_backend_admin{pool="web",backend="10.0.0.1:80",admin="drain"} 1"#,
        r#"equipoise_backend_sessions_reused_total{pool="web",backend="10.0.0.1:80"} 39"#,
        r#"equipoise_backend_failures_total{pool="web",backend="10.0.0.1:80",reason="connect_refused"} 5"#,
        r#"equipoise_config_reloads_total{result="failure"} 1"#,
        r#"equipoise_config_last_reload_successful 0"#,
        r#"equipoise_config_last_reload_success_timestamp_seconds 1700000000"#,
    ] {
        assert!(text.lines().any(|have| have == line), "missing {line} in:\n{text}");
    }
    for name in
        ["process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds "]
    {
        assert!(text.lines().any(|have| have.starts_with(name)), "missing {name} in:\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_front_door_without_requests_exports_no_request_figures() {
    let text = render(reading()).unwrap();
    assert!(!text.contains(r#"equipoise_requests_total{front_door="raw""#));
    assert!(text.contains(r#"equipoise_connections_total{front_door="raw",pool="db"}"#));
}

#[test]
fn every_family_is_described_once_and_ends_in_one_full_stop() {
    let text = render(reading()).unwrap();
    let mut described: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    let count = described.len();
    described.sort_unstable();
    described.dedup();
    assert_eq!(described.len(), count);
    for help in text.lines().filter(|line| line.starts_with("# HELP ")) {
        assert!(help.ends_with('.') && !help.ends_with(".."), "{help}");
    }
}
