//! HTTP/2 clients that break rules or send floods.

mod common;
mod common_http2;

use std::time::Duration;

use common::{Plan, Proxy};
use common_http2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, PING, RST_STREAM, Raw,
    SETTINGS, block, frame,
};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, HttpBackend, eventually};

const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

fn before(backend: &HttpBackend) -> Proxy {
    plan(backend).start()
}

fn plan(backend: &HttpBackend) -> Plan {
    Plan::new(Upstream::Exclusive, &[backend.address()]).front(|front| front.http2 = true)
}

/// GET with `changes`: fields that replace those of the same name, or are added.
fn changed<'a>(changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let is_pseudo = |name: &str| name.starts_with(':');
    let kept = GET.into_iter().filter(|(name, _)| changes.iter().all(|(other, _)| other != name));
    let mut fields: Vec<_> = kept.chain(changes.iter().copied()).collect();
    fields.sort_by_key(|(name, _)| !is_pseudo(name));
    fields
}

#[test]
fn malformed_requests_are_reset_and_never_reach_a_backend() {
    let backend = HttpBackend::echo();
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    let malformed: &[&[(&str, &str)]] = &[
        &[("transfer-encoding", "chunked")],
        &[("connection", "close")],
        &[("keep-alive", "timeout=5")],
        &[("proxy-connection", "close")],
        &[("upgrade", "websocket")],
        &[("http2-settings", "")],
        &[("te", "gzip")],
        &[("host", "b.example")],
        &[("a", " b")],
        &[("a", "b\t")],
        &[(":path", "")],
        &[(":path", "a")],
        &[(":path", "*")],
        &[(":path", "http://a.example/")],
        &[(":status", "200")],
        &[("content-length", "1")],
        &[("content-length", "-1")],
    ];
    for (at, changes) in malformed.iter().enumerate() {
        let stream = 1 + 2 * at as u32;
        client.ask(stream, &changed(changes));
        let end = std::iter::from_fn(|| client.read())
            .find(|frame| [RST_STREAM, GOAWAY, HEADERS].contains(&frame.kind));
        let reset = end.unwrap_or_else(|| panic!("{changes:?}: the connection has ended"));
        assert_eq!(reset.kind, RST_STREAM, "{changes:?}: {reset:?}");
        assert_eq!((reset.stream, reset.code()), (stream, PROTOCOL_ERROR), "{changes:?}");
    }
    let last = 1 + 2 * malformed.len() as u32;
    assert_eq!(client.ask(last, &GET).read_until(HEADERS).stream, last);
    assert_eq!(backend.requests().len(), 1);
}

/// Bytes that no field can hold end the stream or the connection.
#[test]
fn upper_case_and_control_characters_never_reach_a_backend() {
    let backend = HttpBackend::echo();
    let proxy = before(&backend);
    for bad in [
        ("X-Upper", "1"),
        (":unknown", "a"),
        ("a", "b\r\nx: y"),
        ("a", "b\nc"),
        ("a", "b\rc"),
        ("a", "b\0c"),
        ("a\r\nb", "c"),
        ("a b", "c"),
        ("a:", "c"),
        (":path", "/ HTTP/1.1\r\nx: y"),
        (":path", "/a b"),
        (":method", "GET / HTTP/1.1\r\nx: y"),
        (":authority", "a\r\nx: y"),
        (":authority", "a b"),
    ] {
        let mut client = Raw::to(proxy.address);
        client.ask(1, &changed(&[bad]));
        let end = std::iter::from_fn(|| client.read())
            .find(|frame| [RST_STREAM, GOAWAY, HEADERS].contains(&frame.kind));
        let end = end.expect("a frame says that it is refused");
        assert_ne!(end.kind, HEADERS, "{bad:?}: {end:?}");
    }
    assert_eq!(backend.requests().len(), 0);
}

#[test]
fn repeated_lengths_and_foreign_authorities_are_answered_400() {
    let backend = HttpBackend::echo();
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    let twice = changed(&[("content-length", "0"), ("content-length", "0")]);
    for (at, fields) in [twice, changed(&[(":authority", "user@a.example")])].iter().enumerate() {
        client.ask(1 + 2 * at as u32, fields);
        let answer = client.read_until(HEADERS);
        // `:status 400` is entry 12 of HPACK's static table.
        assert_eq!(answer.payload[0], 0x80 | 12, "{fields:?}");
    }
    assert_eq!(backend.requests().len(), 0);
}

