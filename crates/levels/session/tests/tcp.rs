//! TCP front doors with real sockets on loopback.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common_net;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common_net::{PATIENCE, Rig, backend, is_reset, refusing, reset, until};
use equipoise_session::Reason;
use equipoise_session::config::{Protocol, ProxyProtocol, TrustedSources};

/// A block with a length that shares no factor with any buffer's, so that wrongly moved bytes are
/// detected.
fn block() -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    std::iter::repeat_with(next).take(65_521).collect()
}

fn send_blocks(stream: &mut TcpStream, block: &[u8], bytes: usize) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let now = left.min(block.len());
        stream.write_all(&block[..now])?;
        left -= now;
    }
    Ok(())
}

#[track_caller]
fn expect_blocks(stream: &mut TcpStream, block: &[u8], bytes: usize) {
    let mut read = vec![0; block.len()];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(block.len());
        stream.read_exact(&mut read[..now]).unwrap();
        assert!(read[..now] == block[..now], "wrong bytes, {left} before the end");
        left -= now;
    }
}

fn echo(mut stream: TcpStream) {
    let mut writer = stream.try_clone().unwrap();
    let _ = io::copy(&mut stream, &mut writer);
    let _ = writer.shutdown(Shutdown::Write);
}

fn tcp(backends: &[SocketAddr]) -> Rig {
    Rig::start(Protocol::Tcp, backends, |_| {})
}

/// A backend that hands its connections to the test.
fn handed_over() -> (SocketAddr, mpsc::Receiver<TcpStream>) {
    let (sender, receiver) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let address = backend(move |stream| {
        let _ = sender.lock().unwrap().send(stream);
    });
    (address, receiver)
}

/// A client's connection through the proxy with the backend's end of it.
fn pair(rig: &Rig, accepted: &mpsc::Receiver<TcpStream>) -> (TcpStream, TcpStream) {
    (rig.connect(), accepted.recv_timeout(PATIENCE).unwrap())
}

#[test]
fn any_number_of_bytes_passes_both_ways_unchanged() {
    let rig = tcp(&[backend(echo)]);
    let mut total = 0;
    for bytes in [0, 1, 1000, 16 << 10, (64 << 10) + 1, 64 << 20] {
        let mut client = rig.connect();
        let mut sender = client.try_clone().unwrap();
        let writing = thread::spawn(move || {
            send_blocks(&mut sender, &block(), bytes).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        expect_blocks(&mut client, &block(), bytes);
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "the end comes behind the last byte");
        writing.join().unwrap();
        total += bytes as u64;
    }
    rig.settle();
    assert_eq!(rig.count(|stats| &stats.bytes_in), total);
    assert_eq!(rig.count(|stats| &stats.bytes_out), total);
    assert_eq!(rig.backend_count(0, |stats| &stats.bytes_out), total);
    assert_eq!(rig.backend_count(0, |stats| &stats.bytes_in), total);
    assert_eq!(rig.backend_count(0, |stats| &stats.requests), 6);
    assert_eq!(rig.count(|stats| &stats.connections), 6);
}

#[test]
fn small_and_large_exchanges_alternate_on_one_connection() {
    let rig = tcp(&[backend(echo)]);
    let mut client = rig.connect();
    let block = block();
    for bytes in [10, 3 << 20, 1, 100, 200_000, 16 << 10, 17 << 10, 5 << 20, 1] {
        let mut sender = client.try_clone().unwrap();
        let sent = block.clone();
        let writing = thread::spawn(move || send_blocks(&mut sender, &sent, bytes).unwrap());
        expect_blocks(&mut client, &block, bytes);
        writing.join().unwrap();
    }
}

#[test]
fn a_receiver_that_pauses_receives_every_byte() {
    let (address, accepted) = handed_over();
    let rig = tcp(&[address]);
    let (client, mut server) = pair(&rig, &accepted);
    let writing = thread::spawn(move || send_blocks(&mut server, &block(), 32 << 20).unwrap());
    // The proxy has to pause once all socket buffers are full.
    let moved = || rig.count(|stats| &stats.bytes_out);
    until("bytes have come", || moved() > 0);
    let mut client = client;
    expect_blocks(&mut client, &block(), 32 << 20);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    writing.join().unwrap();
}

#[test]
fn urgent_bytes_neither_stall_nor_truncate_the_stream() {
    let (address, accepted) = handed_over();
    let rig = tcp(&[address]);
    let (mut client, server) = pair(&rig, &accepted);
    let writing = thread::spawn(move || {
        let mut server = server;
        send_blocks(&mut server, &block(), 8 << 20).unwrap();
        socket2::SockRef::from(&server).send_out_of_band(b"!").unwrap();
        server.write_all(b"the end").unwrap();
    });
    expect_blocks(&mut client, &block(), 8 << 20);
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.trim_start_matches('!'), "the end");
    writing.join().unwrap();
}

