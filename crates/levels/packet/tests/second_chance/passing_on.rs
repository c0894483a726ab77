//! The backends' program: packets that stay, that are passed on, and that are refused.

use equipoise_packet::abi::{
    DECAPSULATION_SECOND_CHANCE, DecapsulationBackend, DecapsulationConstants,
};
use equipoise_packet::{Limits, Memory};
use equipoise_packet_host::{HostEntry, HostProgram};
use equipoise_testkit::packet::{Ip, flag, tagged};

use crate::frames::{
    BEYOND, GUE_PORT, HERE, HERE_MAC, Header, SENDER_MAC, THERE, THERE_MAC, frame, outer,
};
use crate::world::capacity;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;
const INGRESS: u32 = 1;
const ELSEWHERE: u32 = 7;

const CLIENT: [&str; 2] = ["192.0.2.1", "2001:db8::c1"];
const VIP: [&str; 2] = ["203.0.113.10", "2001:db8:a::10"];
const ROUTER: [&str; 2] = ["203.0.113.254", "2001:db8:ffff::1"];

const FAMILIES: [usize; 2] = [0, 1];

/// Counters of the program: `enum eqp_decapsulated`.
const TAKEN: u8 = 0;
const FOREIGN: u8 = 1;
const INVALID: u8 = 2;
const PASSED_ON: u8 = 4;
const SECOND: u8 = 5;
const REFUSED: u8 = 6;
const UNREACHABLE: u8 = 7;

pub(crate) fn constants() -> DecapsulationConstants {
    let mut constants = DecapsulationConstants {
        source4: [172, 16, 0, 0],
        source4_mask: [255, 255, 0, 0],
        gue_port: GUE_PORT.to_be_bytes(),
        flags: DECAPSULATION_SECOND_CHANCE,
        ..DecapsulationConstants::default()
    };
    constants.source6[..2].copy_from_slice(&[0xfd, 1]);
    constants.source6_mask[..2].copy_from_slice(&[0xff, 0xff]);
    constants
}

fn way(ifindex: u32) -> DecapsulationBackend {
    DecapsulationBackend { ifindex, destination_mac: THERE_MAC, source_mac: HERE_MAC }
}

/// A backend that knows the other one, and no flow.
fn program() -> HostProgram {
    let limits = Limits::new(&capacity());
    let mut host = HostProgram::new(&Memory::anonymous(&limits).unwrap(), &limits);
    host.set_decapsulation(&constants());
    for there in THERE {
        host.add_backend(there.parse().unwrap(), way(INGRESS));
    }
    host
}

fn run(host: &mut HostProgram, frame: &[u8]) -> (u32, Vec<u8>) {
    host.run_entry(HostEntry::Decapsulate, 0, INGRESS, frame)
}

fn counts(host: &HostProgram) -> Vec<(u8, u64)> {
    (0..8).map(|which| (which, host.decapsulated(which))).filter(|(_, count)| *count > 0).collect()
}

fn data(inner: usize) -> Vec<u8> {
    Ip::between(CLIENT[inner], VIP[inner]).tcp(40_000, 80, flag::ACK, b"GET /").bytes()
}

/// As it comes from a balancer, and as it goes to the other backend.
fn on_its_way(inner: &[u8], family: usize) -> [Vec<u8>; 2] {
    let header = Header::new(family);
    let [here, there] = [(HERE, header), (THERE, Header { next_hop: 1, ..header })]
        .map(|(to, header)| outer(inner, family, to[family], header, &[THERE[family]]));
    [frame(HERE_MAC, SENDER_MAC, &here), frame(THERE_MAC, HERE_MAC, &there)]
}

fn unpacked(inner: &[u8]) -> Vec<u8> {
    frame(HERE_MAC, SENDER_MAC, inner)
}

