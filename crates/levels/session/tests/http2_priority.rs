//! Priorities of HTTP/2 (RFC 9218): fields pass, and urgent responses have most of a connection.

mod common;
mod common_http2;

use std::time::Duration;

use common::{Plan, Proxy};
use common_http2::{DATA, GET, HEADERS, PING, Raw, SETTINGS};
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, HttpBackend};

const WINDOW_UPDATE: u8 = 8;
const PRIORITY_UPDATE: u8 = 0x10;

/// A client that grants large windows to streams, and to the connection what it asks for.
struct Reader {
    raw: Raw,
    /// Bytes of DATA by stream.
    read: [usize; 8],
    granted: usize,
}

impl Reader {
    fn to(proxy: &Proxy) -> Reader {
        let mut raw = Raw::to(proxy.address);
        // SETTINGS_INITIAL_WINDOW_SIZE.
        raw.frame(SETTINGS, 0, 0, &[0, 4, 0x10, 0, 0, 0]);
        Reader { raw, read: [0; 8], granted: 65_535 }
    }

    fn ask(&mut self, stream: u32, path: &str, priority: Option<&str>) {
        let mut fields = GET.to_vec();
        fields.retain(|(name, _)| *name != ":path");
        fields.push((":path", path));
        fields.extend(priority.map(|value| ("priority", value)));
        self.raw.ask(stream, &fields);
    }

    /// Grants more, and reads until all that was granted has come.
    fn read(&mut self, more: usize) {
        self.granted += more;
        if more > 0 {
            self.raw.frame(WINDOW_UPDATE, 0, 0, &(more as u32).to_be_bytes());
        }
        while self.read.iter().sum::<usize>() < self.granted {
            let frame = self.raw.read_until(DATA);
            self.read[frame.stream as usize] += frame.payload.len();
        }
    }

    /// Parts of streams 1 and 3, in per cent, while both are under way.
    fn shares(&mut self) -> [usize; 2] {
        let before = self.read;
        for _ in 0..50 {
            self.read(16 << 10);
        }
        [1, 3].map(|stream| (self.read[stream] - before[stream]) * 100 / (50 * (16 << 10)))
    }
}

/// A proxy before a backend with large responses, and what `path` says of their priority.
fn rig() -> (HttpBackend, Proxy) {
    let backend = HttpBackend::start(|request| {
        let answer = Answer::ok(vec![b'x'; 2 << 20]);
        match request.head.target() {
            "/late" => answer.header_lines("Priority: u=7, i\r\n"),
            "/urgent" => answer.header_lines("Priority: u=0\r\n"),
            _ => answer,
        }
    });
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]);
    let proxy = plan.front(|front| front.http2 = true).start();
    (backend, proxy)
}

/// The shares of two responses, the first of which was under way when the second was asked for.
fn shares(first: (&str, Option<&str>), second: (&str, Option<&str>)) -> [usize; 2] {
    let (_backend, proxy) = rig();
    let mut reader = Reader::to(&proxy);
    reader.ask(1, first.0, first.1);
    reader.read(0);
    reader.ask(3, second.0, second.1);
    reader.raw.read_until(HEADERS);
    reader.read(64 << 10);
    reader.shares()
}

#[test]
fn the_more_urgent_response_has_most_of_the_connection_and_none_is_starved() {
    for (first, second) in [
        (("/", Some("u=6")), ("/", Some("u=0"))),
        (("/", None), ("/", Some("u=1, i"))),
        // The backend's word counts more.
        (("/late", None), ("/", None)),
        (("/", None), ("/urgent", Some("u=5"))),
    ] {
        let [late, urgent] = shares(first, second);
        assert!(urgent >= 75 && late >= 1, "{first:?} {late} %, {second:?} {urgent} %");
    }
    let [first, second] = shares(("/", Some("u=2")), ("/", Some("u=2, i")));
    assert!((35..=65).contains(&first) && (35..=65).contains(&second), "{first} {second}");
}

#[test]
fn none_yields_for_long_to_an_urgent_response_that_its_client_does_not_take() {
    const WINDOW: usize = 2000;
    const GRANT: u32 = 4 << 10;
    const YIELDING_BYTES: usize = 1 << 10;
    let (_backend, proxy) = rig();
    let mut reader = Reader::to(&proxy);
    // SETTINGS_INITIAL_WINDOW_SIZE: the urgent response is stuck after so many bytes.
    let window = [&[0, 4][..], &(WINDOW as u32).to_be_bytes()].concat();
    reader.raw.frame(SETTINGS, 0, 0, &window);
    reader.granted = 2 * WINDOW;
    reader.ask(1, "/", Some("u=0"));
    reader.ask(3, "/", Some("u=6"));
    reader.read(0);
    assert_eq!(reader.read[1], WINDOW);
    let mut largest = 0;
    while largest <= YIELDING_BYTES && reader.read[3] < 2 << 20 {
        reader.raw.frame(WINDOW_UPDATE, 0, 3, &GRANT.to_be_bytes());
        reader.raw.frame(WINDOW_UPDATE, 0, 0, &GRANT.to_be_bytes());
        reader.granted += GRANT as usize;
        while reader.read.iter().sum::<usize>() < reader.granted {
            let frame = reader.raw.read_until(DATA);
            reader.read[frame.stream as usize] += frame.payload.len();
            largest = largest.max(frame.payload.len());
        }
        // Not for order: the body shall outlast the time for which others yield.
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(largest > YIELDING_BYTES, "at most {largest} bytes at a time");
}

#[test]
fn priorities_pass_and_their_frames_are_ignored() {
    let (backend, proxy) = rig();
    let mut reader = Reader::to(&proxy);
    reader.raw.frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=7");
    reader.ask(1, "/urgent", Some("u=2, i"));
    reader.raw.read_until(HEADERS);
    reader.raw.frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=7").frame(PING, 0, 0, b"12345678");
    reader.raw.read_until(PING);
    assert_eq!(backend.requests()[0].head.header("priority"), Some("u=2, i"));
    let answer = proxy.ask(common::get("/urgent"));
    assert_eq!(answer.header("priority"), Some("u=0"));
}
