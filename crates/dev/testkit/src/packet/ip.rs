//! An IP packet from its parts.

use std::net::IpAddr;

use super::verify::fold;
use super::{BALANCER_MAC, CLIENT_MAC, ip_frame, protocol};

/// A packet being built; every part has a plain default.
#[derive(Clone, Debug)]
pub struct Ip {
    source: IpAddr,
    destination: IpAddr,
    tos: u8,
    flow_label: u32,
    ttl: u8,
    id: u16,
    dont_fragment: bool,
    options: Vec<u8>,
    extensions: Vec<(u8, Vec<u8>)>,
    fragment: Option<Fragment>,
    protocol: u8,
    payload: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Fragment {
    offset: usize,
    more: bool,
    id: u32,
}

impl Ip {
    /// Between two addresses of one family, without content.
    ///
    /// # Panics
    /// If one is not an address, or they are of two families.
    pub fn between(source: &str, destination: &str) -> Ip {
        let [source, destination] = [source, destination].map(|text| {
            text.parse::<IpAddr>().unwrap_or_else(|_| panic!("`{text}` is an address"))
        });
        assert_eq!(source.is_ipv4(), destination.is_ipv4(), "addresses of one family");
        Ip {
            source,
            destination,
            tos: 0,
            flow_label: 0,
            ttl: 64,
            id: 0x1234,
            dont_fragment: true,
            options: Vec::new(),
            extensions: Vec::new(),
            fragment: None,
            protocol: protocol::NO_NEXT,
            payload: Vec::new(),
        }
    }

    /// Type of service, traffic class.
    pub fn tos(self, tos: u8) -> Ip {
        Ip { tos, ..self }
    }

    /// IPv6: the flow label.
    pub fn flow_label(self, flow_label: u32) -> Ip {
        Ip { flow_label, ..self }
    }

    /// Hop limit.
    pub fn ttl(self, ttl: u8) -> Ip {
        Ip { ttl, ..self }
    }

    /// IPv4: identification.
    pub fn id(self, id: u16) -> Ip {
        Ip { id, ..self }
    }

    /// IPv4: clears DF.
    pub fn may_fragment(self) -> Ip {
        Ip { dont_fragment: false, ..self }
    }

    /// IPv4 options; a multiple of 4 bytes.
    pub fn options(self, options: &[u8]) -> Ip {
        assert!(options.len().is_multiple_of(4) && options.len() <= 40, "options are whole words");
        Ip { options: options.to_vec(), ..self }
    }

    /// Another IPv6 extension header, of 8 bytes (AH: 12), empty but for padding.
    pub fn extension(mut self, kind: u8) -> Ip {
        let body = match kind {
            protocol::AUTHENTICATION => vec![1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1],
            protocol::ROUTING => vec![0, 4, 0, 0, 0, 0, 0],
            _ => vec![0, 1, 4, 0, 0, 0, 0],
        };
        self.extensions.push((kind, body));
        self
    }

    /// Whatever the protocol number says.
    pub fn raw(self, protocol: u8, payload: &[u8]) -> Ip {
        Ip { protocol, payload: payload.to_vec(), ..self }
    }

    /// A TCP segment.
    pub fn tcp(self, source_port: u16, destination_port: u16, flags: u8, payload: &[u8]) -> Ip {
        self.tcp_numbered([source_port, destination_port], [0x100, 0x200], flags, payload)
    }

    /// A TCP segment with these ports, and with this sequence and acknowledgement number.
    pub fn tcp_numbered(self, ports: [u16; 2], numbers: [u32; 2], flags: u8, payload: &[u8]) -> Ip {
        let [s, d] = ports.map(u16::to_be_bytes);
        let numbers = numbers.map(u32::to_be_bytes).concat();
        let fixed = [&numbers[..], &[0x50, flags, 0xff, 0xff], &[0; 4]].concat();
        self.with_checksum(protocol::TCP, [&s[..], &d, &fixed, payload].concat(), 16)
    }

    /// A UDP datagram.
    pub fn udp(self, source_port: u16, destination_port: u16, payload: &[u8]) -> Ip {
        let mut sealed = self.udp_unchecked(source_port, destination_port, payload);
        let datagram = std::mem::take(&mut sealed.payload);
        let mut sealed = sealed.with_checksum(protocol::UDP, datagram, 6);
        if sealed.payload[6..8] == [0, 0] {
            sealed.payload[6..8].copy_from_slice(&[0xff, 0xff]);
        }
        sealed
    }

    /// A UDP datagram with checksum 0.
    pub fn udp_unchecked(self, source_port: u16, destination_port: u16, payload: &[u8]) -> Ip {
        let length = u16::try_from(8 + payload.len()).expect("a datagram of at most 64 KB");
        let header = [source_port, destination_port, length, 0].map(u16::to_be_bytes).concat();
        self.raw(protocol::UDP, &[&header[..], payload].concat())
    }

