use equipoise_api::wire::{Admin, ByClass, Health, LastReload, Rates, Region};

use super::*;

fn backend(name: &str, state: BackendState) -> BackendStatus {
    BackendStatus {
        name: name.into(),
        address: "10.0.0.1:80".into(),
        resolved: None,
        weight: 1,
        admin: Admin::Up,
        health: Health::Healthy,
        state,
        health_detail: None,
        in_flight: 3,
        added: None,
        concurrency: None,
        limit: Some(40),
        group_limit: None,
        region: Some(Region::UnderUsed),
        knee: Some(31.2),
        service_seconds: Some(0.012),
        queue_seconds: Some(0.0),
        flows: 0,
        requests_total: 1000,
        responses: ByClass::from([0, 998, 0, 0, 2]),
        failures: BTreeMap::from([("connect_refused".to_owned(), 4)]),
        sessions_open: 5,
        sessions_opened_total: 10,
        sessions_reused_total: 990,
        multiplex_faults_total: 0,
        multiplex_shared_total: 0,
        multiplex_alone_total: 0,
        multiplex_handed_over_total: 0,
        multiplex_repeated_total: 0,
        multiplexing_lost: false,
        tls: None,
        bytes_out_total: 0,
        bytes_in_total: 0,
        rates: Rates { requests: 123.4, ..Rates::default() },
    }
}

fn status() -> Status {
    Status {
        instance: "edge-1".into(),
        version: "1.0.0".into(),
        pid: 7,
        phase: Phase::Running,
        uptime_seconds: 93_700.0,
        threads: 2,
        config_file: "/etc/equipoise.toml".into(),
        last_reload: None,
        rates_over_seconds: 5.0,
        front_doors: vec![FrontDoorStatus {
            name: "tcp:0.0.0.0:5432".into(),
            listen: "0.0.0.0:5432".into(),
            protocol: "tcp".into(),
            pool: "db".into(),
            pools: vec!["db".into()],
            connections_open: 2,
            connections_total: 9,
            requests_in_flight: 0,
            requests_total: 0,
            responses: ByClass::default(),
            bytes_in_total: 0,
            bytes_out_total: 0,
            retries_total: 0,
            accept_pauses_total: 0,
            drops: BTreeMap::new(),
            rates: Rates { bytes_out: 3_000_000.0, ..Rates::default() },
            dispatch: None,
            tls: None,
            routes: Vec::new(),
        }],
        pools: vec![PoolStatus {
            name: "db".into(),
            scheduler: "least-connection".into(),
            upstream: "exclusive".into(),
            backends_eligible: 1,
            queued: 0,
            queue_waited_total: 0,
            queue_wait_seconds_total: 0.0,
            source: None,
            backends: vec![backend("a", BackendState::Up), backend("bb", BackendState::Unhealthy)],
        }],
        packet: None,
        cluster: None,
        controller: None,
        dns: None,
        streams: Vec::new(),
        replaced: Vec::new(),
        api_tls: None,
    }
}

fn rendered(status: &Status) -> String {
    let mut out = String::new();
    render(status, View::PLAIN, &mut out);
    out
}

#[test]
fn every_front_door_and_backend_has_its_line() {
    let text = rendered(&status());
    assert!(text.starts_with(
        "edge-1 · equipoise 1.0.0 · pid 7 · up 1 d 2 h · 2 threads · /etc/equipoise.toml\n"
    ));
    let words = |start: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(start)).expect("the line is there");
        line.split("  ").map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    assert_eq!(
        words("tcp:0.0.0.0:5432"),
        [
            "tcp:0.0.0.0:5432",
            "0.0.0.0:5432",
            "tcp",
            "db",
            "2",
            "2",
            "0.0",
            "0 B",
            "2.9 MiB",
            "9",
            "-",
            "-",
            "0"
        ]
    );
    assert_eq!(
        words("db/bb"),
        [
            "db/bb",
            "10.0.0.1:80",
            "unhealthy",
            "healthy",
            "1",
            "3",
            "40",
            "under-used",
            "12 ms",
            "0",
            "5",
            "99.0%",
            "123",
            "1000",
            "2",
            "4"
        ]
    );
    assert!(text.contains("db/a: failed 4 connect_refused"));
}

