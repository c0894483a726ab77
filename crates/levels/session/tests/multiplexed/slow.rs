//! Late and large responses on shared sessions.

use std::time::Duration;

use equipoise_session::Reason;
use equipoise_session::stats::{BackendStats, Counter};
use equipoise_testkit::{Answer, Gate, HttpBackend, PATIENCE, Pattern, Received, Step, eventually};

use crate::common::{Proxy, get, post};
use crate::{everybody_gets_their_own, multiplex_faults, multiplexed};

/// A count of the only backend, over all threads.
fn count(proxy: &Proxy, of: fn(&BackendStats) -> &Counter) -> u64 {
    proxy.backends[0].live.stats.sum(|stats| of(stats).get())
}

#[test]
fn requests_do_not_wait_behind_a_slow_response() {
    let gate = Gate::new();
    let slow = Answer::ok("slow").first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |r| match r.head.target() {
        "/slow" => slow.clone(),
        target => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    everybody_gets_their_own(proxy.address, 4, 10);
    let mut slow: Vec<_> = (0..3).map(|_| proxy.connect()).collect();
    for client in &mut slow {
        client.send(get("/slow"));
    }
    assert!(backend.wait(|r| r.iter().any(|r| r.head.target() == "/slow")));
    // The gate is closed, so these can only be answered before the slow ones.
    everybody_gets_their_own(proxy.address, 8, 10);
    gate.open();
    for client in &mut slow {
        assert_eq!(client.response().map(|r| r.text()), Ok("slow".to_owned()));
    }
    proxy.assert_drops(&[]);
}

#[test]
fn a_slow_path_gets_exclusive_sessions_and_other_paths_share() {
    let gate = Gate::new();
    let slow = Answer::ok("slow").first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |r| match r.head.target().split('?').next() {
        Some("/slow") => slow.clone(),
        _ => Answer::ok(r.head.target()),
    });
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 1;
        // The others may not count as slow, even on a busy machine.
        p.multiplex_slow = Duration::from_secs(2);
    });
    let proxy = proxy.start();
    let mut first = proxy.connect();
    first.send(get("/slow?1"));
    assert!(eventually(|| count(&proxy, |s| &s.multiplex_handed_over) == 1));
    everybody_gets_their_own(proxy.address, 4, 10);
    assert_eq!(count(&proxy, |s| &s.multiplex_alone), 0, "the backend is shared as before");
    let mut others: Vec<_> = (0..10).map(|_| proxy.connect()).collect();
    for (number, client) in others.iter_mut().enumerate() {
        client.send(get(&format!("/slow?{number}")));
    }
    assert!(eventually(|| count(&proxy, |s| &s.multiplex_alone) == 10));
    everybody_gets_their_own(proxy.address, 4, 10);
    assert_eq!(count(&proxy, |s| &s.multiplex_handed_over), 1);
    gate.open();
    for client in others.iter_mut().chain([&mut first]) {
        assert_eq!(client.response().map(|r| r.text()), Ok("slow".to_owned()));
    }
    assert_eq!(count(&proxy, |s| &s.multiplex_shared), 81);
    proxy.assert_drops(&[]);
}

/// Responses larger than 64 KiB, and responses of unknown length.
#[test]
fn a_path_with_large_responses_gets_exclusive_sessions() {
    const LARGE_BYTES: usize = 200_000;
    const MORE: u64 = 10;
    let gate = Gate::new();
    let held = Answer::ok("held").first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |r| match r.head.target().split('?').next() {
        Some("/held") => held.clone(),
        Some("/large") => Answer::pattern(1, LARGE_BYTES as u64),
        Some("/endless") => {
            let head = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
            Answer::raw([head, Pattern::bytes(1, LARGE_BYTES)].concat()).then(Step::Close)
        }
        _ => Answer::ok(r.head.target()),
    });
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 2;
        p.multiplex_slow = 2 * PATIENCE;
    });
    let proxy = proxy.start();
    // The pool keeps its knowledge of paths while a session is shared.
    let mut other = proxy.connect();
    other.send(get("/held"));
    assert!(backend.wait(|r| r.len() == 1));
    for (path, paths) in [("/large", 1), ("/endless", 2)] {
        let mut client = proxy.connect();
        let mut ask = |target: &str| client.ask(get(target)).expect("an answer").body;
        let is_large = |body: Vec<u8>| body == Pattern::bytes(1, LARGE_BYTES);
        assert!(is_large(ask(&format!("{path}?first"))), "{path}");
        assert_eq!(count(&proxy, |s| &s.multiplex_handed_over), paths, "{path}");
        assert_eq!(count(&proxy, |s| &s.multiplex_alone), (paths - 1) * MORE, "{path}");
        for number in 0..MORE {
            assert!(is_large(ask(&format!("{path}?{number}"))), "{path}");
            assert_eq!(ask("/small"), b"/small");
        }
        assert_eq!(count(&proxy, |s| &s.multiplex_alone), paths * MORE, "{path}");
        assert_eq!(count(&proxy, |s| &s.multiplex_handed_over), paths, "{path}");
        assert_eq!(count(&proxy, |s| &s.multiplex_shared), 1 + paths * (1 + MORE), "{path}");
    }
    gate.open();
    assert_eq!(other.response().map(|r| r.text()), Ok("held".to_owned()));
    assert_eq!(count(&proxy, |s| &s.multiplex_repeated), 0);
    proxy.assert_drops(&[]);
}

