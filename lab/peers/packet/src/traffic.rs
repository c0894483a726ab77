//! The flows that every program under test gets: which ones there are, and what their packets look
//! like.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use equipoise_packet::KeyBytes;
use equipoise_pog::{FiveTupleV4, FiveTupleV6};

/// Port of every VIP.
pub(crate) const PORT: u16 = 443;
/// TCP.
pub(crate) const PROTOCOL: u8 = 6;
/// Where the frame's Ethernet header goes: the balancer.
pub(crate) const BALANCER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Where it comes from: the router before it.
pub(crate) const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

pub(crate) const TCP_SYN: u8 = 0x02;
pub(crate) const TCP_ACK: u8 = 0x10;
/// Ethernet.
pub(crate) const LINK_BYTES: usize = 14;
const TCP_BYTES: usize = 20;

/// Family of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// `flows` different five-tuples, spread evenly over `vips` VIPs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) family: Family,
    pub(crate) flows: u32,
    /// A power of two.
    pub(crate) vips: u32,
}

impl Family {
    /// Of a VIP.
    pub(crate) fn vip(self, number: u32) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::from_bits(0x0a63_0000 | number).into(),
            Family::V6 => Ipv6Addr::from_bits(0xfd63 << 112 | u128::from(number)).into(),
        }
    }

    /// Of a backend, and of the outer packet that goes to it.
    pub(crate) fn backend(self, number: usize) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::from_bits(0x0a01_0000 | (number as u32 + 1)).into(),
            Family::V6 => Ipv6Addr::from_bits(0xfd01 << 112 | (number as u128 + 1)).into(),
        }
    }

    /// Bytes of a frame, as in the driver: a smallest Ethernet frame, and room for IPv6.
    pub(crate) fn frame_bytes(self) -> usize {
        match self {
            Family::V4 => 64,
            Family::V6 => 88,
        }
    }

    /// Bytes of an address.
    pub(crate) fn address_bytes(self) -> usize {
        match self {
            Family::V4 => 4,
            Family::V6 => 16,
        }
    }

    /// Bytes of the IP header.
    pub(crate) fn header_bytes(self) -> usize {
        match self {
            Family::V4 => 20,
            Family::V6 => 40,
        }
    }
}

impl Traffic {
    /// Source address and port, and VIP, of a flow: as in the driver.
    pub(crate) fn flow(&self, flow: u32) -> (IpAddr, u16, u32) {
        let scattered = flow.wrapping_mul(0x9e37_79b1);
        // The driver stores halves of the word as they are in memory.
        let address = ((scattered >> 16) as u16).to_ne_bytes();
        let port = u16::from_be_bytes((scattered as u16).to_ne_bytes());
        let source = match self.family {
            Family::V4 => Ipv4Addr::new(11, 0, address[0], address[1]).into(),
            Family::V6 => {
                let mut octets = (0xfd11_u128 << 112).to_be_bytes();
                octets[12..14].copy_from_slice(&address);
                Ipv6Addr::from(octets).into()
            }
        };
        (source, port, flow & (self.vips - 1))
    }

    /// The key of the flow.
    pub(crate) fn key(&self, flow: u32) -> KeyBytes {
        let (source, port, vip) = self.flow(flow);
        match (source, self.family.vip(vip)) {
            (IpAddr::V4(source), IpAddr::V4(vip)) => {
                KeyBytes::V4(FiveTupleV4::new((source, port), (vip, PORT), PROTOCOL))
            }
            (IpAddr::V6(source), IpAddr::V6(vip)) => {
                KeyBytes::V6(FiveTupleV6::new((source, port), (vip, PORT), PROTOCOL))
            }
            _ => unreachable!("VIPs and sources are of one family"),
        }
    }

    /// A packet of a flow: a TCP segment in the middle of a connection. Its checksums are not
    /// computed: the programs only ever change them by what they change.
    pub(crate) fn frame(&self, flow: u32) -> Vec<u8> {
        let (source, port, vip) = self.flow(flow);
        let mut frame = Vec::with_capacity(self.family.frame_bytes());
        frame.extend(BALANCER_MAC);
        frame.extend(ROUTER_MAC);
        let after_ip = self.family.frame_bytes() - LINK_BYTES - self.family.header_bytes();
        match (source, self.family.vip(vip)) {
            (IpAddr::V4(source), IpAddr::V4(vip)) => {
                frame.extend([0x08, 0x00, 0x45, 0]);
                frame.extend((after_ip as u16 + 20).to_be_bytes());
                frame.extend([0, 0, 0x40, 0, 64, PROTOCOL, 0x12, 0x34]);
                frame.extend(source.octets());
                frame.extend(vip.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(vip)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend((after_ip as u16).to_be_bytes());
                frame.extend([PROTOCOL, 64]);
                frame.extend(source.octets());
                frame.extend(vip.octets());
            }
            _ => unreachable!("VIPs and sources are of one family"),
        }
        frame.extend(port.to_be_bytes());
        frame.extend(PORT.to_be_bytes());
        frame.extend([0, 0, 0, 1, 0, 0, 0, 1, (TCP_BYTES as u8 / 4) << 4, TCP_ACK]);
        frame.extend([0xff, 0xff, 0x56, 0x78, 0, 0]);
        frame.resize(self.family.frame_bytes(), b'.');
        frame
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn flows_are_different() {
        let traffic = Traffic { family: Family::V6, flows: 1 << 20, vips: 4 };
        let sources: HashSet<_> = (0..traffic.flows).map(|flow| traffic.flow(flow)).collect();
        assert_eq!(sources.len(), 1 << 20);
    }

    #[test]
    fn a_frame_has_its_length_in_the_ip_header() {
        for (family, at, before) in [(Family::V4, 16, 14), (Family::V6, 18, 54)] {
            let frame = Traffic { family, flows: 1, vips: 1 }.frame(0);
            assert_eq!(frame.len(), family.frame_bytes());
            let length = u16::from_be_bytes([frame[at], frame[at + 1]]);
            assert_eq!(usize::from(length), frame.len() - before);
        }
    }
}
