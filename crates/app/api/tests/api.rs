//! The API over real sockets, with an operator that only records its calls.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use common::{Recorder, open_api};
use equipoise_api::client::{Client, ClientError, Endpoint};
use equipoise_api::listen::{ApiTcp, ApiUnix, ListenError};
use equipoise_api::routes::backends::{DISABLE, DRAIN, ENABLE, UNDRAIN, WEIGHT};
use equipoise_api::routes::config::RELOAD;
use equipoise_api::routes::process::STATUS;
use equipoise_api::wire::SetWeight;
use equipoise_api::{serve_tcp, serve_unix};
use equipoise_testkit::Folder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

fn serve(socket: &Path, operator: Arc<Recorder>) -> Client {
    let listener = ApiUnix::bind(socket).unwrap();
    tokio::spawn(serve_unix(listener, open_api(&operator), std::future::pending()));
    Client::new(Endpoint::Unix(socket.into()))
}

#[tokio::test]
async fn client_requests_reach_the_operator_with_their_arguments() {
    let folder = Folder::new("asks");
    let operator = Arc::new(Recorder::default());
    let client = serve(&folder.path("api.sock"), Arc::clone(&operator));
    assert_eq!(client.ask(STATUS, &()).await.unwrap().instance, "test");
    for action in [DRAIN, UNDRAIN, ENABLE, DISABLE] {
        client.ask(action.of(["web", "[::1]:80"]), &()).await.unwrap();
    }
    let changed = client.ask(WEIGHT.of(["web", "a/b c"]), &SetWeight { weight: 7 }).await;
    assert_eq!(changed.unwrap().backend.weight, 7);
    assert_eq!(client.ask(RELOAD, &()).await.unwrap().backends, 2);
    assert_eq!(
        operator.asked(),
        [
            "web [::1]:80 drain",
            "web [::1]:80 up",
            "web [::1]:80 up",
            "web [::1]:80 down",
            "web a/b c weight 7",
            "reload"
        ]
    );
}

