//! HTTP/2 to backends: translation both ways, streaming, limits, and what is retried.

mod common;
mod common_http2;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use common::{Plan, Proxy, get, post, post_chunked, request as ask};
use common_http2::backend::{Arrived, Http2Backend, RawBackend, response};
use common_http2::{
    Connection, END_STREAM, GOAWAY, HEADERS, begin, read, read_body, request, run, send,
};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Client, HttpBackend, Pattern, eventually};
use http::{HeaderMap, Response};
use tokio::sync::Notify;

const LARGE_BYTES: usize = 10 << 20;

fn plan(backends: &[&Http2Backend]) -> Plan {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address).collect();
    Plan::new(Upstream::Http2, &addresses).front(|front| front.http2 = true)
}

fn before(backend: &Http2Backend) -> Proxy {
    plan(&[backend]).start()
}

fn pattern(seed: u64, bytes: usize) -> Bytes {
    Pattern::bytes(seed, bytes).into()
}

fn trailers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.insert(*name, value.parse().expect("a value"));
    }
    map
}

/// Sends the body of a request back, and its trailers.
async fn echo(mut arrived: Arrived) {
    let Ok(mut stream) = arrived.respond.send_response(Response::new(()), false) else { return };
    let body = arrived.request.body_mut();
    while let Some(Ok(bytes)) = body.data().await {
        let _ = body.flow_control().release_capacity(bytes.len());
        if send(&mut stream, bytes, false).await.is_err() {
            return;
        }
    }
    let _ = match body.trailers().await {
        Ok(Some(trailers)) => stream.send_trailers(trailers),
        _ => stream.send_data(Bytes::new(), true),
    };
}

/// Waits for ever.
async fn hang(arrived: Arrived) {
    let _arrived = arrived;
    std::future::pending::<()>().await;
}

#[test]
fn requests_of_many_clients_are_streams_of_one_connection() {
    let backend = Http2Backend::start(|mut arrived| async move {
        let path = arrived.path();
        arrived.say(&path);
    });
    let proxy = before(&backend);
    let mut clients: Vec<_> = (0..20).map(|_| proxy.connect()).collect();
    for round in 0..5 {
        for (at, client) in clients.iter_mut().enumerate() {
            client.send(get(&format!("/{round}/{at}")));
        }
        for (at, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.response().expect("a response").text(), format!("/{round}/{at}"));
        }
    }
    run(async {
        let connection = Connection::to(proxy.address).await;
        let mut asked = tokio::task::JoinSet::new();
        for at in 0..60 {
            let sender = connection.sender.clone();
            asked.spawn(async move {
                let path = format!("/{at}");
                let (response, _) = begin(sender, request("GET", &path), true).await;
                assert_eq!(read(response).await.expect("a response").text(), path);
            });
        }
        asked.join_all().await;
    });
    assert_eq!(backend.connections(), 1);
    let sum = |count: fn(&equipoise_session::stats::BackendStats) -> u64| {
        proxy.backends[0].live.stats.sum(count)
    };
    assert_eq!(sum(|stats| stats.requests.get()), 160);
    assert_eq!((sum(|stats| stats.sessions_opened.get()), sum(|s| s.sessions_open.get())), (1, 1));
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
}

#[test]
fn a_request_head_is_that_of_http2() {
    let backend = Http2Backend::says("ok");
    let proxy = plan(&[&backend]).front(|front| front.via = true).start();
    let lines = "Connection: keep-alive, X-Gone\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\n\
                 X-Gone: 1\r\nTE: trailers\r\nUpgrade: websocket\r\nX-Kept: a, b\r\nCookie: a=1; b=2\r\n";
    let reply = proxy.ask(ask("GET", "/path?query=1", lines));
    assert_eq!((reply.status(), reply.text().as_str()), (200, "ok"));
    assert_eq!(proxy.ask(ask("OPTIONS", "*", "")).status(), 200);
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(proxy.ask(ask("GET", "/ws", upgrade)).status(), 200);
    assert_eq!(proxy.ask("GET /old HTTP/1.0\r\n\r\n").status(), 200);
    let heads = backend.heads();
    assert_eq!(heads[0].uri, "http://a.example/path?query=1");
    let names: Vec<_> = heads[0].headers.keys().map(|name| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "x-kept",
            "cookie",
            "te",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-host",
            "via"
        ]
    );
    assert_eq!(heads[0].headers["te"], "trailers");
    assert_eq!((heads[1].method.as_str(), heads[1].uri.as_str()), ("OPTIONS", "http://a.example*"));
    assert!(!heads[2].headers.contains_key("upgrade"));
    assert_eq!(heads[3].uri, "/old");
    // Clients could make another request of it.
    assert_eq!(proxy.ask(get("/a#b")).status(), 400);
    assert_eq!(backend.heads().len(), 4);
}

