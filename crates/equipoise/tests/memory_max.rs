//! Clients that ask for much and read nothing, at a process with a low `memory-max`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use common::{Folder, Process, get, text};
use equipoise_testkit::{Answer, Client, HttpBackend, ReservedPort, eventually, free_port};

/// The bound on the process's memory.
const MEMORY_MAX: u64 = 32 << 20;

/// Clients, and their streams.
const CLIENTS: u64 = 30;
const STREAMS: u32 = 100;

/// Bytes that a client holds at the least, unless something bounds them.
const HELD_MIN: u64 = 5 << 20;

/// Memory in use at the most: the streams of one client pass the bound before it is noticed.
const USED_MAX: u64 = 2 * MEMORY_MAX;

/// A client of HTTP/2 that asks for a response on each of its streams, with the largest windows,
/// and reads nothing.
fn ask_and_read_nothing(door: SocketAddr) -> Option<TcpStream> {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let window: u32 = i32::MAX as u32;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat()));
    bytes.extend(frame(8, 0, 0, &(window - 65_535).to_be_bytes()));
    for stream in 0..STREAMS {
        // GET, http, /, and the authority "a", by the static table of HPACK.
        let head = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
        bytes.extend(frame(1, 0x5, 2 * stream + 1, &head));
    }
    let mut client = TcpStream::connect(door).ok()?;
    client.write_all(&bytes).ok()?;
    Some(client)
}

struct Instance {
    process: Process,
    _folder: Folder,
    api: ReservedPort,
    door: ReservedPort,
}

impl Instance {
    fn start(backend: &HttpBackend) -> Instance {
        let (folder, api, door) = (Folder::new("memory-max"), free_port(), free_port());
        let file = folder.write(
            "equipoise.toml",
            &format!(
                "[instance]\nthreads = 1\nmemory-max = '{}MiB'\n[api]\nsocket = '{}'\nlisten = '{}'\n\
                 [[pool]]\nname = 'web'\nconcurrency = 'none'\nbackends = ['{}']\n\
                 [[session]]\nlisten = '{}'\nprotocol = 'http'\nhttp2 = true\npool = 'web'\n",
                MEMORY_MAX >> 20,
                folder.path("api.sock").display(),
                api.address(),
                backend.address(),
                door.address(),
            ),
        );
        let process = Process::start(&["run", text(&file)]);
        process.wait_for_text(" ready ");
        Instance { process, _folder: folder, api, door }
    }

    /// The sum of a metric's values, of the lines that contain `label`.
    fn metric(&self, name: &str, label: &str) -> u64 {
        let metrics = get(self.api.address(), "/metrics").text();
        let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
    }

    fn used(&self) -> u64 {
        self.metric("equipoise_memory_allocated_bytes", "")
    }
}

#[test]
fn clients_that_read_nothing_do_not_exhaust_memory() {
    let backend = HttpBackend::start(|request| match request.head.target() {
        "/small" => Answer::ok("ok"),
        _ => Answer::pattern(1, 16 << 20),
    });
    let instance = Instance::start(&backend);
    let door = instance.door.address();
    assert_eq!(instance.metric("equipoise_memory_max_bytes", ""), MEMORY_MAX);
    let idle = instance.used();
    assert!(0 < idle && idle < MEMORY_MAX / 2, "{idle}");

    let (mut clients, mut most) = (Vec::new(), 0);
    for number in 1..=CLIENTS {
        clients.push(ask_and_read_nothing(door));
        let holds_it = || {
            let used = instance.used();
            most = most.max(used);
            let is_refusing = instance.metric("equipoise_drops_total", "memory_short") > 0
                || instance.metric("equipoise_accept_pauses_total", "") > 0;
            is_refusing || used >= idle + number * HELD_MIN
        };
        assert!(eventually(holds_it), "client {number}:\n{}", instance.process.printed());
    }
    // They lose their responses, and others are served again while they are still connected.
    let is_served = || {
        most = most.max(instance.used());
        let mut client = Client::connect(door);
        client.ask("GET /small HTTP/1.1\r\nHost: a\r\n\r\n").is_ok_and(|it| it.status() == 200)
    };
    assert!(eventually(is_served), "{}", instance.process.printed());
    assert!(instance.metric("equipoise_drops_total", "client_stalled") > 0);
    assert!(instance.metric("equipoise_accept_pauses_total", "") > 0, "{most}");
    assert!(most < USED_MAX, "{most}");
    instance.process.wait_for_text("memory-max");
    assert!(eventually(|| instance.used() < MEMORY_MAX));
    drop(clients);
}
