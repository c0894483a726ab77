//! Parses frames like the program's `parse.h`.

mod headers;

use std::net::{IpAddr, SocketAddr};

use headers::{Bytes, ICMP_BYTES, Ipv4, Ipv6, Walk, quoted};

use crate::reason::Reason;

/// IPv6 extension headers that are walked.
pub const EXTENSION_HEADERS_MAX: usize = 6;

/// Protocol numbers (IANA) that decisions look at.
pub(crate) mod protocol {
    pub(crate) const ICMP: u8 = 1;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const ICMP6: u8 = 58;
}

const ETHERNET_BYTES: usize = 14;
const VLAN_BYTES: usize = 4;
const UDP_BYTES: usize = 8;
/// Bytes of a datagram in which a decision may look for a QUIC connection id.
pub const DATAGRAM_BYTES: usize = 32;

const TCP_FIN: u8 = 1;
pub(crate) const TCP_SYN: u8 = 2;
pub(crate) const TCP_RST: u8 = 4;
pub(crate) const TCP_ACK: u8 = 16;

/// An address as the tables hold it: IPv4 in the first 4 bytes, the rest zero.
pub type AddressBytes = [u8; 16];

/// The tables' form of an address.
pub fn address_bytes(address: IpAddr) -> AddressBytes {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// Addresses, protocol, ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuple {
    /// 4 or 6.
    pub family: u8,
    /// IANA's number.
    pub protocol: u8,
    /// Sender.
    pub source: AddressBytes,
    /// Receiver.
    pub destination: AddressBytes,
    /// Host order; 0: the protocol has none.
    pub source_port: u16,
    /// Host order.
    pub destination_port: u16,
}

impl Tuple {
    /// The tuple of packets the other way.
    pub fn turned(self) -> Tuple {
        Tuple {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }
}

/// The place of a packet in its datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Not fragmented.
    #[default]
    Whole,
    /// Its first fragment: has the transport header.
    First,
    /// One after it.
    Later,
}

/// Kind of an ICMP packet, for a balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmp {
    /// To be answered.
    EchoRequest,
    /// About the quoted packet.
    Error(Tuple),
    /// An error with a quoted packet that is truncated before its ports.
    ErrorShort,
    /// Router or neighbour discovery.
    Discovery,
    /// Any other.
    Other,
}

/// A parsed IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Of the packet itself.
    pub tuple: Tuple,
    /// Bytes of the frame.
    pub frame_bytes: usize,
    /// Bytes of the IP packet by its header.
    pub ip_bytes: usize,
    /// Sender on the link.
    pub source_mac: [u8; 6],
    /// Receiver on the link; `None`: an explanation, of a packet to this machine.
    pub destination_mac: Option<[u8; 6]>,
    /// Hop limit.
    pub ttl: u8,
    /// The bits of the TCP header's flags.
    pub tcp_flags: u8,
    /// TCP: sequence and acknowledgement number.
    pub tcp_numbers: [u32; 2],
    /// Of the datagram.
    pub place: Place,
    /// Identification of a fragment's datagram.
    pub fragment_id: u32,
    /// The same in all fragments of a datagram: what follows the fragment header.
    pub fragment_protocol: u8,
    /// If it is ICMP.
    pub icmp: Option<Icmp>,
    /// UDP: the first bytes of the datagram's data, zero behind its end.
    pub datagram: [u8; DATAGRAM_BYTES],
    /// UDP: bytes of data, as far as they are in this packet.
    pub datagram_bytes: usize,
    /// Why it is dropped if it is for a VIP.
    pub fault: Option<Reason>,
}

impl Parsed {
    /// Reads a frame. `None`: not IP, or cut off before the end of its IP header; not for the
    /// balancer.
    pub fn parse(frame: &[u8]) -> Option<Parsed> {
        let bytes = Bytes(frame);
        let mut l3 = ETHERNET_BYTES;
        let mut ethertype = bytes.be16(12)?;
        if ethertype == 0x8100 {
            ethertype = bytes.be16(16)?;
            l3 += VLAN_BYTES;
        }
        let mut parsed = Parsed::empty(frame.len(), bytes.array(6)?);
        parsed.destination_mac = bytes.array(0);
        match ethertype {
            0x0800 => parsed.ipv4(&bytes, l3)?,
            0x86dd => parsed.ipv6(&bytes, l3)?,
            _ => return None,
        }
        Some(parsed)
    }

    /// A packet of a flow that is under way, for an explanation: of `source_mac`, or of an unknown
    /// one.
    pub fn of_flow(
        source: SocketAddr,
        destination: SocketAddr,
        protocol: u8,
        source_mac: Option<[u8; 6]>,
    ) -> Parsed {
        let mut parsed = Parsed::empty(0, source_mac.unwrap_or_default());
        parsed.tuple = Tuple {
            family: if destination.is_ipv4() { 4 } else { 6 },
            protocol,
            source: address_bytes(source.ip()),
            destination: address_bytes(destination.ip()),
            source_port: source.port(),
            destination_port: destination.port(),
        };
        parsed.tcp_flags = TCP_ACK;
        parsed.ttl = 64;
        parsed
    }

