//! Guarantees to clients and backends: RFC 9110 and RFC 9112 as an intermediary.

mod common;

use common::{INSTANCE, Plan, Proxy, both_upstreams, get, post, post_chunked, request};
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Ending, Gate, HttpBackend, Intake, Step};
use std::time::Duration;

/// Answers with the method and the target.
fn naming() -> HttpBackend {
    HttpBackend::start(|r| Answer::ok(format!("{} {}", r.head.method(), r.head.target())))
}

both_upstreams! {
    pipelined_requests_are_answered_in_order,
    pipelined_requests_with_bodies_are_answered_in_order,
    a_request_that_comes_byte_by_byte_is_the_same_request,
    an_empty_line_before_a_request_is_skipped,
    the_response_to_head_has_its_length_and_no_body,
    no_content_and_not_modified_have_no_body,
    interim_responses_are_passed_before_the_final_one,
    interim_responses_are_kept_from_an_http_1_0_client,
    a_body_is_awaited_by_the_backend_that_says_continue_and_not_by_the_proxy,
    an_answer_instead_of_continue_ends_the_request_without_its_body,
    an_upgrade_becomes_a_tunnel_in_both_directions,
    a_tunnel_closes_with_its_backend,
    an_upgrade_that_the_backend_declines_is_an_ordinary_request,
    trailers_are_passed_both_ways,
    an_absolute_target_is_sent_on_as_a_path_with_its_host,
    hop_by_hop_headers_stay_on_their_hop,
    every_other_header_passes_unchanged_and_in_order,
    via_is_added_only_if_it_is_asked_for,
    server_timing_is_added_only_if_it_is_asked_for,
    an_http_1_0_client_gets_a_chunked_response_up_to_the_close,
    an_http_1_0_client_needs_no_host_and_is_closed_after_the_answer,
    a_connection_is_kept_or_closed_as_the_client_asks,
    a_client_that_half_closes_after_its_request_is_still_answered,
    a_response_up_to_the_close_reaches_the_client_whole,
    clients_in_turn_share_one_upstream_session,
    a_backend_that_closes_after_each_answer_says_so_and_is_believed,
}

fn pipelined_requests_are_answered_in_order(mode: Upstream) {
    let backend = naming();
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send((0..50).map(|n| get(&format!("/{n}"))).collect::<String>());
    for n in 0..50 {
        assert_eq!(client.response().expect("an answer").text(), format!("GET /{n}"));
    }
}

fn pipelined_requests_with_bodies_are_answered_in_order(mode: Upstream) {
    let backend = naming();
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    let requests = [
        get("/1"),
        post("/2", "abc"),
        request("HEAD", "/3", ""),
        post_chunked("/4", "abc"),
        get("/5"),
    ];
    client.send(requests.concat());
    for (method, body) in [
        ("GET", "GET /1"),
        ("POST", "POST /2"),
        ("HEAD", ""),
        ("POST", "POST /4"),
        ("GET", "GET /5"),
    ] {
        assert_eq!(client.response_to(method).expect("an answer").text(), body);
    }
}

fn a_request_that_comes_byte_by_byte_is_the_same_request(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    for request in [get("/g"), post("/p", "abcdefghij"), post_chunked("/c", "abcdefghij")] {
        let at_once = proxy.connect().ask(&request).expect("an answer").text();
        let mut client = proxy.connect();
        let bytewise = client.send_bytewise(&request).response().expect("an answer").text();
        let without_chunks = |t: &str| t.split("\r\n\r\n").next().map(str::to_owned);
        assert_eq!(without_chunks(&bytewise), without_chunks(&at_once));
    }
    let bodies: Vec<_> =
        backend.requests().into_iter().map(|r| r.body).filter(|b| !b.is_empty()).collect();
    assert_eq!(bodies, [b"abcdefghij"; 4]);
}

