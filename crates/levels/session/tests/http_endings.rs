//! The beginnings and ends of messages, where clients and backends disagree: a cut response must
//! not look complete, and everything that the grammar allows a client to send is accepted.

mod common;

use common::{Plan, Proxy, both_upstreams, get};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Ending, Gate, HttpBackend, Step, eventually};

both_upstreams! {
    a_response_that_was_cut_ends_with_a_reset,
    a_host_without_the_port_80_of_its_target_is_the_same,
    an_empty_line_in_two_packets_before_a_request_is_skipped,
    a_204_has_no_length_whatever_the_backend_says,
}

/// Beginnings of a response; a client receives `hello` from each.
const CUT: &[(&str, &str)] = &[
    ("between chunks", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
    ("within a chunk", "Transfer-Encoding: chunked\r\n\r\n9\r\nhello"),
    ("before the end of trailers", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"),
    ("within a length", "Content-Length: 9\r\n\r\nhello"),
];

fn a_response_that_was_cut_ends_with_a_reset(mode: Upstream) {
    for (name, beginning) in CUT {
        for version in ["1.0", "1.1"] {
            for end in [Step::Close, Step::Reset] {
                let gate = Gate::new();
                let answer = Answer::raw(format!("HTTP/1.1 200 OK\r\n{beginning}"));
                let answer = answer.then(Step::Wait(gate.clone())).then(end.clone());
                let backend = HttpBackend::always(answer);
                let proxy = Plan::new(mode, &[backend.address()]).pool(|p| p.retries = 0).start();
                let mut client = proxy.connect();
                client.send(format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n"));
                let head = client.head().expect("it has begun");
                let mut seen = Vec::new();
                while !seen.ends_with(b"hello") {
                    seen.extend(client.read_exactly(1).expect("the beginning is passed on"));
                }
                gate.open();
                let (_, ending) = client.read_to_end();
                assert_eq!(ending, Ending::Reset, "{name}, HTTP/{version}, {end:?}: {head:?}");
                proxy.assert_drops(&[(Reason::UpstreamClosed, 1)]);
                proxy.assert_nothing_in_flight();
            }
        }
    }
}

fn a_host_without_the_port_80_of_its_target_is_the_same(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    for (authority, host) in [("x:80", "x"), ("x", "x:80"), ("X:80", "x"), ("x:80", "x:80")] {
        let request = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(proxy.ask(request).status(), 200, "{authority} and {host}");
    }
    for (authority, host) in [("x:8080", "x"), ("x:80", "y"), ("x:80", "x:81"), ("x80", "x")] {
        let request = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(proxy.ask(request).status(), 400, "{authority} and {host}");
    }
    assert_eq!(backend.requests().len(), 4);
}

fn an_empty_line_in_two_packets_before_a_request_is_skipped(mode: Upstream) {
    let backend = HttpBackend::named("here");
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    for round in 0..3 {
        let read = || proxy.stats.sum(|s| s.bytes_in.get());
        let before = read();
        client.send("\r");
        assert!(eventually(|| read() == before + 1), "the CR is read alone");
        client.send("\n").send(get("/"));
        assert_eq!(client.response().map(|r| r.text()), Ok("here".to_owned()), "round {round}");
    }
    proxy.assert_drops(&[]);
    // A CR without an LF is no empty line.
    client.send("\r").send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().map(|r| r.status()), Ok(400));
}

fn a_204_has_no_length_whatever_the_backend_says(mode: Upstream) {
    let backend = HttpBackend::start(|r| match r.head.target() {
        "/none" => Answer::raw("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nX: y\r\n\r\n"),
        target => Answer::ok(target),
    });
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    for n in 0..5 {
        let response = client.ask(get("/none")).expect("an answer");
        assert_eq!((response.status(), response.header("x")), (204, Some("y")));
        assert_eq!(response.header("content-length"), None, "{:?}", response.head);
        // The next bytes are not read as a body.
        let target = format!("/{n}");
        assert_eq!(client.ask(get(&target)).map(|r| r.text()), Ok(target));
    }
    proxy.assert_drops(&[]);
}