    fn empty(frame_bytes: usize, source_mac: [u8; 6]) -> Parsed {
        Parsed {
            tuple: Tuple::default(),
            frame_bytes,
            ip_bytes: 0,
            source_mac,
            destination_mac: None,
            ttl: 0,
            tcp_flags: 0,
            tcp_numbers: [0; 2],
            place: Place::Whole,
            fragment_id: 0,
            fragment_protocol: 0,
            icmp: None,
            datagram: [0; DATAGRAM_BYTES],
            datagram_bytes: 0,
            fault: None,
        }
    }

    /// TCP with SYN and without ACK.
    pub fn is_opening(&self) -> bool {
        self.is_tcp() && self.tcp_flags & (TCP_SYN | TCP_ACK) == TCP_SYN
    }

    /// TCP with FIN.
    pub fn is_fin(&self) -> bool {
        self.is_tcp() && self.tcp_flags & TCP_FIN != 0
    }

    /// TCP with RST.
    pub fn is_rst(&self) -> bool {
        self.is_tcp() && self.tcp_flags & TCP_RST != 0
    }

    /// Valid router or neighbour discovery: whole, with the hop limit that no router has lowered.
    pub(crate) fn is_neighbour_discovery(&self) -> bool {
        self.icmp == Some(Icmp::Discovery) && self.place == Place::Whole && self.ttl == 255
    }

    /// The packet, or the one that it is an error about, is TCP's.
    pub fn is_tcp(&self) -> bool {
        self.tuple.protocol == protocol::TCP
    }

    fn ipv4(&mut self, bytes: &Bytes<'_>, l3: usize) -> Option<()> {
        let header = Ipv4::read(bytes, l3)?;
        self.tuple = header.tuple;
        self.ttl = bytes[l3 + 8];
        self.ip_bytes = header.total;
        let l4 = l3 + header.bytes;
        if header.total < header.bytes || l3 + header.total > bytes.len() {
            self.fault = Some(Reason::HeaderInvalid);
            return Some(());
        }
        (self.place, self.fragment_id) = (header.place, header.fragment_id);
        self.fragment_protocol = self.tuple.protocol;
        self.transport(&Bytes(&bytes[..l3 + header.total]), l4);
        Some(())
    }

    fn ipv6(&mut self, bytes: &Bytes<'_>, l3: usize) -> Option<()> {
        let header = Ipv6::read(bytes, l3)?;
        self.tuple = header.tuple;
        self.ttl = bytes[l3 + 7];
        self.ip_bytes = header.total;
        if l3 + header.total > bytes.len() {
            self.fault = Some(Reason::HeaderInvalid);
            return Some(());
        }
        let bytes = Bytes(&bytes[..l3 + header.total]);
        match Walk::along(&bytes, l3) {
            Err(reason) => self.fault = Some(reason),
            Ok(walk) => {
                self.tuple.protocol = walk.protocol;
                (self.place, self.fragment_id) = (walk.place, walk.fragment_id);
                self.fragment_protocol = walk.fragment_protocol;
                self.transport(&bytes, walk.l4);
            }
        }
        Some(())
    }

    fn transport(&mut self, bytes: &Bytes<'_>, l4: usize) {
        if self.place == Place::Later {
            return;
        }
        let bytes_wanted = match (self.tuple.family, self.tuple.protocol) {
            (_, protocol::TCP) => 20,
            (_, protocol::UDP) => 8,
            (4, protocol::ICMP) | (6, protocol::ICMP6) => ICMP_BYTES,
            _ => return,
        };
        if bytes.len() < l4 + bytes_wanted {
            self.fault = Some(Reason::HeaderShort);
            return;
        }
        match self.tuple.protocol {
            protocol::ICMP | protocol::ICMP6 => {
                self.icmp = Some(self.icmp(bytes, l4));
                return;
            }
            protocol::TCP => {
                self.tcp_flags = bytes[l4 + 13];
                let number = |at| bytes.array(at).map(u32::from_be_bytes).unwrap_or_default();
                self.tcp_numbers = [number(l4 + 4), number(l4 + 8)];
            }
            protocol::UDP => self.datagram(bytes, l4),
            _ => {}
        }
        self.tuple.source_port = bytes.be16(l4).unwrap_or(0);
        self.tuple.destination_port = bytes.be16(l4 + 2).unwrap_or(0);
    }

    fn datagram(&mut self, bytes: &Bytes<'_>, l4: usize) {
        let end = l4 + usize::from(bytes.be16(l4 + 4).unwrap_or(0));
        let data = bytes.get(l4 + UDP_BYTES..end.min(bytes.len())).unwrap_or_default();
        let first = data.len().min(DATAGRAM_BYTES);
        self.datagram[..first].copy_from_slice(&data[..first]);
        self.datagram_bytes = data.len();
    }

    fn icmp(&self, bytes: &Bytes<'_>, l4: usize) -> Icmp {
        match (self.tuple.family, bytes[l4]) {
            (4, 8) | (6, 128) => Icmp::EchoRequest,
            (4, 3 | 11 | 12) | (6, 1..=4) => quoted(self.tuple.family, bytes, l4 + ICMP_BYTES),
            (6, 133..=137) => Icmp::Discovery,
            _ => Icmp::Other,
        }
    }
}
