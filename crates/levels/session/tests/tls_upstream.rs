//! TLS to backends: requests and streams over it, resumed sessions, and the reasons of failures.
//!
//! The TLS backends are TCP front doors with `tls` before the testkit's backends.

mod common;
mod common_http2;
mod common_tls;
mod common_tls_backend;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use common::{Plan, Proxy, both_upstreams, get, post};
use common_http2::backend::{Arrived, Http2Backend};
use common_http2::{read_body, send};
use common_tls::{NAME, Site};
use common_tls_backend::{behind_tls, options, to_backends};
use equipoise_session::Reason;
use equipoise_session::config::{
    FrontDoor, PoolOptions, Protocol, ProxyProtocol, TrustedSources, Upstream,
};
use equipoise_testkit::{
    Answer, Client, Gate, HttpBackend, PATIENCE, Pattern, Received, Step, eventually, undisturbed,
};
use equipoise_tls::{ClientOptions, Clients, Protocols, TlsOptions};
use http::Response;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

both_upstreams![
    requests_and_large_bodies_pass,
    sessions_are_reused_and_later_ones_resumed,
    a_response_without_length_that_is_cut_is_not_taken_for_complete,
    a_closed_session_is_no_failure,
];

/// A proxy with TLS to the backends, which it trusts as `site`.
fn before(site: &Site, mode: Upstream, backends: &[SocketAddr]) -> Proxy {
    with(site, mode, backends, |_| ())
}

fn with(
    site: &Site,
    mode: Upstream,
    backends: &[SocketAddr],
    change: impl FnOnce(&mut PoolOptions),
) -> Proxy {
    let plan = Plan::new(mode, backends);
    plan.pool(|pool| pool.tls = to_backends(options(site.trust()))).pool(change).start()
}

fn requests_and_large_bodies_pass(mode: Upstream) {
    const BYTES: u64 = 3 << 20;
    let site = Site::new();
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/down" => Answer::pattern(2, BYTES),
        "/chunks" => Answer::pattern_chunked(2, BYTES, 10_000),
        _ => Answer::echo(),
    });
    let tls = behind_tls(&site, TlsOptions::default(), backend.address());
    let proxy = before(&site, mode, &[tls.address]);
    let mut client = proxy.connect();
    for turn in 0..50 {
        let body = format!("body {turn}");
        assert!(client.ask(post("/", &body)).expect("an answer").text().ends_with(&body));
        assert!(client.ask(get("/")).expect("an answer").text().starts_with("GET / HTTP/1.1"));
    }
    for path in ["/down", "/chunks"] {
        let response = client.ask(get(path)).expect("an answer");
        assert_eq!(Pattern::new(2).check(&response.body), Ok(()), "{path}");
        assert_eq!(response.body.len() as u64, BYTES, "{path}");
    }
    let large = String::from_utf8(vec![b'x'; 2 << 20]).expect("text");
    assert!(client.ask(post("/", &large)).expect("an answer").text().ends_with(&large));
    proxy.assert_drops(&[]);
    proxy.assert_nothing_in_flight();
}

fn sessions_are_reused_and_later_ones_resumed(mode: Upstream) {
    let site = Site::new();
    // Each session ends after two requests.
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/last" => Answer::ok("bye").header_lines("Connection: close\r\n").then(Step::Close),
        _ => Answer::ok("hello"),
    });
    let tls = behind_tls(&site, TlsOptions::default(), backend.address());
    let proxy = with(&site, mode, &[tls.address], |pool| pool.multiplex_slow = PATIENCE);
    let mut client = proxy.connect();
    for _ in 0..4 {
        assert_eq!(client.ask(get("/first")).expect("an answer").text(), "hello");
        assert_eq!(client.ask(get("/last")).expect("an answer").text(), "bye");
    }
    let stats = &proxy.backends[0].live.stats;
    assert_eq!(stats.sum(|it| it.sessions_reused.get()), 4);
    assert_eq!(stats.sum(|it| it.tls_handshakes.get()), 4);
    assert_eq!(stats.sum(|it| it.tls_resumed.get()), 3);
    assert!(proxy.backends[0].live.tls.valid_until().is_some());
    assert_eq!(proxy.backends[0].live.tls.failure(), None);
}

fn a_response_without_length_that_is_cut_is_not_taken_for_complete(mode: Upstream) {
    let site = Site::new();
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/whole" => Answer::raw("HTTP/1.1 200 OK\r\n\r\nwhole").then(Step::Close),
        _ => Answer::raw("HTTP/1.1 200 OK\r\n\r\nhalf").then(Step::Reset),
    });
    let tls = behind_tls(&site, TlsOptions::default(), backend.address());
    let proxy = before(&site, mode, &[tls.address]);
    assert_eq!(proxy.ask(get("/whole")).text(), "whole");
    assert!(Client::exchange(proxy.address, get("/half")).is_err());
}

