//! TCP segments without data, as IP packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::packet::protocol::TCP;
pub(super) use crate::packet::{TCP_ACK as ACK, TCP_RST as RST, TCP_SYN as SYN};

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
const HOP_LIMIT: u8 = 64;
const WINDOW: u16 = 65_535;
/// MSS 1220: such a segment fits every IPv6 path. No data follows.
const MSS_OPTION: [u8; 4] = [2, 4, 0x04, 0xc4];

/// A TCP segment without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) sequence: u32,
    pub(super) acknowledged: u32,
    pub(super) flags: u8,
}

impl Segment {
    /// Returns the IP packet, with all checksums. `None`: the addresses have different families.
    pub(super) fn packet(&self) -> Option<Vec<u8>> {
        let tcp = self.tcp();
        let mut packet = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(from, to, TCP, tcp.len()),
            (IpAddr::V6(from), IpAddr::V6(to)) => ipv6(from, to, TCP, tcp.len()),
            _ => return None,
        };
        packet.extend(tcp);
        Some(packet)
    }

    fn tcp(&self) -> Vec<u8> {
        let options: &[u8] = if self.flags & SYN == 0 { &[] } else { &MSS_OPTION };
        let bytes = TCP_BYTES + options.len();
        let mut tcp = Vec::with_capacity(bytes);
        tcp.extend(self.from.port().to_be_bytes());
        tcp.extend(self.to.port().to_be_bytes());
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(self.acknowledged.to_be_bytes());
        tcp.extend([(bytes as u8 / 4) << 4, self.flags]);
        tcp.extend(WINDOW.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(options);
        let pseudo = u32::from(TCP) + bytes as u32;
        let sum = pseudo + address_sum(self.from.ip()) + address_sum(self.to.ip()) + sum_of(&tcp);
        tcp[16..18].copy_from_slice(&folded(sum).to_be_bytes());
        tcp
    }

    /// Reads an IP packet. `None`: it is not a complete TCP segment. Checksums are not verified,
    /// because packets of the same machine may lack them.
    pub(super) fn read(packet: &[u8]) -> Option<Segment> {
        let (from, to, l4): (IpAddr, IpAddr, usize) = match packet.first()? >> 4 {
            4 if *packet.get(9)? == TCP => (
                <[u8; 4]>::try_from(packet.get(12..16)?).ok()?.into(),
                <[u8; 4]>::try_from(packet.get(16..20)?).ok()?.into(),
                usize::from(packet[0] & 0xf) * 4,
            ),
            6 if *packet.get(6)? == TCP => (
                <[u8; 16]>::try_from(packet.get(8..24)?).ok()?.into(),
                <[u8; 16]>::try_from(packet.get(24..40)?).ok()?.into(),
                IPV6_BYTES,
            ),
            _ => return None,
        };
        let tcp: &[u8; TCP_BYTES] = packet.get(l4..)?.first_chunk()?;
        let be16 = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let be32 = |at: usize| u32::from(be16(at)) << 16 | u32::from(be16(at + 2));
        Some(Segment {
            from: SocketAddr::new(from, be16(0)),
            to: SocketAddr::new(to, be16(2)),
            sequence: be32(4),
            acknowledged: be32(8),
            flags: tcp[13],
        })
    }
}

/// Makes an IPv4 header that forbids fragmentation, so that it needs no identification (RFC 6864).
pub(super) fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload_bytes: usize) -> Vec<u8> {
    let bytes = (IPV4_BYTES + payload_bytes) as u16;
    let mut header = vec![0x45, 0];
    header.extend(bytes.to_be_bytes());
    header.extend([0, 0, 0x40, 0, HOP_LIMIT, protocol, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let checksum = folded(sum_of(&header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// Makes an IPv6 header.
pub(super) fn ipv6(from: Ipv6Addr, to: Ipv6Addr, protocol: u8, payload_bytes: usize) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend((payload_bytes as u16).to_be_bytes());
    header.extend([protocol, HOP_LIMIT]);
    header.extend(from.octets());
    header.extend(to.octets());
    header
}

/// Returns the sum of 16-bit words; the number of bytes must be even.
fn sum_of(bytes: &[u8]) -> u32 {
    let (words, _) = bytes.as_chunks::<2>();
    words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum()
}

fn address_sum(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => sum_of(&address.octets()),
        IpAddr::V6(address) => sum_of(&address.octets()),
    }
}

/// Returns the Internet checksum of a sum (RFC 1071).
fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn(from: &str, to: &str) -> Segment {
        Segment {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            sequence: 0x0102_0304,
            acknowledged: 0,
            flags: SYN,
        }
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: String = hex.split_whitespace().collect();
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    /// The expected bytes come from a separate program in another language.
    #[test]
    fn a_syn_is_a_whole_packet_with_right_checksums() {
        let packet = syn("192.0.2.2:40000", "203.0.113.14:80").packet().unwrap();
        assert_eq!(packet, bytes(V4_SYN));
        let packet = syn("[2001:db8:b::2]:40000", "[2001:db8:f::f]:80").packet().unwrap();
        assert_eq!(packet, bytes(V6_SYN));
    }

    const V4_SYN: &str = "4500002c 00004000 40063cbb c0000202 cb00710e 9c400050 01020304 00000000 \
         6002ffff fa6e0000 020404c4";
    const V6_SYN: &str = "60000000 00180640 20010db8 000b0000 00000000 00000002 20010db8 000f0000 \
         00000000 0000000f 9c400050 01020304 00000000 6002ffff 9ce30000 020404c4";

    #[test]
    fn a_written_segment_reads_back_equal_and_truncated_bytes_are_rejected() {
        for (from, to) in
            [("192.0.2.2:40000", "203.0.113.14:80"), ("[2001:db8::2]:1", "[2001:db8::3]:65535")]
        {
            for flags in [SYN, RST, SYN | ACK] {
                let segment = Segment { flags, acknowledged: 0xfedc_ba98, ..syn(from, to) };
                let packet = segment.packet().unwrap();
                assert_eq!(Segment::read(&packet), Some(segment));
                for short in 0..packet.len().min(40) {
                    assert_eq!(Segment::read(&packet[..short]), None, "{short} bytes");
                }
            }
        }
        assert_eq!(syn("192.0.2.2:40000", "[2001:db8::3]:80").packet(), None);
    }

    #[test]
    fn other_packets_are_no_segments() {
        let mut udp = syn("192.0.2.2:40000", "203.0.113.14:80").packet().unwrap();
        udp[9] = 17;
        assert_eq!(Segment::read(&udp), None);
        let mut options = syn("192.0.2.2:40000", "203.0.113.14:80").packet().unwrap();
        // With a header of 24 bytes, 16 bytes of the TCP header and its option remain.
        options[0] = 0x46;
        assert!(Segment::read(&options).is_some());
        options[0] = 0x4f;
        assert_eq!(Segment::read(&options), None);
    }
}
