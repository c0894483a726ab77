//! HTTP/2 from clients: requests, bodies, trailers, resets, flow control, drain.

mod common;
mod common_http2;

use std::time::Duration;

use bytes::Bytes;
use common::{Plan, Proxy, both_upstreams, get};
use common_http2::{Connection, begin, read, read_body, request, run, send};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Gate, HttpBackend, Intake, Pattern, Step, eventually};
use http::HeaderMap;

const LARGE_BYTES: usize = 10 << 20;

fn plan(mode: Upstream, backend: &HttpBackend) -> Plan {
    Plan::new(mode, &[backend.address()]).front(|front| front.http2 = true)
}

fn before(mode: Upstream, backend: &HttpBackend) -> Proxy {
    plan(mode, backend).start()
}

fn pattern(seed: u64, bytes: usize) -> Bytes {
    Pattern::bytes(seed, bytes).into()
}

both_upstreams! {
    many_streams_get_their_own_answers,
    bodies_of_10_mib_arrive_both_ways,
    trailers_pass_both_ways,
    responses_without_a_body_end_with_their_head,
    a_reset_cancels_its_request_alone,
    a_response_that_is_cut_resets_its_stream,
    streams_that_are_open_when_the_door_closes_end_well,
    a_client_that_does_not_read_holds_up_no_other_stream,
}

fn many_streams_get_their_own_answers(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = before(mode, &backend);
    run(async {
        let connection = Connection::to(proxy.address).await;
        // With the first answer the client knows how many streams it may open.
        connection.get("/").await.expect("an answer");
        let mut asked = tokio::task::JoinSet::new();
        for at in 0..300 {
            let sender = connection.sender.clone();
            asked.spawn(async move {
                let path = format!("/{at}");
                let (response, mut stream) = begin(sender, request("POST", &path), false).await;
                let body = format!("body of {at}.");
                send(&mut stream, body.clone().into(), true).await.expect("it is taken");
                let reply = read(response).await.expect("an answer").text();
                assert!(reply.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{reply}");
                assert!(reply.contains(&body), "{reply}");
            });
        }
        asked.join_all().await;
    });
    assert_eq!(proxy.stats.sum(|stats| stats.connections.get()), 1);
    assert_eq!(proxy.stats.sum(|stats| stats.requests.get()), 301);
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
}

fn bodies_of_10_mib_arrive_both_ways(mode: Upstream) {
    for chunk in [None, Some(5000)] {
        let answer = match chunk {
            None => Answer::pattern(2, LARGE_BYTES as u64),
            Some(size) => Answer::pattern_chunked(2, LARGE_BYTES as u64, size),
        };
        let backend = HttpBackend::always(answer.intake(Intake::Check(1)));
        let proxy = before(mode, &backend);
        run(async {
            let connection = Connection::to(proxy.address).await;
            for length in [None, Some(LARGE_BYTES)] {
                let mut asked = request("POST", "/");
                if let Some(length) = length {
                    asked.headers_mut().insert("content-length", length.into());
                }
                let (response, mut stream) = connection.begin(asked, false).await;
                let body = pattern(1, LARGE_BYTES);
                send(&mut stream, body, true).await.expect("it is taken");
                let reply = read(response).await.expect("an answer");
                assert!(reply.body == pattern(2, LARGE_BYTES), "the body is another");
            }
        });
        let intact =
            |r: &equipoise_testkit::Received| r.complete && r.body_bytes == LARGE_BYTES as u64;
        assert!(backend.requests().iter().all(intact));
        proxy.assert_drops(&[]);
    }
}

fn trailers_pass_both_ways(mode: Upstream) {
    let answer = Answer::chunked(&["a", "bc"], &["grpc-status: 0", "Grpc-Message: fine"]);
    let backend = HttpBackend::always(answer);
    let proxy = before(mode, &backend);
    run(async {
        let connection = Connection::to(proxy.address).await;
        let mut asked = request("POST", "/");
        asked.headers_mut().insert("te", "trailers".parse().expect("a value"));
        let (response, mut stream) = connection.begin(asked, false).await;
        send(&mut stream, "abc".into(), false).await.expect("it is taken");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "6".parse().expect("a value"));
        stream.send_trailers(trailers).expect("they are taken");
        let reply = read(response).await.expect("an answer");
        assert_eq!(reply.body, b"abc");
        let trailers = reply.trailers.expect("trailers");
        assert_eq!(trailers.len(), 2);
        assert_eq!(
            (&trailers["grpc-status"], &trailers["grpc-message"]),
            (&"0".parse().expect("a value"), &"fine".parse().expect("a value"),)
        );
    });
    let received = backend.requests();
    assert_eq!(received[0].body, b"abc");
    assert_eq!(received[0].trailers, [("x-sum".into(), "6".into())]);
}

