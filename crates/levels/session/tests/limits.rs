//! Clients' input has limits; a message that exceeds them is answered and counted.

mod common;

use std::time::Duration;

use common::{Plan, both_upstreams, get, request};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Client, Ending, HttpBackend, PATIENCE, eventually};

both_upstreams! {
    a_head_over_its_limits_is_answered_431,
    a_head_at_its_limits_passes,
    a_body_over_its_limit_is_answered_413,
    a_body_at_its_limit_passes,
}

fn a_head_over_its_limits_is_answered_431(mode: Upstream) {
    let backend = HttpBackend::echo();
    // Sending 40 KB byte by byte takes long on a busy machine.
    let plan = Plan::new(mode, &[backend.address()]);
    let proxy = plan.front(|f| f.timeouts.header = 6 * PATIENCE).start();
    let long = "x".repeat(40 << 10);
    let many: String = (0..100).map(|n| format!("X-{n}: y\r\n")).collect();
    let cases = [
        ("one header of 40 KB", request("GET", "/", &format!("X: {long}\r\n"))),
        ("a name of 40 KB", request("GET", "/", &format!("{long}: x\r\n"))),
        ("a target of 40 KB", get(&format!("/{long}"))),
        ("101 headers", request("GET", "/", &many)),
        ("a head that does not end", format!("GET / HTTP/1.1\r\nX: {long}")),
        ("a line that does not end", long.clone()),
    ];
    for (count, (name, request)) in (1..).zip(cases) {
        let mut client = proxy.connect();
        match count % 2 {
            0 => drop(client.try_send(&request)),
            _ => drop(client.send_bytewise(&request)),
        }
        assert_eq!(client.response().map(|r| r.status()), Ok(431), "{name}");
        assert_ne!(client.read_to_end().1, Ending::StillOpen, "{name}");
        proxy.assert_drops(&[(Reason::RequestHeadTooLarge, count)]);
    }
    assert_eq!(backend.counts().bytes, 0);
}

fn a_head_at_its_limits_passes(mode: Upstream) {
    let backend = HttpBackend::named("x");
    let proxy =
        Plan::new(mode, &[backend.address()]).front(|f| f.limits.head_bytes_max = 5000).start();
    let many: String = (0..99).map(|n| format!("X-{n}: y\r\n")).collect();
    assert_eq!(proxy.ask(request("GET", "/", &many)).status(), 200);
    let frame = request("GET", "/", "X: \r\n").len();
    for (bytes, status) in [(4999, 200), (5000, 200), (5001, 431)] {
        let head = request("GET", "/", &format!("X: {}\r\n", "y".repeat(bytes - frame)));
        assert_eq!((head.len(), proxy.ask(&head).status()), (bytes, status));
    }
}

fn a_body_over_its_limit_is_answered_413(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Plan::new(mode, &[backend.address()])
        .front(|f| f.limits.body_bytes_max = Some(1000))
        .start();
    let body = "x".repeat(1001);
    let sized = request("POST", "/", "Content-Length: 1001\r\n");
    let chunked = request("POST", "/", "Transfer-Encoding: chunked\r\n");
    let cases = [
        ("announced, not sent", sized.clone()),
        ("announced and sent", format!("{sized}{body}")),
        (
            "announced, 100-continue",
            request("POST", "/", "Content-Length: 1001\r\nExpect: 100-continue\r\n"),
        ),
        ("one chunk", format!("{chunked}3e9\r\n{body}\r\n0\r\n\r\n")),
        ("one chunk that has only begun", format!("{chunked}fffffff\r\n{body}")),
        ("many chunks", chunked.clone() + &format!("64\r\n{}\r\n", "y".repeat(100)).repeat(11)),
    ];
    for (count, (name, request)) in (1..).zip(cases) {
        let mut client = proxy.connect();
        let _ = client.try_send(&request);
        assert_eq!(client.response().map(|r| r.status()), Ok(413), "{name}");
        assert_ne!(client.read_to_end().1, Ending::StillOpen, "{name}");
        proxy.assert_drops(&[(Reason::RequestBodyTooLarge, count)]);
    }
    assert_eq!(backend.completed(), 0);
    assert!(
        !backend.requests().iter().any(|r| r.head.header("content-length").is_some()),
        "what announces too much reaches no backend"
    );
    proxy.assert_nothing_in_flight();
}

#[test]
fn a_client_that_keeps_sending_slowly_receives_its_413() {
    let backend = HttpBackend::echo();
    let proxy = Plan::new(Upstream::Exclusive, &[backend.address()])
        .front(|f| f.limits.body_bytes_max = Some(1000))
        .start();
    let mut client = proxy.connect();
    client.send(request("POST", "/", "Content-Length: 1000000\r\n"));
    // Longer than a client is read from that has no reason to send more.
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(300));
        client.send("x".repeat(100_000));
    }
    assert_eq!(client.response().map(|r| r.status()), Ok(413));
    assert_eq!(client.read_to_end().1, Ending::Closed);
}

fn a_body_at_its_limit_passes(mode: Upstream) {
    let backend = HttpBackend::always(Answer::ok("x"));
    let proxy = Plan::new(mode, &[backend.address()])
        .front(|f| f.limits.body_bytes_max = Some(1000))
        .start();
    let body = "x".repeat(1000);
    assert_eq!(proxy.ask(common::post("/", &body)).status(), 200);
    assert_eq!(proxy.ask(common::post_chunked("/", &body)).status(), 200);
    assert_eq!(proxy.ask(get("/")).status(), 200);
    assert_eq!(
        backend.requests().iter().map(|r| r.body_bytes).collect::<Vec<_>>(),
        [1000, 1000, 0]
    );
}

#[test]
fn connections_over_the_limit_wait_until_another_closes() {
    let backend = HttpBackend::named("x");
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    let proxy = plan.front(|f| f.limits.connections_max = 3).start();
    let mut inside: Vec<Client> = (0..3).map(|_| proxy.connect()).collect();
    for client in &mut inside {
        client.ask(get("/")).expect("an answer");
    }
    let mut waiting = proxy.connect();
    waiting.send(get("/"));
    assert!(eventually(|| proxy.stats.sum(|s| s.accept_pauses.get()) > 0), "the pause is counted");
    assert!(waiting.is_silent_for(std::time::Duration::from_millis(50)));
    inside.pop();
    assert_eq!(waiting.response().map(|r| r.status()), Ok(200));
    assert_eq!(proxy.stats.sum(|s| s.connections_open.get()), 3);
}

#[test]
fn every_response_is_counted_by_its_status_class() {
    let backend = HttpBackend::start(|r| {
        let status = r.head.target()[1..].parse().expect("a status");
        Answer::sized(status, "")
    });
    let proxy = Plan::new(Upstream::Exclusive, &[backend.address()]).start();
    for status in [200, 201, 302, 404, 404, 404, 500] {
        assert_eq!(proxy.ask(get(&format!("/{status}"))).status(), status);
    }
    proxy.ask("GET / HTTP/1.1\r\n\r\n");
    let classes = || (0..5).map(|c| proxy.stats.sum(|s| s.responses[c].get())).collect::<Vec<_>>();
    assert!(eventually(|| classes() == [0, 2, 1, 4, 1]), "{:?}", classes());
    let upstream = &proxy.backends[0].live.stats;
    let of_backend = || (0..5).map(|c| upstream.sum(|s| s.responses[c].get())).collect::<Vec<_>>();
    assert!(eventually(|| of_backend() == [0, 2, 1, 3, 1]), "{:?}", of_backend());
    assert_eq!(proxy.stats.sum(|s| s.connections.get()), 8);
}
