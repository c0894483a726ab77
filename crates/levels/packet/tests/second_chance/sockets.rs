//! The kernel's program beside real sockets, in a network namespace. Needs root.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use equipoise_packet::decap::Decapsulation;
use equipoise_testkit::packet::{Ip, flag};
use socket2::{Domain, Protocol, Socket, Type};

use crate::frames::{HERE, Header, SENDER_MAC, THERE, THERE_MAC, frame, outer};
use crate::passing_on::constants;

const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
/// Longest time for any step.
const PATIENCE: Duration = Duration::from_secs(60);

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {said}");
}

/// Runs `test` in a network namespace with addresses of a backend. The other backend is reached by
/// the loopback interface, on which the kernel runs programs that it is asked to run.
fn in_namespace(test: impl FnOnce(Decapsulation) + Send + 'static) {
    let outcome = thread::spawn(|| {
        // SAFETY: changes nothing but this thread's namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return println!("skipped: {}", io::Error::last_os_error());
        }
        ip("link add eth0 address 02:00:00:00:00:01 type veth peer name eth1");
        for command in [
            "link set lo up",
            "link set eth0 up",
            "link set eth1 up",
            "addr add 10.0.0.17/24 dev eth0",
            "addr add 2001:db8:b::11/64 dev eth0 nodad",
            "neigh add 10.0.0.18 lladdr 02:00:00:00:00:09 dev eth0",
            "neigh add 2001:db8:b::12 lladdr 02:00:00:00:00:09 dev eth0",
        ] {
            ip(command);
        }
        test(decapsulation(&THERE));
    })
    .join();
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn decapsulation(backends: &[&str]) -> Decapsulation {
    let backends: Vec<IpAddr> = backends.iter().map(|it| it.parse().unwrap()).collect();
    let loaded = Decapsulation::with_second_chance(&constants(), &backends).unwrap();
    loaded.accept(&HERE.map(|it| it.parse().unwrap())).unwrap();
    loaded.take_frames(&[[0; 6]]).unwrap();
    loaded
}

/// Verdict of the program about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Stays,
    PassedOn,
}