fn responses_without_a_body_end_with_their_head(mode: Upstream) {
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/204" => Answer::bare(204),
        "/304" => Answer::raw("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"),
        _ => Answer::ok("1234567"),
    });
    let proxy = before(mode, &backend);
    run(async {
        let connection = Connection::to(proxy.address).await;
        for (method, path, status, length) in [
            ("HEAD", "/", 200, Some("7")),
            ("GET", "/204", 204, None),
            ("GET", "/304", 304, Some("7")),
        ] {
            let reply = connection.ask(request(method, path)).await.expect("an answer");
            assert_eq!((reply.status.as_u16(), reply.text().as_str()), (status, ""));
            let stated = reply.headers.get("content-length").map(|v| v.to_str().expect("text"));
            assert_eq!(stated, length, "{method} {path}");
        }
    });
    proxy.assert_drops(&[]);
}

fn a_reset_cancels_its_request_alone(mode: Upstream) {
    let gate = Gate::new();
    let answer = gate.clone();
    let backend = HttpBackend::start(move |request| match request.head.target() {
        "/hang" => Answer::hang(),
        "/wait" => Answer::ok("waited").first(Step::Wait(answer.clone())),
        _ => Answer::ok("ok"),
    });
    let proxy = before(mode, &backend);
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (waiting, _stream) = connection.begin(request("GET", "/wait"), true).await;
        let (hanging, mut stream) = connection.begin(request("GET", "/hang"), true).await;
        tokio::task::yield_now().await;
        while backend.requests().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stream.send_reset(h2::Reason::CANCEL);
        drop(hanging);
        let gone = || proxy.drops(Reason::ClientGone) == 1;
        while !gone() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        gate.open();
        assert_eq!(read(waiting).await.expect("an answer").text(), "waited");
        assert_eq!(connection.get("/").await.expect("an answer").text(), "ok");
    });
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[(Reason::ClientGone, 1)]);
}

fn a_response_that_is_cut_resets_its_stream(mode: Upstream) {
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/length" => {
            Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc").then(Step::Close)
        }
        "/chunks" => {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
            Answer::raw(head).then(Step::Reset)
        }
        _ => Answer::to_close("up to the close"),
    });
    let proxy = before(mode, &backend);
    run(async {
        let connection = Connection::to(proxy.address).await;
        for path in ["/length", "/chunks"] {
            let cut = connection.get(path).await.expect_err("it is cut");
            assert_eq!(cut.reason(), Some(h2::Reason::INTERNAL_ERROR), "{path}");
        }
        let reply = connection.get("/").await.expect("an answer");
        assert_eq!(reply.text(), "up to the close");
    });
    proxy.assert_drops(&[(Reason::UpstreamClosed, 2)]);
}

fn streams_that_are_open_when_the_door_closes_end_well(mode: Upstream) {
    let gate = Gate::new();
    let backend = HttpBackend::always(Answer::ok("late").first(Step::Wait(gate.clone())));
    let mut proxy = before(mode, &backend);
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (first, _) = connection.begin(request("GET", "/1"), true).await;
        let (second, _) = connection.begin(request("GET", "/2"), true).await;
        tokio::task::yield_now().await;
        while backend.requests().len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proxy.publish_nothing();
        // A client that knows of the GOAWAY opens no stream.
        while connection.sender.clone().ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        gate.open();
        assert_eq!(read(first).await.expect("an answer").text(), "late");
        assert_eq!(read(second).await.expect("an answer").text(), "late");
        connection.ended.await.expect("no panic").expect("a clean end");
    });
    assert!(eventually(|| proxy.stats.sum(|stats| stats.connections_open.get()) == 0));
    proxy.assert_drops(&[]);
}

fn a_client_that_does_not_read_holds_up_no_other_stream(mode: Upstream) {
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/large" => Answer::pattern(1, LARGE_BYTES as u64),
        _ => Answer::ok("ok"),
    });
    let proxy = plan(mode, &backend)
        .front(|front| front.timeouts.idle = Duration::from_millis(400))
        .start();
    run(async {
        let mut how = h2::client::Builder::new();
        how.initial_connection_window_size(16 << 20);
        let connection = Connection::with(proxy.address, &mut how).await;
        let (large, _stream) = connection.begin(request("GET", "/large"), true).await;
        let large = large.await.expect("an answer");
        for _ in 0..20 {
            assert_eq!(connection.get("/").await.expect("an answer").text(), "ok");
        }
        let mut body = large.into_body();
        // Without room for more, the stream is reset when it has been still for the idle time.
        while proxy.drops(Reason::ClientStalled) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let cut = read_body(&mut body).await.expect_err("it is cut");
        assert_eq!(cut.reason(), Some(h2::Reason::INTERNAL_ERROR));
    });
    proxy.assert_drops(&[(Reason::ClientStalled, 1)]);
}