fn a_closed_session_is_no_failure(mode: Upstream) {
    let site = Site::new();
    let backend = HttpBackend::start(|_| Answer::ok("hello").then(Step::Close));
    let tls = behind_tls(&site, TlsOptions::default(), backend.address());
    let proxy = before(&site, mode, &[tls.address]);
    let mut client = proxy.connect();
    for _ in 0..20 {
        assert_eq!(client.ask(get("/")).expect("an answer").text(), "hello");
    }
    proxy.assert_drops(&[]);
}

#[test]
fn a_slow_response_over_tls_keeps_its_session_and_requests_behind_it_are_retried() {
    // Requests have to be sent before the response in front of them counts as slow.
    undisturbed(a_slow_response_is_before_others);
}

fn a_slow_response_is_before_others() {
    const OTHERS: u64 = 8;
    let site = Site::new();
    let gate = Gate::new();
    let slow = Answer::ok("slow").first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |request| match request.head.target() {
        "/slow" => slow.clone(),
        target => Answer::ok(target),
    });
    let tls = behind_tls(&site, TlsOptions::default(), backend.address());
    let proxy = with(&site, Upstream::Multiplexed, &[tls.address], |pool| {
        pool.multiplex_sessions = 1;
        pool.multiplex_slow = Duration::from_millis(200);
    });
    assert_eq!(proxy.ask(get("/first")).text(), "/first");
    let mut waiting = proxy.connect();
    let mut others: Vec<_> = (0..OTHERS).map(|_| proxy.connect()).collect();
    waiting.send(get("/slow"));
    let slow_ones = |all: &[Received]| all.iter().filter(|it| it.head.target() == "/slow").count();
    assert!(backend.wait(|all| slow_ones(all) == 1));
    for (turn, other) in others.iter_mut().enumerate() {
        other.send(get(&format!("/{turn}")));
    }
    for (turn, other) in others.iter_mut().enumerate() {
        assert_eq!(other.response().expect("an answer").text(), format!("/{turn}"));
    }
    let stats = &proxy.backends[0].live.stats;
    let counts = || {
        let shared = stats.sum(|it| it.multiplex_shared.get());
        let handed_over = stats.sum(|it| it.multiplex_handed_over.get());
        [shared, handed_over, stats.sum(|it| it.multiplex_repeated.get())]
    };
    // Each of the others shared a session twice.
    assert_eq!(counts(), [2 + 2 * OTHERS, 1, OTHERS]);
    assert_eq!(stats.sum(|it| it.tls_handshakes.get()), 2);
    gate.open();
    assert_eq!(waiting.response().expect("an answer").text(), "slow");
    assert_eq!(slow_ones(&backend.requests()), 1);
    assert_eq!(counts(), [2 + 2 * OTHERS, 1, OTHERS]);
    proxy.assert_drops(&[]);
}

#[test]
fn tcp_streams_pass_both_ways_until_their_close() {
    let site = Site::new();
    let backend = HttpBackend::echo();
    let tls = behind_tls(&site, TlsOptions::default(), backend.address());
    let plan = Plan::new(Upstream::Exclusive, &[tls.address]).front(|front| {
        *front = FrontDoor::new(front.listen, Protocol::Tcp, "web");
    });
    let proxy = plan.pool(|pool| pool.tls = to_backends(options(site.trust()))).start();
    for bytes in [0, 10, 100_000, 3 << 20] {
        let body = Pattern::bytes(3, bytes);
        let mut stream = TcpStream::connect(proxy.address).expect("it listens");
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n");
        let mut writer = stream.try_clone().expect("a descriptor");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_all(head.as_bytes()).expect("it is taken");
                writer.write_all(&body).expect("it is taken");
                writer.shutdown(Shutdown::Write).expect("it is open");
            });
            let mut back = Vec::new();
            stream.read_to_end(&mut back).expect("an orderly end");
            assert!(back.ends_with(&body), "{bytes}: {}", back.len());
        });
    }
    assert!(eventually(|| proxy.stats.sum(|it| it.connections_open.get()) == 0));
    proxy.assert_drops(&[]);
}

/// A site with a certificate for [`NAME`] that ended long ago.
fn expired() -> Site {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![NAME.to_string()]).expect("a name");
    params.not_after = date_time_ymd(2001, 1, 1);
    Site::with(&params.self_signed(&key).expect("a certificate"), &key)
}

