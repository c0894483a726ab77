//! Peers and applications that fail.

use std::time::Duration;

use equipoise_session::Reason;
use equipoise_session::config::checks::TcpCheck;
use equipoise_session::config::{ActiveHealth, HealthCheck, Upstream};
use equipoise_testkit::{Answer, Client, Gate, HttpBackend, Step, free_port};

use crate::before;
use crate::common_dispatch::{MARKER, Plan, get, pool, post, seen, with_lines};

#[test]
fn a_request_is_served_locally_if_its_peer_fails_before_responding() {
    let here = HttpBackend::named("here");
    for failing in
        [Answer::close(), Answer::reset(), Answer::raw("HTTP/1.1 200 O").then(Step::Reset)]
    {
        let peer = HttpBackend::always(failing);
        let giver = before(&here, peer.address());
        let answer = giver.ask(with_lines("PUT", "/a", "Content-Length: 3\r\n") + "abc");
        // Half a head shows that the peer answered, so the request is not repeated.
        let is_half = peer.requests().len() == 1 && answer.status() == 502;
        assert!(answer.text() == "here" || is_half, "{}", answer.text());
        if !is_half {
            assert_eq!(seen(&here, MARKER), [""; 0], "the marker is taken out again");
            assert_eq!(here.requests().last().map(|r| r.body.clone()), Some(b"abc".to_vec()));
            assert_eq!(giver.dispatch().returned, 1);
            giver.assert_counts((1, 0, 0));
        }
    }
}

#[test]
fn requests_to_a_peer_that_refuses_connections_are_served_locally() {
    let (here, closed) = (HttpBackend::named("here"), free_port());
    let giver = before(&here, closed.address());
    assert_eq!(giver.ask(get("/")).text(), "here");
    assert_eq!(giver.ask(post("/", "abc")).text(), "here", "it never left");
    assert_eq!(giver.dispatch().returned, 2);
}

#[test]
fn a_post_that_a_peer_may_have_executed_is_not_repeated() {
    let (here, peer) = (HttpBackend::named("here"), HttpBackend::always(Answer::close()));
    let giver = before(&here, peer.address());
    assert_eq!(giver.ask(post("/", "abc")).status(), 502);
    assert!(here.requests().is_empty());
    giver.assert_drops(&[(Reason::UpstreamClosed, 1)]);
}

#[test]
fn a_response_truncated_by_a_peer_is_truncated_for_the_client() {
    let half = Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").then(Step::Reset);
    let (here, peer) = (HttpBackend::named("here"), HttpBackend::always(half));
    let giver = before(&here, peer.address());
    let mut client = Client::connect(giver.address);
    client.send(get("/"));
    assert!(client.response().is_err(), "it is not taken for whole");
    assert!(here.requests().is_empty());
}

#[test]
fn a_pooled_connection_closed_by_a_peer_drops_no_request() {
    let here = HttpBackend::named("here");
    let peer = HttpBackend::always(Answer::ok("there").then(Step::Close));
    let giver = before(&here, peer.address());
    for _ in 0..20 {
        let text = giver.ask(get("/")).text();
        assert!(["here", "there"].contains(&&*text), "{text}");
    }
    assert!(giver.status().drops.is_empty());
}

#[test]
fn a_node_with_a_drained_application_delegates_its_requests() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).start();
    let giver = Plan::new("a", &here).peers(&[("b", taker.address)]).start();
    assert_eq!(giver.ask(get("/")).text(), "here");
    let drained = giver.registry.set_admin("app", "app", equipoise_core::AdminState::Drain);
    giver.runtime.block_on(drained).expect("it is there");
    assert_eq!(giver.ask(get("/")).text(), "there");
    // A delegated request is not delegated again, and no backend is left for it.
    let drained = taker.registry.set_admin("app", "app", equipoise_core::AdminState::Drain);
    taker.runtime.block_on(drained).expect("it is there");
    let answer = giver.ask(get("/"));
    assert_eq!((answer.status(), answer.header(MARKER)), (503, None));
}

#[test]
fn a_node_with_a_dead_application_delegates_its_requests() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let taker = Plan::new("b", &there).start();
    for upstream in [Upstream::Exclusive, Upstream::Multiplexed] {
        let dead = free_port();
        let mut plan = Plan::new("a", &here).peers(&[("b", taker.address)]);
        plan.config.pools[0].backends = pool("app", &[("app", dead.address())]).backends;
        plan.config.pools[0].options.upstream = upstream;
        let giver = plan.start();
        for _ in 0..3 {
            assert_eq!(giver.ask(get("/")).text(), "there");
            assert_eq!(giver.ask(post("/", "abc")).text(), "there");
        }
        giver.assert_counts((6, 6, 0));
        assert!(giver.status().drops.is_empty());
    }
    assert!(here.requests().is_empty());
}

#[test]
fn requests_to_a_peer_with_a_dead_application_are_served_locally() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::named("there"));
    let dead = free_port();
    let mut plan = Plan::new("b", &there);
    plan.config.pools[0].backends = pool("app", &[("app", dead.address())]).backends;
    let taker = plan.start();
    let giver = before(&here, taker.address);
    for request in [get("/"), post("/", "abc")] {
        let answer = giver.ask(request);
        assert_eq!((answer.text().as_str(), answer.header(MARKER)), ("here", None));
    }
    assert_eq!(here.requests()[1].body, b"abc");
    assert_eq!(giver.dispatch().returned, 2);
    assert_eq!(giver.failures("b"), [(Reason::BackendError, 2)]);
    assert!(giver.status().drops.is_empty());
    // Its own clients are answered as at any front door.
    let answer = taker.ask(get("/"));
    assert_eq!((answer.status(), answer.header(MARKER)), (502, None));
}

#[test]
fn a_post_possibly_executed_by_a_peers_application_is_not_repeated() {
    let (here, there) = (HttpBackend::named("here"), HttpBackend::always(Answer::close()));
    let taker = Plan::new("b", &there).start();
    let giver = before(&here, taker.address);
    assert_eq!(giver.ask(post("/", "abc")).status(), 502);
    assert!(here.requests().is_empty());
    assert_eq!(giver.ask(get("/")).text(), "here", "this one may be done twice");
}

#[test]
fn idempotent_requests_at_an_unhealthy_peer_are_served_locally() {
    let here = HttpBackend::named("here");
    let gate = Gate::new();
    let held = Answer::ok("there").first(Step::Wait(gate.clone()));
    let peer = HttpBackend::always(held);
    let mut plan = Plan::new("a", &here).keep(0.0).peers(&[("b", peer.address())]);
    plan.config.pools[1].options.lost_after = Some(Duration::from_secs(60));
    plan.config.pools[1].health = Some(ActiveHealth {
        check: HealthCheck::Tcp(TcpCheck),
        port: None,
        interval: Duration::from_millis(20),
        timeout: Duration::from_secs(10),
        rise: 1,
        fall: 2,
        tls: None,
        preamble: &[],
        every_family: false,
        closes: false,
    });
    let giver = plan.start();
    let mut clients = [get("/"), post("/", "abc")].map(|request| {
        let mut client = Client::connect(giver.address);
        client.send(request);
        client
    });
    assert!(peer.wait(|requests| requests.len() == 2));
    peer.acceptor().refuse();
    assert_eq!(clients[0].response().expect("whole").text(), "here");
    assert_eq!(giver.dispatch().returned, 1);
    gate.open();
    assert_eq!(clients[1].response().expect("whole").text(), "there", "it may have been done");
}
