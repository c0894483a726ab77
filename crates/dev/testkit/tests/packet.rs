//! The packet builder and the verifier, against each other and against packets of others.

use equipoise_testkit::packet::{Ip, flag, fold, protocol, verify, verify_ip};

/// RFC 1071, section 3.
#[test]
fn the_checksum_equals_the_example_of_rfc_1071() {
    assert_eq!(fold(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
}

/// A header that others worked out: Wikipedia, "Internet checksum".
#[test]
fn a_published_example_header_passes_verification() {
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];
    // Behind it UDP without a checksum.
    let known = [&header[..], &[0, 53, 0, 53, 0, 95, 0, 0], &[0; 87]].concat();
    assert_eq!(verify_ip(&known), Ok(()));
}

fn samples() -> Vec<(&'static str, Ip)> {
    let v4 = || Ip::between("192.0.2.1", "198.51.100.10");
    let v6 = || Ip::between("2001:db8::1", "2001:db8:1::10");
    let quoted = v4().tcp(1, 2, flag::ACK, b"quoted").bytes();
    let quoted6 = v6().udp(1, 2, b"quoted").bytes();
    vec![
        ("TCP", v4().tcp(1000, 80, flag::SYN, b"odd")),
        ("TCP over IPv6", v6().tcp(1000, 80, flag::ACK, b"even")),
        ("UDP with options", v4().options(&[1, 1, 1, 0]).udp(53, 53, b"x")),
        ("UDP behind extension headers", v6().extension(protocol::HOP_BY_HOP).udp(53, 53, b"x")),
        ("UDP behind AH", v6().extension(protocol::AUTHENTICATION).udp(53, 53, b"x")),
        ("echo", v4().echo_request(7, b"ping")),
        ("echo over IPv6", v6().echo_request(7, b"ping")),
        ("port unreachable", v4().icmp(3, 3, [0; 4], &quoted)),
        ("packet too big", v6().icmp(2, 0, [0; 4], &quoted6)),
        ("IPv4 in IPv6", v6().raw(protocol::IPIP, &quoted)),
        ("IPv6 in IPv4", v4().raw(protocol::IPV6, &quoted6)),
    ]
}

#[test]
fn every_built_packet_passes_verification() {
    for (name, packet) in samples() {
        assert_eq!(verify(&packet.frame()), Ok(()), "{name}");
    }
}

#[test]
fn a_flipped_bit_in_the_payload_fails_verification() {
    for (name, packet) in samples() {
        let mut frame = packet.frame();
        *frame.last_mut().unwrap() ^= 1;
        assert!(verify(&frame).is_err(), "{name}");
    }
}

#[test]
fn fragments_make_up_the_datagram() {
    let whole = Ip::between("192.0.2.1", "198.51.100.10").udp(1, 2, &[7; 100]);
    let parts = whole.split(9, &[16, 64]);
    let payloads: Vec<Vec<u8>> = parts.iter().map(|part| part.bytes()[20..].to_vec()).collect();
    assert_eq!(payloads.concat(), whole.bytes()[20..]);
    assert!(parts.iter().all(|part| verify_ip(&part.bytes()).is_ok()));
}
