//! Every wait has a bound.

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{Plan, Proxy, both_upstreams, get, post, request};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{
    Answer, Client, Ending, FullBacklog, HttpBackend, PATIENCE, Step, WireError, eventually,
};

const SHORT: Duration = Duration::from_millis(200);

/// A plan with long timeouts, except those that a test shortens.
fn plan(upstream: Upstream, backend: SocketAddr) -> Plan {
    Plan::new(upstream, &[backend]).pool(|p| p.retries = 0)
}

/// Runs `wait`, which must end by the short timeout and not by the test's own.
#[track_caller]
fn bounded<T>(wait: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let outcome = wait();
    let took = start.elapsed();
    assert!(took >= SHORT * 9 / 10 && took < PATIENCE / 2, "it took {took:?}");
    outcome
}

/// The result of `attempt` on a connection with a short idle timeout. `None`: the test itself was
/// too slow; it is repeated.
fn in_time<T>(proxy: &Proxy, mut attempt: impl FnMut(&mut Client) -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(outcome) = attempt(&mut proxy.connect()) {
            return outcome;
        }
        assert!(Instant::now() < end, "connections are closed as soon as they are open");
    }
}

both_upstreams! {
    a_head_that_does_not_end_is_answered_408,
    a_trickling_head_does_not_extend_the_timeout,
    the_time_for_a_head_begins_with_its_first_byte,
    an_idle_connection_is_closed_without_an_answer,
    a_stalled_request_body_is_answered_408,
    a_client_that_stops_reading_is_cut,
    a_backend_that_does_not_accept_becomes_504,
    a_backend_that_does_not_accept_is_replaced_by_another,
    a_response_that_does_not_begin_becomes_504,
    interim_responses_do_not_prolong_the_wait_for_the_response,
    a_stalled_response_is_cut,
    the_request_timeout_applies_even_while_bytes_arrive,
    a_slow_answer_within_its_bounds_is_not_cut,
    an_unused_pooled_connection_is_closed,
    a_tunnel_is_closed_after_the_idle_timeout,
}

fn a_head_that_does_not_end_is_answered_408(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = plan(mode, backend.address()).front(|f| f.timeouts.header = SHORT).start();
    for beginning in ["G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n"] {
        let mut client = proxy.connect();
        let response = bounded(|| client.send(beginning).response());
        assert_eq!(response.map(|r| r.status()), Ok(408), "{beginning:?}");
        assert_ne!(client.read_to_end().1, Ending::StillOpen);
    }
    proxy.assert_drops(&[(Reason::HeaderTimeout, 3)]);
    assert_eq!(backend.counts().bytes, 0);
}

fn a_trickling_head_does_not_extend_the_timeout(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = plan(mode, backend.address()).front(|f| f.timeouts.header = SHORT).start();
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\n");
    bounded(|| {
        while client.try_send("X: y\r\n").is_ok() {
            if !client.is_silent_for(SHORT / 10) {
                break;
            }
        }
    });
    proxy.assert_drops(&[(Reason::HeaderTimeout, 1)]);
}

fn the_time_for_a_head_begins_with_its_first_byte(mode: Upstream) {
    let backend = HttpBackend::named("x");
    let proxy = plan(mode, backend.address()).front(|f| f.timeouts.header = SHORT).start();
    let mut client = proxy.connect();
    for _ in 0..2 {
        assert!(client.is_silent_for(SHORT * 2), "silence between requests is no slow head");
        assert_eq!(client.ask(get("/")).map(|r| r.status()), Ok(200));
    }
    proxy.assert_drops(&[]);
}

fn an_idle_connection_is_closed_without_an_answer(mode: Upstream) {
    let backend = HttpBackend::named("x");
    let proxy = plan(mode, backend.address()).front(|f| f.timeouts.idle = SHORT).start();
    assert_eq!(bounded(|| proxy.connect().read_to_end()), (Vec::new(), Ending::Closed));
    let used = bounded(|| {
        in_time(&proxy, |client| client.ask(get("/")).ok().map(|_| client.read_to_end()))
    });
    assert_eq!(used, (Vec::new(), Ending::Closed));
    assert!(eventually(|| proxy.stats.sum(|s| s.connections_open.get()) == 0));
    assert_eq!(proxy.drops(Reason::IdleTimeout), 0, "nothing was lost");
}

