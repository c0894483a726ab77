//! HTTP/2 to backends: translation both ways, streaming, limits; faults are in `faults`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common_http2/mod.rs"]
mod common_http2;
mod faults;

use std::future::poll_fn;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use common::{Plan, Proxy, get, post, post_chunked, request as ask};
use common_http2::backend::{Arrived, Http2Backend, RawBackend, response};
use common_http2::{
    Connection, DATA, END_STREAM, GET, GOAWAY, HEADERS, Raw, SETTINGS, WINDOW_UPDATE, begin, frame,
    read, read_body, request, run, send,
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
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n";
    assert_eq!(proxy.ask(ask("GET", "/ws", upgrade) + "x").status(), 200);
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

/// `h2` bounds how many small frames it holds, whatever the windows permit.
#[test]
fn small_messages_to_a_client_that_does_not_read_hold_up_no_other() {
    const MESSAGES: usize = 20_000;
    let backend = RawBackend::start();
    let plan = Plan::new(Upstream::Http2, &[backend.address()]).front(|front| front.http2 = true);
    let proxy = plan.pool(|pool| pool.streams_max = 10).start();
    let mut slow = Raw::to(proxy.address);
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    slow.frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).ask(1, &GET);
    let mut raw = backend.accept(&[]);
    assert_eq!(raw.read_until(HEADERS).stream, 1);
    response(&mut raw, 1, &[(":status", "200")], 0);
    let messages = frame(DATA, 0, 1, b"0123456789").repeat(MESSAGES);
    raw.0.write_all(&messages).expect("they are taken");
    raw.meet();
    let mut other = proxy.connect();
    other.send(get("/"));
    assert_eq!(raw.read_until(HEADERS).stream, 3);
    response(&mut raw, 3, &[(":status", "204")], END_STREAM);
    assert_eq!(other.response().expect("a response").status(), 204);
    raw.frame(DATA, END_STREAM, 1, &[]);
    for stream in [0, 1] {
        slow.frame(WINDOW_UPDATE, 0, stream, &(1u32 << 20).to_be_bytes());
    }
    let mut received = Vec::new();
    loop {
        let frame = slow.read_until(DATA);
        received.extend_from_slice(&frame.payload);
        if frame.flags & END_STREAM != 0 {
            break;
        }
    }
    assert!(received == b"0123456789".repeat(MESSAGES), "{} bytes", received.len());
    proxy.assert_drops(&[]);
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
