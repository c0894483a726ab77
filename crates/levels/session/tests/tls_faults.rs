//! HTTP front doors with TLS, and clients that break the protocol, stop or leave.

mod common;
mod common_tls;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use common::{Plan, Proxy};
use common_tls::{Site, client_hello, closing, get, rest};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Client, HttpBackend, eventually};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

fn before(site: &Site, backend: &HttpBackend) -> Proxy {
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    plan.front(|front| front.tls = site.http()).start()
}

#[test]
fn a_handshake_may_come_byte_by_byte() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let proxy = before(&site, &backend);
    let mut tls = site.connect(proxy.address);
    tls.sock.set_nodelay(true).expect("an option");
    let mut hello = Vec::new();
    tls.conn.write_tls(&mut hello).expect("memory");
    for byte in hello {
        tls.sock.write_all(&[byte]).expect("it is taken");
    }
    tls.write_all(closing(&get("/")).as_bytes()).expect("it is taken");
    assert!(rest(&mut tls).expect("an announced end").starts_with("HTTP/1.1 200"));
}

#[test]
fn garbage_in_a_handshake_ends_the_connection_and_is_counted() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let proxy = before(&site, &backend);
    let mut rng = SmallRng::seed_from_u64(1);
    let hello = client_hello(&site);
    for turn in 0..60 {
        let mut bytes: Vec<u8> = match turn % 3 {
            // A record of a handshake with a random content.
            0 => [&[0x16, 3, 1, 0x10, 0][..], &random(&mut rng, 4096)].concat(),
            1 => [&[0x16][..], &random(&mut rng, 20_000)].concat(),
            // A damaged ClientHello.
            _ => hello.clone(),
        };
        if turn % 3 == 2 {
            let at = rng.random_range(1..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
        }
        let mut client = TcpStream::connect(proxy.address).expect("it listens");
        let _ = client.write_all(&bytes);
        let _ = client.shutdown(Shutdown::Write);
        let _ = client.read_to_end(&mut Vec::new());
    }
    assert!(eventually(|| proxy.stats.sum(|it| it.connections_open.get()) == 0));
    // A damaged ClientHello may still be valid; then the client is gone after it.
    let counted = proxy.drops(Reason::TlsHandshake) + proxy.drops(Reason::ClientGone);
    assert_eq!(counted, 60, "{:?}", proxy.all_drops());
    assert!(site.ask(proxy.address, &get("/")).expect("an answer").starts_with("HTTP/1.1 200"));
}

fn random(rng: &mut SmallRng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.random()).collect()
}

#[test]
fn ten_megabytes_of_junk_are_not_read_to_their_end() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let proxy = before(&site, &backend);
    for first in [0x16, 0x17] {
        let mut client = TcpStream::connect(proxy.address).expect("it listens");
        client.set_write_timeout(Some(Duration::from_secs(30))).expect("a time");
        let junk = vec![first; 10 << 20];
        assert!(client.write_all(&junk).is_err(), "the connection ends before");
    }
    proxy.assert_drops(&[(Reason::TlsMissing, 1), (Reason::TlsHandshake, 1)]);
}

#[test]
fn garbage_after_the_handshake_reaches_no_backend() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let proxy = before(&site, &backend);
    let mut rng = SmallRng::seed_from_u64(2);
    for _ in 0..20 {
        let mut tls = site.connect(proxy.address);
        tls.write_all(get("/").as_bytes()).expect("it is taken");
        tls.read_exact(&mut [0; 12]).expect("an answer");
        let garbage = random(&mut rng, 20_000);
        let _ = tls.sock.write_all(&garbage);
        let _ = tls.sock.shutdown(Shutdown::Write);
        let _ = tls.read_to_end(&mut Vec::new());
    }
    assert_eq!(backend.requests().len(), 20);
    assert!(eventually(|| proxy.stats.sum(|it| it.connections_open.get()) == 0));
}

#[test]
fn a_client_that_is_silent_or_stops_in_the_handshake_is_cut() {
    const WITHIN: Duration = Duration::from_millis(300);
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    let plan = plan.front(|front| front.tls = site.http());
    let proxy = plan.front(|front| front.timeouts.header = WITHIN).start();
    let hello = client_hello(&site);
    let begun = Instant::now();
    for bytes in [&b""[..], &hello[..1], &hello[..hello.len() - 1], &hello] {
        let mut client = Client::connect(proxy.address);
        client.send(bytes);
        let (answer, _) = client.read_to_end();
        // The last one was answered, and does not answer that.
        assert_eq!(answer.is_empty(), bytes.len() < hello.len());
    }
    assert!(begun.elapsed() >= 4 * WITHIN);
    proxy.assert_drops(&[(Reason::TlsTimeout, 4)]);
    assert!(eventually(|| proxy.stats.sum(|it| it.connections_open.get()) == 0));
}

#[test]
fn a_leaving_client_counts_as_a_drop_only_during_the_handshake() {
    let (site, backend) = (Site::new(), HttpBackend::echo());
    let proxy = before(&site, &backend);
    drop(TcpStream::connect(proxy.address).expect("it listens"));
    assert!(eventually(|| proxy.stats.sum(|it| it.connections.get()) == 1));
    let mut client = TcpStream::connect(proxy.address).expect("it listens");
    client.write_all(&client_hello(&site)).expect("it is taken");
    client.shutdown(Shutdown::Write).expect("it is open");
    let _ = client.read_to_end(&mut Vec::new());
    proxy.assert_drops(&[(Reason::ClientGone, 1)]);
}

#[test]
fn a_client_that_rejects_the_certificate_is_counted() {
    let (site, stranger, backend) = (Site::new(), Site::new(), HttpBackend::echo());
    let proxy = before(&site, &backend);
    let error = stranger.ask(proxy.address, &get("/")).expect_err("another authority");
    assert!(error.to_string().contains("certificate"), "{error}");
    proxy.assert_drops(&[(Reason::TlsHandshake, 1)]);
}
