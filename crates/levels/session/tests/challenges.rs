//! Answers to the challenges of an ACME directory, and handshakes before the first certificate.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;
mod common_net;
mod common_tls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use common::{Plan, get, request};
use common_net::{Rig, backend, until};
use common_tls::Site;
use equipoise_session::Reason;
use equipoise_session::config::{Challenges, Protocol, Upstream};
use equipoise_testkit::{Client, HttpBackend};
use equipoise_tls::{
    AutomaticName, CertificateFiles, ChallengeAnswer, Protocols, ServerTls, TlsOptions,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const TOKEN: &str = "/.well-known/acme-challenge/token";

/// The name that a directory verifies.
const VERIFIED: &str = "new.example.com";

#[test]
fn http_01_is_answered_before_any_backend() {
    let backend = HttpBackend::echo();
    let challenges = Challenges::default();
    let mut plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    plan.challenges = challenges.clone();
    let proxy = plan.start();
    // Without a challenge the path is the backend's.
    assert!(proxy.ask(get(TOKEN)).text().starts_with(&format!("GET {TOKEN} ")));
    let answer = challenges.answer_http("token", "token.thumbprint");
    let mut client = proxy.connect();
    for _ in 0..2 {
        client.send(get(TOKEN));
        let response = client.response().expect("a response");
        assert_eq!((response.status(), response.text().as_str()), (200, "token.thumbprint"));
        assert_eq!(response.header("connection"), None);
    }
    client.send(get(&format!("{TOKEN}2")));
    assert!(client.response().expect("a response").text().starts_with("GET "));
    assert_eq!(backend.requests().len(), 2);
    drop(answer);
    assert!(proxy.ask(get(TOKEN)).text().starts_with("GET "));
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
}

#[test]
fn http_01_is_answered_while_no_backend_serves() {
    let challenges = Challenges::default();
    let mut plan = Plan::new(Upstream::Exclusive, &[]);
    plan.challenges = challenges.clone();
    let proxy = plan.start();
    let _answer = challenges.answer_http("token", "token.thumbprint");
    assert_eq!(proxy.ask(get(TOKEN)).text(), "token.thumbprint");
    let with_body = format!("{}x", request("GET", TOKEN, "Content-Length: 1\r\n"));
    let response = Client::exchange(proxy.address, with_body).expect("a response");
    assert_eq!(response.text(), "token.thumbprint");
    assert_eq!(response.header("connection"), Some("close"));
}

/// The answer to TLS-ALPN-01, and a directory's client.
fn tls_challenge(challenges: &Challenges) -> (ChallengeAnswer, ClientConfig) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![VERIFIED.to_string()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate").der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("it is its own authority");
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let answer = challenges.answer_tls(VERIFIED, certificate, key).expect("they match");
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (answer, offering(&config, &[b"acme-tls/1"]))
}

fn offering(config: &ClientConfig, protocols: &[&[u8]]) -> ClientConfig {
    let mut config = config.clone();
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    config
}

fn directory(config: &ClientConfig) -> ClientConnection {
    let name = ServerName::try_from(VERIFIED).expect("a name");
    ClientConnection::new(Arc::new(config.clone()), name).expect("a client")
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    stream.set_nodelay(true).expect("an option");
    stream
}

/// Verifies the name as a directory does; returns what follows the handshake.
fn verify(config: &ClientConfig, to: SocketAddr) -> Result<Vec<u8>, std::io::Error> {
    let mut tls = StreamOwned::new(directory(config), connect(to));
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    assert_eq!(tls.conn.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    let mut rest = Vec::new();
    tls.read_to_end(&mut rest)?;
    Ok(rest)
}

#[test]
fn tls_alpn_01_is_answered_at_http_front_doors() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let challenges = Challenges::default();
    let mut plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    plan.challenges = challenges.clone();
    let proxy = plan.front(|front| front.tls = site.http()).start();
    let (answer, config) = tls_challenge(&challenges);
    assert_eq!(verify(&config, proxy.address).expect("an announced end"), b"");
    // Other clients are served meanwhile, also if they begin with the name of the challenge.
    assert!(site.ask(proxy.address, &common_tls::get("/")).is_ok());
    let other = offering(&config, &[b"http/1.1"]);
    assert!(verify(&other, proxy.address).is_err(), "that is not the answer");
    // The first message may come in pieces.
    let (mut client, mut stream) = (directory(&config), connect(proxy.address));
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("memory");
    hello.iter().for_each(|byte| stream.write_all(&[*byte]).expect("it is taken"));
    while client.is_handshaking() {
        client.complete_io(&mut stream).expect("a handshake");
    }
    drop(answer);
    assert!(verify(&config, proxy.address).is_err(), "nothing is verified now");
    assert_eq!(backend.requests().len(), 1);
    proxy.assert_drops(&[(Reason::TlsHandshake, 2)]);
}

#[test]
fn tls_alpn_01_is_answered_at_tcp_front_doors_before_the_first_certificate() {
    let challenges = Challenges::default();
    let shared = challenges.clone();
    let address = backend(|_| unreachable!("no client is served"));
    let rig = Rig::start(Protocol::Tcp, &[address], |wishes| {
        wishes.door.tls = Some(awaiting(Protocols::Any));
        wishes.challenges = shared;
    });
    let (_answer, config) = tls_challenge(&challenges);
    assert_eq!(verify(&config, rig.address).expect("an announced end"), b"");
    let usual = offering(&config, &[]);
    assert!(verify(&usual, rig.address).is_err());
    until("it is counted", || rig.drops(Reason::TlsNoCertificate) == 1);
}

/// TLS that waits for the first certificate of [`VERIFIED`].
fn awaiting(protocols: Protocols) -> ServerTls {
    let files = CertificateFiles { chain: "/new.pem".into(), key: None, ocsp: None };
    let automatic = vec![AutomaticName { name: VERIFIED.into(), files }];
    let options = TlsOptions { automatic, protocols, ..TlsOptions::default() };
    ServerTls::new(options, Vec::new()).expect("there is randomness")
}

#[test]
fn clients_that_come_before_the_first_certificate_are_refused_and_counted() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let waits = awaiting(Protocols::Http1);
    let mut proxy = Plan::new(Upstream::Exclusive, &[backend.address()])
        .front(|front| front.tls = Some(waits.clone()))
        .start();
    let error = site.ask(proxy.address, &common_tls::get("/")).expect_err("an alert");
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    proxy.assert_drops(&[(Reason::TlsNoCertificate, 1)]);
    let certificates = site.http().expect("TLS").certificates().to_vec();
    proxy.fronts[0].1.tls = Some(waits.with_certificates(certificates));
    proxy.publish().expect("the port is bound");
    assert!(site.ask(proxy.address, &common_tls::get("/")).is_ok());
    proxy.assert_drops(&[(Reason::TlsNoCertificate, 1)]);
}
