//! Frames in GUE as balancers and backends send them.

use std::net::IpAddr;

use equipoise_testkit::packet::Ip;

pub(crate) const GUE_PORT: u16 = 6080;
pub(crate) const BALANCER: [&str; 2] = ["172.16.3.4", "fd01::4"];
pub(crate) const HERE: [&str; 2] = ["10.0.0.17", "2001:db8:b::11"];
pub(crate) const THERE: [&str; 2] = ["10.0.0.18", "2001:db8:b::12"];
/// A third backend.
pub(crate) const BEYOND: [&str; 2] = ["10.0.0.19", "2001:db8:b::13"];
pub(crate) const HERE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const THERE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub(crate) const SENDER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A GUE header of variant 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) words: u8,
    pub(crate) next_hop: u8,
    pub(crate) hops: u8,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
}

impl Header {
    /// With one address of a family (0: IPv4, 1: IPv6).
    pub(crate) fn new(outer: usize) -> Header {
        Header { words: [2, 5][outer], next_hop: 0, hops: 1, kind: 0, flags: 0 }
    }

    /// With two addresses.
    pub(crate) fn of_two(outer: usize) -> Header {
        Header { words: [3, 9][outer], hops: 2, ..Header::new(outer) }
    }

    fn bytes(self, inner: &[u8], others: &[&str]) -> Vec<u8> {
        let protocol = if inner[0] >> 4 == 4 { 4 } else { 41 };
        let Header { words, next_hop, hops, kind, flags } = self;
        let address = |other: &&str| match other.parse().unwrap() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let addresses: Vec<u8> = others.iter().flat_map(address).collect();
        [&[words, protocol, flags, 0, kind, 0, next_hop, hops][..], &addresses].concat()
    }
}

/// The inner packet for the backend `to`, with a GUE header that names `others`.
pub(crate) fn outer(
    inner: &[u8],
    family: usize,
    to: &str,
    header: Header,
    others: &[&str],
) -> Vec<u8> {
    let payload = [&header.bytes(inner, others)[..], inner].concat();
    Ip::between(BALANCER[family], to).udp_unchecked(50_000, GUE_PORT, &payload).bytes()
}

pub(crate) fn frame(destination: [u8; 6], source: [u8; 6], packet: &[u8]) -> Vec<u8> {
    equipoise_testkit::packet::ip_frame(destination, source, packet)
}