#[test]
fn interim_responses_pass() {
    let answer = Answer::ok("x").after_interim("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    let backend = HttpBackend::always(answer);
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    client.ask(1, &GET);
    let interim = client.read_until(HEADERS);
    assert_eq!(interim.flags & END_STREAM, 0);
    assert!(interim.payload.len() > 3);
    // `:status 200` is entry 8.
    assert_eq!(client.read_until(HEADERS).payload[0], 0x80 | 8);
    assert_eq!(client.read_until(DATA).payload, b"x");
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let backend = HttpBackend::always(Answer::hang());
    let proxy = plan(&backend).front(|front| front.limits.streams_max = 2).start();
    let mut client = Raw::to(proxy.address);
    // With the limit known, more is refused by the stream.
    client.frame(SETTINGS, ACK, 0, &[]);
    client.ask(1, &GET).ask(3, &GET).ask(5, &GET);
    let refused = client.read_until(RST_STREAM);
    assert_eq!((refused.stream, refused.code()), (5, REFUSED_STREAM));
}

#[test]
fn a_flood_of_resets_ends_the_connection_and_reaches_few_backends() {
    let backend = HttpBackend::always(Answer::hang());
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    let mut flood = Vec::new();
    for at in 0..5000 {
        let stream = 1 + 2 * at;
        flood.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(&GET)));
        flood.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    let mut writer = client.0.try_clone().expect("a descriptor is free");
    let flooding = std::thread::spawn(move || {
        let _ = std::io::Write::write_all(&mut writer, &flood);
    });
    let code = client.read_until(GOAWAY).code();
    assert_eq!(code, ENHANCE_YOUR_CALM);
    assert!(eventually(|| proxy.drops(Reason::Http2Flood) == 1));
    drop(client);
    flooding.join().expect("no panic");
    proxy.assert_nothing_in_flight();
    assert!(backend.requests().len() <= 100, "{}", backend.requests().len());
}

#[test]
fn a_client_that_resets_each_request_once_it_is_served_loses_the_connection() {
    let backend = HttpBackend::always(Answer::hang());
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    let goaway = (0..2000).find_map(|at| {
        let stream = 1 + 2 * at;
        client.ask(stream, &GET);
        client.frame(PING, 0, 0, b"12345678");
        loop {
            let frame = client.read()?;
            match frame.kind {
                GOAWAY => return Some((at, frame)),
                PING => break,
                _ => {}
            }
        }
        client.frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
        None
    });
    let (at, goaway) = goaway.expect("the connection is ended");
    assert_eq!(goaway.code(), ENHANCE_YOUR_CALM);
    assert!(eventually(|| proxy.drops(Reason::Http2Flood) == 1));
    assert!(at < 500, "{at} requests");
    proxy.assert_nothing_in_flight();
}

/// Frames that each want an answer, from a client that reads none (CVE-2019-9512, CVE-2019-9515).
#[test]
fn a_flood_of_pings_or_settings_is_not_read_on_while_its_answers_are_not() {
    let backend = HttpBackend::echo();
    let proxy = before(&backend);
    for (kind, payload) in [(PING, [7; 8].as_slice()), (SETTINGS, &[])] {
        let mut client = Raw::to(proxy.address);
        client.0.set_write_timeout(Some(Duration::from_millis(500))).expect("a time-out");
        let frames = frame(kind, 0, 0, payload).repeat(10_000);
        let mut sent = 0;
        while let Ok(count @ 1..) = std::io::Write::write(&mut client.0, &frames) {
            sent += count;
            assert!(sent < 256 << 20, "it reads on");
        }
    }
}

/// CVE-2024-27316 and others: a head without an end.
#[test]
fn a_flood_of_continuations_ends_the_connection() {
    let backend = HttpBackend::echo();
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    client.frame(HEADERS, END_STREAM, 1, &block(&GET));
    let mut writer = client.0.try_clone().expect("a descriptor is free");
    let flooding = std::thread::spawn(move || {
        let frames = frame(CONTINUATION, 0, 1, &block(&[("a", "b")]).repeat(100));
        (0..100_000).any(|_| std::io::Write::write_all(&mut writer, &frames).is_err())
    });
    assert_ne!(client.read_until(GOAWAY).code(), 0);
    drop(client);
    assert!(flooding.join().expect("no panic"), "it was read to the end");
    assert_eq!(backend.requests().len(), 0);
}

/// CVE-2019-9518: DATA without data.
#[test]
fn a_flood_of_empty_data_ends_the_connection() {
    let backend = HttpBackend::echo();
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    client.frame(HEADERS, END_HEADERS, 1, &block(&changed(&[(":method", "POST")])));
    for _ in 0..20_000 {
        client.frame(DATA, 0, 1, &[]);
    }
    assert_eq!(client.read_until(GOAWAY).code(), ENHANCE_YOUR_CALM);
    assert!(eventually(|| proxy.drops(Reason::Http2Flood) == 1));
    drop(client);
    proxy.assert_nothing_in_flight();
}

#[test]
fn a_connection_that_never_finishes_a_request_ends_when_idle() {
    let backend = HttpBackend::echo();
    let proxy =
        plan(&backend).front(|front| front.timeouts.idle = Duration::from_millis(200)).start();
    let mut client = Raw::to(proxy.address);
    // CONTINUATION would have to follow.
    client.frame(HEADERS, 0, 1, &block(&GET));
    client.read_until(GOAWAY);
    while client.read().is_some() {}
    assert!(eventually(|| proxy.stats.sum(|stats| stats.connections_open.get()) == 0));
}

#[test]
fn without_the_option_a_preface_is_answered_505() {
    let backend = HttpBackend::echo();
    let proxy = Plan::new(Upstream::Exclusive, &[backend.address()]).start();
    assert_eq!(proxy.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status(), 505);
}