#[test]
fn a_client_that_half_closes_still_receives_the_response() {
    let rig = tcp(&[backend(|mut stream| {
        let mut request = Vec::new();
        stream.read_to_end(&mut request).unwrap();
        assert_eq!(request.len(), 1 << 20);
        send_blocks(&mut stream, &block(), 3 << 20).unwrap();
    })]);
    let mut client = rig.connect();
    send_blocks(&mut client, &block(), 1 << 20).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    expect_blocks(&mut client, &block(), 3 << 20);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    rig.settle();
    assert_eq!(rig.drops(Reason::ClientGone), 0);
}

#[test]
fn a_backend_that_half_closes_still_receives_the_request() {
    let (address, accepted) = handed_over();
    let rig = tcp(&[address]);
    let (mut client, mut server) = pair(&rig, &accepted);
    server.write_all(b"hello").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    let mut greeting = String::new();
    client.read_to_string(&mut greeting).unwrap();
    assert_eq!(greeting, "hello");
    let writing = thread::spawn(move || send_blocks(&mut client, &block(), 1 << 20).unwrap());
    expect_blocks(&mut server, &block(), 1 << 20);
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    writing.join().unwrap();
    rig.settle();
    assert_eq!(rig.drops(Reason::UpstreamClosed), 0);
}

#[test]
fn a_reset_by_the_client_resets_the_backend() {
    let (address, accepted) = handed_over();
    let rig = tcp(&[address]);
    let (mut client, mut server) = pair(&rig, &accepted);
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    reset(client);
    assert!(is_reset(&mut server));
    rig.settle();
    assert_eq!(rig.drops(Reason::ClientGone), 1);
    assert_eq!(rig.failures(0, Reason::ClientGone), 0, "the backend is not to blame");
}

#[test]
fn a_reset_noticed_by_a_write_is_forwarded_as_a_reset() {
    let (address, accepted) = handed_over();
    let rig = tcp(&[address]);
    for _ in 0..200 {
        // The kernel reports the reset to the write if that comes between, and then to a read an
        // end.
        let (mut client, mut behind) = pair(&rig, &accepted);
        client.write_all(b"a").unwrap();
        behind.read_exact(&mut [0; 1]).unwrap();
        client.write_all(b"b").unwrap();
        reset(behind);
        assert!(is_reset(&mut client));
    }
}

#[test]
fn a_client_that_closes_during_a_download_resets_the_backend() {
    let (address, accepted) = handed_over();
    let rig = tcp(&[address]);
    let (client, mut server) = pair(&rig, &accepted);
    drop(client);
    let error = loop {
        if let Err(error) = server.write_all(&[0; 4096]) {
            break error.kind();
        }
    };
    assert!([io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe].contains(&error));
    rig.settle();
    assert_eq!(rig.drops(Reason::ClientGone), 1);
}

#[test]
fn a_reset_by_the_backend_resets_the_client() {
    let (address, accepted) = handed_over();
    let rig = tcp(&[address]);
    let (mut client, mut server) = pair(&rig, &accepted);
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    reset(server);
    assert!(is_reset(&mut client));
    rig.settle();
    assert_eq!(rig.drops(Reason::UpstreamClosed), 1);
    assert_eq!(rig.failures(0, Reason::UpstreamClosed), 1);
}

#[test]
fn a_backend_that_refuses_is_replaced_without_a_client_error() {
    let rig = tcp(&[refusing(), backend(echo)]);
    for _ in 0..6 {
        let mut client = rig.connect();
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    }
    let refused = rig.failures(0, Reason::ConnectRefused);
    assert!(refused > 0);
    assert_eq!(rig.count(|stats| &stats.retries), refused);
    assert_eq!(rig.backend_count(0, |stats| &stats.requests), 0);
    assert_eq!(rig.backend_count(1, |stats| &stats.requests), 6);
    rig.settle();
}

#[test]
fn backends_that_all_refuse_reset_the_client_and_are_reported() {
    let mut rig = tcp(&[refusing(), refusing()]);
    for _ in 0..5 {
        assert!(is_reset(&mut rig.connect()));
    }
    rig.settle();
    assert_eq!(rig.drops(Reason::ConnectRefused), 5);
    assert_eq!(rig.count(|stats| &stats.retries), 5, "one retry each, as configured");
    assert!(rig.events.try_recv().is_ok(), "five failures in a row are reported");
}

#[test]
fn without_a_backend_the_client_is_reset() {
    let rig = tcp(&[]);
    assert!(is_reset(&mut rig.connect()));
    rig.settle();
    assert_eq!(rig.drops(Reason::NoBackend), 1);
}