fn an_empty_line_before_a_request_is_skipped(mode: Upstream) {
    let backend = naming();
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    assert_eq!(
        client
            .send(format!("\r\n{}\r\n{}", post("/1", "x"), get("/2")))
            .response()
            .expect("an answer")
            .status(),
        200
    );
    assert_eq!(client.response().expect("an answer").text(), "GET /2");
}

fn the_response_to_head_has_its_length_and_no_body(mode: Upstream) {
    let backend = HttpBackend::start(|r| match r.head.target() {
        "/chunked" => Answer::chunked(&["abc"], &[]),
        _ => Answer::ok("abc"),
    });
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(format!(
        "{}{}{}",
        request("HEAD", "/", ""),
        request("HEAD", "/chunked", ""),
        get("/")
    ));
    let sized = client.response_to("HEAD").expect("an answer");
    assert_eq!((sized.header("content-length"), sized.body.len()), (Some("3"), 0));
    assert_eq!(client.response_to("HEAD").expect("an answer").status(), 200);
    assert_eq!(client.response().expect("an answer").text(), "abc");
}

fn no_content_and_not_modified_have_no_body(mode: Upstream) {
    let backend = HttpBackend::start(|r| match r.head.target() {
        "/204" => Answer::bare(204),
        "/304" => Answer::bare(304).header_lines("Content-Length: 1000\r\nETag: \"x\"\r\n"),
        _ => Answer::ok("body"),
    });
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send([get("/204"), get("/"), get("/304"), get("/")].concat());
    for (status, body) in [(204, ""), (200, "body"), (304, ""), (200, "body")] {
        let response = client.response().expect("an answer");
        assert_eq!((response.status(), response.text().as_str()), (status, body));
        if status == 204 {
            assert_eq!(response.header("content-length"), None);
            assert_eq!(response.header("transfer-encoding"), None);
        }
    }
}

fn interim_responses_are_passed_before_the_final_one(mode: Upstream) {
    let interim =
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n";
    let backend = HttpBackend::always(Answer::ok("final").after_interim(interim));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    for _ in 0..2 {
        let hints = client.ask(get("/")).expect("an interim response");
        assert_eq!((hints.status(), hints.header("link")), (103, Some("</a.css>")));
        assert_eq!(client.response().expect("an interim response").status(), 102);
        assert_eq!(client.response().expect("the final one").text(), "final");
    }
}

fn interim_responses_are_kept_from_an_http_1_0_client(mode: Upstream) {
    let backend =
        HttpBackend::always(Answer::ok("final").after_interim("HTTP/1.1 103 Early Hints\r\n\r\n"));
    let proxy = Proxy::before(mode, &backend);
    let response = proxy.ask("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!((response.status(), response.text().as_str()), (200, "final"));
}

fn a_body_is_awaited_by_the_backend_that_says_continue_and_not_by_the_proxy(mode: Upstream) {
    let gate = Gate::new();
    let answer = Answer::echo()
        .before_body(Step::Wait(gate.clone()))
        .before_body(Step::Send(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()));
    let backend = HttpBackend::always(answer);
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("POST", "/", "Expect: 100-continue\r\nContent-Length: 3\r\n"));
    assert!(backend.wait(|r| r.len() == 1), "the head goes on without the body");
    assert!(backend.requests()[0].head.says("expect", "100-continue"));
    assert!(
        client.is_silent_for(Duration::from_millis(50)),
        "only the backend may ask for the body"
    );
    gate.open();
    assert_eq!(client.head().expect("an interim response").status(), 100);
    let response = client.send("abc").response().expect("the final one");
    assert!(response.text().ends_with("\r\n\r\nabc"), "{}", response.text());
    assert_eq!(client.ask(request("HEAD", "/", "")).map(|_| ()), Ok(()), "the connection goes on");
}

fn an_answer_instead_of_continue_ends_the_request_without_its_body(mode: Upstream) {
    let backend = HttpBackend::always(Answer::sized(401, "no").intake(Intake::Ignore));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("POST", "/", "Expect: 100-continue\r\nContent-Length: 3\r\n"));
    assert_eq!(client.response().expect("a refusal").status(), 401);
    proxy.assert_nothing_in_flight();
}

