//! WebSockets over HTTP/2 (RFC 8441): tunnels of clients, and tunnels to backends.

mod common;
mod common_http2;

use std::io::Write;

use bytes::Bytes;
use common::{Plan, Proxy, request as ask};
use common_http2::backend::{Arrived, Http2Backend};
use common_http2::{Connection, read, read_body, run, send};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Ending, HttpBackend, Pattern};
use h2::ext::Protocol;
use http::{Method, Request, Response};

fn before(backend: &HttpBackend) -> Proxy {
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    plan.front(|front| front.http2 = true).start()
}

/// A backend that permits tunnels: it sends their bytes back, and answers other requests.
fn tunnels() -> Http2Backend {
    let mut how = h2::server::Builder::new();
    how.enable_connect_protocol();
    Http2Backend::with(how, |mut arrived: Arrived| async move {
        let protocol = arrived.request.extensions().get::<Protocol>().cloned();
        match arrived.path().as_str() {
            "/refused" => {
                let refused = Response::builder().status(403).body(()).expect("a response");
                let _ = arrived.respond.send_response(refused, true);
            }
            "/cut" => arrived.reset(h2::Reason::INTERNAL_ERROR),
            _ if protocol.is_none() => arrived.say("no tunnel"),
            _ => {
                assert_eq!(protocol.expect("it is there").as_str(), "websocket");
                let opened = Response::builder().header("sec-websocket-protocol", "chat");
                let opened = opened.body(()).expect("a response");
                let Ok(mut stream) = arrived.respond.send_response(opened, false) else { return };
                let body = arrived.request.body_mut();
                while let Some(Ok(bytes)) = body.data().await {
                    let _ = body.flow_control().release_capacity(bytes.len());
                    let _ = send(&mut stream, bytes, false).await;
                }
                let _ = stream.send_data(Bytes::from("bye"), true);
            }
        }
    })
}

fn to(backend: &Http2Backend) -> Proxy {
    Plan::new(Upstream::Http2, &[backend.address]).front(|front| front.http2 = true).start()
}

/// Lines of an upgrade, with the key of RFC 6455, section 1.3.
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A request for a tunnel.
fn asked(protocol: &'static str) -> Request<()> {
    let request = Request::builder().method(Method::CONNECT).uri("http://a.example/chat");
    let request =
        request.header("sec-websocket-version", "13").header("origin", "http://a.example");
    request.extension(Protocol::from_static(protocol)).body(()).expect("a request")
}

/// A connection to a server that has announced tunnels.
async fn connected(proxy: &Proxy) -> Connection {
    let connection = Connection::to(proxy.address).await;
    // The first answer comes behind the settings.
    connection.get("/").await.expect("an answer");
    assert!(connection.sender.is_extended_connect_protocol_enabled());
    connection
}

#[test]
fn a_websocket_becomes_an_upgrade_and_its_bytes_pass_both_ways() {
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/chat" => Answer::upgrade("websocket"),
        _ => Answer::ok(b"first"),
    });
    let proxy = before(&backend);
    run(async {
        let connection = connected(&proxy).await;
        let (response, mut stream) = connection.begin(asked("websocket"), false).await;
        let response = response.await.expect("a response");
        assert_eq!(response.status(), 200);
        for name in ["upgrade", "connection", "sec-websocket-accept", "content-length"] {
            assert!(response.headers().get(name).is_none(), "{name}");
        }
        let mut body = response.into_body();
        // The backend of the test echoes.
        for text in ["hello", "again"] {
            stream.send_data(Bytes::from(text), false).expect("room");
            let mut echoed = Vec::new();
            while echoed.len() < text.len() {
                let data = body.data().await.expect("more").expect("no reset");
                body.flow_control().release_capacity(data.len()).expect("it is open");
                echoed.extend_from_slice(&data);
            }
            assert_eq!(echoed, text.as_bytes());
        }
        // The end passes, too.
        stream.send_data(Bytes::new(), true).expect("it is open");
        assert!(read_body(&mut body).await.expect("no reset").is_empty());
        // The connection serves on.
        assert_eq!(connection.get("/").await.expect("an answer").text(), "first");
    });
    let requests = backend.requests();
    let head = &requests.iter().find(|it| it.head.target() == "/chat").expect("it came").head;
    assert!(head.says("connection", "upgrade") && head.says("upgrade", "websocket"));
    assert_eq!(head.header("host"), Some("a.example"));
    assert_eq!(head.header("sec-websocket-version"), Some("13"));
    let key = head.header("sec-websocket-key").expect("a key");
    assert!(key.len() == 24 && key.ends_with("=="), "{key}");
}