fn a_stalled_request_body_is_answered_408(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = plan(mode, backend.address()).front(|f| f.timeouts.idle = SHORT).start();
    for body in ["Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"]
    {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{body}");
        let (status, ending) = bounded(|| {
            in_time(&proxy, |client| {
                let response = client.try_send(&request).and_then(|()| client.response()).ok()?;
                Some((response.status(), client.read_to_end().1))
            })
        });
        assert_eq!(status, 408, "{body:?}");
        assert_ne!(ending, Ending::StillOpen);
    }
    assert!(backend.acceptor().wait(|c| c.open == 0), "the session is closed");
    assert_eq!(backend.completed(), 0);
    proxy.assert_drops(&[(Reason::BodyTimeout, 2)]);
    proxy.assert_nothing_in_flight();
}

fn a_client_that_stops_reading_is_cut(mode: Upstream) {
    let backend = HttpBackend::always(Answer::pattern(1, 1 << 40));
    // Enough time to send the request and read the head.
    let proxy = plan(mode, backend.address()).front(|f| f.timeouts.idle = SHORT * 10).start();
    let mut client = proxy.connect();
    client.send(get("/")).head().expect("it has begun");
    assert!(backend.acceptor().wait(|c| c.open == 0), "the session is closed");
    proxy.assert_drops(&[(Reason::ClientStalled, 1)]);
    proxy.assert_nothing_in_flight();
}

fn a_backend_that_does_not_accept_becomes_504(mode: Upstream) {
    let full = FullBacklog::start();
    let proxy = plan(mode, full.address()).pool(|p| p.connect_timeout = SHORT).start();
    let mut client = proxy.connect();
    assert_eq!(bounded(|| client.ask(get("/"))).map(|r| r.status()), Ok(504));
    proxy.assert_drops(&[(Reason::ConnectTimeout, 1)]);
    proxy.assert_nothing_in_flight();
}

fn a_backend_that_does_not_accept_is_replaced_by_another(mode: Upstream) {
    let (full, alive) = (FullBacklog::start(), HttpBackend::named("alive"));
    let proxy = Plan::new(mode, &[full.address(), alive.address()])
        .pool(|p| p.connect_timeout = SHORT)
        .start();
    for _ in 0..3 {
        assert_eq!(proxy.ask(post("/", "abc")).text(), "alive");
    }
    proxy.assert_drops(&[]);
}

fn a_response_that_does_not_begin_becomes_504(mode: Upstream) {
    for answer in [Answer::hang(), Answer::raw("HTTP/1.1 200 O").then(Step::Hang)] {
        let backend = HttpBackend::always(answer);
        let proxy = plan(mode, backend.address()).pool(|p| p.response_timeout = SHORT).start();
        let mut client = proxy.connect();
        assert_eq!(bounded(|| client.ask(get("/"))).map(|r| r.status()), Ok(504));
        assert!(backend.acceptor().wait(|c| c.open == 0), "the session is closed");
        proxy.assert_drops(&[(Reason::ResponseTimeout, 1)]);
        proxy.assert_nothing_in_flight();
    }
}

fn interim_responses_do_not_prolong_the_wait_for_the_response(mode: Upstream) {
    let interim = Step::Send(b"HTTP/1.1 102 Processing\r\n\r\n".to_vec());
    let pause = Step::Pause(SHORT / 4);
    let slow = (0..200).fold(Answer::ok("at last"), |answer, _| {
        answer.first(pause.clone()).first(interim.clone())
    });
    let backend = HttpBackend::always(slow);
    let proxy = plan(mode, backend.address()).pool(|p| p.response_timeout = SHORT).start();
    let mut client = proxy.connect();
    let status = bounded(|| {
        let mut status = client.ask(get("/")).expect("a response").status();
        while status == 102 {
            status = client.response().expect("a response").status();
        }
        status
    });
    assert_eq!(status, 504);
    proxy.assert_drops(&[(Reason::ResponseTimeout, 1)]);
    assert_eq!(proxy.stats.sum(|s| s.responses[0].get()), 0, "interim responses are not counted");
}