#[test]
fn a_response_head_is_that_of_http11() {
    let backend = Http2Backend::start(|mut arrived| async move {
        let answer = Response::builder().header("x-a", "1").header("x-a", "2");
        let (status, length, whole) = match arrived.path().as_str() {
            "/head" => (200, Some("7"), true),
            "/204" => (204, None, true),
            "/304" => (304, Some("7"), true),
            "/empty" => (200, None, true),
            "/length" => (200, Some("3"), false),
            _ => (299, None, false),
        };
        let mut answer = answer.status(status);
        if let Some(length) = length {
            answer = answer.header("content-length", length);
        }
        let answer = answer.body(()).expect("a response");
        let mut stream = arrived.respond.send_response(answer, whole).expect("it is taken");
        if !whole {
            stream.send_data("abc".into(), true).expect("it is taken");
        }
    });
    let proxy = before(&backend);
    let rows = [
        ("HEAD", "/head", "HTTP/1.1 200 OK", Some("7"), ""),
        ("GET", "/204", "HTTP/1.1 204 No Content", None, ""),
        ("GET", "/304", "HTTP/1.1 304 Not Modified", Some("7"), ""),
        ("GET", "/empty", "HTTP/1.1 200 OK", Some("0"), ""),
        ("GET", "/length", "HTTP/1.1 200 OK", Some("3"), "abc"),
        ("GET", "/other", "HTTP/1.1 299 ", None, "abc"),
    ];
    let mut client = proxy.connect();
    for (method, path, line, length, body) in rows {
        let reply = client.send(ask(method, path, "")).response_to(method).expect("a response");
        assert!(
            reply.raw.starts_with(format!("{line}\r\n").as_bytes()),
            "{path}: {:?}",
            reply.head
        );
        assert_eq!(
            (reply.header("content-length"), reply.text().as_str()),
            (length, body),
            "{path}"
        );
        let twice = reply.raw.windows(5).filter(|window| *window == b"x-a: ").count();
        assert_eq!(twice, 2, "{path}");
    }
    let reply = proxy.ask("GET /other HTTP/1.0\r\n\r\n");
    assert_eq!((reply.text().as_str(), reply.header("transfer-encoding")), ("abc", None));
    proxy.assert_drops(&[]);
}

#[test]
fn bodies_of_10_mib_arrive_both_ways() {
    let backend = Http2Backend::start(echo);
    let proxy = before(&backend);
    let body = pattern(1, LARGE_BYTES);
    run(async {
        let connection = Connection::to(proxy.address).await;
        for length in [None, Some(LARGE_BYTES)] {
            let mut asked = request("POST", "/");
            if let Some(length) = length {
                asked.headers_mut().insert("content-length", length.into());
            }
            let (response, mut stream) = connection.begin(asked, false).await;
            let sending = send(&mut stream, body.clone(), true);
            let (sent, reply) = tokio::join!(sending, read(response));
            sent.expect("it is taken");
            assert!(reply.expect("a response").body == body, "the body is another");
        }
    });
    for head in ["Content-Length: 10485760\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut client = proxy.connect();
        client.send(ask("POST", "/", head));
        let mut writer = client.stream().try_clone().expect("a socket");
        let (upload, is_chunked) = (body.clone(), head.starts_with('T'));
        let sending = std::thread::spawn(move || {
            use std::io::Write;
            for piece in upload.chunks(100_000) {
                if is_chunked {
                    write!(writer, "{:x}\r\n", piece.len()).expect("it is taken");
                }
                writer.write_all(piece).expect("it is taken");
                if is_chunked {
                    writer.write_all(b"\r\n").expect("it is taken");
                }
            }
            if is_chunked {
                writer.write_all(b"0\r\n\r\n").expect("it is taken");
            }
        });
        assert!(client.response().expect("a response").body == body, "the body is another");
        sending.join().expect("it is sent");
    }
    assert_eq!(backend.connections(), 1);
    proxy.assert_drops(&[]);
}