fn an_upgrade_becomes_a_tunnel_in_both_directions(mode: Upstream) {
    let backend = HttpBackend::always(Answer::upgrade("websocket"));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request(
        "GET",
        "/ws",
        "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n",
    ));
    let switched = client.response().expect("an answer");
    assert_eq!((switched.status(), switched.header("upgrade")), (101, Some("websocket")));
    assert!(switched.head.says("connection", "upgrade"));
    let received = &backend.requests()[0].head;
    assert!(received.says("connection", "upgrade") && received.says("upgrade", "websocket"));
    for size in [1, 125, 70_000, 300_000] {
        let bytes = equipoise_testkit::Pattern::bytes(size as u64, size);
        client.send(&bytes);
        assert!(client.read_exactly(size).expect("an echo") == bytes, "{size} bytes");
    }
    drop(client);
    assert!(backend.acceptor().wait(|c| c.open == 0), "the tunnel closes with its client");
    proxy.assert_nothing_in_flight();
}

fn a_tunnel_closes_with_its_backend(mode: Upstream) {
    let answer = Answer::raw(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nbye",
    )
    .then(Step::Close);
    let backend = HttpBackend::always(answer);
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("GET", "/", "Connection: upgrade\r\nUpgrade: websocket\r\n"));
    assert_eq!(client.response().expect("an answer").status(), 101);
    assert_eq!(client.read_to_end(), (b"bye".to_vec(), Ending::Closed));
}

fn an_upgrade_that_the_backend_declines_is_an_ordinary_request(mode: Upstream) {
    let backend = naming();
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("GET", "/1", "Connection: upgrade\r\nUpgrade: websocket\r\n"));
    assert_eq!(client.response().expect("an answer").text(), "GET /1");
    assert_eq!(client.ask(get("/2")).expect("an answer").text(), "GET /2");
}

fn trailers_are_passed_both_ways(mode: Upstream) {
    let backend = HttpBackend::always(Answer::chunked(&["abc", "d"], &["X-Sum: 1", "X-Other: 2"]));
    let proxy = Proxy::before(mode, &backend);
    let head = request("POST", "/", "Transfer-Encoding: chunked\r\nTrailer: X-Up\r\n");
    let response = proxy.ask(format!("{head}3\r\nxyz\r\n0\r\nX-Up: 7\r\n\r\n"));
    assert_eq!(response.text(), "abcd");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(response.trailers, [pair("X-Sum", "1"), pair("X-Other", "2")]);
    assert_eq!(backend.requests()[0].trailers, [pair("X-Up", "7")]);
}

fn an_absolute_target_is_sent_on_as_a_path_with_its_host(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    let cases = [
        ("GET", "http://a.example/x?y=1", "/x?y=1"),
        ("GET", "http://a.example", "/"),
        ("GET", "http://a.example?y", "/?y"),
        ("GET", "HTTP://A.example/", "/"),
        ("OPTIONS", "http://a.example", "*"),
        ("OPTIONS", "*", "*"),
    ];
    for (method, target, path) in cases {
        assert_eq!(proxy.ask(request(method, target, "")).status(), 200, "{target}");
        let received = backend.requests().pop().expect("it was answered").head;
        assert_eq!(received.target(), path, "{target}");
        let hosts: Vec<_> = received.all("host").iter().map(|h| h.to_ascii_lowercase()).collect();
        assert_eq!(hosts, ["a.example"], "{target}");
    }
}