#[test]
fn a_packet_of_an_unknown_flow_is_passed_on_and_one_of_a_known_flow_stays() {
    for (family, inner) in FAMILIES.into_iter().flat_map(|it| FAMILIES.map(|inner| (it, inner))) {
        let packet = data(inner);
        let [comes, goes] = on_its_way(&packet, family);
        let mut host = program();
        assert_eq!(run(&mut host, &comes), (XDP_TX, goes.clone()), "{inner} in {family}");
        let (tagged_in, tagged_out) = (tagged(&comes, 42), tagged(&goes, 42));
        assert_eq!(run(&mut host, &tagged_in), (XDP_TX, tagged_out), "{inner} in {family}");
        assert_eq!(counts(&host), [(PASSED_ON, 2)]);
        host.set_socket(true);
        assert_eq!(run(&mut host, &comes), (XDP_PASS, unpacked(&packet)), "{inner} in {family}");
        assert_eq!(counts(&host), [(TAKEN, 1), (PASSED_ON, 2)]);
    }
}

#[test]
fn a_packet_is_passed_on_once() {
    for family in FAMILIES {
        let packet = data(family);
        let header = Header { next_hop: 1, ..Header::new(family) };
        // To this backend, which does not know the flow either; it names this or the other one.
        for second in [HERE, THERE] {
            let mut host = program();
            host.add_backend(HERE[family].parse().unwrap(), way(INGRESS));
            let comes = outer(&packet, family, HERE[family], header, &[second[family]]);
            let comes = frame(HERE_MAC, SENDER_MAC, &comes);
            assert_eq!(run(&mut host, &comes), (XDP_PASS, unpacked(&packet)));
            assert_eq!(counts(&host), [(TAKEN, 1), (SECOND, 1)]);
        }
    }
}

/// Three backends, none of which knows the flow.
#[test]
fn a_packet_with_two_other_backends_is_passed_on_twice() {
    for family in FAMILIES {
        let packet = data(family);
        let others = [THERE[family], BEYOND[family]];
        let at = |to: [&str; 2], next_hop| {
            let header = Header { next_hop, ..Header::of_two(family) };
            outer(&packet, family, to[family], header, &others)
        };
        let mut host = program();
        host.add_backend(BEYOND[family].parse().unwrap(), way(INGRESS));
        let stations = [(HERE, 0), (THERE, 1), (BEYOND, 2)];
        for pair in stations.windows(2) {
            let [comes, goes] = [0, 1].map(|it| at(pair[it].0, pair[it].1));
            let comes = frame(HERE_MAC, SENDER_MAC, &comes);
            assert_eq!(run(&mut host, &comes), (XDP_TX, frame(THERE_MAC, HERE_MAC, &goes)));
        }
        let comes = frame(HERE_MAC, SENDER_MAC, &at(BEYOND, 2));
        assert_eq!(run(&mut host, &comes), (XDP_PASS, unpacked(&packet)), "the last one");
        assert_eq!(counts(&host), [(TAKEN, 1), (PASSED_ON, 2), (SECOND, 1)]);
    }
}

#[test]
fn packets_that_begin_flows_or_are_not_tcp_stay_here() {
    for inner in FAMILIES {
        let to_vip = || Ip::between(CLIENT[inner], VIP[inner]);
        let syn = to_vip().tcp(40_000, 80, flag::SYN, b"");
        let datagram = to_vip().udp(40_000, 80, b"query");
        let echo = to_vip().echo_request(7, b"x");
        let fragments = to_vip().tcp(40_000, 80, flag::ACK, &[7; 60]).split(5, &[24]);
        for packet in [syn, datagram, echo, fragments[1].clone()] {
            let [comes, _] = on_its_way(&packet.bytes(), 0);
            let mut host = program();
            assert_eq!(run(&mut host, &comes), (XDP_PASS, unpacked(&packet.bytes())));
            assert_eq!(counts(&host), [(TAKEN, 1)]);
        }
    }
}

/// Otherwise the discovery of the path's MTU would fail for flows that were passed on.
#[test]
fn an_icmp_error_is_passed_on_unless_its_flow_is_known() {
    for inner in FAMILIES {
        let quoted = Ip::between(VIP[inner], CLIENT[inner]).tcp(80, 40_000, flag::ACK, b"").bytes();
        let (kind, code) = [(3, 4), (2, 0)][inner];
        let error = Ip::between(ROUTER[inner], VIP[inner]).icmp(kind, code, [0; 4], &quoted);
        let [comes, goes] = on_its_way(&error.bytes(), 0);
        let mut host = program();
        assert_eq!(run(&mut host, &comes), (XDP_TX, goes));
        host.set_socket(true);
        assert_eq!(run(&mut host, &comes), (XDP_PASS, unpacked(&error.bytes())));
    }
}

