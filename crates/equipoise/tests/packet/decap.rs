//! `equipoise decap` by itself: its effect on an interface, with packets in GUE.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use equipoise_testkit::netns::{Guest, Host, unavailable, veth};
use rustix::process::Signal;

use crate::bed::{PATIENCE, soon, start, wait_for_text};
use crate::privileges::{NET_ADMIN, field, threads};

const VIP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
const BACKEND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 11);
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

/// A backend with a VIP, and a host that sends to it.
struct Pair {
    sender: Host,
    backend: Host,
    server: UdpSocket,
}

impl Pair {
    fn new() -> Option<Pair> {
        if let Some(reason) = unavailable() {
            println!("skipped: {reason}");
            return None;
        }
        let (sender, backend) = (Host::new("sender").unwrap(), Host::new("backend").unwrap());
        veth((&sender, "eth0"), (&backend, "eth0")).unwrap();
        let sender_address: IpAddr = [192, 0, 2, 1].into();
        sender.address("eth0", sender_address, 24).unwrap();
        backend.address("eth0", BACKEND.into(), 24).unwrap();
        backend.hidden_address(VIP.into()).unwrap();
        backend.route("default", sender_address).unwrap();
        let server = backend.enter(|| UdpSocket::bind((VIP, 53))).unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Pair { sender, backend, server })
    }

    /// Starts `equipoise decap` on the backend, and waits until it is ready.
    fn decapsulate(&self, more: &[&str]) -> Guest {
        let guest = start(&self.backend, &[&["decap", "--interface", "eth0"], more].concat());
        wait_for_text(&guest, "ready");
        guest
    }

    /// Sends a datagram in GUE, and waits until it arrives at the VIP.
    fn carries(&self, text: &str) {
        let packet = datagram(text.as_bytes());
        let socket = self.sender.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
        socket.send_to(&packet, (BACKEND, 6080)).unwrap();
        let mut heard = [0; 64];
        let (bytes, from) = self.server.recv_from(&mut heard).expect("the datagram arrives");
        assert_eq!(&heard[..bytes], text.as_bytes());
        assert_eq!(from, SocketAddr::from((CLIENT, 5000)));
    }

    fn has_program(&self) -> bool {
        self.backend.ip("link show eth0").unwrap().contains("xdp")
    }
}