/// An address at which connecting never ends: its queue of established connections is full.
fn silent() -> (SocketAddr, socket2::Socket, Vec<socket2::Socket>) {
    use socket2::{Domain, Socket, Type};
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let fill = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address);
        socket
    };
    let queued = (0..4).map(|_| fill()).collect();
    (address.as_socket().unwrap(), listener, queued)
}

#[test]
fn a_backend_that_does_not_answer_in_time_is_replaced_by_another() {
    let (silent, _listener, _queued) = silent();
    let rig = Rig::start(Protocol::Tcp, &[silent, backend(echo)], |wishes| {
        wishes.options.connect_timeout = Duration::from_millis(100);
    });
    for _ in 0..4 {
        let mut client = rig.connect();
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    }
    assert!(rig.failures(0, Reason::ConnectTimeout) > 0);
}

/// One connection is idle, and another is used constantly. `false`: the machine paused both for the
/// idle time.
fn a_quiet_and_a_busy_one(idle: Duration) -> bool {
    let (address, accepted) = handed_over();
    let rig = Rig::start(Protocol::Tcp, &[address], |wishes| wishes.door.timeouts.idle = idle);
    let (mut busy, mut busy_server) = pair(&rig, &accepted);
    let (mut quiet, mut quiet_server) = pair(&rig, &accepted);
    let (ended, over) = mpsc::channel();
    let waiting = thread::spawn(move || {
        assert!(is_reset(&mut quiet));
        assert!(is_reset(&mut quiet_server));
        ended.send(()).unwrap();
    });
    let mut used = Instant::now();
    let mut is_over = false;
    // One more exchange after the idle one was closed.
    while !is_over {
        is_over = over.recv_timeout(Duration::from_millis(50)).is_ok();
        let now = Instant::now();
        let moved = busy_server.write_all(b"x").and_then(|()| busy.read_exact(&mut [0]));
        if moved.is_err() && used.elapsed() >= idle {
            return false;
        }
        moved.unwrap();
        used = now;
    }
    waiting.join().unwrap();
    until("it is counted", || rig.drops(Reason::IdleTimeout) == 1);
    true
}

#[test]
fn an_idle_connection_is_reset_and_a_busy_connection_stays_open() {
    let tried = (0..10).any(|_| a_quiet_and_a_busy_one(Duration::from_secs(1)));
    assert!(tried, "this machine leaves everybody alone for seconds");
}

fn v2_header(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(source);
    header.extend(destination);
    header.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    header
}

#[test]
fn the_client_in_a_proxy_header_is_announced_to_the_backend() {
    let v1 = b"PROXY TCP4 192.0.2.1 198.51.100.7 1234 443\r\n".to_vec();
    let v2 = v2_header([192, 0, 2, 1], [198, 51, 100, 7], [1234, 443]);
    for (version, expected) in [(ProxyProtocol::V1, &v1), (ProxyProtocol::V2, &v2)] {
        let (address, accepted) = handed_over();
        let rig = Rig::start(Protocol::Tcp, &[address], |wishes| {
            wishes.door.accept_proxy = true;
            wishes.door.trusted = TrustedSources::from_iter([([127, 0, 0, 1].into(), 32)]);
            wishes.door.access_log = 1.0;
            wishes.options.send_proxy = Some(version);
        });
        for header in [&v1, &v2] {
            let mut client = rig.connect();
            let (start, end) = header.split_at(9);
            client.write_all(start).unwrap();
            client.write_all(&[end, b"payload"].concat()).unwrap();
            let mut server = accepted.recv_timeout(PATIENCE).unwrap();
            let mut read = vec![0; expected.len() + 7];
            server.read_exact(&mut read).unwrap();
            assert_eq!(read, [expected, &b"payload"[..]].concat());
        }
        rig.settle();
        let (_, log) = rig.stop(PATIENCE);
        let text = log.text();
        assert_eq!(text.matches("client=192.0.2.1:1234 ").count(), 2, "{text}");
        assert_eq!(text.matches("backend=\"b0\" reason=-").count(), 2, "{text}");
    }
}

#[test]
fn a_client_without_a_proxy_header_is_announced_by_its_address() {
    let (address, accepted) = handed_over();
    let rig = Rig::start(Protocol::Tcp, &[address], |wishes| {
        wishes.options.send_proxy = Some(ProxyProtocol::V1);
    });
    let (client, mut server) = pair(&rig, &accepted);
    let (from, to) = (client.local_addr().unwrap(), rig.address);
    let (ips, ports) = ((from.ip(), to.ip()), (from.port(), to.port()));
    let expected = format!("PROXY TCP4 {} {} {} {}\r\n", ips.0, ips.1, ports.0, ports.1);
    let mut read = vec![0; expected.len()];
    server.read_exact(&mut read).unwrap();
    assert_eq!(String::from_utf8(read).unwrap(), expected);
}