#[test]
fn a_failed_reload_and_an_empty_pool_are_reported_in_words() {
    let mut status = status();
    status.last_reload = Some(LastReload {
        succeeded: false,
        at_unix_seconds: 1,
        errors: vec!["line 3: no".into()],
    });
    status.pools[0].backends_eligible = 0;
    let text = rendered(&status);
    assert!(text.contains("the last reload failed") && text.contains("  line 3: no"));
    assert!(text.contains("pool db: NO BACKEND"));
}

#[test]
fn a_backend_that_lost_multiplexing_has_a_line_with_the_remedy() {
    let mut status = status();
    let lost = |status: &Status| rendered(status).contains("not multiplexed");
    status.pools[0].backends[0].multiplex_faults_total = 3;
    assert!(!lost(&status), "it was given back");
    status.pools[0].backends[0].multiplexing_lost = true;
    assert!(lost(&status));
    assert!(rendered(&status).contains("equipoise undrain db/a\n"), "{}", rendered(&status));
}

#[test]
fn a_backend_with_slow_responses_on_shared_connections_has_a_line_with_the_counts() {
    let mut status = status();
    let one = &mut status.pools[0].backends[0];
    (one.multiplex_shared_total, one.multiplex_alone_total) = (900, 30);
    assert!(!rendered(&status).contains("on shared connections"));
    let one = &mut status.pools[0].backends[0];
    (one.multiplex_handed_over_total, one.multiplex_repeated_total) = (2, 5);
    let text = rendered(&status);
    let line = "db/a: 900 requests on shared connections, 30 on their own; 2 connections handed over for late or large responses, 5 requests sent again";
    assert!(text.contains(line), "{text}");
}

/// The status as a terminal with this many columns shows it.
fn in_columns(status: &Status, columns: usize) -> String {
    let view = View { colour: false, columns: Some(columns) };
    let mut out = String::new();
    render(status, view, &mut out);
    view.fold(out)
}

/// The status of a busy instance with long names.
fn large() -> Status {
    let mut status = status();
    let door = &mut status.front_doors[0];
    door.name = "customers-of-the-shop".into();
    door.listen = "[2001:db8::1:2:3:4]:5432".into();
    door.drops = BTreeMap::from([("too_many_clients".to_owned(), 12_345_678)]);
    (door.connections_open, door.connections_total) = (123_456, 9_876_543_210);
    status.pools[0].name = "database".into();
    for backend in &mut status.pools[0].backends {
        backend.name = format!("primary-{}", backend.name);
        backend.address = "[2001:db8::5:6:7:8]:5432".into();
        backend.requests_total = 9_876_543_210;
        backend.failures = BTreeMap::from(
            ["connect_refused", "connect_timeout", "upstream_malformed", "response_timeout"]
                .map(|reason| (reason.to_owned(), 1_234_567)),
        );
    }
    status
}

#[test]
fn status_fits_80_columns_and_keeps_the_important_columns() {
    let text = in_columns(&large(), 80);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}\n{text}");
    }
    let heading = |word: &str| text.lines().find(|line| line.starts_with(word)).unwrap_or_default();
    let doors = heading("FRONT DOOR");
    assert!(["POOL", "IN FLIGHT", "REQ/S", "DROPS"].iter().all(|it| doors.contains(it)), "{text}");
    let backends = heading("POOL/BACKEND");
    assert!(["STATE", "REQ/S", "FAILURES"].iter().all(|it| backends.contains(it)), "{text}");
    assert!(
        text.contains("1234567 connect_refused") && text.contains("upstream_malformed"),
        "{text}"
    );
}

#[test]
fn a_wide_terminal_shows_every_column() {
    assert_eq!(in_columns(&large(), 300), rendered(&large()));
}