fn a_stalled_response_is_cut(mode: Upstream) {
    let beginnings = [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\n\r\nabc",
    ];
    for beginning in beginnings {
        let backend = HttpBackend::always(Answer::raw(beginning).then(Step::Hang));
        let proxy = plan(mode, backend.address()).front(|f| f.timeouts.idle = SHORT).start();
        let mut tries = 0;
        let (rest, ending) = bounded(|| {
            in_time(&proxy, |client| {
                tries += 1;
                client.try_send(get("/")).and_then(|()| client.head()).ok()?;
                Some(client.read_to_end())
            })
        });
        assert!(ending != Ending::StillOpen && !rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
        assert!(backend.acceptor().wait(|c| c.open == 0), "the session is closed");
        // A request may also be counted if its head arrived too late.
        let stalled = Reason::UpstreamStalled.name();
        let counted =
            || matches!(proxy.all_drops()[..], [(it, count)] if it == stalled && count <= tries);
        assert!(eventually(counted), "{tries} tries: {:?}", proxy.all_drops());
        proxy.assert_nothing_in_flight();
    }
}

fn the_request_timeout_applies_even_while_bytes_arrive(mode: Upstream) {
    let drip = (0..1000)
        .fold(Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"), |answer, _| {
            answer.then(Step::Pause(SHORT / 10)).then(Step::Send(b"x".to_vec()))
        });
    let backend = HttpBackend::start(move |r| match r.head.target() {
        "/drip" => drip.clone(),
        _ => Answer::hang(),
    });
    let proxy = plan(mode, backend.address()).front(|f| f.timeouts.request = Some(SHORT)).start();
    let silent = bounded(|| proxy.connect().ask(get("/silent")));
    assert_eq!(silent.map(|r| r.status()), Ok(504));
    let dripping = bounded(|| proxy.connect().ask(get("/drip")));
    assert!(matches!(dripping, Err(WireError::Truncated | WireError::Reset)), "{dripping:?}");
    proxy.assert_drops(&[(Reason::RequestTimeout, 2)]);
    assert!(backend.acceptor().wait(|c| c.open == 0), "both sessions are closed");
    proxy.assert_nothing_in_flight();
}

fn a_slow_answer_within_its_bounds_is_not_cut(mode: Upstream) {
    let answer = Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
        .first(Step::Pause(SHORT * 2));
    let backend =
        HttpBackend::always(answer.then(Step::Pause(SHORT * 2)).then(Step::Send(b"def".to_vec())));
    let proxy = plan(mode, backend.address())
        .front(|f| f.timeouts.header = SHORT)
        .pool(|p| p.connect_timeout = SHORT)
        .start();
    assert_eq!(proxy.ask(get("/")).text(), "abcdef");
    proxy.assert_drops(&[]);
}

fn an_unused_pooled_connection_is_closed(mode: Upstream) {
    let backend = HttpBackend::named("x");
    let proxy = plan(mode, backend.address()).pool(|p| p.session_idle_timeout = SHORT).start();
    proxy.ask(get("/"));
    assert!(backend.acceptor().wait(|c| c.accepted == 1 && c.open == 0));
    assert!(eventually(|| proxy.backends[0].live.stats.sum(|s| s.sessions_open.get()) == 0));
    assert_eq!(proxy.ask(get("/")).text(), "x");
}

fn a_tunnel_is_closed_after_the_idle_timeout(mode: Upstream) {
    let backend = HttpBackend::always(Answer::upgrade("websocket"));
    let proxy = plan(mode, backend.address()).front(|f| f.timeouts.idle = SHORT).start();
    let ending = in_time(&proxy, |client| {
        client
            .try_send(request("GET", "/", "Connection: upgrade\r\nUpgrade: websocket\r\n"))
            .ok()?;
        let mut used = Instant::now();
        assert_eq!(client.response().ok()?.status(), 101);
        for _ in 0..8 {
            let now = Instant::now();
            let echoed = client.try_send("ping").and_then(|()| client.read_exactly(4));
            // Only a tunnel that was used in time must still be open.
            if echoed.is_err() && used.elapsed() >= SHORT {
                return None;
            }
            assert_eq!(echoed, Ok(b"ping".to_vec()));
            used = now;
            std::thread::sleep(SHORT / 4);
        }
        Some(client.read_to_end().1)
    });
    assert_ne!(ending, Ending::StillOpen);
    assert!(backend.acceptor().wait(|c| c.open == 0));
    proxy.assert_nothing_in_flight();
}

#[test]
fn slow_heads_of_many_clients_delay_no_other_request() {
    let backend = HttpBackend::named("x");
    // 500 heads begin and end within this.
    let plan = plan(Upstream::Exclusive, backend.address());
    let proxy: Proxy = plan.front(|f| f.timeouts.header = 6 * PATIENCE).start();
    let mut slow: Vec<_> = (0..500).map(|_| proxy.connect()).collect();
    for client in &mut slow {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n");
    }
    assert_eq!(proxy.ask(get("/")).text(), "x");
    for client in &mut slow {
        assert_eq!(client.ask("\r\n").map(|r| r.status()), Ok(200));
    }
}
