use std::collections::BTreeMap;

use equipoise_api::wire::packet::{InterfaceStatus, VipStatus};

use super::*;

fn counts(word: &str, count: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(word.to_owned(), count)])
}

fn source(address: &str, state: &str, ports_in_use: u64) -> SourceAddressStatus {
    SourceAddressStatus { address: address.into(), state: state.into(), ports_in_use }
}

fn draining() -> VipBackendStatus {
    VipBackendStatus {
        name: "b1".into(),
        address: "10.0.0.1:80".into(),
        state: "draining".into(),
        reason: None,
        listed: false,
        reachable: false,
        tunnel: None,
        detail: None,
        tunnel_detail: None,
        flows: 5,
        flows_closing: 2,
        packets_total: 100,
        bytes_total: 2048,
        drops_total: 6,
    }
}

fn packet() -> PacketStatus {
    let backend = draining();
    let gone = VipBackendStatus {
        name: "b2".into(),
        state: "gone".into(),
        reason: Some("unhealthy".into()),
        listed: true,
        flows: 0,
        ..backend.clone()
    };
    let vip = VipStatus {
        quic: Vec::new(),
        source_ports: None,
        source_addresses: vec![
            source("10.0.0.200", "own", 3),
            source("10.0.0.201", "absent", 0),
            source("10.0.0.202", "draining", 4),
        ],
        vip: "192.0.2.1:80/tcp".into(),
        pool: "web".into(),
        forward: "nat".into(),
        scheduler: "maglev".into(),
        key: "five-tuple".into(),
        phase: "transition".into(),
        flows: 7,
        packets_total: 100,
        bytes_total: 2048,
        decisions: counts("ring", 100),
        drops: counts("no_backend", 3),
        notes: counts("reply", 9),
        backends: vec![backend, gone],
    };
    PacketStatus {
        interfaces: vec![InterfaceStatus {
            name: "eth0".into(),
            role: "clients".into(),
            state: "failed".into(),
            detail: Some("another program".into()),
        }],
        vips: vec![vip],
        flows: 7,
        flows_max: 1000,
        flows_not_learnt_total: 1,
        flows_moved_total: 2,
        pins: 3,
        pins_max: 500,
        pins_full_total: 0,
        pending: 0,
        publications_total: 4,
        published_seconds_ago: Some(1.0),
        registry_bytes: 16 << 10,
        kernel_bytes: 3 << 20,
        drops: counts("tables", 1),
        notes: BTreeMap::new(),
        fleet: None,
        heavy: None,
    }
}

#[test]
fn vips_backends_and_interfaces_have_their_lines() {
    let mut out = String::new();
    render(&packet(), View::PLAIN, &mut out);
    let words = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let lines: Vec<Vec<String>> = out.lines().map(words).collect();
    let vip =
        ["192.0.2.1:80/tcp", "web", "nat", "maglev", "transition", "7", "100", "2.0 KiB", "3"];
    assert!(lines.iter().any(|line| line == &vip), "{out}");
    let backend = [
        "192.0.2.1:80/tcp",
        "b1",
        "10.0.0.1:80",
        "draining, removed",
        "unresolved",
        "5",
        "2",
        "100",
        "2.0 KiB",
        "6",
    ];
    assert!(lines.iter().any(|line| line == &backend), "{out}");
    assert!(out.contains("interfaces: eth0 (failed) · flows: 7 of 1000 · pins: 3 of 500"), "{out}");
}

#[test]
fn problems_of_interfaces_vips_and_flows_are_described_in_words() {
    assert_eq!(
        details(&packet()),
        [
            "interface eth0: another program",
            "192.0.2.1:80/tcp: this machine does not have the source address 10.0.0.201: `ip addr add` it",
            "192.0.2.1:80/tcp: source address 10.0.0.202 drains: 4 flows keep it",
            "192.0.2.1:80/tcp: backend b2 is gone: unhealthy",
            "192.0.2.1:80/tcp: dropped 3 no_backend",
            "192.0.2.1:80/tcp: noted 9 reply",
            "packets of no VIP: dropped 1 tables",
            "2 flows lost their backend and moved to another",
            "1 flows were not registered, or replaced by flows with more evidence (registry_full): forged addresses, or [flows] \
             max is too small",
        ]
    );
}