#[test]
fn trailers_pass_both_ways() {
    let backend = Http2Backend::start(echo);
    let proxy = before(&backend);
    run(async {
        let connection = Connection::to(proxy.address).await;
        let mut asked = request("POST", "/");
        asked.headers_mut().insert("te", "trailers".parse().expect("a value"));
        let (response, mut stream) = connection.begin(asked, false).await;
        send(&mut stream, "abc".into(), false).await.expect("it is taken");
        stream.send_trailers(trailers(&[("x-sum", "6"), ("via", "me")])).expect("they are taken");
        let reply = read(response).await.expect("a response");
        assert_eq!(reply.body, b"abc");
        assert_eq!(reply.trailers, Some(trailers(&[("x-sum", "6")])));
    });
    let chunked = "3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n";
    let head = ask("POST", "/", "Transfer-Encoding: chunked\r\nTE: trailers\r\n");
    let reply = proxy.ask(format!("{head}{chunked}"));
    assert_eq!(reply.text(), "abc");
    assert_eq!(reply.trailers, [("x-sum".to_string(), "6".to_string())]);
    proxy.assert_drops(&[]);
}

#[test]
fn a_stream_runs_both_ways_at_once() {
    let backend = Http2Backend::start(echo);
    let proxy = before(&backend);
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (response, mut stream) = connection.begin(request("POST", "/"), false).await;
        // The response begins before the request has sent anything.
        let mut body = response.await.expect("a response").into_body();
        for at in 0..100 {
            let message = Bytes::from(format!("message {at}"));
            stream.send_data(message.clone(), false).expect("it is taken");
            let mut echoed = Vec::new();
            while echoed.len() < message.len() {
                let bytes = body.data().await.expect("more").expect("bytes");
                body.flow_control().release_capacity(bytes.len()).expect("it is open");
                echoed.extend_from_slice(&bytes);
            }
            assert_eq!(echoed, message);
        }
        stream.send_trailers(trailers(&[("grpc-status", "0")])).expect("they are taken");
        assert_eq!(read_body(&mut body).await.expect("an end"), b"");
        let ended = body.trailers().await.expect("they come");
        assert_eq!(ended, Some(trailers(&[("grpc-status", "0")])));
    });
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
}

#[test]
fn interim_responses_pass() {
    let backend = Http2Backend::start(|mut arrived| async move {
        if arrived.request.headers().contains_key("expect") {
            let go_on = Response::builder().status(100).body(()).expect("a response");
            arrived.respond.send_informational(go_on).expect("it is taken");
        }
        let hints = Response::builder().status(103).header("link", "</a>").body(());
        arrived.respond.send_informational(hints.expect("a response")).expect("it is taken");
        echo(arrived).await;
    });
    let proxy = before(&backend);
    let mut client = proxy.connect();
    client.send(ask("POST", "/", "Content-Length: 3\r\nExpect: 100-continue\r\n"));
    assert_eq!(client.head().expect("a head").status(), 100);
    let hints = client.head().expect("a head");
    assert_eq!((hints.status(), hints.header("link")), (103, Some("</a>")));
    assert_eq!(client.send("abc").response().expect("a response").text(), "abc");
    proxy.assert_drops(&[]);
}

#[test]
fn a_refused_stream_is_retried_whatever_its_method() {
    let refusals = Arc::new(AtomicUsize::new(0));
    let count = refusals.clone();
    let backend = Http2Backend::start(move |mut arrived| {
        let count = count.clone();
        async move {
            // Every second one, so that the retry succeeds.
            match count.fetch_add(1, SeqCst) % 2 {
                0 => arrived.reset(h2::Reason::REFUSED_STREAM),
                _ => arrived.say("ok"),
            }
        }
    });
    let proxy = plan(&[&backend]).pool(|pool| pool.retry_budget = 1.0).start();
    for _ in 0..10 {
        assert_eq!(proxy.ask(post("/", "abc")).text(), "ok");
    }
    assert_eq!(refusals.load(SeqCst), 20);
    assert_eq!(backend.connections(), 1);
    proxy.assert_drops(&[]);
}

#[test]
fn a_request_that_may_have_been_processed_is_retried_if_it_is_idempotent() {
    let failing = Http2Backend::start(|mut arrived| async move {
        arrived.reset(h2::Reason::INTERNAL_ERROR);
    });
    let proxy = plan(&[&failing]).pool(|pool| pool.retry_budget = 1.0).start();
    assert_eq!(proxy.ask(post("/", "abc")).status(), 502);
    assert_eq!(failing.heads().len(), 1);
    assert_eq!(proxy.ask(get("/")).status(), 502);
    assert_eq!(failing.heads().len(), 3);
    proxy.assert_drops(&[(Reason::UpstreamClosed, 2)]);
}

