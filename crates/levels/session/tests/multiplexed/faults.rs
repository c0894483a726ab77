//! Shared sessions that end, and backends with responses that cannot be framed.

use std::thread;

use equipoise_session::Reason;
use equipoise_testkit::{Answer, Client, Gate, HttpBackend, PATIENCE, Received, Step, eventually};

use crate::common::{get, request};
use crate::{everybody_gets_their_own, multiplex_faults, multiplexed};

#[test]
fn requests_on_a_dead_session_are_retried_on_another() {
    let backend = HttpBackend::start(|r| match r.on_connection {
        0..5 => Answer::ok(r.head.target()),
        _ if r.connection % 2 == 0 => Answer::close(),
        _ => Answer::reset(),
    });
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 2;
        // A request may meet several ended sessions in a row; each costs an attempt.
        p.retries = 20;
    });
    let proxy = proxy.start();
    everybody_gets_their_own(proxy.address, 8, 25);
    proxy.assert_drops(&[]);
    assert!(proxy.stats.sum(|s| s.retries.get()) > 0);
    proxy.assert_nothing_in_flight();
}

#[test]
fn a_malformed_response_fails_only_its_own_request() {
    let backend = HttpBackend::start(|r| match r.head.target() {
        "/bad" => Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nx"),
        target => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 2;
        p.retries = 20;
    });
    let proxy = proxy.start();
    let address = proxy.address;
    thread::scope(|scope| {
        scope.spawn(move || everybody_gets_their_own(address, 6, 30));
        scope.spawn(move || {
            for _ in 0..5 {
                let response = Client::exchange(address, get("/bad"));
                assert_eq!(response.map(|r| r.status()), Ok(502));
            }
        });
    });
    proxy.assert_drops(&[(Reason::UpstreamMalformed, 5)]);
}

#[test]
fn a_body_after_a_head_response_reaches_no_other_client() {
    let other = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL";
    let with_body = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{other}", other.len());
    let backend = HttpBackend::start(move |r| match r.head.method() {
        "HEAD" => Answer::raw(&with_body),
        _ => Answer::ok(r.head.target()),
    });
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    let address = proxy.address;
    thread::scope(|scope| {
        scope.spawn(move || everybody_gets_their_own(address, 8, 40));
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..40 {
                    let head = Client::connect(address).ask(request("HEAD", "/", ""));
                    assert_eq!(head.map(|r| r.status()), Ok(200));
                }
            });
        }
    });
    proxy.assert_drops(&[]);
    assert!(multiplex_faults(&proxy) > 0 && proxy.backends[0].live.is_multiplexing_lost());
}

#[test]
fn a_request_behind_a_response_with_surplus_bytes_is_retried() {
    for surplus in ["surplus", "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n"] {
        let (gate, at_gate) = (Gate::new(), Gate::new());
        let front = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfront{surplus}");
        let reached =
            Answer::default().then(Step::Open(at_gate.clone())).then(Step::Wait(gate.clone()));
        let surplus = reached.then(Step::Send(front.into_bytes()));
        let backend = HttpBackend::start(move |r| match r.head.target() {
            "/front" => surplus.clone(),
            target => Answer::ok(target),
        });
        let proxy = multiplexed(backend.address()).pool(|p| {
            p.multiplex_sessions = 1;
            p.multiplex_slow = PATIENCE * 2;
        });
        let proxy = proxy.start();
        let (mut front, mut behind) = (proxy.connect(), proxy.connect());
        front.send(get("/front"));
        assert!(at_gate.wait(), "it is with the backend");
        behind.send(get("/behind"));
        assert!(eventually(|| proxy.stats.sum(|s| s.requests.get()) == 2));
        gate.open();
        assert_eq!(front.response().map(|r| r.text()), Ok("front".to_owned()));
        assert_eq!(behind.response().map(|r| r.text()), Ok("/behind".to_owned()));
        assert!(eventually(|| multiplex_faults(&proxy) == 1));
        proxy.assert_drops(&[]);
    }
}

#[test]
fn a_backend_with_ambiguous_framing_is_no_longer_multiplexed() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for (name, answer, status) in [
        ("a surplus", format!("{ok}x"), 200),
        ("two answers", ok.repeat(2), 200),
        ("204 with a length", "HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\nok".into(), 204),
        ("204 in chunks", "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\n".into(), 204),
        ("103 with a length", format!("HTTP/1.1 103 Hm\r\nContent-Length: 2\r\n\r\n{ok}"), 103),
        ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n".into(), 502),
        ("no HTTP", "SSH-2.0-OpenSSH_9.2p1\r\n\r\n".into(), 502),
    ] {
        let gate = Gate::new();
        let waits = Answer::ok("late").first(Step::Wait(gate.clone()));
        let backend = HttpBackend::start(move |r| match r.head.target() {
            "/bad" => Answer::raw(&answer),
            _ => waits.clone(),
        });
        let proxy = multiplexed(backend.address()).pool(|p| {
            p.multiplex_sessions = 1;
            p.multiplex_slow = PATIENCE * 2;
        });
        let proxy = proxy.start();
        assert_eq!(proxy.ask(get("/bad")).status(), status, "{name}");
        assert!(eventually(|| multiplex_faults(&proxy) == 1), "{name}");
        // On a shared session only the first would reach the backend.
        let mut clients: Vec<_> = (0..3).map(|_| proxy.connect()).collect();
        for client in &mut clients {
            client.send(get("/late"));
        }
        let is_late = |r: &&Received| r.head.target() == "/late";
        let are_all_there = backend.wait(|r| r.iter().filter(is_late).count() == 3);
        assert!(are_all_there, "{name}: their sessions are exclusive");
        gate.open();
        for client in &mut clients {
            assert_eq!(client.response().map(|r| r.text()), Ok("late".to_owned()), "{name}");
        }
    }
}

#[test]
fn unsolicited_bytes_end_multiplexing_and_a_close_does_not() {
    for (name, step, faults) in [
        ("a byte", Step::Send(b"x".to_vec()), 1),
        ("its end", Step::Close, 0),
        ("a reset", Step::Reset, 0),
    ] {
        let gate = Gate::new();
        let first = Answer::ok("ok").then(Step::Wait(gate.clone())).then(step);
        let backend = HttpBackend::start(move |r| match r.number {
            0 => first.clone(),
            _ => Answer::ok(r.head.target()),
        });
        let proxy = multiplexed(backend.address()).start();
        assert_eq!(proxy.ask(get("/")).text(), "ok");
        gate.open();
        assert!(eventually(|| multiplex_faults(&proxy) == faults), "{name}");
        let reused = || proxy.backends[0].live.stats.sum(|s| s.sessions_reused.get());
        let before = reused();
        everybody_gets_their_own(proxy.address, 4, 10);
        assert_eq!(multiplex_faults(&proxy), faults, "{name}");
        assert!(faults == 0 || reused() == before, "{name}: a session carried two requests");
        assert_eq!(proxy.backends[0].live.is_multiplexing_lost(), faults > 0, "{name}");
        proxy.assert_drops(&[]);
    }
}