/// A segment from a client's socket to a server's, in GUE.
fn outcome(program: &mut Decapsulation, from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> Outcome {
    let family = usize::from(to.is_ipv6());
    let header = Header::new(family);
    let packet = outer(bytes, family, HERE[family], header, &[THERE[family]]);
    let comes = frame([0; 6], SENDER_MAC, &packet);
    let run = program.run(&comes, 1).unwrap();
    match run.verdict {
        XDP_PASS => {
            assert_eq!(run.packet, frame([0; 6], SENDER_MAC, bytes), "{from} to {to}");
            Outcome::Stays
        }
        // By `eth0`, which is not the interface on which the program runs.
        _ if run.verdict != XDP_TX && run.packet[..6] == THERE_MAC => Outcome::PassedOn,
        verdict => panic!("verdict {verdict}"),
    }
}

fn segment(from: SocketAddr, to: SocketAddr, flags: u8) -> Vec<u8> {
    let between = Ip::between(&from.ip().to_string(), &to.ip().to_string());
    between.tcp(from.port(), to.port(), flags, b"").bytes()
}

const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

#[test]
fn flows_of_sockets_stay_and_others_are_passed_on() {
    in_namespace(|mut program| {
        for address in LOOPBACKS {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let server = listener.local_addr().unwrap();
            let client = TcpStream::connect(server).unwrap();
            let from = client.local_addr().unwrap();
            let stranger = SocketAddr::new(address, from.port() ^ 1);
            let mut of =
                |from, flags| outcome(&mut program, from, server, &segment(from, server, flags));
            // Established, though nothing has accepted it.
            assert_eq!(of(from, flag::ACK), Outcome::Stays);
            assert_eq!(of(from, flag::FIN | flag::ACK), Outcome::Stays);
            assert_eq!(of(from, flag::RST), Outcome::Stays);
            assert_eq!(of(stranger, flag::ACK), Outcome::PassedOn, "the socket only listens");
            assert_eq!(of(stranger, flag::FIN | flag::ACK), Outcome::PassedOn);
            assert_eq!(of(stranger, flag::RST), Outcome::PassedOn);
            assert_eq!(of(stranger, flag::SYN), Outcome::Stays);
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(of(from, flag::ACK), Outcome::Stays);
            drop(listener);
            assert_eq!(of(from, flag::ACK), Outcome::Stays);
            assert_eq!(of(stranger, flag::ACK), Outcome::PassedOn, "no socket listens");
            drop(client);
            assert_eq!(of(from, flag::ACK), Outcome::Stays, "half closed");
            drop(accepted);
        }
        let counts = program.counts().unwrap();
        assert_eq!(counts.passed_on.packets, 2 * 4);
        assert_eq!((counts.refused.packets, counts.unreachable.packets), (0, 0));
    });
}

/// The answer to the client's SYN is on its way.
#[test]
fn a_handshake_in_progress_stays() {
    in_namespace(|mut program| {
        // The answers lead nowhere.
        ip("route add default via 10.0.0.18 dev eth0");
        let listener = TcpListener::bind("10.0.0.17:0").unwrap();
        let server = listener.local_addr().unwrap();
        let client = SocketAddr::from(([192, 0, 2, 1], 40_000));
        let bytes = segment(client, server, flag::ACK);
        assert_eq!(outcome(&mut program, client, server, &bytes), Outcome::PassedOn);
        send_syn(client, server);
        let end = Instant::now() + PATIENCE;
        while outcome(&mut program, client, server, &bytes) == Outcome::PassedOn {
            assert!(Instant::now() < end, "the kernel does not know the handshake");
        }
    });
}

#[test]
fn a_syn_cookie_stays_and_a_wrong_one_is_passed_on() {
    in_namespace(|mut program| {
        std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
        let listener = TcpListener::bind((LOOPBACKS[0], 0)).unwrap();
        let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP)).unwrap();
        let server = listener.local_addr().unwrap();
        let client = SocketAddr::from(([127, 0, 0, 5], 40_000));
        send_syn(client, server);
        let cookie = answer(&raw, server, client);
        // The sequence number after the SYN's; see `segment`.
        let ack = |cookie: u32| {
            let mut bytes = segment(client, server, flag::ACK);
            let sequence = u32::from_be_bytes(bytes[24..28].try_into().unwrap()).wrapping_add(1);
            bytes[24..28].copy_from_slice(&sequence.to_be_bytes());
            bytes[28..32].copy_from_slice(&cookie.wrapping_add(1).to_be_bytes());
            bytes
        };
        assert_eq!(outcome(&mut program, client, server, &ack(cookie)), Outcome::Stays);
        // The low bits are the segment size, of which several values are valid.
        let wrong = ack(cookie.wrapping_add(0x1000));
        assert_eq!(outcome(&mut program, client, server, &wrong), Outcome::PassedOn);
    });
}

fn send_syn(client: SocketAddr, server: SocketAddr) {
    let packet = segment(client, server, flag::SYN);
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)));
    socket.unwrap().send_to(&packet, &server.into()).unwrap();
}

/// The sequence number of the SYN-ACK.
fn answer(raw: &Socket, server: SocketAddr, client: SocketAddr) -> u32 {
    raw.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        let mut bytes = [std::mem::MaybeUninit::<u8>::uninit(); 256];
        let (len, _) = raw.recv_from(&mut bytes).unwrap();
        // SAFETY: the kernel has written so many bytes.
        let bytes: Vec<u8> =
            bytes[..len].iter().map(|byte| unsafe { byte.assume_init() }).collect();
        let ports = [server.port(), client.port()].map(u16::to_be_bytes).concat();
        if bytes[20..24] == ports && bytes[33] == flag::SYN | flag::ACK {
            return u32::from_be_bytes(bytes[24..28].try_into().unwrap());
        }
    }
}