fn hop_by_hop_headers_stay_on_their_hop(mode: Upstream) {
    let answer = Answer::ok("x").header_lines(
        "Connection: X-Private, keep-alive\r\nX-Private: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nX-Public: 2\r\n",
    );
    let backend = HttpBackend::always(answer);
    let proxy = Proxy::before(mode, &backend);
    let response = proxy.ask(request(
        "GET",
        "/",
        "Connection: keep-alive, X-Secret ,x-Other\r\nX-Secret: 1\r\nX-OTHER: 1\r\nKeep-Alive: 5\r\nProxy-Connection: close\r\nTE: gzip\r\nUpgrade: x\r\nX-Kept: 2\r\n",
    ));
    for name in ["x-private", "keep-alive", "proxy-connection"] {
        assert_eq!(response.header(name), None, "{name}");
    }
    assert_eq!(response.header("x-public"), Some("2"));
    let received = &backend.requests()[0].head;
    for name in ["x-secret", "x-other", "keep-alive", "proxy-connection", "te", "upgrade"] {
        assert_eq!(received.header(name), None, "{name}");
    }
    assert_eq!(received.header("x-kept"), Some("2"));
    assert!(!received.says("connection", "x-secret"));
}

fn every_other_header_passes_unchanged_and_in_order(mode: Upstream) {
    let lines = "X-b: 1\r\nX-A:   2  \r\nx-b: 3, 4\r\nX-Empty:\r\nX-Utf8: \u{e9}\r\n";
    let backend = HttpBackend::always(
        Answer::ok("x").header_lines(&format!("Set-Cookie: a\r\n{lines}Set-Cookie: b\r\n")),
    );
    let proxy = Proxy::before(mode, &backend);
    let response = proxy.ask(request("GET", "/", lines));
    let ours = |headers: &[(String, String)]| -> Vec<(String, String)> {
        headers
            .iter()
            .filter(|(n, _)| n[..2].eq_ignore_ascii_case("x-") && !n.starts_with("X-Forwarded"))
            .cloned()
            .collect()
    };
    let expected =
        [("X-b", "1"), ("X-A", "2"), ("x-b", "3, 4"), ("X-Empty", ""), ("X-Utf8", "\u{e9}")];
    let expected: Vec<_> =
        expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    assert_eq!(ours(&backend.requests()[0].head.headers), expected);
    assert_eq!(ours(&response.head.headers), expected);
    assert_eq!(response.head.all("set-cookie"), ["a", "b"]);
}

fn via_is_added_only_if_it_is_asked_for(mode: Upstream) {
    for (via, expected) in [(false, vec!["1.0 first"]), (true, vec!["1.0 first", "1.1 edge-1"])] {
        let backend = HttpBackend::always(Answer::ok("x").header_lines("Via: 1.0 first\r\n"));
        let proxy = Plan::new(mode, &[backend.address()]).front(|f| f.via = via).start();
        let response = proxy.ask(request("GET", "/", "Via: 1.0 first\r\n"));
        let values = |head: &equipoise_testkit::Head| head.all("via").join(", ");
        assert_eq!(values(&response.head), expected.join(", "));
        assert_eq!(values(&backend.requests()[0].head), expected.join(", "));
        assert_eq!(INSTANCE, "edge-1");
    }
}

fn an_http_1_0_client_gets_a_chunked_response_up_to_the_close(mode: Upstream) {
    let backend = HttpBackend::always(Answer::chunked(&["abc", "defg"], &["X-Sum: 1"]));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    let response = client
        .ask("GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n")
        .expect("an answer");
    assert_eq!((response.text().as_str(), response.header("transfer-encoding")), ("abcdefg", None));
    assert_eq!(client.read_to_end().1, Ending::Closed);
}

fn an_http_1_0_client_needs_no_host_and_is_closed_after_the_answer(mode: Upstream) {
    let backend = naming();
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    assert_eq!(client.ask("GET /x HTTP/1.0\r\n\r\n").expect("an answer").text(), "GET /x");
    assert_eq!(client.read_to_end(), (Vec::new(), Ending::Closed));
}

