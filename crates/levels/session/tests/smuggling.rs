//! A backend must never read other requests than the front door did.

mod common;

use common::{Plan, Proxy, both_upstreams, get};
use equipoise_session::Reason;
use equipoise_session::config::Upstream;
use equipoise_testkit::{Client, Ending, HttpBackend};

use Reason::{
    CodingNotImplemented as Coding, ExpectationFailed as Expectation, MethodNotAllowed as Method,
    RequestFraming as Framing, RequestHost as Host, RequestMalformed as Malformed,
    VersionNotSupported as Version,
};

/// A description, the allowed reasons, and the request up to its empty line.
type Refusal = (&'static str, &'static [Reason], &'static [u8]);

/// Framing that two readers could interpret in different ways. Each has a body such as
/// `3\r\nabc\r\n0\r\n\r\n`.
const FRAMING: &[Refusal] = &[
    ("length beside coding", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ("coding beside length", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n"),
    ("length repeated alike", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    ("length repeated otherwise", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    ("length as a list", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc"),
    ("length as a list of two", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3,4\r\n\r\nabc"),
    ("length with a plus", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc"),
    ("length below zero", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\nabc"),
    ("length minus zero", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -0\r\n\r\n"),
    ("length in hexadecimal", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\nabc"),
    ("length with letters behind", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3a\r\n\r\nabc"),
    ("length with a fraction", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3.0\r\n\r\nabc"),
    ("length with a blank in it", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3 3\r\n\r\nabc"),
    ("length with an underscore", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0_3\r\n\r\nabc"),
    ("length empty", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nabc"),
    ("length blank", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:   \r\n\r\nabc"),
    ("length of 2^64", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\nabc"),
    ("length of 2^64 + 3", &[Framing], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551619\r\n\r\nabc"),
    ("length in other digits", &[Framing, Malformed], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \xef\xbc\x93\r\n\r\nabc"),
    ("coding that is not chunked", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"),
    ("coding identity", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n"),
    ("coding before chunked", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("coding after chunked", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
    ("chunked twice", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked twice in two lines", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("chunked and identity in two lines", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
    ("coding that begins like chunked", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n"),
    ("coding that ends like chunked", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("chunked in quotes", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
    ("chunked with a parameter", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n"),
    ("chunked behind a vertical tab", &[Malformed, Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    ("coding empty", &[Coding, Framing], b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n"),
    ("coding in HTTP/1.0", &[Framing], b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
];

/// Lines that lenient readers end, join or trim in different ways.
const LINES: &[Refusal] = &[
    (
        "blank before the colon of the coding",
        &[Malformed],
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "blank before the colon of the length",
        &[Malformed],
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\nabc",
    ),
    ("tab before a colon", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX\t: b\r\n\r\n"),
    ("first header begins with a blank", &[Malformed], b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    ("folded value", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),
    ("value folded with a tab", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\n\r\n"),
    (
        "folded coding",
        &[Malformed],
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    ),
    ("folded line that is empty", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n \r\n\r\n"),
    ("bare LF ends the request line", &[Malformed], b"GET / HTTP/1.1\nHost: a\r\n\r\n"),
    ("bare LF ends a header", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"),
    ("bare LF ends the last header", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\n\r\n"),
    ("bare LF ends the head", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\n\n"),
    ("bare LF everywhere", &[Malformed], b"GET / HTTP/1.1\nHost: a\n\n"),
    ("bare CR in the request line", &[Malformed], b"GET /\rx HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("two CR end the request line", &[Malformed], b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n"),
    ("bare CR in a value", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n"),
    (
        "bare CR before a header's CRLF",
        &[Malformed],
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\r\n\r\n",
    ),
    (
        "bare CR hides a coding",
        &[Malformed],
        b"POST / HTTP/1.1\r\nHost: a\r\nX: b\rTransfer-Encoding: chunked\r\n\r\n",
    ),
    ("NUL in a value", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n"),
    ("NUL in a name", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n"),
    ("NUL in the target", &[Malformed], b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("NUL in the method", &[Malformed], b"GE\0T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    (
        "control character in a value",
        &[Malformed],
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x01c\r\n\r\n",
    ),
    ("DEL in a value", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x7fc\r\n\r\n"),
    ("header without a colon", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"),
    ("header without a name", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n"),
    ("blank within a name", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n"),
    ("parenthesis in a name", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX(Y: b\r\n\r\n"),
    ("byte above 127 in a name", &[Malformed], b"GET / HTTP/1.1\r\nHost: a\r\nX\x80: b\r\n\r\n"),
];

/// Targets, hosts and protocols.
const REQUEST_LINES: &[Refusal] = &[
    ("two Host lines alike", &[Host], b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
    ("two Host lines", &[Host], b"GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n"),
    ("no Host", &[Host], b"GET / HTTP/1.1\r\nX: b\r\n\r\n"),
    ("no header at all", &[Host], b"GET / HTTP/1.1\r\n\r\n"),
    ("Host that is a list", &[Host], b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    ("Host with a blank", &[Host], b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ("Host with a path", &[Host], b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    ("Host with a user", &[Host], b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
    ("target names another host", &[Host], b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target names another port", &[Host], b"GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    (
        "target with a scheme and no host",
        &[Host, Malformed],
        b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    ("target that is no path", &[Malformed], b"GET x HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("target * of a GET", &[Malformed], b"GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("no target", &[Malformed], b"GET HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("empty target", &[Malformed], b"GET  HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("blank in the target", &[Malformed], b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("two blanks before the target", &[Malformed], b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("two blanks before the version", &[Malformed], b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("blank behind the version", &[Malformed], b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n"),
    ("blank before the method", &[Malformed], b" GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("tabs in the request line", &[Malformed], b"GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n"),
    ("no method", &[Malformed], b"/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("method that is no token", &[Malformed], b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("version 0.9", &[Malformed, Version], b"GET /\r\n\r\n"),
    ("version in small letters", &[Malformed, Version], b"GET / http/1.1\r\nHost: a\r\n\r\n"),
    ("version 2.0", &[Malformed, Version], b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
    ("version 1.10", &[Malformed, Version], b"GET / HTTP/1.10\r\nHost: a\r\n\r\n"),
    ("HTTP/2 with prior knowledge", &[Malformed, Version], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ("TLS", &[Malformed], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    ("CONNECT", &[Method], b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"),
    (
        "an expectation that nobody knows",
        &[Expectation],
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\nContent-Length: 0\r\n\r\n",
    ),
];

/// Chunked bodies that two readers could end in different places, after a valid head.
const CHUNKS: &[(&str, &[u8])] = &[
    ("size of 2^64", b"10000000000000000\r\nabc\r\n0\r\n\r\n"),
    ("size of 2^64 + 3", b"10000000000000003\r\nabc\r\n0\r\n\r\n"),
    ("size of 17 digits", b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    ("no size", b"\r\nabc\r\n0\r\n\r\n"),
    ("only an extension", b";a\r\nabc\r\n0\r\n\r\n"),
    ("size that is no number", b"g\r\nabc\r\n0\r\n\r\n"),
    ("size with a plus", b"+3\r\nabc\r\n0\r\n\r\n"),
    ("size below zero", b"-3\r\nabc\r\n0\r\n\r\n"),
    ("size with 0x", b"0x3\r\nabc\r\n0\r\n\r\n"),
    ("size with an underscore", b"0_3\r\nabc\r\n0\r\n\r\n"),
    ("blank before the size", b" 3\r\nabc\r\n0\r\n\r\n"),
    ("blank behind the size", b"3 \r\nabc\r\n0\r\n\r\n"),
    ("bare LF behind the size", b"3\nabc\r\n0\r\n\r\n"),
    ("bare CR behind the size", b"3\rabc\r\n0\r\n\r\n"),
    ("two CR behind the size", b"3\r\r\nabc\r\n0\r\n\r\n"),
    ("LF in an extension", b"3;a\nb\r\nabc\r\n0\r\n\r\n"),
    ("extension that ends in a bare LF", b"3;a\nabc\r\n0\r\n\r\n"),
    ("CR in an extension", b"3;a\rb\r\nabc\r\n0\r\n\r\n"),
    ("NUL in an extension", b"3;a\0b\r\nabc\r\n0\r\n\r\n"),
    ("data longer than its size", b"3\r\nabcd\r\n0\r\n\r\n"),
    ("no CRLF behind the data", b"3\r\nabc0\r\n\r\n"),
    ("bare LF behind the data", b"3\r\nabc\n0\r\n\r\n"),
    ("bare CR behind the data", b"3\r\nabc\r0\r\n\r\n"),
    ("bare LF behind the last size", b"3\r\nabc\r\n0\n\r\n"),
    ("bare LF at the end", b"3\r\nabc\r\n0\r\n\n"),
    ("bare LF ends a trailer", b"3\r\nabc\r\n0\r\nX: b\n\r\n"),
    ("folded trailer", b"3\r\nabc\r\n0\r\nX: b\r\n c\r\n\r\n"),
    ("NUL in a trailer", b"3\r\nabc\r\n0\r\nX: b\0\r\n\r\n"),
    ("trailer without a colon", b"3\r\nabc\r\n0\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
];

/// The request that an attacker would append.
const BEHIND: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

#[derive(Clone, Copy)]
enum Pace {
    Whole,
    Bytewise,
}

/// Sends `request` followed by a second one; returns the only status if the connection ended.
fn refused(proxy: &Proxy, request: &[u8], pace: Pace) -> Result<u16, String> {
    let mut client = Client::connect(proxy.address);
    let bytes = [request, BEHIND.as_bytes()].concat();
    match pace {
        Pace::Whole => drop(client.try_send(&bytes)),
        Pace::Bytewise => drop(client.send_bytewise(&bytes)),
    }
    let (answer, ending) = client.read_to_end();
    let answer = String::from_utf8_lossy(&answer);
    match (answer.matches("HTTP/1.1 ").count(), ending) {
        (_, Ending::StillOpen) => Err(format!("the connection stays open after {answer:?}")),
        (1, _) => Ok(answer[9..12].parse().unwrap_or(0)),
        (count, _) => Err(format!("{count} responses: {answer:?}")),
    }
}

/// Checks all rows and reports every wrong one.
fn check_refusals(proxy: &Proxy, backend: &HttpBackend, rows: &[Refusal], pace: Pace) {
    let mut wrong = Vec::new();
    for (name, reasons, request) in rows {
        let before: Vec<u64> = reasons.iter().map(|r| proxy.drops(*r)).collect();
        let bytes = backend.counts().bytes;
        match refused(proxy, request, pace) {
            Ok(status) => {
                let given = reasons.iter().zip(&before).find(|(r, n)| proxy.drops(**r) > **n);
                match given {
                    Some((reason, _)) if reason.status() == status => {}
                    _ => wrong.push(format!("{name}: {status}, counted {:?}", proxy.all_drops())),
                }
            }
            Err(how) => wrong.push(format!("{name}: {how}")),
        }
        if backend.counts().bytes > bytes {
            wrong.push(format!("{name}: something reached the backend"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

both_upstreams! {
    ambiguous_framing_is_refused_and_reaches_no_backend,
    lines_that_readers_end_differently_are_refused_and_reach_no_backend,
    unclear_request_lines_and_hosts_are_refused_and_reach_no_backend,
    unclear_chunks_are_refused_and_no_backend_gets_a_whole_request,
    what_follows_a_refused_request_on_its_connection_is_never_served,
    a_bad_request_behind_a_good_one_leaves_the_good_one_answered,
    the_backend_sees_one_length_and_a_body_that_agrees,
    a_connection_header_cannot_take_framing_or_host_away,
}

fn ambiguous_framing_is_refused_and_reaches_no_backend(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    check_refusals(&proxy, &backend, FRAMING, Pace::Whole);
    check_refusals(&proxy, &backend, FRAMING, Pace::Bytewise);
}

fn lines_that_readers_end_differently_are_refused_and_reach_no_backend(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    check_refusals(&proxy, &backend, LINES, Pace::Whole);
    check_refusals(&proxy, &backend, LINES, Pace::Bytewise);
}

fn unclear_request_lines_and_hosts_are_refused_and_reach_no_backend(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    check_refusals(&proxy, &backend, REQUEST_LINES, Pace::Whole);
    check_refusals(&proxy, &backend, REQUEST_LINES, Pace::Bytewise);
}

fn unclear_chunks_are_refused_and_no_backend_gets_a_whole_request(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    let mut wrong = Vec::new();
    for pace in [Pace::Whole, Pace::Bytewise] {
        for (name, chunks) in CHUNKS {
            let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            match refused(&proxy, &[&head[..], chunks].concat(), pace) {
                Ok(400) => {}
                other => wrong.push(format!("{name}: {other:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(backend.acceptor().wait(|c| c.open == 0), "a broken request's session is closed");
    assert_eq!(backend.completed(), 0);
    let smuggled = |r: &equipoise_testkit::Received| r.head.target() == "/smuggled";
    assert!(!backend.requests().iter().any(smuggled));
    proxy.assert_nothing_in_flight();
}

fn what_follows_a_refused_request_on_its_connection_is_never_served(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(get("/good")).response().expect("the good one is answered");
    client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").send(BEHIND);
    assert_eq!(client.response().expect("a refusal").status(), 400);
    assert_ne!(client.read_to_end(), (Vec::new(), Ending::StillOpen));
    assert_eq!(backend.requests().len(), 1);
}

fn a_bad_request_behind_a_good_one_leaves_the_good_one_answered(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    let mut client = proxy.connect();
    client.send(format!(
        "{}GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\nx{BEHIND}",
        get("/good")
    ));
    assert_eq!(client.response().expect("the good one's").status(), 200);
    assert_eq!(client.response().expect("a refusal").status(), 400);
    assert_ne!(client.read_to_end().1, Ending::StillOpen);
    assert_eq!(backend.requests().len(), 1);
    proxy.assert_drops(&[(Reason::RequestFraming, 1)]);
}

fn the_backend_sees_one_length_and_a_body_that_agrees(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Proxy::before(mode, &backend);
    let accepted = [
        "Content-Length: 3\r\n\r\nabc",
        "Content-Length:\t 3 \t\r\n\r\nabc",
        "content-length: 0003\r\n\r\nabc",
        "Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3;a=b;c=\"d\"\r\nabc\r\n00\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n02\r\nbc\r\n0\r\n\r\n",
    ];
    for framed in accepted {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{framed}{}", get("/next"));
        let mut client = proxy.connect();
        assert_eq!(client.send(request).response().expect("an answer").status(), 200, "{framed:?}");
        let next = client.response().expect("an answer").text();
        assert!(next.starts_with("GET /next HTTP/1.1\r\n"), "{framed:?}: {next}");
    }
    for received in backend.requests().iter().filter(|r| r.head.method() == "POST") {
        let lengths = received.head.all("content-length").len();
        let codings = received.head.all("transfer-encoding").len();
        assert_eq!(
            (lengths + codings, &received.body[..]),
            (1, &b"abc"[..]),
            "{:?}",
            received.head
        );
    }
}

fn a_connection_header_cannot_take_framing_or_host_away(mode: Upstream) {
    let backend = HttpBackend::echo();
    let proxy = Plan::new(mode, &[backend.address()]).start();
    for named in ["content-length", "Host", "close, Content-Length, host", "transfer-encoding"] {
        let lines = format!("Connection: {named}\r\nContent-Length: 3\r\n");
        let request = format!("{}abc", common::request("POST", "/", &lines));
        let before = backend.requests().len();
        match proxy.ask(request).status() {
            400 => assert_eq!(backend.requests().len(), before, "{named}"),
            200 => {
                let received = backend.requests().pop().expect("it was answered");
                assert_eq!(received.body, b"abc", "{named}");
                assert_eq!(received.head.all("host"), ["a.example"], "{named}");
            }
            other => panic!("{named}: {other}"),
        }
    }
}
