//! Statements of a sender about itself and its clients: origin headers, PROXY headers, names with
//! underscores, upgrades.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};

use common::{Plan, Proxy, both_upstreams, get, request};
use equipoise_session::Reason;
use equipoise_session::config::{Forwarded, TrustedSources, Underscores, Upstream};
use equipoise_testkit::{Answer, Head, HttpBackend};

both_upstreams! {
    the_origin_headers_of_an_untrusted_client_are_replaced,
    the_origin_headers_of_a_trusted_sender_are_appended_to,
    each_origin_header_is_written_only_if_chosen,
    a_trusted_sender_without_x_real_ip_is_written_itself,
    an_open_quote_does_not_swallow_our_element_of_forwarded,
    a_client_announced_by_a_trusted_proxy_is_not_trusted_itself,
    headers_with_underscores_are_dropped_kept_or_refused,
    a_websocket_upgrade_passes_beside_other_connection_options,
    an_upgrade_that_is_not_listed_is_an_ordinary_request,
    a_listed_upgrade_passes_with_its_settings,
}

/// All that a sender can claim about itself.
const CLAIMS: &str = "X-Forwarded-For: 192.0.2.1, 192.0.2.2\r\nX-Forwarded-For: 192.0.2.3\r\n\
                      X-Forwarded-Proto: https\r\nX-Forwarded-Host: b.example\r\n\
                      X-Forwarded-Port: 8443\r\nX-Real-IP: 192.0.2.1\r\n\
                      Forwarded: for=192.0.2.1;proto=https\r\n";

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn trusting(sender: IpAddr) -> TrustedSources {
    TrustedSources::from_iter([(sender, 32)])
}

/// The head that the backend received for a request with these header lines.
fn passed(plan: Plan, backend: &HttpBackend, lines: &str) -> Head {
    let proxy = plan.start();
    assert_eq!(proxy.ask(request("GET", "/", lines)).status(), 200, "{lines}");
    backend.requests().pop().expect("it was answered").head
}

/// The values of the origin headers, each name's lines joined.
fn origin(head: &Head) -> Vec<(&'static str, String)> {
    let names = [
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-real-ip",
        "forwarded",
    ];
    let joined = names.into_iter().map(|name| (name, head.all(name).join(", ")));
    joined.filter(|(_, value)| !value.is_empty()).collect()
}

fn as_pairs(pairs: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

fn the_origin_headers_of_an_untrusted_client_are_replaced(mode: Upstream) {
    let ours = [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "a.example"),
    ];
    for lines in ["", CLAIMS] {
        let backend = HttpBackend::echo();
        let head = passed(Plan::new(mode, &[backend.address()]), &backend, lines);
        assert_eq!(origin(&head), as_pairs(&ours), "{lines}");
    }
}