/// A UDP packet over IPv4 from client to VIP.
fn datagram(body: &[u8]) -> Vec<u8> {
    let udp_bytes = 8 + body.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend((20 + udp_bytes).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(CLIENT.octets());
    packet.extend(VIP.octets());
    let sum = packet.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([5000_u16, 53, udp_bytes, 0].map(u16::to_be_bytes).concat());
    packet.extend(body);
    packet
}

fn stop(mut guest: Guest) -> String {
    guest.signal(Signal::TERM);
    let status = guest.wait().unwrap();
    assert!(status.success(), "{status}: {}", guest.printed());
    // Its last output may still be in transit.
    let last = |text: &str| text.contains("packets").then(|| text.to_owned());
    guest.wait_for(PATIENCE, last).expect("it prints its counters")
}

#[test]
fn decap_unpacks_counts_and_leaves_nothing_behind() {
    let Some(pair) = Pair::new() else { return };
    let guest = pair.decapsulate(&[]);
    pair.carries("one");
    pair.carries("two");
    let printed = stop(guest);
    assert!(printed.contains("decapsulating on eth0 (native) for 192.0.2.11"), "{printed}");
    assert!(printed.contains("unpacked: 2 packets"), "{printed}");
    assert!(!pair.has_program());

    let options = ["--address", "192.0.2.11", "--source", "192.0.2.0/30", "--source6", "100::/64"];
    let mut guest = pair.decapsulate(&options);
    pair.carries("three");
    guest.signal(Signal::KILL);
    guest.wait().unwrap();
    assert!(soon(|| !pair.has_program()), "a killed process leaves its program behind");
}

#[test]
fn decap_passes_packets_from_other_sources_to_the_kernel() {
    let Some(pair) = Pair::new() else { return };
    let guest = pair.decapsulate(&["--source", "172.16.0.0/16"]);
    let kernel = pair.backend.enter(|| UdpSocket::bind((BACKEND, 6080))).unwrap();
    kernel.set_read_timeout(Some(PATIENCE)).unwrap();
    let socket = pair.sender.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let sent = datagram(b"from somewhere else");
    socket.send_to(&sent, (BACKEND, 6080)).unwrap();
    let mut heard = [0; 128];
    let (bytes, _) = kernel.recv_from(&mut heard).expect("the kernel gets it as it is");
    assert_eq!(heard[..bytes], sent);
    assert!(stop(guest).contains("not from --source: 1 packets"));
}

#[test]
fn a_kept_decap_program_runs_without_a_process_and_is_adopted() {
    let Some(pair) = Pair::new() else { return };
    stop(pair.decapsulate(&["--keep"]));
    pair.carries("without a process");
    let guest = pair.decapsulate(&["--keep"]);
    pair.carries("a second process");
    assert!(stop(guest).contains("unpacked: 1 packets"));
    pair.carries("without a process again");
    stop(pair.decapsulate(&[]));
    assert!(!pair.has_program());
}

/// Capabilities of each thread of the process. A program that it executes gets no others.
fn capabilities(guest: &Guest) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", guest.pid())).unwrap();
    assert_eq!(field(&status, "NoNewPrivs"), "1", "{status}");
    let threads = threads(guest.pid());
    let [permitted, effective, inheritable, ambient] = threads[0].1;
    assert!(threads.iter().all(|thread| thread.1 == threads[0].1), "{threads:x?}");
    assert_eq!((effective, inheritable & !permitted, ambient), (permitted, 0, 0), "{threads:x?}");
    permitted
}

/// The maps and an own attachment need none.
#[test]
fn decap_keeps_no_capability_but_that_of_interfaces_if_it_detaches_or_resolves() {
    let Some(pair) = Pair::new() else { return };
    let guest = pair.decapsulate(&[]);
    assert_eq!(capabilities(&guest), 0);
    pair.carries("by a link");
    stop(guest);
    assert!(!pair.has_program());

    let guest = pair.decapsulate(&["--keep"]);
    assert_eq!(capabilities(&guest), 0);
    stop(guest);
    assert!(pair.has_program());

    let guest = pair.decapsulate(&[]);
    assert_eq!(capabilities(&guest), NET_ADMIN);
    pair.carries("after a takeover");
    stop(guest);
    assert!(!pair.has_program());

    let options = ["--source", "192.0.2.0/30", "--second-chance", "192.0.2.1"];
    let guest = pair.decapsulate(&options);
    assert_eq!(capabilities(&guest), NET_ADMIN);
    stop(guest);
    assert!(!pair.has_program());
}

#[test]
fn decap_also_serves_addresses_added_after_its_start() {
    let Some(pair) = Pair::new() else { return };
    pair.backend.ip(&format!("addr del {BACKEND}/24 dev eth0")).unwrap();
    let guest = pair.decapsulate(&[]);
    pair.backend.address("eth0", BACKEND.into(), 24).unwrap();
    pair.backend.route("default", [192, 0, 2, 1].into()).unwrap();
    let socket = pair.sender.enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    pair.server.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    let arrives = || {
        socket.send_to(&datagram(b"later"), (BACKEND, 6080)).unwrap();
        pair.server.recv_from(&mut [0; 64]).is_ok()
    };
    assert!(soon(arrives), "{}", guest.printed());
}

#[test]
fn decap_does_not_replace_another_s_program() {
    let Some(pair) = Pair::new() else { return };
    pair.backend.pass_everything("eth0").unwrap();
    let mut guest = start(&pair.backend, &["decap", "--interface", "eth0"]);
    assert!(!guest.wait().unwrap().success());
    wait_for_text(&guest, "another XDP program");
    assert!(guest.printed().contains("ip link set dev eth0 xdp off"), "{}", guest.printed());
}
