//! The program by BPF_PROG_TEST_RUN, as rows: what comes, the verdict, what is passed on, what is counted.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

const GUE_PORT: u16 = 6080;
const OURS4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 11);
const OURS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 0xb);
const IPIP: u8 = 4;
const IPV6: u8 = 41;
const UDP: u8 = 17;

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// An IPv4 packet with `options` (a multiple of 4 bytes).
fn v4_with(
    tos: u8,
    fragment: u16,
    to: Ipv4Addr,
    protocol: u8,
    options: &[u8],
    body: &[u8],
) -> Vec<u8> {
    let header_bytes = 20 + options.len();
    let mut packet = vec![0x40 | (header_bytes / 4) as u8, tos];
    packet.extend(((header_bytes + body.len()) as u16).to_be_bytes());
    packet.extend([0, 7]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend([172, 16, 3, 4]);
    packet.extend(to.octets());
    packet.extend(options);
    let sum = checksum(&packet).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    packet.extend(body);
    packet
}

fn v4(tos: u8, to: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    v4_with(tos, 0, to, protocol, &[], body)
}

fn v6(tos: u8, to: Ipv6Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60 | tos >> 4, tos << 4, 0, 0];
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([protocol, 64]);
    packet.extend(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 3, 4).octets());
    packet.extend(to.octets());
    packet.extend(body);
    packet
}

fn udp(port: u16, body: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0xc0, 1];
    datagram.extend(port.to_be_bytes());
    datagram.extend((8 + body.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(body);
    datagram
}

/// In an Ethernet frame.
fn frame(packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ethertype[..], packet].concat()
}

/// The same with an 802.1Q tag.
fn tagged(packet: &[u8]) -> Vec<u8> {
    let plain = frame(packet);
    [&plain[..12], &[0x81, 0, 0, 42], &plain[12..]].concat()
}

fn inner4(tos: u8) -> Vec<u8> {
    v4(tos, Ipv4Addr::new(203, 0, 113, 10), UDP, &udp(53, b"inner"))
}

fn inner6(tos: u8) -> Vec<u8> {
    v6(tos, Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, 10), UDP, &udp(53, b"inner"))
}

/// The program, for our two addresses; `None`, said why, without privilege.
fn program() -> Option<Decapsulator> {
    let program = match Decapsulator::load(GUE_PORT) {
        Err(error @ DecapError::Privilege(_)) => {
            println!("skipped: {error}");
            return None;
        }
        outcome => outcome.unwrap(),
    };
    program.accept(&[OURS4.into(), OURS6.into()]).unwrap();
    Some(program)
}

fn run(program: &mut Decapsulator, frame: &[u8]) -> (u32, Vec<u8>) {
    let run = crate::program::run(&program.program(), frame, 1).unwrap();
    (run.verdict, run.packet)
}

/// What the counter of that name has.
fn counted(program: &Decapsulator, what: &str) -> (u64, u64) {
    let counts = program.counts().unwrap();
    let count = counts.iter().find(|count| count.what == what).unwrap();
    (count.packets, count.bytes)
}

#[test]
fn what_is_sent_to_us_in_a_tunnel_is_unpacked() {
    let Some(mut program) = program() else { return };
    let (four, six) = (inner4(0), inner6(0));
    let gue0 = |protocol, words: u8, inner: &[u8]| {
        let optional = vec![0xaa; usize::from(words) * 4];
        udp(GUE_PORT, &[&[words, protocol, 0, 0], &optional[..], inner].concat())
    };
    let rows: &[(&str, &str, Vec<u8>, &[u8])] = &[
        ("IPIP", "IPIP", v4(0, OURS4, IPIP, &four), &four),
        ("options outside", "IPIP", v4_with(0, 0, OURS4, IPIP, &[1; 8], &four), &four),
        ("DF outside", "IPIP", v4_with(0, 0x4000, OURS4, IPIP, &[], &four), &four),
        ("6in4", "6in4", v4(0, OURS4, IPV6, &six), &six),
        ("4in6", "4in6", v6(0, OURS6, IPIP, &four), &four),
        ("IP6IP6", "IP6IP6", v6(0, OURS6, IPV6, &six), &six),
        ("GUE", "GUE", v4(0, OURS4, UDP, &udp(GUE_PORT, &four)), &four),
        ("GUE 6 in 4", "GUE", v4(0, OURS4, UDP, &udp(GUE_PORT, &six)), &six),
        ("GUE 4 in 6", "GUE", v6(0, OURS6, UDP, &udp(GUE_PORT, &four)), &four),
        ("GUE 6 in 6", "GUE", v6(0, OURS6, UDP, &udp(GUE_PORT, &six)), &six),
        ("GUE variant 0", "GUE", v4(0, OURS4, UDP, &gue0(IPIP, 0, &four)), &four),
        ("GUE variant 0, fields", "GUE", v6(0, OURS6, UDP, &gue0(IPV6, 3, &six)), &six),
    ];
    for (name, counter, packet, inner) in rows {
        for (wrap, what) in [(frame as fn(&[u8]) -> Vec<u8>, "plain"), (tagged, "tagged")] {
            let (before, sent) = (counted(&program, counter), wrap(packet));
            assert_eq!(run(&mut program, &sent), (XDP_PASS, wrap(inner)), "{name}, {what}");
            let expected = (before.0 + 1, before.1 + sent.len() as u64);
            assert_eq!(counted(&program, counter), expected, "{name}, {what}");
        }
    }
    assert_eq!(counted(&program, "invalid"), (0, 0));
}