/// A server that answers every connection as HTTP servers answer a ClientHello.
fn without_tls() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    address
}

#[test]
fn failures_are_counted_by_their_reason_and_another_backend_is_tried() {
    let (site, other) = (Site::new(), Site::of(&["other.example"]));
    let backend = HttpBackend::always(Answer::ok("hello"));
    let asks = TlsOptions {
        clients: Some(Clients::from_pem(&site.pem(), true).expect("an authority")),
        ..TlsOptions::default()
    };
    let good = behind_tls(&site, TlsOptions::default(), backend.address());
    let usual = TlsOptions::default;
    let (old, unknown) = (expired(), Site::new());
    for (case, of, tls, trust, reason, said) in [
        ("name", &other, usual(), other.trust(), Reason::UpstreamTlsName, "not for `www"),
        ("expired", &old, usual(), old.trust(), Reason::UpstreamTlsExpired, "expired "),
        ("issuer", &unknown, usual(), site.trust(), Reason::UpstreamTlsIssuer, "no trusted"),
        ("client", &site, asks, site.trust(), Reason::UpstreamTls, "client certificate"),
    ] {
        let bad = behind_tls(of, tls, backend.address());
        let plan = Plan::new(Upstream::Exclusive, &[bad.address]);
        let proxy = plan.pool(|pool| pool.tls = to_backends(options(trust))).start();
        let answer = proxy.ask(post("/", "x"));
        assert_eq!(answer.status(), 502, "{case}");
        assert!(answer.head.header("proxy-status").is_some_and(|it| it.contains("tls_")), "{case}");
        proxy.assert_drops(&[(reason, 1)]);
        let live = &proxy.backends[0].live;
        let failed = live.stats.sum(|it| it.failures[reason as usize].get());
        assert_eq!(failed, 2, "{case}: with one retry");
        let failure = live.tls.failure().expect("a failure");
        assert!(failure.contains(said), "{case}: {failure}");
    }
    let proxy = before(&site, Upstream::Exclusive, &[without_tls(), good.address]);
    for _ in 0..4 {
        assert_eq!(proxy.ask(post("/", "x")).text(), "hello");
    }
    let failure = proxy.backends[0].live.tls.failure();
    assert_eq!(failure.as_deref(), Some("it does not speak TLS"));
    proxy.assert_drops(&[]);
}

#[test]
fn changed_tls_options_of_a_pool_require_new_sessions() {
    let site = Site::new();
    let backend = HttpBackend::always(Answer::ok("hello"));
    let tls = behind_tls(&site, TlsOptions::default(), backend.address());
    let mut proxy = before(&site, Upstream::Exclusive, &[tls.address]);
    assert_eq!(proxy.ask(get("/")).text(), "hello");
    proxy.options.tls = to_backends(options(site.trust()));
    proxy.publish().expect("nothing is bound");
    assert_eq!(proxy.ask(get("/")).text(), "hello");
    let handshakes = |proxy: &Proxy| proxy.backends[0].live.stats.sum(|it| it.tls_handshakes.get());
    assert_eq!(handshakes(&proxy), 1, "equal options");
    proxy.options.tls = to_backends(options(Site::new().trust()));
    proxy.publish().expect("nothing is bound");
    assert_eq!(proxy.ask(get("/")).status(), 502, "the session is of a server not trusted now");
}

#[test]
fn a_proxy_header_is_sent_before_the_handshake() {
    let site = Site::new();
    let backend = HttpBackend::always(Answer::ok("hello"));
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]).front(|front| {
        *front = FrontDoor::new(front.listen, Protocol::Tcp, "web");
        front.tls = site.tls(TlsOptions::default());
        front.accept_proxy = true;
        front.trusted = TrustedSources::from_iter([([127, 0, 0, 0].into(), 8)]);
    });
    let tls = plan.start();
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        let plan = Plan::new(Upstream::Exclusive, &[tls.address]).front(|front| {
            *front = FrontDoor::new(front.listen, Protocol::Tcp, "web");
        });
        let plan = plan.pool(|pool| {
            pool.tls = to_backends(options(site.trust()));
            pool.send_proxy = Some(version);
        });
        assert_eq!(plan.start().ask(get("/")).text(), "hello", "{version:?}");
    }
}

