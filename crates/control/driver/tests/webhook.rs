//! The webhook driver with a real HTTP service.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use equipoise_driver::{Ask, Backoff, Driver, Token, WebhookDriver, WebhookOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// The requests that a service received, and its answers.
#[derive(Clone, Default)]
struct Service {
    asked: Arc<Mutex<Vec<Asked>>>,
    answers: Arc<Mutex<VecDeque<Response>>>,
}

#[derive(Clone, Debug)]
struct Asked {
    path: String,
    headers: HeaderMap,
    body: serde_json::Value,
}

async fn answer(
    State(service): State<Service>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = serde_json::from_slice(&body).unwrap();
    let asked = Asked { path: uri.to_string(), headers, body };
    service.asked.lock().unwrap().push(asked);
    let next = service.answers.lock().unwrap().pop_front();
    next.unwrap_or_else(|| "nothing more was expected".into_response())
}

const FINE: &str = r#"{"address": "10.0.0.7:8080", "id": "i-7"}"#;

impl Service {
    async fn start(answers: impl IntoIterator<Item = Response>) -> (Service, SocketAddr) {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        let service = Service { answers, ..Service::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (service, address)
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn options(base: &str) -> WebhookOptions {
    let millis = Duration::from_millis;
    WebhookOptions {
        add: format!("{base}/add?zone=b"),
        remove: format!("{base}/remove"),
        list: Some(format!("{base}/list")),
        token: Some(Token::new("s3cret")),
        timeout: Duration::from_secs(60),
        tries: 3,
        retry: Backoff { first: millis(10), most: millis(20) },
        ca: None,
    }
}

fn driver(address: SocketAddr) -> WebhookDriver {
    WebhookDriver::open("web", options(&format!("http://{address}"))).unwrap()
}

fn ask() -> Ask {
    Ask {
        pool: "web".to_string(),
        name: "web-e1".to_string(),
        size: None,
        key: "web-e1-k".to_string(),
        attempt: 1,
        address: None,
        id: None,
    }
}

fn chain(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {}", chain(cause)))
}

#[tokio::test]
async fn requests_carry_the_token_and_an_idempotency_key() {
    let list = r#"{"backends": [{"name": "web-e1", "address": "10.0.0.7:8080"}]}"#;
    let answers = [FINE, "", list].map(IntoResponse::into_response);
    let (service, address) = Service::start(answers).await;
    let driver = driver(address);
    let added = driver.add(&ask()).await.unwrap();
    assert_eq!((added.address.to_string().as_str(), added.id.as_str()), ("10.0.0.7:8080", "i-7"));
    driver.remove(&Ask { id: Some(added.id), ..ask() }).await.unwrap();
    assert_eq!(driver.list().await.unwrap().unwrap()[0].name, "web-e1");
    let asked = service.asked();
    let paths: Vec<&str> = asked.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["/add?zone=b", "/remove", "/list"]);
    assert_eq!(asked[0].headers["authorization"], "Bearer s3cret");
    assert_eq!(asked[0].headers["host"], address.to_string());
    assert_eq!(asked[0].headers["idempotency-key"], "web-e1-k-add");
    assert_eq!(asked[1].headers["idempotency-key"], "web-e1-k-remove");
    assert_eq!((&asked[1].body["action"], &asked[1].body["id"]), (&"remove".into(), &"i-7".into()));
}

#[tokio::test]
async fn a_temporary_failure_is_retried_under_the_same_key() {
    let busy = (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")], "slowly").into_response();
    let answers = [StatusCode::BAD_GATEWAY.into_response(), busy, FINE.into_response()];
    let (service, address) = Service::start(answers).await;
    driver(address).add(&ask()).await.unwrap();
    let asked = service.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|one| one.headers["idempotency-key"] == "web-e1-k-add"));
}

#[tokio::test]
async fn an_unusable_answer_is_reported_and_not_retried() {
    let moved = (StatusCode::PERMANENT_REDIRECT, [("location", "/x")], "").into_response();
    let large = "x".repeat(2 << 20).into_response();
    let rows = [
        (
            (StatusCode::FORBIDDEN, "over quota").into_response(),
            "answered 403 (tried 1 times): \"over quota\"",
        ),
        (moved, "redirects are not followed"),
        ("ok".into_response(), "is \"ok\""),
        (large, "more than 1048576 bytes"),
    ];
    for (response, expected) in rows {
        let (service, address) = Service::start([response]).await;
        let found = chain(&driver(address).add(&ask()).await.unwrap_err());
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        assert_eq!(service.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_request_fails_after_the_configured_number_of_attempts() {
    let answers = (0..3).map(|_| StatusCode::SERVICE_UNAVAILABLE.into_response());
    let (service, address) = Service::start(answers).await;
    let found = chain(&driver(address).add(&ask()).await.unwrap_err());
    assert!(found.contains("503 (tried 3 times)"), "{found}");
    assert_eq!(service.asked().len(), 3);
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let found = chain(&driver(closed).add(&ask()).await.unwrap_err());
    assert!(found.contains(&format!("(tried 3 times): {closed} cannot be reached")), "{found}");
}

#[tokio::test]
async fn a_service_that_does_not_answer_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let options =
        WebhookOptions { timeout: Duration::from_millis(100), tries: 2, ..options(&base) };
    let driver = WebhookDriver::open("web", options).unwrap();
    let found = chain(&driver.add(&ask()).await.unwrap_err());
    assert!(found.contains("did not answer within 100ms"), "{found}");
}

#[tokio::test]
async fn removing_a_backend_succeeds_on_status_404_and_410() {
    let answers = [StatusCode::NOT_FOUND, StatusCode::GONE, StatusCode::FORBIDDEN];
    let (_service, address) = Service::start(answers.map(IntoResponse::into_response)).await;
    let driver = driver(address);
    driver.remove(&ask()).await.unwrap();
    driver.remove(&ask()).await.unwrap();
    assert!(driver.remove(&ask()).await.is_err());
}

/// A service with its own certificate.
async fn secure_service() -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).unwrap();
    let key =
        tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = vec![0; 4096];
            let _ = stream.read(&mut request).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", FINE.len());
            let _ = stream.write_all((head + FINE).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    (address, made.cert.pem())
}

#[tokio::test]
async fn a_certificate_must_be_trusted() {
    let (address, pem) = secure_service().await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &pem).unwrap();
    let options = WebhookOptions { ca: Some(ca.clone()), ..options(&format!("https://{address}")) };
    let trusting = WebhookDriver::open("web", options.clone()).unwrap();
    assert_eq!(trusting.add(&ask()).await.unwrap().id, "i-7");
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).unwrap();
    std::fs::write(&ca, other.cert.pem()).unwrap();
    let wary = WebhookDriver::open("web", options.clone()).unwrap();
    let found = chain(&wary.add(&ask()).await.unwrap_err());
    assert!(found.contains("certificate"), "{found}");
    std::fs::write(&ca, "not a certificate").unwrap();
    let refused = WebhookDriver::open("web", options).err().unwrap().to_string();
    assert!(refused.contains("webhook.ca"), "{refused}");
}