#[test]
fn a_request_behind_a_handed_over_session_is_retried_and_counted() {
    const LARGE_BYTES: usize = 200_000;
    let (first, second, at_gate) = (Gate::new(), Gate::new(), Gate::new());
    let body = Pattern::bytes(1, LARGE_BYTES);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n").into_bytes();
    let front = Answer::default()
        .then(Step::Open(at_gate.clone()))
        .then(Step::Wait(first.clone()))
        .then(Step::Send([&head[..], &body[..1]].concat()))
        .then(Step::Wait(second.clone()))
        .then(Step::Send(body[1..].to_vec()));
    let backend = HttpBackend::start(move |r| match (r.head.target(), r.connection) {
        ("/front", _) => front.clone(),
        (_, 0) => Answer::default(),
        (target, _) => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 1;
        p.multiplex_slow = 2 * PATIENCE;
    });
    let proxy = proxy.start();
    let counts = || {
        [
            count(&proxy, |s| &s.multiplex_shared),
            count(&proxy, |s| &s.multiplex_alone),
            count(&proxy, |s| &s.multiplex_handed_over),
            count(&proxy, |s| &s.multiplex_repeated),
        ]
    };
    let (mut client, mut behind) = (proxy.connect(), proxy.connect());
    client.send(get("/front"));
    assert!(at_gate.wait(), "it is with the backend");
    behind.send(get("/behind"));
    assert!(eventually(|| counts() == [2, 0, 0, 0]), "{:?}", counts());
    first.open();
    assert_eq!(behind.response().map(|r| r.text()), Ok("/behind".to_owned()));
    // The second attempt shares a session, too.
    assert_eq!(counts(), [3, 0, 1, 1]);
    second.open();
    assert!(client.response().expect("an answer").body == body);
    assert_eq!(counts(), [3, 0, 1, 1]);
    assert_eq!(multiplex_faults(&proxy), 0);
    proxy.assert_drops(&[]);
}

/// A backend with one slow response in so many.
fn slow_in(every: u64, slow: Duration) -> HttpBackend {
    HttpBackend::start(move |r| match r.number as u64 % every {
        1 => Answer::ok(r.head.target()).first(Step::Pause(slow)),
        _ => Answer::ok(r.head.target()),
    })
}

#[test]
fn rare_slow_responses_do_not_end_session_sharing() {
    let (clients, requests, every) = (24, 250, 100);
    let backend = slow_in(every, Duration::from_millis(50));
    let proxy = multiplexed(backend.address()).start();
    everybody_gets_their_own(proxy.address, clients, requests);
    let all = (clients * requests) as u64;
    // Sessions with a late response are used again, so that a client has at most one of its own.
    let accepted = backend.counts().accepted;
    assert!(accepted <= clients as u64 + 4, "{accepted} sessions for {} slow", all / every);
    assert_eq!(count(&proxy, |s| &s.multiplex_faults), 0);
    let (shared, repeated) =
        (count(&proxy, |s| &s.multiplex_shared), count(&proxy, |s| &s.multiplex_repeated));
    assert!(shared > all / 2 && repeated < all / 4, "{shared} shared, {repeated} repeated");
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
}

