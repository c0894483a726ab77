//! WebSockets over HTTP/2 (RFC 8441): tunnels of clients to backends of HTTP/1.1.

mod common;
mod common_http2;

use bytes::Bytes;
use common::{Plan, Proxy};
use common_http2::{Connection, read, read_body, run};
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, HttpBackend};
use h2::ext::Protocol;
use http::{Method, Request};

fn before(backend: &HttpBackend) -> Proxy {
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    plan.front(|front| front.http2 = true).start()
}

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
fn what_is_no_tunnel_is_no_success() {
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
}