#[test]
fn a_missing_or_malformed_header_resets_the_client() {
    let (address, accepted) = handed_over();
    let rig = Rig::start(Protocol::Tcp, &[address], |wishes| {
        wishes.door.accept_proxy = true;
        wishes.door.trusted = TrustedSources::from_iter([([127, 0, 0, 1].into(), 32)]);
        wishes.door.timeouts.header = Duration::from_secs(1);
    });
    for start in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"PROXY TCP9 1.2.3.4 5.6.7.8 1234 443\r\n",
        b"PROXY TCP4 1.2.3.4 ",
        b"",
    ] {
        let mut client = rig.connect();
        // It may be reset before it has sent anything, on a busy machine.
        let is_told = client.write_all(start).is_err();
        assert!(is_told || is_reset(&mut client), "{}", String::from_utf8_lossy(start));
    }
    // A client that closes before its header is complete is counted, too.
    let _ = rig.connect().write_all(b"PROXY TCP4 ");
    until("all five are counted", || rig.drops(Reason::ProxyHeader) == 5);
    assert!(accepted.try_recv().is_err(), "no backend heard of them");
}

#[test]
fn a_stop_lets_connections_finish_within_the_grace_period() {
    let (address, accepted) = handed_over();
    let rig = tcp(&[address]);
    let listening = rig.address;
    let (mut client, mut server) = pair(&rig, &accepted);
    // Connections that only probe the listener end at once.
    drop(accepted);
    let stopping = thread::spawn(move || rig.stop(PATIENCE));
    // The door is closed once connecting fails.
    until("the front door is closed", || TcpStream::connect(listening).is_err());
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut question = String::new();
    server.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    server.write_all(b"answer").unwrap();
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answer");
    let (report, _) = stopping.join().unwrap();
    assert_eq!(report.cut, 0);
}

#[test]
fn a_connection_that_outlasts_the_grace_is_reset_and_reported() {
    let (address, accepted) = handed_over();
    let rig = Rig::start(Protocol::Tcp, &[address], |wishes| wishes.door.access_log = 1.0);
    let stats = rig.stats.clone();
    let (mut client, mut server) = pair(&rig, &accepted);
    let (report, log) = rig.stop(Duration::from_millis(50));
    assert_eq!(report.cut, 1);
    assert!(is_reset(&mut client) && is_reset(&mut server));
    assert!(log.text().contains("reason=shutting_down"), "{}", log.text());
    let cut = stats.sum(|shard| shard.drops[Reason::ShuttingDown as usize].get());
    assert_eq!(cut, 1);
}

#[test]
fn a_backend_set_down_loses_its_connections_and_a_draining_one_keeps_them() {
    let (first, first_accepted) = handed_over();
    let (second, second_accepted) = handed_over();
    let mut rig = tcp(&[first, second]);
    rig.publish(&[0]);
    let (mut cut, _cut_server) = pair(&rig, &first_accepted);
    rig.publish(&[1]);
    let (mut kept, mut kept_server) = pair(&rig, &second_accepted);
    rig.publish(&[]);
    rig.down(0);
    assert!(is_reset(&mut cut));
    until("it is counted", || rig.drops(Reason::BackendRemoved) == 1);
    rig.publish(&[]);
    kept.write_all(b"x").unwrap();
    kept_server.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_removed_front_door_keeps_its_connections() {
    let (address, accepted) = handed_over();
    let mut rig = tcp(&[address]);
    let (mut client, mut server) = pair(&rig, &accepted);
    rig.publish_with(&[0], false);
    until("nobody listens", || TcpStream::connect(rig.address).is_err());
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_thousand_connections_at_once_each_get_their_own_bytes() {
    let rig = tcp(&[backend(echo), backend(echo)]);
    let mut clients: Vec<_> = (0..1000).map(|_| rig.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write_all(format!("{number:08}").repeat(100).as_bytes()).unwrap();
    }
    until("all are open at once", || rig.count(|stats| &stats.connections_open) == 1000);
    for (number, client) in clients.iter_mut().enumerate() {
        let mut read = [0; 800];
        client.read_exact(&mut read).unwrap();
        assert_eq!(read[..], *format!("{number:08}").repeat(100).as_bytes());
    }
    drop(clients);
    rig.settle();
    let drops: u64 = Reason::ALL.iter().map(|reason| rig.drops(*reason)).sum();
    assert_eq!(drops, 0);
}