fn a_connection_is_kept_or_closed_as_the_client_asks(mode: Upstream) {
    let backend = naming();
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    let kept = client.ask(get("/1")).expect("an answer");
    assert!(!kept.head.says("connection", "close"));
    let closed = client.ask(request("GET", "/2", "Connection: close\r\n")).expect("an answer");
    assert!(closed.head.says("connection", "close"));
    assert_eq!(client.read_to_end(), (Vec::new(), Ending::Closed));
}

fn a_client_that_half_closes_after_its_request_is_still_answered(mode: Upstream) {
    let gate = Gate::new();
    let backend = HttpBackend::always(Answer::ok("late").first(Step::Wait(gate.clone())));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(request("GET", "/", "Connection: close\r\n"));
    assert!(backend.wait(|r| r.len() == 1));
    client.finish();
    gate.open();
    // A half-close cannot be distinguished from a client that went away, so either end is right: a
    // whole answer, or none and a counted reason. Half of one is not.
    match client.response() {
        Ok(response) => assert_eq!(response.text(), "late"),
        Err(_) => proxy.assert_drops(&[(equipoise_session::Reason::ClientGone, 1)]),
    }
}

fn a_response_up_to_the_close_reaches_the_client_whole(mode: Upstream) {
    for answer in [Answer::to_close("abcdef"), Answer::http10("abcdef")] {
        let backend = HttpBackend::always(answer);
        let proxy = Proxy::before(mode, &backend);
        let mut client = proxy.connect();
        assert_eq!(client.ask(get("/")).expect("a whole answer").text(), "abcdef");
        proxy.assert_drops(&[]);
    }
}

fn clients_in_turn_share_one_upstream_session(mode: Upstream) {
    let backend = naming();
    let proxy = Proxy::before(mode, &backend);
    for n in 0..20 {
        assert_eq!(proxy.ask(get(&format!("/{n}"))).text(), format!("GET /{n}"));
    }
    let limit = if mode == Upstream::Exclusive { 1 } else { 4 };
    assert!(backend.counts().accepted <= limit, "{:?}", backend.counts());
    let reused = proxy.backends[0].live.stats.sum(|s| s.sessions_reused.get());
    assert_eq!(reused, 20 - backend.counts().accepted);
}

fn a_backend_that_closes_after_each_answer_says_so_and_is_believed(mode: Upstream) {
    let backend = HttpBackend::always(
        Answer::ok("x").header_lines("Connection: close\r\n").then(Step::Close),
    );
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    for _ in 0..10 {
        let response = client.ask(post("/", "y")).expect("an answer");
        assert_eq!((response.status(), response.head.says("connection", "close")), (200, false));
    }
    proxy.assert_drops(&[]);
    assert_eq!(backend.completed(), 10);
}

fn server_timing_is_added_only_if_it_is_asked_for(mode: Upstream) {
    const PAUSE: Duration = Duration::from_millis(30);
    let own = Answer::ok("a").header_lines("Server-Timing: db;dur=1\r\n");
    let backend = HttpBackend::always(own.first(Step::Pause(PAUSE)));
    let silent = Plan::new(mode, &[backend.address()]).start();
    assert_eq!(silent.ask(get("/")).head.all("server-timing"), ["db;dur=1"]);
    let plan = Plan::new(mode, &[backend.address()]).front(|front| front.server_timing = true);
    let timed = plan.start();
    for _ in 0..2 {
        let answer = timed.ask(get("/"));
        let [backend, own] = answer.head.all("server-timing")[..] else { panic!("{answer:?}") };
        let [backend, own] = if own.starts_with("db") { [backend, own] } else { [own, backend] };
        let (backend, queue) = backend.split_once(", ").expect("two");
        let time = |text: &str, name: &str| -> f64 {
            let value = text.strip_prefix(name).and_then(|text| text.strip_prefix(";dur="));
            value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{text}"))
        };
        assert!(time(backend, "backend") >= 1e3 * PAUSE.as_secs_f64(), "{backend}");
        assert_eq!((time(queue, "queue"), own), (0.0, "db;dur=1"));
    }
}