#[test]
fn a_tunnel_request_fails_unless_the_backend_upgrades() {
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/" => Answer::ok(b"first"),
        _ if request.head.header("origin").is_some() => Answer::ok(b"no tunnel"),
        _ => Answer::sized(403, "no"),
    });
    let proxy = before(&backend);
    run(async {
        let connection = connected(&proxy).await;
        // The backend ignores the upgrade: its 200 would be an open tunnel.
        let (response, _stream) = connection.begin(asked("websocket"), false).await;
        assert!(response.await.is_err());
        let mut refused = asked("websocket");
        refused.headers_mut().remove("origin");
        let (response, _stream) = connection.begin(refused, false).await;
        assert_eq!(read(response).await.expect("a response").status, 403);
        let (response, _stream) = connection.begin(asked("connect-udp"), false).await;
        assert_eq!(read(response).await.expect("a response").status, 501);
        assert_eq!(connection.get("/").await.expect("an answer").status, 200);
    });
    assert_eq!(proxy.drops(Reason::TunnelProtocol), 1);
}

#[test]
fn an_upgrade_becomes_a_tunnel_over_http2() {
    let backend = tunnels();
    let proxy = to(&backend);
    let mut client = proxy.connect();
    client.send(ask("GET", "/chat?a=b", UPGRADE));
    let switched = client.response().expect("an answer");
    assert_eq!((switched.status(), switched.header("upgrade")), (101, Some("websocket")));
    assert!(switched.head.says("connection", "upgrade"));
    assert_eq!(switched.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(switched.header("sec-websocket-protocol"), Some("chat"));
    for size in [1, 125, 70_000, 3_000_000] {
        let bytes = Pattern::bytes(size as u64, size);
        let mut writer = client.stream().try_clone().expect("a descriptor is free");
        std::thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&bytes).expect("it is open"));
            assert!(client.read_exactly(size).expect("an echo") == bytes, "{size} bytes");
        });
    }
    // The end passes both ways.
    client.finish();
    assert_eq!(client.read_to_end(), (b"bye".to_vec(), Ending::Closed));
    let heads = backend.heads();
    assert_eq!(
        (heads[0].method.as_str(), heads[0].uri.as_str()),
        ("CONNECT", "http://a.example/chat?a=b")
    );
    for name in ["upgrade", "connection", "sec-websocket-key", "content-length"] {
        assert!(heads[0].headers.get(name).is_none(), "{name}");
    }
    assert_eq!(heads[0].headers["sec-websocket-version"], "13");
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
}

#[test]
fn a_tunnel_passes_over_http2_on_both_sides() {
    let backend = tunnels();
    let proxy = to(&backend);
    run(async {
        let connection = connected(&proxy).await;
        let (response, mut stream) = connection.begin(asked("websocket"), false).await;
        let response = response.await.expect("a response");
        assert_eq!(response.status(), 200);
        for name in ["upgrade", "connection", "sec-websocket-accept"] {
            assert!(response.headers().get(name).is_none(), "{name}");
        }
        send(&mut stream, Bytes::from("hello"), true).await.expect("room");
        let mut body = response.into_body();
        assert_eq!(read_body(&mut body).await.expect("no reset"), b"hellobye");
        // A client that leaves resets the backend's stream, too; others go on.
        let (response, stream) = connection.begin(asked("websocket"), false).await;
        drop((response.await.expect("a response"), stream));
        assert_eq!(connection.get("/").await.expect("an answer").text(), "no tunnel");
    });
    assert_eq!(backend.connections(), 1);
}

#[test]
fn a_refused_or_reset_http2_tunnel_returns_an_error_status() {
    let backend = tunnels();
    let proxy = to(&backend);
    assert_eq!(proxy.ask(ask("GET", "/refused", UPGRADE)).status(), 403);
    assert_eq!(proxy.ask(ask("GET", "/cut", &format!("{UPGRADE}X: 1\r\n"))).status(), 502);
    // A body is no begin of a tunnel.
    let upload = proxy.ask(ask("POST", "/", &format!("{UPGRADE}Content-Length: 1\r\n")) + "x");
    assert_eq!(upload.text(), "no tunnel");
    // Without leave of the backend there is no tunnel, and the reason is counted.
    let backend = Http2Backend::says("ok");
    let proxy = to(&backend);
    assert_eq!(proxy.ask(ask("GET", "/chat", UPGRADE)).status(), 502);
    proxy.assert_drops(&[(Reason::UpstreamNoTunnels, 1)]);
    assert!(backend.heads().is_empty());
}