fn the_origin_headers_of_a_trusted_sender_are_appended_to(mode: Upstream) {
    let backend = HttpBackend::echo();
    let plan = Plan::new(mode, &[backend.address()]).front(|front| {
        front.trusted = trusting(LOOPBACK);
        front.forwarded = Forwarded::ALL;
    });
    let appended = [
        ("x-forwarded-for", "192.0.2.1, 192.0.2.2, 192.0.2.3, 127.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "b.example"),
        ("x-forwarded-port", "8443"),
        ("x-real-ip", "192.0.2.1"),
        ("forwarded", "for=192.0.2.1;proto=https, for=127.0.0.1;host=\"a.example\";proto=http"),
    ];
    assert_eq!(origin(&passed(plan, &backend, CLAIMS)), as_pairs(&appended));
}

fn each_origin_header_is_written_only_if_chosen(mode: Upstream) {
    let only_for = Forwarded { x_forwarded_for: true, ..Forwarded::NONE };
    let only_forwarded = Forwarded { forwarded: true, ..Forwarded::NONE };
    let element = "for=127.0.0.1;host=\"a.example\";proto=http";
    let only_real_ip = Forwarded { x_real_ip: true, ..Forwarded::NONE };
    let cases: [(Forwarded, &[(&'static str, &str)]); 4] = [
        (Forwarded::NONE, &[]),
        (only_for, &[("x-forwarded-for", "127.0.0.1")]),
        (only_forwarded, &[("forwarded", element)]),
        (only_real_ip, &[("x-real-ip", "127.0.0.1")]),
    ];
    for (forwarded, expected) in cases {
        let backend = HttpBackend::echo();
        let plan = Plan::new(mode, &[backend.address()]).front(|f| f.forwarded = forwarded);
        let head = passed(plan, &backend, CLAIMS);
        assert_eq!(origin(&head), as_pairs(expected), "{forwarded:?}");
    }
}

fn a_trusted_sender_without_x_real_ip_is_written_itself(mode: Upstream) {
    let backend = HttpBackend::echo();
    let plan = Plan::new(mode, &[backend.address()]).front(|front| {
        front.trusted = trusting(LOOPBACK);
        front.forwarded = Forwarded { x_real_ip: true, ..Forwarded::NONE };
    });
    let head = passed(plan, &backend, "X-Forwarded-For: 192.0.2.1\r\n");
    let written = [("x-forwarded-for", "192.0.2.1"), ("x-real-ip", "127.0.0.1")];
    assert_eq!(origin(&head), as_pairs(&written));
}

fn an_open_quote_does_not_swallow_our_element_of_forwarded(mode: Upstream) {
    let opened = [
        "Forwarded: for=\"x\r\n",
        "Forwarded: for=\"x\\\"\r\n",
        "Forwarded: for=\"x\r\nForwarded: for=192.0.2.1\r\n",
    ];
    for lines in opened {
        let backend = HttpBackend::echo();
        let plan = Plan::new(mode, &[backend.address()]).front(|front| {
            front.trusted = trusting(LOOPBACK);
            front.forwarded = Forwarded::ALL;
        });
        let head = passed(plan, &backend, lines);
        let element = "for=127.0.0.1;host=\"a.example\";proto=http";
        assert_eq!(head.all("forwarded"), [element], "{lines}");
    }
}

fn a_client_announced_by_a_trusted_proxy_is_not_trusted_itself(mode: Upstream) {
    let backend = HttpBackend::echo();
    let plan = Plan::new(mode, &[backend.address()]).front(|front| {
        front.accept_proxy = true;
        front.trusted = trusting(LOOPBACK);
    });
    let proxy = plan.start();
    let mut client = proxy.connect();
    let head = request("GET", "/", CLAIMS);
    client.send(format!("PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n{head}"));
    client.response().expect("an answer");
    let ours = [
        ("x-forwarded-for", "192.0.2.7"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "a.example"),
    ];
    assert_eq!(origin(&backend.requests()[0].head), as_pairs(&ours));
}

#[test]
fn a_proxy_header_from_an_untrusted_sender_resets_the_connection() {
    let backend = HttpBackend::echo();
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]).front(|front| {
        front.accept_proxy = true;
        front.trusted = trusting([192, 0, 2, 9].into());
    });
    let proxy = plan.start();
    // The reset may arrive before the client has sent anything, or notices that it is connected.
    let asked = TcpStream::connect(proxy.address).and_then(|mut stream| {
        stream.write_all(b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n")?;
        stream.write_all(get("/").as_bytes())?;
        stream.read_to_end(&mut Vec::new())
    });
    let kind = asked.expect_err("the connection is reset").kind();
    assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind}");
    proxy.assert_drops(&[(Reason::ProxyUntrusted, 1)]);
    assert_eq!(backend.requests().len(), 0);
}

fn headers_with_underscores_are_dropped_kept_or_refused(mode: Upstream) {
    let lines = "X_User: admin\r\nX-User: guest\r\nX_Forwarded_For: 192.0.2.1\r\nX-A_: 1\r\n";
    for (underscores, kept) in [(Underscores::Drop, 0), (Underscores::Keep, 1)] {
        let backend = HttpBackend::echo();
        let plan = Plan::new(mode, &[backend.address()]).front(|f| f.underscores = underscores);
        let head = passed(plan, &backend, lines);
        let counts = (head.all("x_user").len(), head.all("x-a_").len());
        assert_eq!(counts, (kept, kept), "{underscores:?}");
        assert_eq!(head.all("x-user"), ["guest"]);
        assert!(head.all("x_forwarded_for").is_empty(), "{underscores:?}: the client's own claim");
    }
    let backend = HttpBackend::echo();
    let plan = Plan::new(mode, &[backend.address()]);
    let proxy = plan.front(|front| front.underscores = Underscores::Refuse).start();
    assert_eq!(proxy.ask(request("GET", "/", lines)).status(), 400);
    assert_eq!(proxy.ask(request("GET", "/", "X-User: a_b\r\n")).status(), 200, "in a value");
    proxy.assert_drops(&[(Reason::HeaderUnderscore, 1)]);
}

fn a_websocket_upgrade_passes_beside_other_connection_options(mode: Upstream) {
    let backend = HttpBackend::always(Answer::upgrade("websocket"));
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    let lines = "Connection: Upgrade, X-A\r\nUpgrade: h2c, WebSocket\r\nX-A: 1\r\n";
    client.send(request("GET", "/", lines));
    let switched = client.response().expect("an answer");
    assert_eq!((switched.status(), switched.header("upgrade")), (101, Some("websocket")));
    let received = &backend.requests()[0].head;
    assert_eq!((received.all("upgrade"), received.header("x-a")), (vec!["WebSocket"], None));
    assert_eq!(received.all("connection"), ["upgrade"]);
}

/// As curl asks for HTTP/2.
const TO_H2C: &str =
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";

fn an_upgrade_that_is_not_listed_is_an_ordinary_request(mode: Upstream) {
    let backend = HttpBackend::echo();
    let head = passed(Plan::new(mode, &[backend.address()]), &backend, TO_H2C);
    for name in ["upgrade", "connection", "http2-settings"] {
        assert_eq!(head.header(name), None, "{name}");
    }
    let backend = HttpBackend::echo();
    let plan = Plan::new(mode, &[backend.address()]).front(|f| f.upgrades = [].into());
    let lines = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(passed(plan, &backend, lines).header("upgrade"), None);
}

fn a_listed_upgrade_passes_with_its_settings(mode: Upstream) {
    let backend = HttpBackend::always(Answer::upgrade("h2c"));
    let plan = Plan::new(mode, &[backend.address()]);
    let proxy = plan.front(|front| front.upgrades = ["h2c".to_owned()].into()).start();
    let mut client = proxy.connect();
    client.send(request("GET", "/", TO_H2C));
    assert_eq!(client.response().expect("an answer").status(), 101);
    let received = &backend.requests()[0].head;
    assert_eq!(received.all("connection"), ["upgrade, HTTP2-Settings"]);
    assert_eq!(received.header("http2-settings"), Some("AAMAAABk"));
    client.send("both ways");
    assert_eq!(client.read_exactly(9).expect("an echo"), b"both ways");
}
