//! The history of an upstream session decides its use: a session with a partial request is closed,
//! an ended one is no failure of its backend, and requests that may have been executed are not
//! repeated.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use common::{Plan, Proxy, both_upstreams, get, post, request};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Gate, HttpBackend, PATIENCE, Step, eventually};
use socket2::{Domain, Socket, Type};

/// More than the socket buffers between a backend and a client that does not read.
const LARGE: u64 = 24_000_000;

both_upstreams! {
    an_upload_that_turns_bad_behind_an_early_response_leaves_no_session_to_others,
    a_post_that_was_read_and_then_reset_is_executed_once,
    a_post_after_the_backend_closed_in_good_order_is_sent_on_another_session,
    a_post_that_meets_a_closing_session_is_never_executed_twice,
}

/// Listens with a small window, so that unread bytes stay at the sender.
fn narrow_listener() -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be made");
    socket.set_recv_buffer_size(4096).expect("any size is allowed");
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    socket.bind(&any.into()).expect("a loopback port is free");
    socket.listen(128).expect("a bound socket can listen");
    socket.into()
}

fn address_of(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().expect("a bound socket has an address")
}

fn failures_of_backends(proxy: &Proxy) -> Vec<u64> {
    let failures = |s: &equipoise_session::stats::BackendStats| {
        s.failures.iter().map(equipoise_session::stats::Counter::get).sum()
    };
    proxy.backends.iter().map(|b| b.live.stats.sum(failures)).collect()
}

fn an_upload_that_turns_bad_behind_an_early_response_leaves_no_session_to_others(mode: Upstream) {
    for (name, body_max, first, rest) in [
        ("bad trailers", None, "5\r\nhello\r\n0\r", "\n\rX"),
        ("bad chunk line", None, "5\r\nhello\r\n", "0\rX\r\n\r\n"),
        ("bad end of a chunk", None, "5\r\nhello", "X\r\n0\r\n\r\n"),
        ("too large", Some(8), "5\r\nhello\r\n", "5\r\nworld\r\n0\r\n\r\n"),
    ] {
        // The whole response is sent before the request's body is read.
        let early = Answer { before_body: Answer::pattern(1, LARGE).steps, ..Answer::default() };
        let backend = HttpBackend::start(move |r| match r.head.target() {
            "/attack" => early.clone(),
            target => Answer::ok(target),
        });
        let plan = Plan::new(mode, &[backend.address()]);
        let proxy = plan.front(|f| f.limits.body_bytes_max = body_max).start();
        let mut attacker = proxy.connect();
        let head = request("POST", "/attack", "Transfer-Encoding: chunked\r\n");
        attacker.send(head + first);
        assert_eq!(attacker.head().map(|h| h.status()), Ok(200), "{name}");
        attacker.send(rest);
        let body = attacker.read_exactly(LARGE as usize);
        assert!(body.is_ok(), "{name}: the response comes whole");
        drop(attacker);
        assert!(backend.acceptor().wait(|c| c.open == 0), "{name}: the session is closed");
        for n in 0..3 {
            let target = format!("/victim/{n}");
            assert_eq!(proxy.ask(post(&target, "secret")).text(), target, "{name}");
        }
        let (attack, others) = (&backend.requests()[0], &backend.requests()[1..]);
        assert!(!attack.complete && attack.trailers.is_empty(), "{name}: {attack:?}");
        assert!(others.iter().all(|r| r.connection != attack.connection), "{name}: {others:?}");
        proxy.assert_nothing_in_flight();
    }
}

/// Answers everything except `/pay`, which it reads and then resets.
fn taking_the_money_and_running() -> HttpBackend {
    HttpBackend::start(|r| match r.head.target() {
        "/pay" => Answer::reset(),
        target => Answer::ok(target),
    })
}