#[test]
fn requests_above_the_last_stream_of_a_goaway_are_retried_and_others_end() {
    let backend = RawBackend::start();
    let proxy = Plan::new(Upstream::Http2, &[backend.address()]).start();
    let mut clients: Vec<_> = (0..3).map(|_| proxy.connect()).collect();
    clients[0].send(post("/0", "abc"));
    let mut first = backend.accept(&[]);
    assert_eq!(first.read_until(HEADERS).stream, 1);
    for (at, client) in clients.iter_mut().enumerate().skip(1) {
        client.send(post(&format!("/{at}"), "abc"));
        assert_eq!(first.read_until(HEADERS).stream, 2 * at as u32 + 1);
    }
    // Streams 1 and 3 are processed, 5 is not.
    let goaway = [3u32.to_be_bytes(), 0u32.to_be_bytes()].concat();
    first.frame(GOAWAY, 0, 0, &goaway);
    let mut second = backend.accept(&[]);
    assert_eq!(second.read_until(HEADERS).stream, 1);
    response(&mut first, 3, &[(":status", "204")], END_STREAM);
    response(&mut second, 1, &[(":status", "204")], END_STREAM);
    response(&mut first, 1, &[(":status", "204")], END_STREAM);
    for client in &mut clients {
        assert_eq!(client.response().expect("a response").status(), 204);
    }
    // The first connection ends with its last stream.
    assert_eq!(std::iter::from_fn(|| first.read()).filter(|f| f.kind == HEADERS).count(), 0);
    clients[0].send(get("/more"));
    assert_eq!(second.read_until(HEADERS).stream, 3);
    response(&mut second, 3, &[(":status", "204")], END_STREAM);
    assert_eq!(clients[0].response().expect("a response").status(), 204);
    proxy.assert_drops(&[]);
}

#[test]
fn more_streams_than_the_backend_permits_open_further_connections() {
    let (go, waiting) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (at_backend, count) = (go.clone(), waiting.clone());
    let mut settings = h2::server::Builder::new();
    settings.max_concurrent_streams(3);
    let backend = Http2Backend::with(settings, move |mut arrived| {
        let (go, count) = (at_backend.clone(), count.clone());
        async move {
            let released = go.notified();
            count.fetch_add(1, SeqCst);
            released.await;
            arrived.say("ok");
        }
    });
    let proxy = before(&backend);
    let mut clients: Vec<_> = (0..10).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.send(post("/", "abc"));
    }
    assert!(eventually(|| waiting.load(SeqCst) == 10));
    go.notify_waiters();
    for client in &mut clients {
        assert_eq!(client.response().expect("a response").text(), "ok");
    }
    assert_eq!(backend.connections(), 4);
    let most = |connection| backend.heads().iter().filter(|h| h.connection == connection).count();
    assert!((0..4).all(|connection| most(connection) <= 3));
    proxy.assert_drops(&[]);
}

#[test]
fn the_pool_bounds_the_streams_of_a_connection() {
    let backend = Http2Backend::start(hang);
    let proxy = plan(&[&backend]).pool(|pool| pool.streams_max = 2).start();
    let mut clients: Vec<_> = (0..6).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.send(get("/"));
    }
    assert!(eventually(|| backend.heads().len() == 6));
    assert_eq!(backend.connections(), 3);
}

#[test]
fn an_idle_connection_is_closed_and_a_request_opens_another() {
    let backend = Http2Backend::says("ok");
    let idle = Duration::from_millis(100);
    let proxy = plan(&[&backend]).pool(|pool| pool.session_idle_timeout = idle).start();
    let mut client = proxy.connect();
    for round in 1..=2 {
        assert_eq!(client.ask(get("/")).expect("a response").text(), "ok");
        assert!(eventually(|| backend.open() == 0));
        assert_eq!(backend.connections(), round);
    }
    let open = || proxy.backends[0].live.stats.sum(|stats| stats.sessions_open.get());
    assert!(eventually(|| open() == 0));
    proxy.assert_drops(&[]);
}

