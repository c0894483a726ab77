//! Outer headers of a check's packet, as in `tunnel.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::segment::{ipv4, ipv6};
use crate::abi::Forward;
use crate::control::Settings;
use crate::packet::protocol::UDP;
use crate::snapshot::NextHop;

const IPIP: u8 = 4;
const IPV6: u8 = 41;
const UDP_BYTES: usize = 8;
/// GUE uses dynamic source ports (RFC 6335, section 6).
const GUE_PORTS_FIRST: u16 = 49_152;
const GUE_PORTS_MASK: u16 = 0x3fff;
pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Fields of the outer headers that are the same for all backends.
#[derive(Clone, Debug)]
pub(super) struct Outer {
    source4: Ipv4Addr,
    /// Bits of `source4` that vary.
    source4_free: Ipv4Addr,
    /// Its lower 32 bits vary.
    source6: Ipv6Addr,
    gue_port: u16,
}

impl Outer {
    pub(super) fn new(settings: &Settings) -> Outer {
        let (source4, source4_free) = settings.tunnel_source4;
        let source6 = settings.tunnel_source6;
        Outer { source4, source4_free, source6, gue_port: settings.gue_port }
    }

    /// Returns the frame that brings `packet` to a backend. `variation` replaces the bits of a
    /// flow's digest. `None`: `forward` has no outer headers, or the next hop is unresolved.
    pub(super) fn frame(
        &self,
        packet: &[u8],
        forward: Forward,
        backend: IpAddr,
        hop: &NextHop,
        variation: u32,
    ) -> Option<Vec<u8>> {
        let inner_v4 = packet.first()? >> 4 == 4;
        let udp = match forward {
            Forward::Tunnel => Vec::new(),
            Forward::Gue => self.udp(packet.len(), variation),
            Forward::Nat | Forward::FullNat | Forward::DirectRouting => return None,
        };
        let protocol = match (forward, inner_v4) {
            (Forward::Gue, _) => UDP,
            (_, true) => IPIP,
            (_, false) => IPV6,
        };
        let bytes = udp.len() + packet.len();
        let (ethertype, outer) = match backend {
            IpAddr::V4(backend) => {
                let source = self.source4 | (Ipv4Addr::from(variation) & self.source4_free);
                (ETHERTYPE_IPV4, ipv4(source, backend, protocol, bytes))
            }
            IpAddr::V6(backend) => {
                let source = self.source6 | Ipv6Addr::from(u128::from(variation));
                (ETHERTYPE_IPV6, ipv6(source, backend, protocol, bytes))
            }
        };
        let macs = [hop.destination_mac?, hop.source_mac].concat();
        Some([&macs[..], &ethertype.to_be_bytes(), &outer, &udp, packet].concat())
    }

    /// A header without a checksum, as for all GUE packets (RFC 6935).
    fn udp(&self, packet_bytes: usize, variation: u32) -> Vec<u8> {
        let source = GUE_PORTS_FIRST | variation as u16 & GUE_PORTS_MASK;
        let bytes = (UDP_BYTES + packet_bytes) as u16;
        [source, self.gue_port, bytes, 0].map(u16::to_be_bytes).concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP: NextHop = NextHop {
        ifindex: 2,
        destination_mac: Some([2, 0, 0, 0, 0, 1]),
        source_mac: [2, 0, 0, 0, 0, 2],
        mtu: 1500,
    };

    fn outer() -> Outer {
        Outer::new(&Settings::default())
    }

    #[test]
    fn ipip_is_an_ipv4_header_before_the_packet() {
        let packet = [0x45, 1, 2, 3];
        let backend = IpAddr::from([192, 0, 2, 11]);
        let frame = outer().frame(&packet, Forward::Tunnel, backend, &HOP, 0xffff_0102).unwrap();
        let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        assert_eq!(frame[..14], ethernet);
        let header =
            [0x45, 0, 0, 24, 0, 0, 0x40, 0, 64, 4, 0xcb, 0xc4, 172, 16, 1, 2, 192, 0, 2, 11];
        assert_eq!(frame[14..34], header);
        assert_eq!(frame[34..], packet);
    }

    #[test]
    fn gue_over_ipv6_has_a_dynamic_source_port_and_no_checksum() {
        let packet = [0x60, 1, 2, 3];
        let backend: IpAddr = "2001:db8:b::b".parse().unwrap();
        let frame = outer().frame(&packet, Forward::Gue, backend, &HOP, 0x0102_ffff).unwrap();
        assert_eq!(frame[12..22], [0x86, 0xdd, 0x60, 0, 0, 0, 0, 12, 17, 64]);
        let source: Ipv6Addr = "100::102:ffff".parse().unwrap();
        assert_eq!(frame[22..38], source.octets());
        assert_eq!(frame[54..62], [0xff, 0xff, 0x17, 0xc0, 0, 12, 0, 0]);
        assert_eq!(frame[62..], packet);
    }

    #[test]
    fn the_outer_protocol_names_the_inner_address_family() {
        for (version, protocol) in [(0x45, 4), (0x60, 41)] {
            let backend = IpAddr::from([192, 0, 2, 11]);
            let frame = outer().frame(&[version, 0], Forward::Tunnel, backend, &HOP, 0).unwrap();
            assert_eq!(frame[14 + 9], protocol);
            let unresolved = NextHop { destination_mac: None, ..HOP };
            assert_eq!(outer().frame(&[version], Forward::Tunnel, backend, &unresolved, 0), None);
            assert_eq!(outer().frame(&[version], Forward::DirectRouting, backend, &HOP, 0), None);
        }
    }
}