/// A proxy with HTTP/2 over TLS to a backend with these options.
fn http2_to(site: &Site, backend: &Http2Backend, of_backend: TlsOptions) -> (Proxy, Proxy) {
    let tls = behind_tls(site, of_backend, backend.address);
    let options = ClientOptions { protocols: Protocols::OnlyHttp2, ..options(site.trust()) };
    let proxy = with(site, Upstream::Http2, &[tls.address], |pool| pool.tls = to_backends(options));
    (proxy, tls)
}

/// Sends the body of a request back once all of it has come.
async fn send_back(mut arrived: Arrived) {
    let Ok(body) = read_body(arrived.request.body_mut()).await else { return };
    let Ok(mut stream) = arrived.respond.send_response(Response::new(()), false) else { return };
    let _ = send(&mut stream, body.into(), true).await;
}

#[test]
fn http2_is_negotiated_and_carries_large_bodies() {
    let site = Site::new();
    let backend = Http2Backend::start(send_back);
    let of_backend = TlsOptions { protocols: Protocols::Http2, ..TlsOptions::default() };
    let (proxy, _tls) = http2_to(&site, &backend, of_backend);
    let mut client = proxy.connect();
    let head = |body: &[u8]| {
        let length = format!("Content-Length: {}\r\n", body.len());
        common::request("POST", "/", &length).into_bytes()
    };
    for seed in 0..5 {
        let body = Pattern::bytes(seed, 3 << 20);
        let mut request = head(&body);
        request.extend_from_slice(&body);
        client.send(request);
        assert!(client.response().expect("a response").body == body, "body {seed}");
    }
    assert_eq!(backend.connections(), 1);
    let uri = &backend.heads()[0].uri;
    assert!(uri.starts_with("https://"), "{uri}");
    proxy.assert_nothing_in_flight();
    proxy.assert_drops(&[]);
}

#[test]
fn a_backend_that_does_not_negotiate_http2_gets_no_request() {
    let site = Site::new();
    let backend = Http2Backend::says("no");
    for (protocols, reason) in
        [(Protocols::Any, Reason::UpstreamMalformed), (Protocols::Http1, Reason::UpstreamTls)]
    {
        let of_backend = TlsOptions { protocols, ..TlsOptions::default() };
        let (proxy, _tls) = http2_to(&site, &backend, of_backend);
        assert_eq!(proxy.ask(get("/")).status(), 502, "{protocols:?}");
        proxy.assert_drops(&[(reason, 1)]);
    }
    assert!(backend.heads().is_empty());
}

/// A proxy with `upstream = "auto"`, and a backend that offers these protocols over TLS.
fn auto_to(site: &Site, backend: SocketAddr, protocols: Protocols) -> (Proxy, Proxy) {
    let tls = behind_tls(site, TlsOptions { protocols, ..TlsOptions::default() }, backend);
    (before(site, Upstream::Auto, &[tls.address]), tls)
}

#[test]
fn a_backend_that_negotiates_http2_gets_streams_on_one_connection() {
    let site = Site::new();
    let backend = Http2Backend::says("streams");
    let (proxy, _tls) = auto_to(&site, backend.address, Protocols::Http2);
    for _ in 0..5 {
        assert_eq!(proxy.ask(post("/", "abc")).text(), "streams");
    }
    assert_eq!((backend.connections(), backend.heads().len()), (1, 5));
    proxy.assert_drops(&[]);
}

#[test]
fn a_backend_that_negotiates_http1_reuses_the_negotiated_session() {
    let site = Site::new();
    for protocols in [Protocols::Http1, Protocols::Any] {
        let backend = HttpBackend::always(Answer::ok("sessions"));
        let (proxy, _tls) = auto_to(&site, backend.address(), protocols);
        for _ in 0..5 {
            assert_eq!(proxy.ask(post("/", "abc")).text(), "sessions", "{protocols:?}");
        }
        let live = &proxy.backends[0].live;
        assert_eq!(live.stats.sum(|stats| stats.sessions_opened.get()), 1);
        assert_eq!(live.stats.sum(|stats| stats.failures.iter().map(|it| it.get()).sum()), 0);
        proxy.assert_drops(&[]);
    }
}

#[test]
fn an_upgrade_uses_an_http1_session_even_if_http2_is_offered() {
    let site = Site::new();
    let backend = HttpBackend::always(Answer::ok("whole"));
    let (proxy, _tls) = auto_to(&site, backend.address(), Protocols::Http2);
    let upgrade = common::request("GET", "/", "Connection: upgrade\r\nUpgrade: websocket\r\n");
    assert_eq!(proxy.ask(upgrade).text(), "whole");
    assert_eq!(backend.requests().len(), 1);
    proxy.assert_drops(&[]);
}
