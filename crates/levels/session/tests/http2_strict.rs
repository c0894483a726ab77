//! HTTP/2 clients that break rules or send floods (`floods`).

mod common;
mod common_http2;
#[path = "http2_strict/floods.rs"]
mod floods;

use std::io::Write;
use std::num::NonZeroU32;
use std::time::Duration;

use common::{Plan, Proxy};
use common_http2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, PING, PRIORITY,
    RST_STREAM, Raw, SETTINGS, WINDOW_UPDATE, block, frame, indexed_field,
};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Gate, HttpBackend, PATIENCE, Step, eventually};

/// RFC 9218, section 7.1.
const PRIORITY_UPDATE: u8 = 0x10;
const UNKNOWN: u8 = 0xfe;

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
fn interim_responses_without_end_are_left_out() {
    const SENT: usize = 2000;
    let hint = format!("HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n", "a".repeat(100));
    let backend = HttpBackend::always(Answer::ok("x").after_interim(hint.repeat(SENT)));
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    client.ask(1, &GET);
    let heads = std::iter::from_fn(|| client.read()).take_while(|frame| frame.kind != DATA);
    let passed = heads.filter(|frame| frame.kind == HEADERS).count() - 1;
    assert!((100..SENT / 2).contains(&passed), "{passed} are passed");
    proxy.assert_drops(&[]);
}

/// `h2` bounds how many small frames it holds, whatever the windows permit.
#[test]
fn small_messages_of_a_request_that_waits_are_kept() {
    const MESSAGES: usize = 20_000;
    let gate = Gate::new();
    let held = Answer::ok("held").first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |request| match request.head.target() {
        "/held" => held.clone(),
        _ => Answer::ok("done"),
    });
    let proxy = plan(&backend).pool(|pool| pool.queue.wait = PATIENCE).start();
    proxy.backends[0].live.set_limit(NonZeroU32::new(1));
    let mut client = Raw::to(proxy.address);
    // The windows are those of the proxy's settings once they are known.
    client.frame(SETTINGS, ACK, 0, &[]).ask(1, &changed(&[(":path", "/held")]));
    assert!(backend.wait(|requests| requests.len() == 1));
    client.frame(HEADERS, END_HEADERS, 3, &block(&changed(&[(":method", "POST")])));
    let messages = frame(DATA, 0, 3, b"0123456789").repeat(MESSAGES);
    client.0.write_all(&messages).expect("they are taken");
    client.meet();
    assert_eq!(proxy.queue.len(), 1);
    gate.open();
    client.frame(DATA, END_STREAM, 3, &[]);
    while client.read_until(DATA).payload != b"done" {}
    assert_eq!(backend.requests()[1].body, b"0123456789".repeat(MESSAGES));
    proxy.assert_drops(&[]);
}

/// Such a client does not say that it knows of the GOAWAY.
#[test]
fn streams_after_a_goaway_are_refused_to_a_client_that_answers_no_ping() {
    let gate = Gate::new();
    let held = Answer::ok("held").first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |request| match request.head.target() {
        "/held" => held.clone(),
        _ => Answer::ok("done"),
    });
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    client.ask(1, &changed(&[(":path", "/held")]));
    assert!(backend.wait(|requests| requests.len() == 1));
    let stopping = std::thread::spawn(|| proxy.stop(2 * PATIENCE));
    client.read_until(GOAWAY);
    let refused = (1..).find_map(|at| {
        let stream = 1 + 2 * at;
        client.ask(stream, &GET);
        let end = std::iter::from_fn(|| client.read()).find(|frame| {
            frame.stream == stream && (frame.kind == DATA || frame.kind == RST_STREAM)
        });
        end.filter(|frame| frame.kind == RST_STREAM)
    });
    assert_eq!(refused.expect("one is refused").code(), REFUSED_STREAM);
    gate.open();
    assert_eq!(client.read_until(DATA).payload, b"held");
    stopping.join().expect("it stops");
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
