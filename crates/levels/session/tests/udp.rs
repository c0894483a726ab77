//! UDP front doors with real sockets on loopback.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common_net;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common_net::{PATIENCE, Rig, until};
use equipoise_session::Reason;
use equipoise_session::config::Protocol;
use equipoise_testkit::UdpPort;

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn client(rig: &Rig) -> UdpSocket {
    let socket = socket();
    socket.connect(rig.address).unwrap();
    socket
}

/// A datagram that backends do not answer.
const MUTE: &[u8] = b"mute";

/// A backend that answers each datagram, except [`MUTE`], with its own name and the datagram.
struct Backend {
    address: SocketAddr,
    gone: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Backend {
    fn start(name: u8) -> Backend {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(8 << 20);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let address = socket.local_addr().unwrap();
        let gone = Arc::new(AtomicBool::new(false));
        let ending = gone.clone();
        let thread = thread::spawn(move || {
            let mut datagram = vec![name; 65_536];
            while !ending.load(Relaxed) {
                if let Ok((bytes, from)) = socket.recv_from(&mut datagram[1..])
                    && datagram[1..=bytes] != *MUTE
                {
                    let all = if bytes < 65_507 { 1 + bytes } else { bytes };
                    let _ = socket.send_to(&datagram[..all], from);
                }
            }
        });
        Backend { address, gone, thread: Some(thread) }
    }

    /// Closes its socket, so that the kernel refuses datagrams.
    fn leave(&mut self) {
        self.gone.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn exchange(client: &UdpSocket, datagram: &[u8]) -> io::Result<(u8, Vec<u8>)> {
    client.send(datagram)?;
    let mut reply = vec![0; 65_536];
    let bytes = client.recv(&mut reply)?;
    Ok((reply[0], reply[1..bytes].to_vec()))
}

#[track_caller]
fn answered_by(client: &UdpSocket, datagram: &[u8]) -> u8 {
    let (name, rest) = exchange(client, datagram).unwrap();
    assert_eq!(rest, datagram);
    name
}

fn udp(backends: &[&Backend]) -> Rig {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address).collect();
    Rig::start(Protocol::Udp, &addresses, |_| {})
}

#[test]
fn each_client_keeps_its_backend_and_gets_its_own_replies() {
    let (a, b) = (Backend::start(b'a'), Backend::start(b'b'));
    let rig = udp(&[&a, &b]);
    let clients: Vec<_> = (0..20).map(|_| client(&rig)).collect();
    let mut of_client = HashMap::new();
    for round in 0..5 {
        for (number, client) in clients.iter().enumerate() {
            let name = answered_by(client, format!("{number} {round}").as_bytes());
            assert_eq!(*of_client.entry(number).or_insert(name), name, "client {number}");
        }
    }
    assert!(of_client.values().any(|name| *name == b'a'));
    assert!(of_client.values().any(|name| *name == b'b'));
    assert_eq!(rig.count(|stats| &stats.connections), 20);
    assert_eq!(rig.count(|stats| &stats.connections_open), 20);
    let requests: u64 = (0..2).map(|at| rig.backend_count(at, |stats| &stats.requests)).sum();
    assert_eq!(requests, 20);
}

#[test]
fn datagrams_of_every_size_pass_whole() {
    let backend = Backend::start(b'a');
    let rig = udp(&[&backend]);
    let client = client(&rig);
    for bytes in [0, 1, 1472, 1473, 4096, 9000, 65_000, 65_506, 3] {
        let datagram: Vec<u8> = (0..bytes).map(|at: usize| (at * 7 + at / 251) as u8).collect();
        assert_eq!(answered_by(&client, &datagram), b'a', "{bytes} bytes");
    }
    // The largest datagram: the reply has room for it, but not for the name as well.
    let (_, rest) = exchange(&client, &[9; 65_507]).unwrap();
    assert_eq!(rest.len(), 65_506);
}

#[test]
fn several_datagrams_of_one_client_stay_in_order() {
    let backend = Backend::start(b'a');
    let rig = udp(&[&backend]);
    let client = client(&rig);
    for burst in 0..20u8 {
        for number in 0..50u8 {
            client.send(&[burst, number]).unwrap();
        }
        for number in 0..50u8 {
            let mut reply = [0; 4];
            assert_eq!(client.recv(&mut reply).unwrap(), 3);
            assert_eq!(reply[1..3], [burst, number]);
        }
    }
    // The counters change after the replies are sent.
    until("all datagrams are counted", || rig.count(|stats| &stats.bytes_in) == 2000);
    until("all replies are counted", || rig.count(|stats| &stats.bytes_out) == 3000);
}

#[test]
fn two_thousand_clients_each_receive_their_own_replies() {
    let (a, b) = (Backend::start(b'a'), Backend::start(b'b'));
    let rig = udp(&[&a, &b]);
    let clients: Vec<_> = (0..2000).map(|_| client(&rig)).collect();
    let mut names = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        names.push(answered_by(client, format!("first of {number}").as_bytes()));
    }
    // All at once, as many as the sockets' queues hold.
    for chunk in clients.chunks(100).zip(names.chunks(100)) {
        for (number, client) in chunk.0.iter().enumerate() {
            client.send(&[number as u8; 9]).unwrap();
        }
        for (number, (client, name)) in chunk.0.iter().zip(chunk.1).enumerate() {
            let mut reply = [0; 20];
            assert_eq!(client.recv(&mut reply).unwrap(), 10);
            assert_eq!((reply[0], reply[1..10].to_vec()), (*name, vec![number as u8; 9]));
        }
    }
    assert_eq!(rig.count(|stats| &stats.connections_open), 2000);
    let drops: u64 = Reason::ALL.iter().map(|reason| rig.drops(*reason)).sum();
    assert_eq!(drops, 0);
}

/// A client that sends this long after its first datagram counts as genuine.
const PROOF: Duration = Duration::from_secs(1);

#[test]
fn a_client_that_sends_for_a_second_keeps_its_place_in_a_full_table() {
    let backend = Backend::start(b'a');
    for datagram in [&b"x"[..], MUTE] {
        let rig = Rig::start(Protocol::Udp, &[backend.address], |wishes| {
            wishes.door.limits.connections_max = 1;
        });
        // One client per thread fits; the kernel decides which thread gets which.
        let turned_away = || rig.drops(Reason::TooManyClients);
        let mut proven = Vec::new();
        for client in (0..20).map(|_| client(&rig)) {
            let (before, bytes) = (turned_away(), rig.count(|stats| &stats.bytes_in));
            let is_counted =
                || turned_away() > before || rig.count(|stats| &stats.bytes_in) > bytes;
            client.send(datagram).unwrap();
            until("it is counted", is_counted);
            if turned_away() > before {
                continue;
            }
            thread::sleep(PROOF);
            let bytes = rig.count(|stats| &stats.bytes_in);
            client.send(datagram).unwrap();
            until("it is counted", || rig.count(|stats| &stats.bytes_in) > bytes);
            proven.push(client);
        }
        assert!((1..=2).contains(&proven.len()), "{}", proven.len());
        assert_eq!(rig.count(|stats| &stats.connections), proven.len() as u64);
        assert_eq!(rig.drops(Reason::ClientEvicted), 0);
    }
}

#[test]
fn forged_sources_do_not_displace_a_proven_client() {
    let backend = Backend::start(b'a');
    let rig = Rig::start(Protocol::Udp, &[backend.address], |wishes| {
        wishes.door.limits.connections_max = 4;
    });
    let served = client(&rig);
    assert_eq!(answered_by(&served, b"x"), b'a');
    thread::sleep(PROOF);
    assert_eq!(answered_by(&served, b"x"), b'a');
    // Single datagrams, several at once, with and without answers.
    let forged = 200;
    for number in 0..forged {
        let client = client(&rig);
        for _ in 0..=number % 3 {
            client.send(if number % 2 == 0 { MUTE } else { b"answer me" }).unwrap();
        }
    }
    until("they gave way to each other", || rig.drops(Reason::ClientEvicted) > forged / 2);
    // Leftovers of the flood in queues may displace datagrams, as UDP may lose any.
    let is_answered = |client: &UdpSocket| {
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        until("it is answered", || exchange(client, b"x").is_ok());
    };
    is_answered(&served);
    for _ in 0..3 {
        is_answered(&client(&rig));
    }
}

#[test]
fn a_client_is_removed_after_its_configured_responses() {
    let backend = Backend::start(b'a');
    let rig = Rig::start(Protocol::Udp, &[backend.address], |wishes| {
        wishes.door.responses = Some(1);
    });
    let client = client(&rig);
    for round in 1..=3 {
        assert_eq!(answered_by(&client, b"x"), b'a');
        until("it is forgotten", || rig.count(|stats| &stats.connections_open) == 0);
        assert_eq!(rig.count(|stats| &stats.connections), round);
    }
    // Two datagrams at once need two answers.
    client.send(MUTE).unwrap();
    assert_eq!(answered_by(&client, b"y"), b'a');
    assert_eq!(rig.count(|stats| &stats.connections_open), 1);
    assert_eq!(rig.in_flight(), 1);
}

#[test]
fn a_client_without_expected_responses_is_removed_after_sending() {
    let backend = Backend::start(b'a');
    let rig = Rig::start(Protocol::Udp, &[backend.address], |wishes| {
        wishes.door.responses = Some(0);
    });
    let client = client(&rig);
    for round in 1..=3 {
        client.send(MUTE).unwrap();
        until("it is sent", || rig.backend_count(0, |stats| &stats.bytes_out) == round * 4);
        until("it is forgotten", || rig.count(|stats| &stats.connections_open) == 0);
    }
    assert_eq!(rig.count(|stats| &stats.connections), 3);
}

#[test]
fn a_client_of_a_backend_that_refuses_gets_another_backend() {
    let (mut a, b) = (Backend::start(b'a'), Backend::start(b'b'));
    let rig = udp(&[&a, &b]);
    let clients: Vec<_> = (0..10).map(|_| client(&rig)).collect();
    let names: Vec<_> = clients.iter().map(|client| answered_by(client, b"hello")).collect();
    a.leave();
    for (client, name) in clients.iter().zip(names) {
        if name == b'b' {
            assert_eq!(answered_by(client, b"hello"), b'b', "who was not concerned stays");
            continue;
        }
        // The refusal arrives after the datagram was sent; that datagram is lost in the network.
        let before = rig.failures(0, Reason::ConnectRefused);
        client.send(b"lost").unwrap();
        until("the refusal is seen", || rig.failures(0, Reason::ConnectRefused) > before);
        assert_eq!(answered_by(client, b"hello again"), b'b');
    }
    assert_eq!(rig.backends[0].live.in_flight(), 0);
}

#[test]
fn a_refusing_pool_is_reported_and_keeps_its_client() {
    let mut a = Backend::start(b'a');
    a.leave();
    let mut rig = udp(&[&a]);
    let client = client(&rig);
    until("five failures in a row are reported", || {
        client.send(b"anybody?").unwrap();
        rig.failures(0, Reason::ConnectRefused) >= 5
    });
    assert!(rig.events.try_recv().is_ok());
    assert_eq!(rig.count(|stats| &stats.connections_open), 1);
}

#[test]
fn datagrams_are_dropped_until_the_pool_has_a_backend() {
    let backend = Backend::start(b'a');
    let mut rig = udp(&[&backend]);
    rig.publish(&[]);
    let client = client(&rig);
    client.send(b"x").unwrap();
    until("it is counted", || rig.drops(Reason::NoBackend) == 1);
    rig.publish(&[0]);
    assert_eq!(answered_by(&client, b"y"), b'a');
}

#[test]
fn a_pool_change_moves_only_clients_of_a_backend_set_down() {
    let (a, b) = (Backend::start(b'a'), Backend::start(b'b'));
    let mut rig = udp(&[&a, &b]);
    rig.publish(&[0]);
    let clients: Vec<_> = (0..10).map(|_| client(&rig)).collect();
    for client in &clients {
        assert_eq!(answered_by(client, b"x"), b'a');
    }
    // Draining: not eligible any more, but it keeps its clients.
    rig.publish(&[1]);
    for client in &clients {
        assert_eq!(answered_by(client, b"x"), b'a');
    }
    assert_eq!(answered_by(&client(&rig), b"x"), b'b');
    rig.down(0);
    until("its clients are cut", || rig.drops(Reason::BackendRemoved) == 10);
    for client in &clients {
        assert_eq!(answered_by(client, b"x"), b'b');
    }
}

/// One client is quiet, and another sends constantly. `false`: the machine paused both for the idle
/// time.
fn a_quiet_and_a_busy_client(idle: Duration) -> bool {
    let backend = Backend::start(b'a');
    let rig = Rig::start(Protocol::Udp, &[backend.address], |wishes| {
        wishes.door.timeouts.idle = idle;
        wishes.door.access_log = 1.0;
    });
    let (busy, quiet) = (client(&rig), client(&rig));
    answered_by(&quiet, b"hello");
    let (begun, mut asked) = (Instant::now(), Instant::now());
    let (all, open) =
        (|| rig.count(|stats| &stats.connections), || rig.count(|stats| &stats.connections_open));
    while (all(), open()) != (2, 1) {
        let now = Instant::now();
        answered_by(&busy, b"x");
        if asked.elapsed() >= idle {
            return false;
        }
        asked = now;
        assert!(begun.elapsed() < PATIENCE, "waited in vain until one is left");
    }
    assert_eq!(rig.in_flight(), 1);
    until("the line is written", || !rig.log.text().is_empty());
    let from = quiet.local_addr().unwrap();
    let text = rig.log.text();
    assert!(text.contains(&format!("client={from} bytes_in=5 bytes_out=6")), "{text}");
    assert!(text.contains("backend=\"b0\" reason=-"), "{text}");
    answered_by(&quiet, b"hello");
    assert_eq!(rig.count(|stats| &stats.connections), 3);
    true
}

#[test]
fn idle_clients_are_removed_and_busy_clients_are_kept() {
    let tried = (0..10).any(|_| a_quiet_and_a_busy_client(Duration::from_secs(2)));
    assert!(tried, "this machine leaves everybody alone for seconds");
}

/// As in the engine: a client without a datagram for this long does not delay the end of a stop.
const QUIET: Duration = Duration::from_secs(1);

/// A stop while a client sends constantly. `false`: the machine paused it too long.
fn stops_after_a_busy_client() -> bool {
    let backend = Backend::start(b'a');
    let rig = udp(&[&backend]);
    let busy = client(&rig);
    answered_by(&busy, b"x");
    let (stats, address) = (rig.stats.clone(), rig.address);
    let (ended, over) = mpsc::channel();
    let mut asked = Instant::now();
    thread::spawn(move || ended.send(rig.stop(PATIENCE)).unwrap());
    let refused = || stats.sum(|shard| shard.drops[Reason::ShuttingDown as usize].get());
    let mut is_refused = false;
    // One more round after a new client was refused.
    while !is_refused {
        is_refused = refused() > 0;
        let now = Instant::now();
        let answer = exchange(&busy, b"x");
        if asked.elapsed() >= QUIET {
            return false;
        }
        let (name, rest) = answer.expect("the busy client is still served");
        assert_eq!((name, &rest[..]), (b'a', &b"x"[..]));
        asked = now;
        // A new client that is still admitted is quiet from then on.
        let _ = socket().send_to(b"too late", address);
    }
    let (report, _) = over.recv_timeout(PATIENCE).unwrap();
    assert_eq!(report.cut, 0);
    true
}

#[test]
fn a_stop_ends_when_clients_are_quiet_and_refuses_new_clients() {
    let tried = (0..10).any(|_| stops_after_a_busy_client());
    assert!(tried, "this machine leaves everybody alone for seconds");
}

#[test]
fn clients_that_outlast_the_grace_period_are_cut_and_reported() {
    let backend = Backend::start(b'a');
    let rig = udp(&[&backend]);
    answered_by(&client(&rig), b"x");
    let (stats, live) = (rig.stats.clone(), rig.backends[0].live.clone());
    let (report, _) = rig.stop(Duration::ZERO);
    assert_eq!(report.cut, 1);
    assert_eq!(stats.sum(|shard| shard.drops[Reason::ShuttingDown as usize].get()), 1);
    assert_eq!(live.in_flight(), 0);
}

#[test]
fn replies_come_from_the_address_that_the_client_sent_to() {
    let backend = Backend::start(b'a');
    for (any, one, from) in [("0.0.0.0", "127.9.8.7", "127.0.0.1:0"), ("::", "::1", "[::1]:0")] {
        if let Err(error) = UdpSocket::bind((any, 0)) {
            println!("skipped for {any}: no such address family here ({error})");
            continue;
        }
        let reserved = UdpPort::reserve();
        let port = reserved.address().port();
        let _rig = Rig::start(Protocol::Udp, &[backend.address], |wishes| {
            wishes.door.listen = SocketAddr::new(any.parse().unwrap(), port);
        });
        let client = UdpSocket::bind(from).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let to = SocketAddr::new(one.parse().unwrap(), port);
        client.send_to(b"x", to).unwrap();
        let (_, replied) = client.recv_from(&mut [0; 9]).unwrap();
        assert_eq!(replied, to);
    }
}