#[test]
fn connections_to_a_removed_backend_end_with_their_last_stream() {
    let go = Arc::new(Notify::new());
    let at_backend = go.clone();
    let backend = Http2Backend::start(move |mut arrived| {
        let go = at_backend.clone();
        async move {
            go.notified().await;
            arrived.say("ok");
        }
    });
    let mut proxy = before(&backend);
    let mut client = proxy.connect();
    client.send(get("/"));
    assert!(eventually(|| backend.heads().len() == 1));
    proxy.backends.clear();
    proxy.publish().expect("nothing is bound");
    assert_eq!(backend.open(), 1);
    go.notify_one();
    assert_eq!(client.response().expect("a response").text(), "ok");
    assert!(eventually(|| backend.open() == 0));
}

#[test]
fn a_backend_that_does_not_speak_http2_is_to_blame() {
    let backend = HttpBackend::echo();
    let proxy = Plan::new(Upstream::Http2, &[backend.address()]).start();
    let reply = proxy.ask(post("/", "abc"));
    assert_eq!(reply.status(), 502, "{}", reply.text());
    assert!(backend.requests().iter().all(|request| request.head.target() == "*"));
    let failures = |reason: Reason| {
        proxy.backends[0].live.stats.sum(|stats| stats.failures[reason as usize].get())
    };
    assert!(failures(Reason::UpstreamMalformed) + failures(Reason::UpstreamClosed) > 0);
    let refused = equipoise_testkit::free_port();
    let proxy = Plan::new(Upstream::Http2, &[refused.address()]).start();
    assert_eq!(proxy.ask(post("/", "abc")).status(), 502);
    proxy.assert_drops(&[(Reason::ConnectRefused, 1)]);
}

#[test]
fn malformed_responses_are_refused() {
    let backend = RawBackend::start();
    let address = backend.address();
    let rows: [&[(&str, &str)]; 8] = [
        &[("x-a", "1")],
        &[(":status", "101")],
        &[(":status", "200"), ("connection", "close")],
        &[(":status", "200"), ("transfer-encoding", "chunked")],
        &[(":status", "200"), ("X-Upper", "1")],
        &[(":status", "200"), ("x-a", " spaced")],
        &[(":status", "200"), ("x-a", "a\r\nb: c")],
        &[(":status", "200"), ("content-length", "1"), ("content-length", "2")],
    ];
    let serving = std::thread::spawn(move || {
        for fields in rows {
            let mut raw = backend.accept(&[]);
            let stream = raw.read_until(HEADERS).stream;
            response(&mut raw, stream, fields, 0);
            // The proxy resets the stream or ends the connection.
            while raw.read().is_some_and(|f| ![GOAWAY, common_http2::RST_STREAM].contains(&f.kind))
            {
            }
        }
    });
    for fields in rows {
        // A connection each.
        let proxy = Plan::new(Upstream::Http2, &[address]).pool(|pool| pool.retries = 0).start();
        let reply = proxy.ask(post("/", "abc"));
        assert_eq!(reply.status(), 502, "{fields:?}: {}", reply.text());
        proxy.assert_drops(&[(Reason::UpstreamMalformed, 1)]);
    }
    serving.join().expect("it served");
}

#[test]
fn a_response_that_is_cut_is_cut_for_the_client() {
    let backend = Http2Backend::start(|mut arrived| async move {
        let mut stream = arrived.respond.send_response(Response::new(()), false).expect("taken");
        stream.send_data("abc".into(), false).expect("it is taken");
        arrived.request.body_mut().data().await;
        stream.send_reset(h2::Reason::INTERNAL_ERROR);
    });
    let proxy = before(&backend);
    let mut client = proxy.connect();
    client.send(ask("POST", "/", "Content-Length: 3\r\n"));
    assert_eq!(client.head().expect("a head").status(), 200);
    client.send("abc");
    assert_ne!(client.read_to_end().1, equipoise_testkit::Ending::StillOpen);
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (response, mut stream) = connection.begin(request("POST", "/"), false).await;
        let mut body = response.await.expect("a head").into_body();
        stream.send_data("abc".into(), true).expect("it is taken");
        let cut = read_body(&mut body).await.expect_err("it is cut");
        assert_eq!(cut.reason(), Some(h2::Reason::INTERNAL_ERROR));
    });
    proxy.assert_drops(&[(Reason::UpstreamClosed, 2)]);
}

