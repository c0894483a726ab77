//! Peers that are slow, send nonsense, or come in masses.

use std::sync::Arc;
use std::time::Duration;

use equipoise_cluster::{AttemptLimits, ClusterServer, JoinToken, NodeClient};
use equipoise_controller::NodeReport;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::bed::{Bed, count, eventually, report, until};

const LONG: Duration = Duration::from_secs(60);

/// True if the other end closes within a long time.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    // A reset counts as an end, too.
    timeout(LONG, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn idle_connections_time_out_in_the_handshake_while_nodes_are_served() {
    let bed = Bed::new().await;
    let (server, desk) = bed
        .controller_with(|options| {
            options.limits.handshake_timeout = Duration::from_millis(500);
            options.limits.unproven_by_address_max = 20;
        })
        .await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(TcpStream::connect(server.address()).await.unwrap());
    }
    let client = bed.joined("a", &[&server]).await;
    client.report(&report());
    eventually("the report", || desk.reported() == ["a"]).await;
    for stream in &mut silent {
        assert!(is_closed(stream).await);
    }
    // Also the node's own, if this machine is too slow for its handshake.
    eventually("all are counted", || count(&server, "handshake_timed_out") >= 10).await;
}

#[tokio::test]
async fn garbage_closes_only_its_own_connection() {
    let bed = Bed::new().await;
    let (server, _desk) = bed.controller().await;
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0x16, 0x03, 0x01, 0xff, 0xff, 0x01],
        &[0xff; 5000],
        b"\0",
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        assert!(is_closed(&mut stream).await);
    }
    eventually("counted", || count(&server, "handshake_failed") == 4).await;
    drop(bed.joined("a", &[&server]).await);
}

#[tokio::test]
async fn unauthenticated_connections_from_one_address_are_limited() {
    let bed = Bed::new().await;
    let (server, _desk) =
        bed.controller_with(|options| options.limits.unproven_by_address_max = 4).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(TcpStream::connect(server.address()).await.unwrap());
    }
    let dropped = || count(&server, "dropped_unproven_by_address_max");
    eventually("the rest is dropped", || dropped() == 16).await;
}

#[tokio::test]
async fn guessing_tokens_is_rate_limited() {
    let bed = Bed::new().await;
    let (server, _desk) = bed
        .controller_with(|options| {
            options.limits.attempts =
                AttemptLimits { burst: 5.0, per_second: 0.001, ..AttemptLimits::default() };
        })
        .await;
    let guesses: Vec<_> = (0..8)
        .map(|n| {
            let guess = JoinToken::new(bed.authority().fingerprint());
            NodeClient::start(bed.options(&format!("n{n}"), &[&server], Some(guess)))
        })
        .collect();
    eventually("held back", || count(&server, "too_often") >= 3).await;
    eventually("five were looked up", || count(&server, "unknown") == 5).await;
    drop(guesses);
}

#[tokio::test]
async fn a_report_that_is_too_large_is_refused_and_the_next_is_taken() {
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    let client = bed.joined("a", &[&server]).await;
    let version = "x".repeat(NodeReport::BYTES_MAX);
    client.report(&NodeReport { version, ..report() });
    until(&client, |s| s.reports.values().any(|one| one.failed > 0)).await;
    eventually("counted", || count(&server, "refused_body") > 0).await;
    client.report(&report());
    eventually("the next", || desk.reported() == ["a"]).await;
}

/// TLS without a client certificate.
async fn anonymous(bed: &Bed, server: &ClusterServer) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(bed.authority().certificate().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

async fn answer(stream: &mut TlsStream<TcpStream>, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut read = vec![0; 4096];
    let size = timeout(LONG, stream.read(&mut read)).await.unwrap().unwrap();
    String::from_utf8_lossy(&read[..size]).into_owned()
}

#[tokio::test]
async fn a_client_without_a_certificate_may_only_join() {
    let bed = Bed::new().await;
    let (server, desk) = bed.controller().await;
    desk.plan(1, 1);
    let mut stream = anonymous(&bed, &server).await;
    for request in [
        "GET /cluster/v1/members",
        "GET /cluster/v1/instructions",
        "POST /cluster/v1/report",
        "POST /cluster/v1/renew",
        "GET /cluster/v1/tokens",
        "POST /cluster/v1/tokens",
        "DELETE /cluster/v1/tokens/0123456789",
        "GET /cluster/v1/nodes",
        "DELETE /cluster/v1/nodes/a",
    ] {
        let asked = format!("{request} HTTP/1.1\r\nHost: c\r\nContent-Length: 0\r\n\r\n");
        let said = answer(&mut stream, &asked).await;
        assert!(said.starts_with("HTTP/1.1 401"), "{request}: {said}");
    }
    eventually("counted", || count(&server, "refused_without_certificate") == 9).await;
    let joins = "POST /cluster/v1/join HTTP/1.1\r\nHost: c\r\nContent-Length: 2\r\n\r\n{}";
    let said = answer(&mut stream, joins).await;
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("missing field"), "{said}");
    let lost = "GET /cluster/v2/members HTTP/1.1\r\nHost: c\r\n\r\n";
    let said = answer(&mut stream, lost).await;
    assert!(said.starts_with("HTTP/1.1 404") && said.contains("serves /cluster/v1"), "{said}");
}

#[tokio::test]
async fn a_slowly_sent_request_head_or_body_times_out() {
    let bed = Bed::new().await;
    let body_timeout = Duration::from_millis(300);
    let (server, _desk) =
        bed.controller_with(|options| options.limits.body_timeout = body_timeout).await;
    let mut body = anonymous(&bed, &server).await;
    let slow = "POST /cluster/v1/join HTTP/1.1\r\nHost: c\r\nContent-Length: 100\r\n\r\n{";
    let said = answer(&mut body, slow).await;
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    eventually("counted", || count(&server, "body_timed_out") == 1).await;

    let lifetime = Duration::from_secs(1);
    let (server, _desk) =
        bed.controller_with(|options| options.limits.unproven_lifetime = lifetime).await;
    let mut head = anonymous(&bed, &server).await;
    let dripped = async {
        // One byte each tenth of a second: never silent, never complete.
        while head.write_all(b"x").await.is_ok() && head.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(LONG, dripped).await.expect("it is cut");
    eventually("counted", || count(&server, "connection_lifetime_over") > 0).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_and_a_body_that_is_too_large_are_refused() {
    let bed = Bed::new().await;
    let (server, _desk) = bed.controller().await;
    let mut stream = anonymous(&bed, &server).await;
    let large = format!("GET /{} HTTP/1.1\r\nHost: c\r\n\r\n", "x".repeat(20_000));
    let said = answer(&mut stream, &large).await;
    assert!(said.starts_with("HTTP/1.1 414") || said.starts_with("HTTP/1.1 431"), "{said}");
    let mut stream = anonymous(&bed, &server).await;
    // The announced length suffices; no body is sent.
    let large =
        "POST /cluster/v1/join HTTP/1.1\r\nHost: c\r\nContent-Length: 1099511627776\r\n\r\n";
    let said = answer(&mut stream, large).await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
}
