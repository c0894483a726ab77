//! Limits on clients: addresses that are served, rates, and open connections.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::time::Duration;

use common::{Plan, Proxy, get, request};
use equipoise_session::Reason;
use equipoise_session::config::{
    AccessList, ClientLimit, FrontDoor, LimitBy, Protocol, Rate, SourceMask, Upstream,
};
use equipoise_testkit::{HttpBackend, eventually};

const HOUR: Duration = Duration::from_secs(3600);

fn number(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number)
}

fn by_source() -> LimitBy {
    LimitBy::Source(SourceMask::default())
}

/// `burst` requests at once, and then one in an hour.
fn rate(by: LimitBy, burst: u32) -> ClientLimit {
    let burst = number(burst).expect("not zero");
    let rate = Some(Rate { count: NonZeroU32::MIN, per: HOUR, burst });
    ClientLimit { by, rate, concurrency: None, keys: 1000, shared: false }
}

fn connections(most: u32) -> ClientLimit {
    ClientLimit {
        by: by_source(),
        rate: None,
        concurrency: number(most),
        keys: 1000,
        shared: false,
    }
}

fn denying(prefix: &str) -> AccessList {
    AccessList::new(&[], &[(prefix.parse().expect("an address"), 8)])
}

fn plan(backend: &HttpBackend, change: impl FnOnce(&mut FrontDoor)) -> Plan {
    Plan::new(Upstream::Exclusive, &[backend.address()]).front(change)
}

/// Whether a connection to the proxy is reset or closed without an answer.
fn is_refused(proxy: &Proxy) -> bool {
    let Ok(mut stream) = TcpStream::connect(proxy.address) else { return true };
    !matches!(stream.read(&mut [0]), Ok(count) if count > 0)
}

#[test]
fn a_request_from_a_denied_address_is_answered_403_and_reaches_no_backend() {
    let backend = HttpBackend::echo();
    let proxy = plan(&backend, |front| front.access = denying("127.0.0.0")).start();
    let mut client = proxy.connect();
    for _ in 0..2 {
        let response = client.ask(get("/")).expect("the connection is kept");
        assert_eq!(response.status(), 403);
        assert!(response.text().contains("clients of this address"), "{}", response.text());
    }
    assert_eq!(backend.requests().len(), 0);
    proxy.assert_drops(&[(Reason::SourceDenied, 2)]);
    let served = plan(&backend, |front| front.access = denying("10.0.0.0")).start();
    assert_eq!(served.ask(get("/")).status(), 200);
}

#[test]
fn a_tcp_connection_from_a_denied_address_is_reset() {
    let backend = HttpBackend::echo();
    let proxy = plan(&backend, |front| {
        *front = FrontDoor::new(front.listen, Protocol::Tcp, "web");
        front.access = denying("127.0.0.0");
    })
    .start();
    assert!(is_refused(&proxy));
    proxy.assert_drops(&[(Reason::SourceDenied, 1)]);
}

#[test]
fn requests_beyond_the_rate_are_answered_429_on_a_connection_that_is_kept() {
    let backend = HttpBackend::echo();
    let limits = [rate(by_source(), 3)].into();
    let proxy = plan(&backend, |front| front.client_limits = limits).threads(2).start();
    let mut client = proxy.connect();
    for _ in 0..3 {
        assert_eq!(client.ask(get("/")).expect("an answer").status(), 200);
    }
    for _ in 0..2 {
        let refused = client.ask(get("/")).expect("an answer");
        assert_eq!(refused.status(), 429);
        let wait = refused.header("retry-after").and_then(|it| it.parse().ok());
        assert!(wait.is_some_and(|wait| (3500..=3600).contains(&wait)), "{wait:?}");
    }
    // All threads count together.
    assert!((0..8).all(|_| proxy.ask(get("/")).status() == 429));
    assert_eq!(backend.requests().len(), 3);
    proxy.assert_drops(&[(Reason::RateLimited, 10)]);
}

#[test]
fn each_value_of_a_header_has_a_rate_of_its_own() {
    let backend = HttpBackend::echo();
    let limits = [rate(LimitBy::Header("x-api-key".into()), 1)].into();
    let proxy = plan(&backend, |front| front.client_limits = limits).start();
    let ask = |lines: &str| proxy.ask(request("GET", "/", lines)).status();
    assert_eq!(ask("X-API-Key: one\r\n"), 200);
    assert_eq!(ask("X-API-Key: two\r\n"), 200);
    assert_eq!(ask("x-api-key:one\r\n"), 429);
    assert_eq!(ask(""), 200);
    assert_eq!(ask("X-API-Key:\r\n"), 429);
}

#[test]
fn a_body_that_was_refused_is_not_taken_for_a_request() {
    let backend = HttpBackend::echo();
    let limits = [rate(LimitBy::All, 1)].into();
    let proxy = plan(&backend, |front| front.client_limits = limits).start();
    assert_eq!(proxy.ask(get("/")).status(), 200);
    let head = request("POST", "/", "Content-Length: 100\r\n");
    let refused = proxy.ask(format!("{head}GET /smuggled HTTP/1.1\r\n"));
    assert_eq!((refused.status(), refused.header("connection")), (429, Some("close")));
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn a_client_has_so_many_open_connections_over_all_threads() {
    let backend = HttpBackend::echo();
    for protocol in [Protocol::Http, Protocol::Tcp] {
        let proxy = plan(&backend, |front| {
            *front = FrontDoor::new(front.listen, protocol, "web");
            front.client_limits = [connections(4)].into();
        })
        .threads(2)
        .start();
        let mut clients: Vec<_> = (0..4).map(|_| proxy.connect()).collect();
        for client in &mut clients {
            assert_eq!(client.ask(get("/")).expect("an answer").status(), 200);
        }
        assert!((0..4).all(|_| is_refused(&proxy)));
        proxy.assert_drops(&[(Reason::ConnectionsLimited, 4)]);
        clients.pop();
        let is_served = || {
            let stream = TcpStream::connect(proxy.address);
            let asked = stream.and_then(|mut stream| {
                stream.write_all(get("/").as_bytes())?;
                stream.read(&mut [0])
            });
            matches!(asked, Ok(1))
        };
        assert!(eventually(is_served), "the place of a client that has left is free");
    }
}