#[tokio::test]
async fn a_connection_accepted_before_a_stop_gets_its_first_answer() {
    let folder = Folder::new("stop");
    let socket = folder.path("api.sock");
    let listener = ApiUnix::bind(&socket).unwrap();
    let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let api = open_api(&Arc::new(Recorder::default()));
    let served = tokio::spawn(serve_unix(listener, api, async { drop(stopping.await) }));
    let request = b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut silent = UnixStream::connect(&socket).await.unwrap();
    // The answer shows that the connection before this one is accepted too.
    let mut asked = UnixStream::connect(&socket).await.unwrap();
    asked.write_all(request).await.unwrap();
    assert!(asked.read(&mut [0; 1 << 16]).await.unwrap() > 0);

    drop(stop);
    let mut rest = Vec::new();
    asked.read_to_end(&mut rest).await.unwrap();
    silent.write_all(request).await.unwrap();
    let mut answer = String::new();
    silent.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    served.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_client_receives_the_status_and_all_errors_of_a_refusal() {
    let folder = Folder::new("refusal");
    let errors = vec!["f:1: one".to_owned(), "f:2: two".to_owned()];
    let operator = Arc::new(Recorder { reload_errors: errors.clone(), ..Recorder::default() });
    let client = serve(&folder.path("api.sock"), operator);
    match client.ask(RELOAD, &()).await {
        Err(ClientError::Refused(problem)) => {
            assert_eq!((problem.status, problem.errors), (422, errors));
        }
        other => panic!("{other:?}"),
    }
    match client.ask(DRAIN.of(["missing", "b"]), &()).await {
        Err(ClientError::Refused(problem)) => assert_eq!(problem.status, 404),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_socket_has_mode_0600_and_is_removed_on_drop() {
    let folder = Folder::new("private");
    let path = folder.path("api.sock");
    let listener = ApiUnix::bind(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(listener);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_live_socket_is_refused_and_a_stale_one_replaced() {
    let folder = Folder::new("stale");
    let path = folder.path("api.sock");
    let first = ApiUnix::bind(&path).unwrap();
    let error = ApiUnix::bind(&path).unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("`api.socket`"));
    drop(first);

    // Another program's socket, without our lock: first alive, then dead.
    let other = UnixListener::bind(&path).unwrap();
    assert!(matches!(ApiUnix::bind(&path).unwrap_err(), ListenError::InUse { .. }));
    drop(other);
    assert!(path.exists());
    drop(ApiUnix::bind(&path).unwrap());

    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(ApiUnix::bind(&path).unwrap_err(), ListenError::NotASocket { .. }));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

/// Status line, headers and body of the answer to `request`.
async fn raw(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn requests_with_a_foreign_host_or_origin_are_refused() {
    let operator = Arc::new(Recorder::default());
    let listener = ApiTcp::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_tcp(listener, open_api(&operator), std::future::pending()));
    let rows = [
        ("GET /v1/status", "Host: 127.0.0.1", "200"),
        ("GET /metrics", "Host: localhost:99", "200"),
        ("GET /v1/health", "Host: [::1]", "200"),
        ("GET /v1/status", "Host: evil.example", "403"),
        ("GET /metrics", "Host: 10.0.0.1", "403"),
        ("POST /v1/reload", "Host: localhost\r\nOrigin: http://evil.example", "403"),
        ("POST /v1/reload", "Host: localhost\r\nOrigin: null", "403"),
        (
            "POST /v1/pools/w/backends/b/drain",
            "Host: localhost\r\nOrigin: http://localhost:1",
            "403",
        ),
        // The dashboard's own change passes the guard, and then lacks the role.
        ("POST /v1/pools/w/backends/b/drain", "Host: localhost\r\nOrigin: http://localhost", "403"),
        ("POST /v1/why", "Host: localhost\r\nOrigin: http://evil.example", "403"),
        ("GET /v1/status", "Host: localhost\r\nOrigin: http://localhost", "200"),
        ("GET /nothing", "Host: localhost", "404"),
        ("GET /v1/reload", "Host: localhost", "405"),
        ("PUT /v1/pools/w/backends/b/weight", "Host: localhost\r\nContent-Length: 0", "403"),
    ];
    for (start, headers, status) in rows {
        let request = format!("{start} HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n");
        let answer = raw(address, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}{answer}");
        let is_problem = answer.contains("content-type: application/problem+json");
        assert_eq!(is_problem, status != "200", "{answer}");
    }
    assert!(operator.asked().is_empty(), "{:?}", operator.asked());
}

#[tokio::test]
async fn dashboard_files_are_served_with_media_types_and_a_strict_csp() {
    let listener = ApiTcp::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_tcp(listener, open_api(&Arc::default()), std::future::pending()));
    for (path, media_type) in
        [("/", "text/html"), ("/dashboard.js", "text/javascript"), ("/dashboard.css", "text/css")]
    {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = raw(address, &request).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains(&format!("content-type: {media_type}; charset=utf-8")), "{answer}");
        let policy = "content-security-policy: default-src 'none'; script-src 'self'; \
             style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'";
        assert!(answer.lines().any(|line| line == policy), "{answer}");
        assert!(path != "/" || answer.contains("<title>equipoise</title>"), "{answer}");
    }
}

#[tokio::test]
async fn metrics_are_openmetrics_if_accepted_and_plain_text_otherwise() {
    let listener = ApiTcp::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_tcp(listener, open_api(&Arc::default()), std::future::pending()));
    let prometheus = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    for (accept, media_type, has_end) in [
        (prometheus, "application/openmetrics-text; version=1.0.0", true),
        ("Accept: text/plain;version=0.0.4\r\n", "text/plain; version=0.0.4", false),
        ("", "text/plain; version=0.0.4", false),
    ] {
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}Connection: close\r\n\r\n"
        );
        let answer = raw(address, &request).await;
        assert!(answer.contains(&format!("content-type: {media_type}")), "{answer}");
        assert!(answer.contains("\nequipoise_threads 3\n"), "{answer}");
        assert_eq!(answer.ends_with("# EOF\n"), has_end, "{answer}");
    }
}

#[tokio::test]
async fn an_address_in_use_is_named_with_its_option() {
    let taken = ApiTcp::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = taken.local_addr().unwrap();
    let text = ApiTcp::bind(address).await.unwrap_err().to_string();
    assert!(text.contains(&address.to_string()) && text.contains("`api.listen`"), "{text}");
}