    /// An ICMP or ICMPv6 message: type, code, four bytes, body.
    pub fn icmp(self, kind: u8, code: u8, rest: [u8; 4], body: &[u8]) -> Ip {
        let message = [&[kind, code, 0, 0][..], &rest, body].concat();
        let protocol = if self.source.is_ipv4() { protocol::ICMP } else { protocol::ICMP6 };
        self.with_checksum(protocol, message, 2)
    }

    /// The request of `ping`.
    pub fn echo_request(self, identifier: u16, body: &[u8]) -> Ip {
        let [high, low] = identifier.to_be_bytes();
        let kind = if self.source.is_ipv4() { 8 } else { 128 };
        self.icmp(kind, 0, [high, low, 0, 1], body)
    }

    fn with_checksum(self, protocol: u8, mut segment: Vec<u8>, at: usize) -> Ip {
        segment[at..at + 2].copy_from_slice(&[0, 0]);
        let pseudo = if protocol == protocol::ICMP {
            Vec::new()
        } else {
            let length = u32::try_from(segment.len()).expect("a segment of at most 64 KB");
            let tail = [&length.to_be_bytes()[..], &[0, 0, 0, protocol]].concat();
            [octets(self.source), octets(self.destination), tail].concat()
        };
        let sum = !fold(&[pseudo, segment.clone()].concat());
        segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        Ip { protocol, payload: segment, ..self }
    }

    /// Cuts the datagram into fragments that begin at these offsets (multiples of 8) of its
    /// payload, and at 0.
    pub fn split(&self, id: u32, offsets: &[usize]) -> Vec<Ip> {
        let starts = [&[0], offsets].concat();
        let ends = [offsets, &[self.payload.len()]].concat();
        let parts = starts.into_iter().zip(ends);
        parts.map(|(start, end)| self.part(id, start, end)).collect()
    }

    fn part(&self, id: u32, start: usize, end: usize) -> Ip {
        assert!(start.is_multiple_of(8), "fragments begin at multiples of 8");
        let more = end < self.payload.len();
        Ip {
            payload: self.payload[start..end].to_vec(),
            fragment: Some(Fragment { offset: start, more, id }),
            dont_fragment: false,
            ..self.clone()
        }
    }

    /// The IP packet.
    pub fn bytes(&self) -> Vec<u8> {
        match (self.source, self.destination) {
            (IpAddr::V4(_), _) => self.v4(),
            _ => self.v6(),
        }
    }

    fn v4(&self) -> Vec<u8> {
        let header_bytes = 20 + self.options.len();
        let total = u16::try_from(header_bytes + self.payload.len()).expect("at most 64 KB");
        let (id, place) = match self.fragment {
            None => (self.id, u16::from(self.dont_fragment) << 14),
            Some(part) => (part.id as u16, u16::from(part.more) << 13 | (part.offset / 8) as u16),
        };
        let mut header = vec![0x40 | (header_bytes / 4) as u8, self.tos];
        header.extend([total, id, place].map(u16::to_be_bytes).concat());
        header.extend([self.ttl, self.protocol, 0, 0]);
        header.extend([octets(self.source), octets(self.destination)].concat());
        header.extend(&self.options);
        let sum = !fold(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [header, self.payload.clone()].concat()
    }

    fn v6(&self) -> Vec<u8> {
        let mut chain = self.extensions.clone();
        if let Some(part) = self.fragment {
            let place = (part.offset as u16 | u16::from(part.more)).to_be_bytes();
            let body = [&[0][..], &place, &part.id.to_be_bytes()].concat();
            chain.push((protocol::FRAGMENT, body));
        }
        let mut behind = Vec::new();
        for (index, (_, body)) in chain.iter().enumerate() {
            behind.push(chain.get(index + 1).map_or(self.protocol, |(kind, _)| *kind));
            behind.extend(body);
        }
        behind.extend(&self.payload);
        let first = chain.first().map_or(self.protocol, |(kind, _)| *kind);
        let length = u16::try_from(behind.len()).expect("at most 64 KB");
        let word = 6 << 28 | u32::from(self.tos) << 20 | self.flow_label;
        let mut packet = word.to_be_bytes().to_vec();
        packet.extend(length.to_be_bytes());
        packet.extend([first, self.ttl]);
        packet.extend([octets(self.source), octets(self.destination), behind].concat());
        packet
    }

    /// The packet on the link, from the client to the balancer.
    pub fn frame(&self) -> Vec<u8> {
        ip_frame(BALANCER_MAC, CLIENT_MAC, &self.bytes())
    }

    /// The packet on the link, between these.
    pub fn frame_to(&self, destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
        ip_frame(destination, source, &self.bytes())
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