#[test]
fn many_slow_responses_reduce_sharing_to_exclusive_sessions() {
    let (clients, requests) = (24, 100);
    let backend = slow_in(2, Duration::from_millis(5));
    let proxy = multiplexed(backend.address()).start();
    everybody_gets_their_own(proxy.address, clients, requests);
    let (all, repeated) = ((clients * requests) as u64, count(&proxy, |s| &s.multiplex_repeated));
    assert!(repeated < all / 2, "{repeated} repeated");
    let accepted = backend.counts().accepted;
    assert!(accepted <= clients as u64 + 4, "{accepted} sessions");
    proxy.assert_drops(&[]);
}

#[test]
fn a_session_is_reused_after_its_late_responses_arrive() {
    let (gate, at_gate) = (Gate::new(), Gate::new());
    let reached = Answer::default().then(Step::Open(at_gate.clone()));
    let late = reached.then(Step::Wait(gate.clone()));
    let late = late.then(Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate".to_vec()));
    let backend = HttpBackend::start(move |r| match r.head.target() {
        "/late" => late.clone(),
        target => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    let (mut front, mut behind) = (proxy.connect(), proxy.connect());
    front.send(get("/late"));
    assert!(at_gate.wait(), "it is with the backend");
    // Answered on a second session, while the first has it behind the late one.
    assert_eq!(behind.ask(get("/behind")).map(|r| r.text()), Ok("/behind".to_owned()));
    gate.open();
    assert_eq!(front.response().map(|r| r.text()), Ok("late".to_owned()));
    let is_behind = |r: &&Received| r.head.target() == "/behind";
    assert!(backend.wait(|r| r.iter().filter(is_behind).count() == 2), "it runs twice");
    let idle = || proxy.backends[0].live.stats.sum(|s| s.sessions_open.get());
    assert_eq!(idle(), 2);
    for _ in 0..20 {
        // On a session of its own: the first one, when it is idle.
        assert_eq!(front.ask(post("/own", "x")).map(|r| r.text()), Ok("/own".to_owned()));
    }
    assert!(backend.counts().accepted <= 3, "{:?}", backend.counts());
    assert_eq!(multiplex_faults(&proxy), 0);
    proxy.assert_drops(&[]);
}

#[test]
fn responses_behind_a_handed_over_response_are_no_fault() {
    let (first, second, at_gate) = (Gate::new(), Gate::new(), Gate::new());
    let reached = Answer::default().then(Step::Open(at_gate.clone()));
    let begun = reached
        .then(Step::Wait(first.clone()))
        .then(Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfro".to_vec()));
    let rest = b"ntHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nbehind".to_vec();
    let front = begun.then(Step::Wait(second.clone())).then(Step::Send(rest));
    let backend = HttpBackend::start(move |r| match (r.head.target(), r.connection) {
        ("/front", _) => front.clone(),
        (_, 0) => Answer::default(),
        (target, _) => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| {
        p.multiplex_sessions = 1;
        p.multiplex_slow = Duration::from_millis(300);
    });
    let proxy = proxy.start();
    let (mut front, mut behind) = (proxy.connect(), proxy.connect());
    front.send(get("/front"));
    assert!(at_gate.wait(), "it is with the backend");
    behind.send(get("/behind"));
    assert!(eventually(|| proxy.stats.sum(|s| s.requests.get()) == 2));
    first.open();
    assert_eq!(behind.response().map(|r| r.text()), Ok("/behind".to_owned()));
    second.open();
    assert_eq!(front.response().map(|r| r.text()), Ok("front".to_owned()));
    assert_eq!(proxy.ask(get("/next")).text(), "/next");
    assert_eq!(multiplex_faults(&proxy), 0);
    proxy.assert_drops(&[]);
}

#[test]
fn requests_do_not_wait_behind_a_client_that_does_not_read() {
    let backend = HttpBackend::start(|r| match r.head.target() {
        "/large" => Answer::pattern(1, 100 << 20),
        target => Answer::ok(target),
    });
    let proxy = multiplexed(backend.address()).pool(|p| p.multiplex_sessions = 1).start();
    everybody_gets_their_own(proxy.address, 4, 10);
    let mut stalled = proxy.connect();
    stalled.send(get("/large")).head().expect("it has begun");
    everybody_gets_their_own(proxy.address, 8, 10);
    drop(stalled);
    proxy.assert_drops(&[(Reason::ClientGone, 1)]);
}
