//! Node mode while no application is healthy: requests are tried all the same.

mod common_dispatch;

use std::time::Duration;

use common_dispatch::{MARKER, Node, Plan, get, post, with_lines};
use equipoise_core::{AdminState, Health};
use equipoise_session::Reason;
use equipoise_session::config::checks::TcpCheck;
use equipoise_session::config::{ActiveHealth, HealthCheck};
use equipoise_testkit::{HttpBackend, ReservedPort, eventually, free_port};

/// Checks that connect to this port, often.
fn checks(port: u16) -> Option<ActiveHealth> {
    Some(ActiveHealth {
        check: HealthCheck::Tcp(TcpCheck),
        port: Some(port),
        interval: Duration::from_millis(20),
        timeout: Duration::from_secs(10),
        rise: 1,
        fall: 1,
        preamble: &[],
        every_family: false,
        closes: false,
        tls: None,
    })
}

/// A node with an application that works and fails its checks.
struct Sick {
    plan: Plan,
    closed: ReservedPort,
}

impl Sick {
    fn new(name: &str, app: &HttpBackend) -> Sick {
        let (mut plan, closed) = (Plan::new(name, app), free_port());
        plan.config.pools[0].health = checks(closed.address().port());
        Sick { plan, closed }
    }

    /// Starts it, and waits until its application is unhealthy.
    fn start(self) -> (Node, ReservedPort) {
        let node = self.plan.start();
        assert!(eventually(|| health(&node, "app") == [Health::Unhealthy]));
        (node, self.closed)
    }
}

/// The health of a pool's backends.
fn health(node: &Node, pool: &str) -> Vec<Health> {
    let status = node.runtime.block_on(node.registry.status()).expect("it runs");
    let pool = status.pools.iter().find(|it| &*it.name == pool).expect("it has this pool");
    pool.backends.iter().map(|backend| backend.health).collect()
}

fn set(node: &Node, pool: &str, backend: &str, admin: AdminState) {
    let set = node.registry.set_admin(pool, backend, admin);
    node.runtime.block_on(set).expect("it is there");
}

#[test]
fn requests_fail_open_if_the_application_and_all_peers_are_unhealthy() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).start();
    let mut sick = Sick::new("a", &here);
    sick.plan = sick.plan.peers(&[("b", taker.address)]);
    let closed = free_port();
    sick.plan.config.pools[1].health = checks(taker.address.port());
    let mut config = sick.plan.config.clone();
    let (node, _closed) = sick.start();
    assert_eq!(node.ask(get("/")).text(), "there", "the peer is healthy");
    assert_eq!(node.dispatch().failed_open, 0);

    config.pools[1].health = checks(closed.address().port());
    node.runtime.block_on(node.registry.apply(config)).expect("it is valid");
    assert!(eventually(|| health(&node, "app.peers") == [Health::Unhealthy]));
    for request in [get("/"), post("/", "abc")] {
        assert_eq!(node.ask(request).text(), "here");
    }
    assert_eq!(node.dispatch().failed_open, 2);
    node.assert_counts((3, 1, 0));
    assert!(node.status().drops.is_empty());
}

#[test]
fn a_request_handed_back_by_every_peer_fails_open() {
    let apps = ["here", "b", "c"].map(HttpBackend::named);
    let (b, _b) = Sick::new("b", &apps[1]).start();
    let (c, _c) = Sick::new("c", &apps[2]).start();
    let mut sick = Sick::new("a", &apps[0]);
    sick.plan = sick.plan.peers(&[("b", b.address), ("c", c.address)]);
    let (node, _closed) = sick.start();
    for request in [get("/"), post("/", "abc")] {
        let answer = node.ask(request);
        assert_eq!((answer.text().as_str(), answer.header(MARKER)), ("here", None));
    }
    assert_eq!(apps[0].requests()[1].body, b"abc");
    assert_eq!((node.dispatch().failed_open, node.dispatch().returned), (2, 4));
    assert!(apps[1].requests().is_empty() && apps[2].requests().is_empty());
    for peer in [&b, &c] {
        peer.assert_drops(&[(Reason::NoBackend, 2)]);
        assert_eq!(peer.dispatch().failed_open, 0, "a peer's request is handed back");
        assert_eq!(peer.ask(get("/")).status(), 200, "a client's is tried");
    }
}

#[test]
fn a_healthy_peer_is_tried_after_a_peer_that_cannot_serve() {
    let apps = ["here", "b", "c"].map(HttpBackend::named);
    let (b, _b) = Sick::new("b", &apps[1]).start();
    let c = Plan::new("c", &apps[2]).start();
    let mut sick = Sick::new("a", &apps[0]);
    sick.plan = sick.plan.peers(&[("b", b.address), ("c", c.address)]);
    let (node, _closed) = sick.start();
    for _ in 0..20 {
        assert_eq!(node.ask(get("/")).text(), "c");
    }
    assert_eq!(node.dispatch().failed_open, 0);
}

#[test]
fn a_request_that_fails_open_is_retried_and_refused_as_any_other() {
    let (here, dead) = (HttpBackend::named("here"), free_port());
    let mut sick = Sick::new("a", &here);
    let backends =
        common_dispatch::pool("app", &[("app", here.address()), ("dead", dead.address())]).backends;
    sick.plan.config.pools[0].backends = backends;
    let node = sick.plan.start();
    assert!(eventually(|| health(&node, "app") == [Health::Unhealthy; 2]));
    for _ in 0..20 {
        assert_eq!(node.ask(get("/")).text(), "here");
    }
    set(&node, "app", "app", AdminState::Down);
    assert_eq!(node.ask(get("/")).status(), 502, "the last one refuses connections");
    node.assert_drops(&[(Reason::ConnectRefused, 1)]);
}

#[test]
fn drained_or_down_backends_and_health_checks_do_not_fail_open() {
    let here = HttpBackend::named("here");
    let (node, _closed) = Sick::new("a", &here).start();
    assert_eq!(node.ask(get("/")).text(), "here");
    assert_eq!(node.ask(with_lines("GET", "/", "Equipoise-Check: 1\r\n")).status(), 503);
    for admin in [AdminState::Drain, AdminState::Down] {
        set(&node, "app", "app", admin);
        assert_eq!(node.ask(get("/")).status(), 503);
    }
    set(&node, "app", "app", AdminState::Up);
    assert_eq!(node.ask(get("/")).text(), "here");
    assert_eq!((here.requests().len(), node.dispatch().failed_open), (2, 2));
}
