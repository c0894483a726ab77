mod names;

use std::collections::BTreeMap;

use super::*;
use crate::wire::dispatch::{ClassStatus, DispatchStatus};
use crate::wire::packet::{
    FleetPeer, FleetStatus, HeavyBackend, HeavyTraffic, InterfaceStatus, PacketStatus,
    SourcePortsStatus, VipBackendStatus, VipStatus,
};
use crate::wire::slice::{SliceCheckpoints, SliceWorker, StreamStatus, WorkerState};
use crate::wire::tls::{AutomaticStatus, BackendTlsStatus, CertificateStatus, TlsStatus};
use crate::wire::{Admin, BackendState, Health, Region, SourceStatus};

fn heavy() -> HeavyTraffic {
    let backend = HeavyBackend {
        vip: "192.0.2.1:80/tcp".into(),
        backend: "b1".into(),
        bytes_per_second: 4000.0,
        heavy_bytes_per_second: 3000.0,
        share: 0.75,
    };
    HeavyTraffic { seconds: 10.0, sample_every: 64, flows: Vec::new(), backends: vec![backend] }
}

fn packet() -> PacketStatus {
    let count = |word: &str, count: u64| BTreeMap::from([(word.to_owned(), count)]);
    let backend = VipBackendStatus {
        name: "b1".into(),
        address: "10.0.0.1".into(),
        state: "up".into(),
        reason: None,
        listed: true,
        reachable: true,
        tunnel: None,
        detail: None,
        tunnel_detail: None,
        flows: 5,
        flows_closing: 2,
        packets_total: 100,
        bytes_total: 2048,
        drops_total: 6,
    };
    PacketStatus {
        interfaces: vec![InterfaceStatus {
            name: "eth0".into(),
            role: "clients".into(),
            state: "generic".into(),
            detail: None,
        }],
        vips: vec![VipStatus {
            quic: Vec::new(),
            source_ports: Some(SourcePortsStatus { in_use: 7, fullest: 5, max: 100 }),
            source_addresses: Vec::new(),
            vip: "192.0.2.1:80/tcp".into(),
            pool: "web".into(),
            forward: "tunnel".into(),
            scheduler: "maglev".into(),
            key: "five-tuple".into(),
            phase: "steady".into(),
            flows: 7,
            packets_total: 100,
            bytes_total: 2048,
            decisions: count("ring", 100),
            drops: count("no_backend", 3),
            notes: count("too_big_sent", 0),
            backends: vec![backend],
        }],
        flows: 7,
        flows_max: 1000,
        flows_not_learnt_total: 1,
        flows_moved_total: 2,
        pins: 3,
        pins_max: 500,
        pins_full_total: 0,
        pending: 4,
        publications_total: 5,
        published_seconds_ago: None,
        registry_bytes: 16_000,
        kernel_bytes: 3_000_000,
        drops: count("tables", 1),
        notes: BTreeMap::new(),
        fleet: Some(FleetStatus {
            received_total: 9,
            peers: vec![FleetPeer {
                address: "10.0.0.2:7946".into(),
                state: "connected".into(),
                sent_total: 8,
                has_all: true,
                ..FleetPeer::default()
            }],
            ..FleetStatus::default()
        }),
        heavy: Some(heavy()),
    }
}

