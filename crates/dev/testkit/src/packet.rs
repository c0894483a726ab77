//! Packets for tests, byte by byte: built from their parts, with the checksums of the RFCs, and
//! verified by a routine that shares nothing with the code under test.
//!
//! ```
//! use equipoise_testkit::packet::{Ip, flag, verify};
//!
//! let frame = Ip::between("192.0.2.1", "198.51.100.10").tcp(40_000, 443, flag::SYN, b"").frame();
//! assert_eq!(frame.len(), 14 + 20 + 20);
//! verify(&frame).unwrap();
//! ```

mod ip;
mod verify;

pub use ip::Ip;
pub use verify::{fold, verify, verify_ip};

/// The client's (or its router's) address on the link.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xc1];
/// The balancer's.
pub const BALANCER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x1b];

/// Flags of a TCP header.
pub mod flag {
    /// No more from the sender.
    pub const FIN: u8 = 1;
    /// Opens a connection.
    pub const SYN: u8 = 2;
    /// Breaks a connection.
    pub const RST: u8 = 4;
    /// Data to be handed on at once.
    pub const PSH: u8 = 8;
    /// Acknowledges: in every packet but the first.
    pub const ACK: u8 = 16;
}

/// Protocol numbers (IANA).
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP.
    pub const IPIP: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Authentication header.
    pub const AUTHENTICATION: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMP6: u8 = 58;
    /// IPv6 without anything behind it.
    pub const NO_NEXT: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
}

/// The ethertype of an IP packet, by its first byte.
fn ethertype(packet: &[u8]) -> u16 {
    if packet.first().is_some_and(|first| first >> 4 == 6) { 0x86dd } else { 0x0800 }
}

/// A frame without a tag.
pub fn ethernet(destination: [u8; 6], source: [u8; 6], ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &ethertype.to_be_bytes(), payload].concat()
}

/// A frame around an IP packet.
pub fn ip_frame(destination: [u8; 6], source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    ethernet(destination, source, ethertype(packet), packet)
}

/// The same frame with an 802.1Q tag behind the addresses.
pub fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let tag = [&[0x81, 0][..], &vlan.to_be_bytes()].concat();
    [&frame[..12], &tag, &frame[12..]].concat()
}

/// An ARP request on an Ethernet.
pub fn arp_request() -> Vec<u8> {
    let body =
        [&[0, 1, 8, 0, 6, 4, 0, 1][..], &CLIENT_MAC, &[192, 0, 2, 1], &[0; 6], &[192, 0, 2, 2]];
    ethernet([0xff; 6], CLIENT_MAC, 0x0806, &body.concat())
}