#[test]
fn only_configured_backends_get_packets_and_only_from_balancers() {
    for family in FAMILIES {
        let packet = data(family);
        let header = Header::new(family);
        let elsewhere = ["10.0.0.99", "2001:db8:b::99"][family];
        let comes = frame(
            HERE_MAC,
            SENDER_MAC,
            &outer(&packet, family, HERE[family], header, &[elsewhere]),
        );
        let mut host = program();
        assert_eq!(run(&mut host, &comes), (XDP_PASS, unpacked(&packet)), "not configured");
        assert_eq!(counts(&host), [(TAKEN, 1), (REFUSED, 1)]);

        let [mut spoofed, _] = on_its_way(&packet, family);
        // The first byte of the outer source, and the checksum that covers it.
        spoofed[[26, 22][family]] ^= 1;
        let mut host = program();
        assert_eq!(run(&mut host, &spoofed), (XDP_PASS, spoofed.clone()), "not from a balancer");
        assert_eq!(counts(&host), [(FOREIGN, 1)]);
    }
}

#[test]
fn packets_without_a_route_are_dropped_and_on_other_interfaces_redirected() {
    let [comes, goes] = on_its_way(&data(0), 0);
    for (ifindex, verdict, count) in
        [(0, XDP_DROP, UNREACHABLE), (ELSEWHERE, XDP_REDIRECT, PASSED_ON)]
    {
        let limits = Limits::new(&capacity());
        let mut host = HostProgram::new(&Memory::anonymous(&limits).unwrap(), &limits);
        host.set_decapsulation(&constants());
        host.add_backend(THERE[0].parse().unwrap(), way(ifindex));
        let (given, out) = run(&mut host, &comes);
        assert_eq!((given, counts(&host)), (verdict, vec![(count, 1)]));
        assert!(ifindex == 0 || out == goes);
    }
}

#[test]
fn without_the_option_the_header_is_removed() {
    for family in FAMILIES {
        let packet = data(family);
        let [comes, _] = on_its_way(&packet, family);
        let mut host = program();
        host.set_decapsulation(&DecapsulationConstants { flags: 0, ..constants() });
        assert_eq!(run(&mut host, &comes), (XDP_PASS, unpacked(&packet)));
        assert_eq!(counts(&host), [(TAKEN, 1)]);
    }
}

#[test]
fn inconsistent_headers_are_dropped() {
    for family in FAMILIES {
        let right = Header::new(family);
        let wrong = [
            Header { hops: 2, ..right },
            Header { hops: 3, words: [4, 13][family], ..right },
            Header { hops: 0, words: 1, ..right },
            Header { next_hop: 2, ..right },
            Header { kind: 1, ..right },
            Header { flags: 1, ..right },
            Header { words: 1, ..right },
            Header { words: [5, 2][family], ..right },
            // The control bit; another version.
            Header { words: right.words | 0x20, ..right },
            Header { words: right.words | 0x80, ..right },
        ];
        for header in wrong {
            let packet = outer(&data(family), family, HERE[family], header, &[THERE[family]]);
            let comes = frame(HERE_MAC, SENDER_MAC, &packet);
            let mut host = program();
            let (verdict, _) = run(&mut host, &comes);
            assert_eq!((verdict, counts(&host)), (XDP_DROP, vec![(INVALID, 1)]), "{header:?}");
        }
        // Ends within its headers.
        let [comes, _] = on_its_way(&data(family), family);
        for end in [43, 45, 50, 54].map(|end| end + [0, 20][family]) {
            let mut host = program();
            assert_eq!(run(&mut host, &comes[..end]).0, XDP_DROP, "{end} bytes");
            assert_eq!(counts(&host), [(INVALID, 1)], "{end} bytes");
        }
    }
}