#[test]
fn the_packet_level_exports_its_metric_families() {
    let text = render(reading()).unwrap();
    for line in [
        r#"equipoise_packet_backend_drops_total{vip="192.0.2.1:80/tcp",pool="web",backend="b1"} 6"#,
        r#"equipoise_packet_packets_total{vip="192.0.2.1:80/tcp",pool="web",backend="b1"} 100"#,
        r#"equipoise_packet_forwarded_bytes_total{vip="192.0.2.1:80/tcp",pool="web",backend="b1"} 2048"#,
        r#"equipoise_packet_drops_total{vip="192.0.2.1:80/tcp",pool="web",reason="no_backend"} 3"#,
        r#"equipoise_packet_backend_heavy_bytes_per_second{vip="192.0.2.1:80/tcp",pool="web",backend="b1"} 3000"#,
        "equipoise_packet_fleet_received_total 9",
        r#"equipoise_packet_fleet_sent_total{peer="10.0.0.2:7946"} 8"#,
        r#"equipoise_packet_fleet_has_all{peer="10.0.0.2:7946"} 1"#,
        r#"equipoise_packet_fleet_gave_all{peer="10.0.0.2:7946"} 0"#,
        r#"equipoise_packet_drops_total{vip="",pool="",reason="tables"} 1"#,
        r#"equipoise_packet_notes_total{vip="192.0.2.1:80/tcp",pool="web",note="too_big_sent"} 0"#,
        r#"equipoise_packet_decisions_total{vip="192.0.2.1:80/tcp",pool="web",by="ring"} 100"#,
        r#"equipoise_packet_flows{vip="192.0.2.1:80/tcp",pool="web",backend="b1",state="closing"} 2"#,
        r#"equipoise_packet_interface_attached{interface="eth0",mode="generic"} 1"#,
        r#"equipoise_packet_changing{vip="192.0.2.1:80/tcp",pool="web"} 0"#,
        "equipoise_packet_flows_known 7",
        "equipoise_packet_flows_moved_total 2",
        "equipoise_packet_kernel_bytes 3000000",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

fn planning() -> PlanningReading {
    let by_method = [("believed", 1.5), ("holt", 1.5), ("smoothed", 2.0), ("naive", 3.0)];
    let node = NodeReading {
        name: "edge-1".into(),
        signals: vec![("cpu", 40.5, 42.0)],
        l1: 30.0,
        l2: 35.0,
        errors: vec![("cpu", by_method)],
    };
    PlanningReading {
        runs: Some(true),
        leads: true,
        term: 3,
        generation: 14,
        age_seconds: 0.5,
        plans: 12,
        planning_seconds: 0.25,
        refused: vec![("load", 2)],
        cluster: vec![("reports".to_string(), 9)],
        cluster_sent_bytes: Some(4096),
        nodes: vec![node],
        ..PlanningReading::default()
    }
}

#[test]
fn the_controller_exports_its_metric_families() {
    let text = render(Reading { planning: Some(planning()), ..Reading::default() }).unwrap();
    for line in [
        r#"equipoise_plans_total 12"#,
        r#"equipoise_planning_seconds_total 0.25"#,
        r#"equipoise_reports_refused_total{fault="load"} 2"#,
        r#"equipoise_cluster_api_total{event="reports"} 9"#,
        r#"equipoise_cluster_api_sent_bytes_total 4096"#,
        r#"equipoise_controller_running 1"#,
        r#"equipoise_controller_leads 1"#,
        r#"equipoise_plan_generation 14"#,
        r#"equipoise_plan_age_seconds 0.5"#,
        r#"equipoise_node_used_ratio{node="edge-1",signal="cpu"} 0.405"#,
        r#"equipoise_node_load_ratio{node="edge-1",load="L2"} 0.35"#,
        r#"equipoise_node_forecast_error_ratio{node="edge-1",signal="cpu",method="naive"} 0.03"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn certificate_and_handshake_metric_families_are_exported() {
    let certificate = CertificateStatus {
        subject: "a.example".into(),
        chain: "/a.pem".into(),
        valid_until_unix_seconds: 1_900_000_000,
        problem: Some("it is cut".into()),
        ..CertificateStatus::default()
    };
    let automatic = AutomaticStatus {
        name: "b.example".into(),
        failures: 3,
        next_try_unix_seconds: Some(1_800_000_000),
        ..AutomaticStatus::default()
    };
    let tls = TlsStatus {
        handshakes_total: 5,
        resumed_total: 2,
        certificates: vec![certificate],
        automatic: vec![automatic],
    };
    let api_tls = Some(tls.clone());
    let door = FrontDoorReading { name: "web".into(), tls: Some(tls), ..Default::default() };
    let of_backend = BackendTlsStatus {
        handshakes_total: 7,
        resumed_total: 3,
        valid_until_unix_seconds: Some(1_900_000_001),
        ..BackendTlsStatus::default()
    };
    let backend = BackendReading { name: "b1".into(), tls: Some(of_backend), ..backend() };
    let (name, backends) = ("app".into(), vec![backend]);
    let pool = PoolReading { name, backends, ..PoolReading::default() };
    let (front_doors, pools) = (vec![door], vec![pool]);
    let reading = Reading { front_doors, pools, api_tls, ..Reading::default() };
    let text = render(reading).unwrap();
    for line in [
        r#"equipoise_backend_tls_handshakes_total{pool="app",backend="b1",resumed="false"} 4"#,
        r#"equipoise_backend_tls_handshakes_total{pool="app",backend="b1",resumed="true"} 3"#,
        r#"equipoise_backend_tls_certificate_expiry_timestamp_seconds{pool="app",backend="b1"} 1900000001"#,
        r#"equipoise_tls_handshakes_total{front_door="web",resumed="false"} 3"#,
        r#"equipoise_tls_handshakes_total{front_door="web",resumed="true"} 2"#,
        r#"equipoise_tls_certificate_expiry_timestamp_seconds{front_door="web",certificate="a.example",chain="/a.pem"} 1900000000"#,
        r#"equipoise_tls_certificate_stale{front_door="web",certificate="a.example",chain="/a.pem"} 1"#,
        r#"equipoise_api_tls_handshakes_total{resumed="true"} 2"#,
        r#"equipoise_api_tls_certificate_expiry_timestamp_seconds{certificate="a.example",chain="/a.pem"} 1900000000"#,
        r#"equipoise_api_tls_certificate_stale{certificate="a.example",chain="/a.pem"} 1"#,
        r#"equipoise_tls_automatic_failures{front_door="web",name="b.example"} 3"#,
        r#"equipoise_tls_automatic_next_try_timestamp_seconds{front_door="web",name="b.example"} 1800000000"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn a_node_without_a_controller_exports_no_controller_running_metric() {
    let node = PlanningReading { runs: None, ..planning() };
    let text = render(Reading { planning: Some(node), ..Reading::default() }).unwrap();
    assert!(!text.contains("controller_running"), "{text}");
}

fn machine() -> MachineReading {
    let link = |name: &str, used_percent| LinkReading {
        name: name.into(),
        received_bits_per_second: 2e6,
        sent_bits_per_second: 1.5e6,
        used_percent,
    };
    MachineReading {
        used: vec![("cpu", 40.0)],
        pressure: vec![("io", 2.5)],
        interfaces: vec![link("eth0", Some(20.0)), link("eth1", None)],
    }
}

#[test]
fn machine_utilisation_pressure_and_interface_rates_are_exported() {
    let text = render(Reading { machine: Some(machine()), ..Reading::default() }).unwrap();
    for line in [
        r#"equipoise_used_ratio{resource="cpu"} 0.4"#,
        r#"equipoise_pressure_ratio{resource="io"} 0.025"#,
        r#"equipoise_interface_used_ratio{interface="eth0"} 0.2"#,
        r#"equipoise_interface_bytes_per_second{interface="eth1",direction="sent"} 187500.0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains(r#"interface_used_ratio{interface="eth1"}"#), "{text}");
}

#[test]
fn rejected_api_callers_and_lost_audit_and_log_lines_are_exported() {
    let text = render(reading()).unwrap();
    for line in [
        r#"equipoise_api_turned_away_total{reason="wrong_token"} 4"#,
        r#"equipoise_audit_lines_lost_total 1"#,
        r#"equipoise_audit_lines_waiting 3"#,
        r#"equipoise_log_lines_lost_total 2"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

fn streams() -> Vec<StreamReading> {
    let worker = |name: &str, state| SliceWorker {
        name: name.into(),
        state,
        state_seconds: 0.0,
        reason: None,
        drained: false,
        problem: None,
        host: Some("rack-3".into()),
        pid: Some(4711),
        started_unix_seconds: Some(1.7e9),
        slices: 25,
        load: 0.5,
        items_per_second: 10.0,
        queued: 3,
        in_hand: 1,
        queue_age_seconds: 0.2,
        stalled_seconds: 1.5,
        items_total: 400,
        drops: BTreeMap::from([("late".to_owned(), 2)]),
        checkpoints: Some(SliceCheckpoints {
            keeper: Some("w2".to_owned()),
            age_seconds: 0.5,
            items_since: 7,
            slices_exposed: 1,
            slices_unstored: Some(2),
            bytes: 4096,
        }),
    };
    let status = StreamStatus {
        name: "images".into(),
        slices_total: 50,
        resizing: None,
        domain: 0,
        leading: true,
        leader: None,
        problem: None,
        imbalance: 0.25,
        workers: vec![worker("w1", WorkerState::Active), worker("w2", WorkerState::Lost)],
        slices: Vec::new(),
        handovers: Vec::new(),
        hot: Vec::new(),
        unread: Vec::new(),
        connections_strange_total: 4,
        handovers_moved_total: 6,
        handovers_called_off_total: 1,
        handover_seconds_p50: None,
        handover_seconds_max: None,
    };
    let other = StreamStatus { name: "other".into(), leading: false, ..status.clone() };
    let handover_time =
        TimeReading { buckets: vec![(0.002, 5), (f64::INFINITY, 1)], sum_seconds: 3.0 };
    [status, other]
        .map(|status| StreamReading { status, handover_time: handover_time.clone() })
        .into()
}

#[test]
fn slice_metrics_beyond_leadership_are_exported_only_by_the_leader() {
    let text = render(reading()).unwrap();
    for line in [
        r#"equipoise_slice_leads{stream="images"} 1"#,
        r#"equipoise_slice_leads{stream="other"} 0"#,
        r#"equipoise_slice_workers{stream="images",state="lost"} 1"#,
        r#"equipoise_slice_workers{stream="images",state="draining"} 0"#,
        r#"equipoise_slice_publishers_unread{stream="images"} 0"#,
        r#"equipoise_slice_connections_strange_total{stream="images"} 4"#,
        r#"equipoise_slice_slices{stream="images",worker="w1"} 25"#,
        r#"equipoise_slice_items_total{stream="images",worker="w1"} 400"#,
        r#"equipoise_slice_queued{stream="images",worker="w2"} 3"#,
        r#"equipoise_slice_workers{stream="images",state="stuck"} 0"#,
        r#"equipoise_slice_queue_age_seconds{stream="images",worker="w2"} 0.2"#,
        r#"equipoise_slice_stalled_seconds{stream="images",worker="w1"} 1.5"#,
        r#"equipoise_slice_checkpoint_age_seconds{stream="images",worker="w1"} 0.5"#,
        r#"equipoise_slice_checkpoint_items{stream="images",worker="w1"} 7"#,
        r#"equipoise_slice_checkpoint_exposed_slices{stream="images",worker="w1"} 1"#,
        r#"equipoise_slice_checkpoint_unstored_slices{stream="images",worker="w1"} 2"#,
        r#"equipoise_slice_worker_load_cores{stream="images",worker="w1"} 0.5"#,
        r#"equipoise_slice_imbalance_ratio{stream="images"} 0.25"#,
        r#"equipoise_slice_handovers_total{stream="images",result="moved"} 6"#,
        r#"equipoise_slice_handovers_total{stream="images",result="called_off"} 1"#,
        r#"equipoise_slice_handover_duration_seconds_bucket{le="0.002",stream="images"} 5"#,
        r#"equipoise_slice_handover_duration_seconds_count{stream="images"} 6"#,
        r#"equipoise_slice_drops_total{stream="images",worker="w1",reason="late"} 2"#,
        r#"equipoise_slice_unowned{stream="images"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert_eq!(text.lines().filter(|line| line.contains(r#"stream="other""#)).count(), 1, "{text}");
}

fn dispatch() -> DispatchStatus {
    DispatchStatus {
        planned: true,
        classes: vec![ClassStatus {
            class: "computing".into(),
            keep: 0.5,
            refuse: 0.25,
            arrived_total: 10,
            delegated_total: 4,
            refused_total: 5,
            taken_total: 3,
            handed_back_total: 1,
            bytes_total: 900,
        }],
        returned_total: 2,
        failed_open_total: 3,
        markers_refused_total: 1,
        peer_tls: "required".into(),
    }
}

fn reading() -> Reading {
    Reading {
        streams: streams(),
        version: "1.2.3".into(),
        instance: "edge-1".into(),
        threads: 2,
        memory: MemoryReading { allocated_bytes: 5 << 20, max_bytes: 1 << 30 },
        reload: ReloadReading {
            succeeded: 3,
            failed: 1,
            last_succeeded: false,
            last_success_unix_seconds: 1_700_000_000,
        },
        access: AccessReading {
            turned_away: vec![("wrong_token", 4)],
            audit_lines_lost: 1,
            audit_lines_waiting: 3,
            log_lines_lost: 2,
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
                dispatch: Some(dispatch()),
                ..FrontDoorReading::default()
            },
            FrontDoorReading {
                name: "raw".into(),
                pool: "db".into(),
                ..FrontDoorReading::default()
            },
        ],
        packet: Some(packet()),
        planning: Some(planning()),
        pools: vec![PoolReading {
            name: "web".into(),
            source: Some(SourceStatus {
                source: "dns app.internal (SRV)".into(),
                backends: 2,
                age_seconds: Some(1.5),
                problem: None,
                failures_total: 1,
                changes_total: 4,
            }),
            queued: 3,
            queue_wait: TimeReading { buckets: vec![(f64::INFINITY, 9)], sum_seconds: 0.25 },
            backends: vec![backend()],
        }],
        ..Reading::default()
    }
}

fn backend() -> BackendReading {
    BackendReading {
        name: "10.0.0.1:80".into(),
        admin: Admin::Drain,
        health: Health::Healthy,
        state: BackendState::Draining,
        weight: 7,
        requests: 43,
        in_flight: 2,
        limit: Some(40),
        region: Some(Region::Best),
        responses: [0, 40, 0, 2, 1],
        response_time: TimeReading { buckets: vec![(f64::INFINITY, 43)], sum_seconds: 0.5 },
        queue_wait_seconds: 1.5,
        failures: vec![("connect_refused", 5)],
        sessions_open: 3,
        sessions_opened: 4,
        sessions_reused: 39,
        tls: None,
        multiplex_faults: 6,
        multiplex_shared: 7,
        multiplex_alone: 8,
        multiplex_handed_over: 9,
        multiplex_repeated: 10,
        bytes_out: 10,
        bytes_in: 20,
    }
}

#[test]
fn metrics_are_exported_under_conventional_names() {
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
        r#"equipoise_backend_multiplex_faults_total{pool="web",backend="10.0.0.1:80"} 6"#,
        r#"equipoise_backend_multiplex_shared_total{pool="web",backend="10.0.0.1:80"} 7"#,
        r#"equipoise_backend_multiplex_repeated_total{pool="web",backend="10.0.0.1:80"} 10"#,
        r#"equipoise_backend_queue_wait_seconds_total{pool="web",backend="10.0.0.1:80"} 1.5"#,
        r#"equipoise_backend_limit{pool="web",backend="10.0.0.1:80"} 40"#,
        r#"equipoise_backend_region{pool="web",backend="10.0.0.1:80",region="best"} 1"#,
        r#"equipoise_backend_region{pool="web",backend="10.0.0.1:80",region="rising"} 0"#,
        r#"equipoise_pool_queued{pool="web"} 3"#,
        r#"equipoise_pool_queue_wait_seconds_count{pool="web"} 9"#,
        r#"equipoise_pool_queue_wait_seconds_sum{pool="web"} 0.25"#,
        r#"equipoise_backend_failures_total{pool="web",backend="10.0.0.1:80",reason="connect_refused"} 5"#,
        r#"equipoise_config_reloads_total{result="failure"} 1"#,
        r#"equipoise_dispatch_keep_ratio{front_door="http:127.0.0.1:80",class="computing"} 0.5"#,
        r#"equipoise_dispatch_refuse_ratio{front_door="http:127.0.0.1:80",class="computing"} 0.25"#,
        r#"equipoise_dispatch_requests_total{front_door="http:127.0.0.1:80",class="computing",flow="refused"} 5"#,
        r#"equipoise_dispatch_planned{front_door="http:127.0.0.1:80"} 1"#,
        r#"equipoise_dispatch_requests_total{front_door="http:127.0.0.1:80",class="computing",flow="delegated"} 4"#,
        r#"equipoise_dispatch_done_bytes_total{front_door="http:127.0.0.1:80",class="computing"} 900"#,
        r#"equipoise_dispatch_returned_total{front_door="http:127.0.0.1:80"} 2"#,
        r#"equipoise_dispatch_failed_open_total{front_door="http:127.0.0.1:80"} 3"#,
        r#"equipoise_dispatch_markers_refused_total{front_door="http:127.0.0.1:80"} 1"#,
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
fn a_front_door_without_http_exports_no_request_metrics() {
    let text = render(reading()).unwrap();
    assert!(!text.contains(r#"equipoise_requests_total{front_door="raw""#));
    assert!(!text.contains(r#"equipoise_request_duration_seconds_count{front_door="raw""#));
    assert!(text.contains(r#"equipoise_connections_total{front_door="raw",pool="db"}"#));
}

/// A series that begins with its first request has no rate for it.
#[test]
fn an_http_front_door_without_requests_exports_zeros() {
    let door = FrontDoorReading {
        name: "idle".into(),
        pool: "web".into(),
        http: true,
        ..FrontDoorReading::default()
    };
    let text = render(Reading { front_doors: vec![door], ..Reading::default() }).unwrap();
    for class in ["1xx", "2xx", "3xx", "4xx", "5xx"] {
        let line =
            format!(r#"equipoise_requests_total{{front_door="idle",pool="web",code="{class}"}} 0"#);
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let line = r#"equipoise_request_duration_seconds_count{front_door="idle",pool="web"} 0"#;
    assert!(text.lines().any(|found| found == line), "{line}\n{text}");
}

#[test]
fn metric_families_are_unique_and_their_help_ends_in_one_period() {
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
