//! IP headers and what is behind them, byte by byte.

use std::ops::Deref;

use super::{EXTENSION_HEADERS_MAX, Icmp, Place, Tuple, protocol};
use crate::reason::Reason;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
pub(super) const ICMP_BYTES: usize = 8;

/// The tuple of the packet that an ICMP error quotes.
pub(super) fn quoted(family: u8, bytes: &Bytes<'_>, l3: usize) -> Icmp {
    let read = || {
        let (mut tuple, l4, place) = if family == 4 {
            let header = Ipv4::read(bytes, l3)?;
            (header.tuple, l3 + header.bytes, header.place)
        } else {
            let header = Ipv6::read(bytes, l3)?;
            let walk = Walk::along(bytes, l3).ok()?;
            (Tuple { protocol: walk.protocol, ..header.tuple }, walk.l4, walk.place)
        };
        if !matches!(tuple.protocol, protocol::TCP | protocol::UDP) || place == Place::Later {
            return Some(Icmp::Other);
        }
        // RFC 792: eight bytes behind the quoted header; all that is needed are the ports.
        bytes.get(l4..l4 + ICMP_BYTES)?;
        tuple.source_port = bytes.be16(l4)?;
        tuple.destination_port = bytes.be16(l4 + 2)?;
        Some(Icmp::Error(tuple))
    };
    read().unwrap_or(Icmp::ErrorShort)
}

pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl Bytes<'_> {
    pub(super) fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    pub(super) fn be16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }
}

pub(super) struct Ipv4 {
    pub(super) tuple: Tuple,
    pub(super) bytes: usize,
    pub(super) total: usize,
    pub(super) place: Place,
    pub(super) fragment_id: u32,
}

impl Ipv4 {
    pub(super) fn read(bytes: &Bytes<'_>, l3: usize) -> Option<Ipv4> {
        bytes.get(l3..l3 + IPV4_BYTES)?;
        let header_bytes = usize::from(bytes[l3] & 0xf) * 4;
        if bytes[l3] >> 4 != 4 || header_bytes < IPV4_BYTES || bytes.len() < l3 + header_bytes {
            return None;
        }
        let fragment = bytes.be16(l3 + 6)?;
        let mut tuple = Tuple { family: 4, protocol: bytes[l3 + 9], ..Tuple::default() };
        tuple.source[..4].copy_from_slice(&bytes[l3 + 12..l3 + 16]);
        tuple.destination[..4].copy_from_slice(&bytes[l3 + 16..l3 + 20]);
        Some(Ipv4 {
            tuple,
            bytes: header_bytes,
            total: usize::from(bytes.be16(l3 + 2)?),
            place: place(fragment & 0x1fff != 0, fragment & 0x2000 != 0),
            fragment_id: u32::from(bytes.be16(l3 + 4)?),
        })
    }
}

fn place(offset: bool, more: bool) -> Place {
    match (offset, more) {
        (true, _) => Place::Later,
        (false, true) => Place::First,
        (false, false) => Place::Whole,
    }
}

pub(super) struct Ipv6 {
    pub(super) tuple: Tuple,
    pub(super) total: usize,
}

impl Ipv6 {
    pub(super) fn read(bytes: &Bytes<'_>, l3: usize) -> Option<Ipv6> {
        bytes.get(l3..l3 + IPV6_BYTES)?;
        if bytes[l3] >> 4 != 6 {
            return None;
        }
        let mut tuple = Tuple { family: 6, protocol: bytes[l3 + 6], ..Tuple::default() };
        tuple.source.copy_from_slice(&bytes[l3 + 8..l3 + 24]);
        tuple.destination.copy_from_slice(&bytes[l3 + 24..l3 + 40]);
        Some(Ipv6 { tuple, total: IPV6_BYTES + usize::from(bytes.be16(l3 + 4)?) })
    }
}

/// Where the extension headers of an IPv6 packet lead.
pub(super) struct Walk {
    pub(super) protocol: u8,
    pub(super) l4: usize,
    pub(super) place: Place,
    pub(super) fragment_id: u32,
    pub(super) fragment_protocol: u8,
}

impl Walk {
    pub(super) fn along(bytes: &Bytes<'_>, l3: usize) -> Result<Walk, Reason> {
        let mut walk = Walk {
            protocol: bytes[l3 + 6],
            l4: l3 + IPV6_BYTES,
            place: Place::Whole,
            fragment_id: 0,
            fragment_protocol: 0,
        };
        for _ in 0..EXTENSION_HEADERS_MAX {
            if !walk.step(bytes)? {
                return Ok(walk);
            }
        }
        if is_extension(walk.protocol) { Err(Reason::ExtensionHeaders) } else { Ok(walk) }
    }

    /// Past one header; `false` at the end.
    fn step(&mut self, bytes: &Bytes<'_>) -> Result<bool, Reason> {
        if !is_extension(self.protocol) {
            return Ok(false);
        }
        let header: [u8; 8] = bytes.array(self.l4).ok_or(Reason::HeaderShort)?;
        let length = match self.protocol {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if self.protocol == FRAGMENT {
            let offset = u16::from_be_bytes([header[2], header[3]]);
            self.place = place(offset & 0xfff8 != 0, offset & 1 != 0);
            self.fragment_protocol = header[0];
            self.fragment_id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        }
        self.protocol = header[0];
        self.l4 += length;
        Ok(self.place != Place::Later)
    }
}

const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Hop-by-hop options, routing, fragment, authentication, destination options (RFC 8200, section
/// 4).
fn is_extension(protocol: u8) -> bool {
    matches!(protocol, 0 | 43 | FRAGMENT | AUTHENTICATION | 60)
}