#[test]
fn the_backend_sees_where_a_request_came_from_and_one_cookie() {
    let backend = HttpBackend::echo();
    let proxy = plan(Upstream::Exclusive, &backend).front(|front| front.via = true).start();
    let reply = run(async {
        let connection = Connection::to(proxy.address).await;
        let mut asked = request("GET", "/a?b");
        asked.headers_mut().append("cookie", "a=1".parse().expect("a value"));
        asked.headers_mut().append("cookie", "b=2".parse().expect("a value"));
        asked.headers_mut().append("x-forwarded-for", "1.2.3.4".parse().expect("a value"));
        connection.ask(asked).await.expect("an answer")
    });
    assert_eq!(reply.headers["via"], "1.1 edge-1");
    assert!(!reply.headers.contains_key("connection"));
    let text = reply.text();
    for line in [
        "GET /a?b HTTP/1.1\r\nHost: a.example\r\n",
        "\r\ncookie: a=1; b=2\r\n",
        "\r\nX-Forwarded-For: 127.0.0.1\r\n",
        "\r\nX-Forwarded-Proto: http\r\n",
        "\r\nVia: 2.0 edge-1\r\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    assert!(!text.contains("1.2.3.4"), "{text}");
}

#[test]
fn refusals_of_the_proxy_are_responses() {
    let proxy = Plan::new(Upstream::Exclusive, &[]).front(|front| front.http2 = true).start();
    let reply = run(async {
        let connection = Connection::to(proxy.address).await;
        connection.get("/").await.expect("an answer")
    });
    assert_eq!(reply.status, 503);
    assert_eq!(reply.headers["retry-after"], "5");
    assert_eq!(reply.headers["proxy-status"], "\"edge-1\"; error=destination_unavailable");
    proxy.assert_drops(&[(Reason::NoBackend, 1)]);
}

#[test]
fn a_body_that_is_too_large_is_refused_while_it_comes() {
    let backend = HttpBackend::echo();
    let proxy = plan(Upstream::Exclusive, &backend)
        .front(|front| front.limits.body_bytes_max = Some(1000))
        .start();
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (response, mut stream) = connection.begin(request("POST", "/"), false).await;
        let sent = send(&mut stream, pattern(1, LARGE_BYTES), true);
        let (reply, _) = tokio::join!(read(response), sent);
        assert_eq!(reply.expect("an answer").status, 413);
        assert_eq!(connection.get("/").await.expect("an answer").status, 200);
    });
    proxy.assert_drops(&[(Reason::RequestBodyTooLarge, 1)]);
}

#[test]
fn an_idle_connection_ends_with_goaway() {
    let backend = HttpBackend::named("a");
    let proxy = plan(Upstream::Exclusive, &backend)
        .front(|front| front.timeouts.idle = Duration::from_millis(200))
        .start();
    run(async {
        let connection = Connection::to(proxy.address).await;
        assert_eq!(connection.get("/").await.expect("an answer").status, 200);
        connection.ended.await.expect("no panic").expect("a clean end");
    });
    proxy.assert_drops(&[]);
}

#[test]
fn the_engine_stops_when_the_streams_have_ended() {
    let gate = Gate::new();
    let backend = HttpBackend::always(Answer::ok("late").first(Step::Wait(gate.clone())));
    let proxy = before(Upstream::Exclusive, &backend);
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (first, _) = connection.begin(request("GET", "/1"), true).await;
        tokio::task::yield_now().await;
        while backend.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let stopping = std::thread::spawn(|| proxy.stop(Duration::from_secs(20)));
        while connection.sender.clone().ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        gate.open();
        assert_eq!(read(first).await.expect("an answer").text(), "late");
        connection.ended.await.expect("no panic").expect("a clean end");
        stopping.join().expect("it stops");
    });
}

#[test]
fn http_1_is_served_on_the_same_port() {
    let backend = HttpBackend::named("a");
    let proxy = before(Upstream::Exclusive, &backend);
    assert_eq!(proxy.ask(get("/")).status(), 200);
    assert_eq!(proxy.ask(common::request("PROPFIND", "/", "")).status(), 200);
    assert_eq!(proxy.ask("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").status(), 505);
}