#[test]
fn a_client_that_leaves_cancels_its_stream_alone() {
    let (cancelled, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (at_backend, go) = (cancelled.clone(), count.clone());
    let backend = Http2Backend::start(move |mut arrived| {
        let (cancelled, go) = (at_backend.clone(), go.clone());
        async move {
            if arrived.path() == "/leaves" {
                let reason = poll_fn(|cx| arrived.respond.poll_reset(cx)).await;
                assert_eq!(reason.expect("a reset"), h2::Reason::CANCEL);
                cancelled.fetch_add(1, SeqCst);
            } else {
                go.notified().await;
                arrived.say("stays");
            }
        }
    });
    let proxy = before(&backend);
    let mut stays = proxy.connect();
    stays.send(get("/stays"));
    let mut leaves = proxy.connect();
    leaves.send(get("/leaves"));
    assert!(eventually(|| backend.heads().len() == 2));
    leaves.reset();
    assert!(eventually(|| cancelled.load(SeqCst) == 1));
    run(async {
        let connection = Connection::to(proxy.address).await;
        let (response, mut stream) = connection.begin(request("POST", "/leaves"), false).await;
        while backend.heads().len() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stream.send_reset(h2::Reason::CANCEL);
        drop(response);
        while cancelled.load(SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    count.notify_waiters();
    assert_eq!(stays.response().expect("a response").text(), "stays");
    assert_eq!(backend.connections(), 1);
    proxy.assert_drops(&[(Reason::ClientGone, 2)]);
}

#[test]
fn a_client_that_does_not_read_holds_up_no_other() {
    let backend = Http2Backend::start(|mut arrived| async move {
        if arrived.path() != "/large" {
            return arrived.say("ok");
        }
        let answer = arrived.respond.send_response(Response::new(()), false);
        let _ = send(&mut answer.expect("taken"), pattern(1, 64 << 20), true).await;
    });
    let proxy = before(&backend);
    let mut slow: Vec<_> = (0..50).map(|_| proxy.connect()).collect();
    for client in &mut slow {
        client.send(get("/large"));
    }
    for client in &mut slow {
        assert_eq!(client.head().expect("a head").status(), 200);
    }
    let mut client = proxy.connect();
    for _ in 0..100 {
        assert_eq!(client.ask(get("/")).expect("a response").text(), "ok");
    }
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_late_response_is_hedged() {
    let slow = Http2Backend::start(hang);
    let quick = Http2Backend::says("quick");
    let after = equipoise_session::config::Hedge::After(Duration::from_millis(20));
    let proxy = plan(&[&slow, &quick])
        .pool(|pool| (pool.hedge, pool.retry_budget) = (Some(after), 1.0))
        .start();
    for _ in 0..4 {
        assert_eq!(proxy.ask(get("/")).text(), "quick");
    }
    assert!(proxy.stats.sum(|stats| stats.hedges_won.get()) > 0);
    proxy.assert_drops(&[]);
}

#[test]
fn a_connection_on_which_nothing_comes_gets_no_further_streams() {
    let backend = RawBackend::start();
    let within = Duration::from_millis(5100);
    let proxy = Plan::new(Upstream::Http2, &[backend.address()])
        .pool(|pool| pool.response_timeout = within)
        .start();
    let mut client = proxy.connect();
    client.send(get("/"));
    let mut silent = backend.accept(&[]);
    silent.read_until(HEADERS);
    assert_eq!(client.response().expect("a response").status(), 504);
    let mut client = proxy.connect();
    client.send(get("/"));
    let mut second = backend.accept(&[]);
    let stream = second.read_until(HEADERS).stream;
    response(&mut second, stream, &[(":status", "204")], END_STREAM);
    assert_eq!(client.response().expect("a response").status(), 204);
    proxy.assert_drops(&[(Reason::ResponseTimeout, 1)]);
}

#[test]
fn streams_that_are_open_at_a_stop_end() {
    let go = Arc::new(Notify::new());
    let at_backend = go.clone();
    let backend = Http2Backend::start(move |mut arrived| {
        let go = at_backend.clone();
        async move {
            go.notified().await;
            arrived.say("ok");
        }
    });
    let proxy = before(&backend);
    let mut client = Client::connect(proxy.address);
    client.send(post_chunked("/", "abc"));
    assert!(eventually(|| backend.heads().len() == 1));
    let stopping = std::thread::spawn(move || proxy.stop(Duration::from_secs(30)));
    go.notify_one();
    assert_eq!(client.response().expect("a response").text(), "ok");
    stopping.join().expect("it stops");
    assert!(eventually(|| backend.open() == 0));
}