fn a_post_that_was_read_and_then_reset_is_executed_once(mode: Upstream) {
    for warm in [0, 2, 12, 40] {
        let backends = [taking_the_money_and_running(), taking_the_money_and_running()];
        let proxy = Plan::new(mode, &[backends[0].address(), backends[1].address()]);
        let proxy = proxy.pool(|p| p.retries = 1).start();
        let mut client = proxy.connect();
        for n in 0..warm {
            // With multiplexing, only a POST warms the kind of session that a POST uses.
            for request in [get("/warm"), post("/warm", "abc")] {
                assert_eq!(client.ask(request).map(|r| r.status()), Ok(200), "{warm}: {n}");
            }
        }
        assert_eq!(client.ask(post("/pay", "hello")).map(|r| r.status()), Ok(502), "{warm}");
        let all = backends.iter().flat_map(HttpBackend::requests);
        assert_eq!(all.filter(|r| r.head.target() == "/pay").count(), 1, "{warm}");
        proxy.assert_drops(&[(Reason::UpstreamClosed, 1)]);
    }
}

fn a_post_after_the_backend_closed_in_good_order_is_sent_on_another_session(mode: Upstream) {
    let backend = HttpBackend::start(|r| match r.on_connection {
        0..4 => Answer::ok(r.head.target()),
        _ => Answer::ok(r.head.target()).then(Step::Close),
    });
    let proxy = Plan::new(mode, &[backend.address()]).pool(|p| p.retries = 0).start();
    let mut client = proxy.connect();
    for n in 0..50 {
        let target = format!("/{n}");
        let response = client.ask(post(&target, "abc")).expect("an answer");
        assert_eq!((response.status(), response.text()), (200, target));
        if n % 5 == 4 {
            assert!(backend.acceptor().wait(|c| c.open == 0), "the backend has closed");
        }
    }
    assert_eq!(backend.completed(), 50);
    assert_eq!(failures_of_backends(&proxy), [0]);
    proxy.assert_drops(&[]);
}

fn a_post_that_meets_a_closing_session_is_never_executed_twice(mode: Upstream) {
    let backend = HttpBackend::start(|r| match r.on_connection {
        0 => Answer::ok("x"),
        _ if r.connection % 2 == 0 => Answer::ok("x").then(Step::Close),
        _ => Answer::ok("x").then(Step::Reset),
    });
    let proxy = Plan::new(mode, &[backend.address()]).pool(|p| p.retries = 3).start();
    let mut client = proxy.connect();
    for n in 0..200 {
        // The test does not wait for the close, so that it comes before, during or after the
        // sending.
        let target = format!("/{n}");
        let status = client.ask(post(&target, "abc")).expect("an answer").status();
        assert!(matches!(status, 200 | 502), "{status}");
        let times = backend.requests().iter().filter(|r| r.head.target() == target).count();
        assert!(times == 1 || (times, status) == (0, 502), "{target}: {status} after {times}");
    }
    proxy.assert_nothing_in_flight();
}

#[test]
fn a_session_handed_over_and_found_closed_blames_no_backend() {
    let gate = Gate::new();
    let once = Answer::ok("once").then(Step::Wait(gate.clone())).then(Step::Close);
    let backend = HttpBackend::start(move |r| match r.connection {
        0 => once.clone(),
        _ => Answer::ok("again"),
    });
    let proxy = Plan::new(Upstream::Multiplexed, &[backend.address()]).pool(|p| {
        p.multiplex_sessions = 1;
        p.retries = 0;
    });
    let proxy = proxy.start();
    let mut front = proxy.connect();
    assert_eq!(front.ask(get("/")).map(|r| r.text()), Ok("once".to_owned()));
    front.send(get("/"));
    // This request waits behind the other on the only session, and is answered when the other has
    // the session for itself.
    assert!(eventually(|| proxy.stats.sum(|s| s.requests.get()) == 2));
    assert_eq!(proxy.ask(get("/behind")).text(), "again");
    gate.open();
    assert_eq!(front.response().map(|r| (r.status(), r.text())), Ok((200, "again".to_owned())));
    assert_eq!(failures_of_backends(&proxy), [0]);
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
}

#[test]
fn a_backend_that_answers_one_request_a_session_and_closes_late_fails_none() {
    let backend = HttpBackend::always(
        Answer::ok("x").then(Step::Pause(std::time::Duration::from_millis(60))).then(Step::Close),
    );
    let proxy = Plan::new(Upstream::Multiplexed, &[backend.address()]).pool(|p| {
        p.multiplex_sessions = 1;
        p.multiplex_slow = std::time::Duration::from_millis(10);
        p.retries = 0;
    });
    let proxy = proxy.start();
    let mut client = proxy.connect();
    for n in 0..10 {
        assert_eq!(client.ask(get("/")).map(|r| r.status()), Ok(200), "request {n}");
    }
    assert_eq!(failures_of_backends(&proxy), [0]);
    proxy.assert_drops(&[]);
}

