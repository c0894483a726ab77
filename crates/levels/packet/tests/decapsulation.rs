//! The backends' program on host and kernel: what was put around a packet comes off.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::{CAPACITY, XDP_DROP, XDP_PASS};
use equipoise_packet::abi::{DECAPSULATION_MACS, DecapsulationConstants};
use equipoise_packet::{Decapsulator, Limits, LoadError, Memory};
use equipoise_packet_host::{HostEntry, HostProgram};

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
const GUE_PORT: u16 = 6080;

fn sum(words: &[u8]) -> u16 {
    let sum: u32 = words.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

fn ipv4(source: [u8; 4], tos: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let bytes = (20 + payload.len() as u16).to_be_bytes();
    let mut packet = vec![0x45, tos, bytes[0], bytes[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
    packet.extend(source);
    packet.extend([10, 0, 0, 17]);
    let checksum = sum(&packet).to_be_bytes();
    packet[10..12].copy_from_slice(&checksum);
    [&packet[..], payload].concat()
}

fn ipv6(source: u8, tos: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let bytes = (payload.len() as u16).to_be_bytes();
    let mut packet = vec![0x60 | tos >> 4, tos << 4, 0, 0, bytes[0], bytes[1], protocol, 64];
    packet.extend([0xfd, source, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    [&packet[..], payload].concat()
}

fn gue(payload: &[u8]) -> Vec<u8> {
    let bytes = (8 + payload.len() as u16).to_be_bytes();
    let port = GUE_PORT.to_be_bytes();
    [&[0xc0, 1, port[0], port[1], bytes[0], bytes[1], 0, 0][..], payload].concat()
}

fn frame(packet: &[u8], tagged: bool) -> Vec<u8> {
    let tag: &[u8] = if tagged { &[0x81, 0, 0, 42] } else { &[] };
    let ethertype: &[u8] = if packet[0] >> 4 == 4 { &[8, 0] } else { &[0x86, 0xdd] };
    [&MACS, tag, ethertype, packet].concat()
}

/// The balancers are in 172.16.0.0/16 and fd01::/16.
fn constants() -> DecapsulationConstants {
    let mut constants = DecapsulationConstants {
        source4: [172, 16, 0, 0],
        source4_mask: [255, 255, 0, 0],
        gue_port: GUE_PORT.to_be_bytes(),
        ..DecapsulationConstants::default()
    };
    constants.source6[..2].copy_from_slice(&[0xfd, 1]);
    constants.source6_mask[..2].copy_from_slice(&[0xff, 0xff]);
    constants
}

type Runner<'a> = Box<dyn FnMut(&[u8]) -> (u32, Vec<u8>) + 'a>;

fn with_both(test: impl Fn(&str, Runner<'_>)) {
    let limits = Limits::new(&CAPACITY);
    let memory = Memory::anonymous(&limits).unwrap();
    let mut host = HostProgram::new(&memory, &limits);
    host.set_decapsulation(&constants());
    test("host", Box::new(|packet| host.run_entry(HostEntry::Decapsulate, 0, 1, packet)));
    let mut program = match Decapsulator::load(&constants()) {
        Ok(program) => program,
        Err(LoadError::Privilege(_)) => {
            return eprintln!("skipped: loading BPF programs is not permitted");
        }
        Err(error) => panic!("{error}"),
    };
    let run = |packet: &[u8]| {
        let run = program.run(packet, 1).unwrap();
        (run.verdict, run.packet)
    };
    test("kernel", Box::new(run));
}

const BALANCER: [u8; 4] = [172, 16, 3, 4];
const CLIENT: [u8; 4] = [192, 0, 2, 1];

fn inner(version: u8, tos: u8) -> Vec<u8> {
    let payload = [0x5a; 24];
    if version == 4 { ipv4(CLIENT, tos, 6, &payload) } else { ipv6(7, tos, 6, &payload) }
}

fn around(outer: u8, with_gue: bool, tos: u8, inner: &[u8]) -> Vec<u8> {
    let within = if inner[0] >> 4 == 4 { 4 } else { 41 };
    let (protocol, payload) = if with_gue { (17, gue(inner)) } else { (within, inner.to_vec()) };
    if outer == 4 {
        ipv4(BALANCER, tos, protocol, &payload)
    } else {
        ipv6(1, tos, protocol, &payload)
    }
}

#[test]
fn a_tunnelled_packet_is_decapsulated_unchanged() {
    with_both(|which, mut run| {
        for (outer, within) in [(4, 4), (4, 6), (6, 4), (6, 6)] {
            for with_gue in [false, true] {
                for tagged in [false, true] {
                    let inner = inner(within, 0xb8);
                    let packet = frame(&around(outer, with_gue, 0xb8, &inner), tagged);
                    let case = format!("{which} {within} in {outer} gue {with_gue} tag {tagged}");
                    assert_eq!(run(&packet), (XDP_PASS, frame(&inner, tagged)), "{case}");
                }
            }
        }
    });
}

#[test]
fn packets_not_tunnelled_by_a_balancer_pass_unchanged() {
    with_both(|which, mut run| {
        let inner = inner(4, 0);
        let mut fragment = frame(&ipv4(BALANCER, 0, 4, &inner), false);
        fragment[20] = 0x20;
        let mut other_port = frame(&around(4, true, 0, &inner), false);
        other_port[37] ^= 1;
        let left_alone = [
            frame(&inner, false),
            frame(&ipv4(CLIENT, 0, 4, &inner), false),
            frame(&ipv6(2, 0, 41, &self::inner(6, 0)), false),
            fragment,
            other_port,
            [&MACS[..], &[8, 6], &[0; 28]].concat(),
            [&MACS[..], &[8, 0]].concat(),
        ];
        for (case, packet) in left_alone.into_iter().enumerate() {
            assert_eq!(run(&packet), (XDP_PASS, packet), "{which} {case}");
        }
    });
}

#[test]
fn a_tunnel_with_an_invalid_inner_packet_is_dropped() {
    with_both(|which, mut run| {
        let wrong = [
            ipv4(BALANCER, 0, 4, &inner(6, 0)),
            ipv4(BALANCER, 0, 41, &inner(4, 0)),
            ipv4(BALANCER, 0, 4, &[0x45; 19]),
            ipv4(BALANCER, 0, 17, &gue(&[0; 40])),
        ];
        for (case, packet) in wrong.iter().enumerate() {
            assert_eq!(run(&frame(packet, false)).0, XDP_DROP, "{which} {case}");
        }
    });
}

/// RFC 6040, section 4.2.
#[test]
fn congestion_marks_are_copied_to_the_inner_header() {
    with_both(|which, mut run| {
        for (outer, within) in [(4, 4), (4, 6), (6, 4), (6, 6)] {
            for (ecn, marked) in [(1, Some(3)), (2, Some(3)), (3, Some(3)), (0, None)] {
                let packet = frame(&around(outer, false, 3, &inner(within, 0xb8 | ecn)), false);
                let (verdict, out) = run(&packet);
                let case = format!("{which} {within} in {outer} ECN {ecn}");
                match marked {
                    Some(ecn) => {
                        let expected = frame(&inner(within, 0xb8 | ecn), false);
                        assert_eq!((verdict, out), (XDP_PASS, expected), "{case}");
                    }
                    None => assert_eq!(verdict, XDP_DROP, "{case}"),
                }
            }
        }
    });
}

#[test]
fn frames_to_another_mac_address_pass_unchanged_and_are_counted() {
    let limits = Limits::new(&CAPACITY);
    let memory = Memory::anonymous(&limits).unwrap();
    let mut host = HostProgram::new(&memory, &limits);
    host.set_decapsulation(&DecapsulationConstants { flags: DECAPSULATION_MACS, ..constants() });
    let inner = inner(4, 0);
    let packet = frame(&around(4, false, 0, &inner), false);
    let run = |host: &mut HostProgram| host.run_entry(HostEntry::Decapsulate, 0, 1, &packet);
    assert_eq!(run(&mut host), (XDP_PASS, packet.clone()));
    host.set_decapsulation_mac([2, 0, 0, 0, 0, 1]);
    assert_eq!(run(&mut host), (XDP_PASS, frame(&inner, false)));
    assert_eq!(host.foreign_macs(), 1);
}

#[test]
fn packets_are_counted_as_taken_foreign_or_invalid() {
    let Ok(mut program) = Decapsulator::load(&constants()) else {
        return eprintln!("skipped: the program cannot be loaded");
    };
    let packet = frame(&ipv4(BALANCER, 0, 4, &inner(4, 0)), false);
    program.run(&packet, 1).unwrap();
    program.run(&frame(&ipv4(CLIENT, 0, 4, &inner(4, 0)), false), 1).unwrap();
    program.run(&frame(&ipv4(BALANCER, 0, 4, &inner(6, 0)), false), 1).unwrap();
    let counted = program.counters().unwrap();
    let packets = [counted.taken, counted.foreign, counted.invalid].map(|counter| counter.packets);
    assert_eq!(packets, [1, 1, 1]);
    assert_eq!(counted.taken.bytes, packet.len() as u64 - 20);
}
