//! Requests to scripted servers, in the clear and over TLS.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use equipoise_basics::with_causes;
use equipoise_http_client::{Authorities, HttpError, head, whole};
use equipoise_testkit::{Answer, HttpBackend, PATIENCE, Step, free_port};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

fn get(url: &str) -> Request<Full<Bytes>> {
    Request::builder().uri(url).body(Full::default()).unwrap()
}

fn of(backend: &HttpBackend, path: &str) -> Request<Full<Bytes>> {
    get(&format!("http://{}{path}", backend.address()))
}

#[tokio::test]
async fn an_answer_of_any_status_is_returned_and_a_redirect_is_not_followed() {
    let backend = HttpBackend::start(|request| match request.number {
        0 => Answer::sized(404, "no"),
        _ => Answer::sized(302, "there").header_lines("Location: /further\r\n"),
    });
    for (status, body) in [(404, "no"), (302, "there")] {
        let answer = whole(of(&backend, "/a?b=c"), None, PATIENCE, 1000).await.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.body()[..]), (status, body.as_bytes()));
    }
    let requests = backend.requests();
    assert_eq!(requests.len(), 2);
    let head = &requests[0].head;
    assert_eq!((head.method(), head.target()), ("GET", "/a?b=c"));
    assert_eq!(head.header("host"), Some(&*backend.address().to_string()));
    assert_eq!(head.header("connection"), Some("close"));
}

#[tokio::test]
async fn an_answer_is_bounded_in_size_and_time() {
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/late" => Answer::hang(),
        _ => Answer::pattern(1, 2000),
    });
    let large = whole(of(&backend, "/"), None, PATIENCE, 1999).await.unwrap_err();
    assert!(matches!(large, HttpError::Large { bytes_max: 1999, .. }), "{large}");
    assert_eq!(whole(of(&backend, "/"), None, PATIENCE, 2000).await.unwrap().body().len(), 2000);
    let within = Duration::from_millis(20);
    let late = whole(of(&backend, "/late"), None, within, 1).await.unwrap_err();
    assert!(matches!(late, HttpError::Late { .. }), "{late}");
    let late = head(of(&backend, "/late"), None, within).await.err().unwrap();
    assert!(matches!(late, HttpError::Late { .. }), "{late}");
    let nowhere = get(&format!("http://{}", free_port().address()));
    let refused = whole(nowhere, None, PATIENCE, 1).await.unwrap_err();
    assert!(with_causes(&refused).contains("cannot be reached: Connection refused"), "{refused}");
    let other = whole(get("ftp://127.0.0.1/"), None, PATIENCE, 1).await.unwrap_err();
    assert!(matches!(other, HttpError::Url(_)), "{other}");
}

#[tokio::test]
async fn an_answer_is_read_by_lines_and_ends_its_connection_when_dropped() {
    let backend = HttpBackend::start(|_| Answer::chunked(&["one\ntw", "o\nthr", "ee"], &[]));
    let mut answer = head(of(&backend, "/"), None, PATIENCE).await.unwrap();
    for line in ["one\n", "two\n"] {
        assert_eq!(answer.line(100).await.unwrap().as_deref(), Some(line.as_bytes()));
    }
    assert_eq!(answer.line(100).await.unwrap(), None, "the last line has no end");
    let hangs = HttpBackend::start(|_| Answer::raw("HTTP/1.1 200 OK\r\n\r\n").then(Step::Hang));
    let answer = head(of(&hangs, "/"), None, PATIENCE).await.unwrap();
    drop(answer);
    let closed = async {
        while hangs.counts().open > 0 {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, closed).await.is_ok());
}

/// A server with a certificate of its own, which answers every request.
async fn tls_server() -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
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
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
            let _ = stream.shutdown().await;
        }
    });
    (address, made.cert.pem())
}

#[tokio::test]
async fn a_server_is_verified_by_the_authorities_that_are_given() {
    let (address, pem) = tls_server().await;
    let url = format!("https://{address}/");
    let trusted = Authorities::from_pem(pem.as_bytes(), "pem").unwrap();
    let answer = whole(get(&url), Some(&trusted), PATIENCE, 10).await.unwrap();
    assert_eq!(&answer.body()[..], b"ok");
    let (_, other) = tls_server().await;
    let other = Authorities::from_pem(other.as_bytes(), "pem").unwrap();
    let error = whole(get(&url), Some(&other), PATIENCE, 10).await.unwrap_err();
    assert!(with_causes(&error).contains("certificate"), "{error}");
    let error = whole(get(&url), None, PATIENCE, 10).await.unwrap_err();
    assert!(matches!(error, HttpError::NoAuthorities(_)), "{error}");
}

#[test]
fn authorities_have_to_be_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let error = |text: &str| {
        std::fs::write(&file, text).unwrap();
        with_causes(&Authorities::load(Some(&file)).err().unwrap())
    };
    assert!(error("").ends_with("ca.pem has no certificate that can be used; accepted: PEM"));
    let damaged = error("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n");
    assert!(damaged.contains("ca.pem has a damaged certificate"), "{damaged}");
    std::fs::remove_file(&file).unwrap();
    let absent = with_causes(&Authorities::load(Some(&file)).err().unwrap());
    assert!(absent.contains("ca.pem cannot be read: No such file"), "{absent}");
}