/// Answers the first connection's request, with a head of any size, only after the gate has opened,
/// and reads nothing of it before. Answers others at once. Its answer is the length that it read.
fn late_reader(gate: Gate) -> SocketAddr {
    let listener = narrow_listener();
    let address = address_of(&listener);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (Ok(stream), gate) = (stream, gate.clone()) else { return };
            thread::spawn(move || {
                if number == 0 {
                    gate.wait();
                }
                tell_the_length(stream);
            });
        }
    });
    address
}

/// Answers each request with the number of `~` in its head.
fn tell_the_length(mut stream: TcpStream) {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..bytes]);
        if seen.ends_with(b"\r\n\r\n") {
            let answer = seen.iter().filter(|byte| **byte == b'~').count().to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len());
            if stream.write_all((head + &answer).as_bytes()).is_err() {
                return;
            }
            seen.clear();
        }
    }
}

#[test]
fn a_head_that_is_half_sent_when_its_session_is_handed_over_is_sent_to_its_end() {
    // More than the sending socket's buffer can grow to.
    const LINES: usize = 80;
    const LINE_BYTES: usize = 100_000;
    let gate = Gate::new();
    let backend = late_reader(gate.clone());
    let proxy = Plan::new(Upstream::Multiplexed, &[backend])
        .front(|f| f.limits.head_bytes_max = 16 << 20)
        .pool(|p| p.multiplex_sessions = 1)
        .start();
    let lines: String =
        (0..LINES).map(|n| format!("L{n}: {}\r\n", "~".repeat(LINE_BYTES))).collect();
    let mut large = proxy.connect();
    large.send(request("GET", "/", &lines));
    assert!(eventually(|| proxy.stats.sum(|s| s.requests.get()) == 1));
    // It waits behind the large request, and is answered when that has the session for itself.
    assert_eq!(proxy.ask(request("GET", "/", "L: ~~~\r\n")).text(), "3");
    let sent = || proxy.backends[0].live.stats.sum(|s| s.bytes_out.get());
    assert!(sent() < (LINES * LINE_BYTES) as u64, "the socket takes a part only: {}", sent());
    gate.open();
    let response = large.response().expect("an answer");
    let expected = LINES * LINE_BYTES;
    assert_eq!((response.status(), response.text()), (200, expected.to_string()));
    assert_eq!(failures_of_backends(&proxy), [0]);
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
}

/// Sends 103 until the connection ends, at most `most` bytes; sends the number of bytes to the
/// test.
fn hinting_for_ever(most: usize) -> (SocketAddr, std::sync::mpsc::Receiver<usize>) {
    let listener = narrow_listener();
    let address = address_of(&listener);
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the session comes");
        // The session would be closed for bytes before a request.
        stream.read_exact(&mut [0]).expect("the request comes");
        let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(500);
        let mut sent = 0;
        while sent < most
            && let Ok(bytes) = stream.write(hints.as_bytes().split_at(sent % hints.len()).1)
        {
            sent += bytes;
        }
        let _ = tell.send(sent);
    });
    (address, told)
}

#[test]
fn interim_responses_without_end_to_a_client_that_does_not_read_end_the_session() {
    const MOST: usize = 64 << 20;
    let (backend, told) = hinting_for_ever(MOST);
    let proxy = Plan::new(Upstream::Multiplexed, &[backend]).pool(|p| {
        p.retries = 0;
        // The session must not be handed over to the request.
        p.multiplex_slow = PATIENCE * 2;
    });
    let proxy = proxy.start();
    let mut client = proxy.connect();
    client.send(get("/"));
    let sent = told.recv_timeout(PATIENCE).expect("the session ends");
    assert!(sent < MOST, "{sent} bytes were taken for a client that reads nothing");
    // Checked while the client is connected, as its end could be counted otherwise.
    proxy.assert_drops(&[(Reason::UpstreamMalformed, 1)]);
    drop(client);
    proxy.assert_nothing_in_flight();
}
