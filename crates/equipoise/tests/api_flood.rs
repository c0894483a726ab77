//! Clients that hold connections of the API's TCP listener open, beside clients that must get
//! answers.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use common::{Folder, Process, get, text};
use equipoise_testkit::{PATIENCE, ReservedPort, eventually, free_port};
use socket2::{Domain, Socket, Type};

/// Silent connections that a test holds open. The listener has room for 128.
const SILENT: u16 = 300;
/// Connections that read nothing. Fewer suffice, since each is answered until its buffers are full.
const UNREAD: u16 = 160;

/// Bound for an answer beside silent connections. If they were not evicted, each would keep its
/// place for 10 s. The first answer would then come after 20 s, because the listener accepts 128 at
/// a time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);
/// The same beside connections that read nothing. If they were not evicted, they would keep their
/// places for ever.
const ANSWERS_AT_ALL: Duration = PATIENCE;

struct Instance {
    _process: Process,
    _folder: Folder,
    api: ReservedPort,
}

impl Instance {
    fn start(test: &str) -> Instance {
        let (folder, api) = (Folder::new(test), free_port());
        let file = folder.write(
            "equipoise.toml",
            &format!(
                "[api]\nsocket = '{}'\nlisten = '{}'\n[instance]\nthreads = 1\n",
                folder.path("api.sock").display(),
                api.address()
            ),
        );
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { _process: process, _folder: folder, api }
    }

    /// Requests both pages repeatedly while the connections are held.
    fn answers(&self, within: Duration) {
        for path in ["/v1/status", "/metrics", "/v1/status", "/metrics"] {
            let begun = Instant::now();
            assert_eq!(get(self.api.address(), path).status(), 200, "{path}");
            let took = begun.elapsed();
            assert!(took < within, "{path} took {took:?}");
        }
    }

    fn evicted(&self) -> bool {
        let metrics = get(self.api.address(), "/metrics").text();
        let line = "equipoise_api_turned_away_total{reason=\"silent\"} ";
        let count = metrics.lines().find_map(|it| it.strip_prefix(line));
        count.is_some_and(|count| count.trim().parse::<u64>().unwrap() > 0)
    }
}

/// Opens a connection from this address, with a small receive buffer.
fn connect(from: Ipv4Addr, to: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket
}

/// Holds connections that have sent `said` and read nothing, from these addresses, and checks the
/// instance's answers.
fn hold(test: &str, said: &[u8], from: impl Fn(u16) -> Ipv4Addr) {
    let (held, within) = match said {
        [] => (SILENT, ANSWERS_WITHIN),
        _ => (UNREAD, ANSWERS_AT_ALL),
    };
    let instance = Instance::start(test);
    let to = instance.api.address();
    let held: Vec<Socket> = (0..held)
        .map(|number| {
            let mut socket = connect(from(number), to);
            // An evicted connection may be reset during a write.
            socket.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            let _ = socket.write_all(said);
            socket
        })
        .collect();
    instance.answers(within);
    assert!(eventually(|| instance.evicted()), "some connections made room");
    drop(held);
}

fn one(_: u16) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 7)
}

fn many(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 1, high, low)
}

/// Requests with 7 MB of answers, more than both sockets' buffers hold.
fn unread() -> Vec<u8> {
    b"GET /v1/config/schema HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100)
}

#[test]
fn silent_connections_of_one_address_make_room() {
    hold("api-silent-one", b"", one);
}

#[test]
fn silent_connections_of_many_addresses_make_room() {
    hold("api-silent-many", b"", many);
}

#[test]
fn connections_of_one_address_that_read_nothing_make_room() {
    hold("api-unread-one", &unread(), one);
}

#[test]
fn connections_of_many_addresses_that_read_nothing_make_room() {
    hold("api-unread-many", &unread(), many);
}