#[test]
fn what_is_not_for_us_passes_untouched() {
    let Some(mut program) = program() else { return };
    let four = inner4(0);
    let others = Ipv4Addr::new(192, 0, 2, 12);
    let control = udp(GUE_PORT, &[&[0x20, IPIP, 0, 0], &four[..]].concat());
    let rows: &[(&str, Vec<u8>)] = &[
        ("no tunnel", frame(&four)),
        ("another's address", frame(&v4(0, others, IPIP, &four))),
        ("an IPv4-mapped look-alike", frame(&v6(0, others.to_ipv6_mapped(), IPIP, &four))),
        ("a first fragment", frame(&v4_with(0, 0x2000, OURS4, IPIP, &[], &four))),
        ("a later fragment", frame(&v4_with(0, 0x0001, OURS4, IPIP, &[], &four))),
        ("another protocol", frame(&v4(0, OURS4, 47, &four))),
        ("another UDP port", frame(&v4(0, OURS4, UDP, &udp(6081, &four)))),
        ("a GUE control message", frame(&v4(0, OURS4, UDP, &control))),
        ("GUE with no IP inside", frame(&v4(0, OURS4, UDP, &udp(GUE_PORT, &[0, UDP, 0, 0, 1])))),
        ("ARP", [&[0xff; 12], &[8, 6][..], &[0; 28]].concat()),
    ];
    for (name, sent) in rows {
        assert_eq!(run(&mut program, sent), (XDP_PASS, sent.clone()), "{name}");
    }
    assert!(program.counts().unwrap().iter().all(|count| count.packets == 0));
}

#[test]
fn a_packet_that_is_cut_off_is_dropped_or_passed_and_never_unpacked() {
    let Some(mut program) = program() else { return };
    let wholes = [
        frame(&v4(0, OURS4, IPIP, &inner4(0))),
        frame(&v6(0, OURS6, IPV6, &inner6(0))),
        frame(&v4(0, OURS4, UDP, &udp(GUE_PORT, &inner6(0)))),
    ];
    for whole in wholes {
        for bytes in 14..whole.len() {
            let (verdict, packet) = run(&mut program, &whole[..bytes]);
            assert!(
                verdict == XDP_DROP || packet == whole[..bytes],
                "{bytes} of {} bytes were unpacked",
                whole.len()
            );
        }
        assert_eq!(run(&mut program, &whole[..whole.len() - 1]).0, XDP_DROP);
    }
    assert!(counted(&program, "invalid").0 >= 3);
}

#[test]
fn marks_of_congestion_are_taken_over() {
    let Some(mut program) = program() else { return };
    // RFC 6040, section 4.2, Figure 4; None: dropped. The upper bits are the DSCP, which stays the inner one's.
    let (not_ect, ect1, ect0, ce) = (0x28, 0x29, 0x2a, 0x2b);
    let table = [
        (not_ect, ce, None),
        (not_ect, ect0, Some(not_ect)),
        (ect0, ce, Some(ce)),
        (ect1, ce, Some(ce)),
        (ect0, not_ect, Some(ect0)),
        (ce, ect0, Some(ce)),
        (ce, ce, Some(ce)),
    ];
    for (inner, outer, expected) in table {
        let outer = outer & 3;
        let rows = [
            (v4(outer, OURS4, IPIP, &inner4(inner)), expected.map(inner4)),
            (v6(outer, OURS6, IPIP, &inner4(inner)), expected.map(inner4)),
            (v4(outer, OURS4, IPV6, &inner6(inner)), expected.map(inner6)),
            (v6(outer, OURS6, IPV6, &inner6(inner)), expected.map(inner6)),
        ];
        for (packet, expected) in rows {
            let (verdict, passed) = run(&mut program, &frame(&packet));
            match expected {
                Some(expected) => assert_eq!((verdict, passed), (XDP_PASS, frame(&expected))),
                None => assert_eq!(verdict, XDP_DROP, "inner {inner:#x}, outer {outer:#x}"),
            }
        }
    }
}

#[test]
fn addresses_can_be_given_up() {
    let Some(mut program) = program() else { return };
    let sent = frame(&v4(0, OURS4, IPIP, &inner4(0)));
    assert_ne!(run(&mut program, &sent).1, sent);
    program.accept(&[OURS6.into()]).unwrap();
    assert_eq!(run(&mut program, &sent), (XDP_PASS, sent));
    let many = vec![OURS4.into(); ADDRESSES_MAX + 1];
    assert!(matches!(program.accept(&many), Err(DecapError::Addresses(1025))));
}
