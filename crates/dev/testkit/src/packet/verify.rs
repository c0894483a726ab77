//! Lengths and checksums of a packet, all of them, computed anew.

use super::protocol;

/// The ones' complement sum of 16-bit words (RFC 1071, section 1), before it is inverted.
pub fn fold(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Checks a frame: lengths, and every checksum in it, through tunnels and into quoted packets.
///
/// # Errors
/// What is wrong, in words.
pub fn verify(frame: &[u8]) -> Result<(), String> {
    let mut at = 12;
    let mut ethertype = be16(frame, at)?;
    if ethertype == 0x8100 {
        at += 4;
        ethertype = be16(frame, at)?;
    }
    let packet = &frame[at + 2..];
    match (ethertype, packet.first().map(|first| first >> 4)) {
        (0x0800, Some(4)) | (0x86dd, Some(6)) => verify_ip(packet),
        (0x0800 | 0x86dd, _) => Err(format!("ethertype {ethertype:#x} before {packet:02x?}")),
        _ => Ok(()),
    }
}

/// Checks an IP packet; bytes behind its end are an Ethernet's padding.
///
/// # Errors
/// What is wrong, in words.
pub fn verify_ip(packet: &[u8]) -> Result<(), String> {
    let read = Read::header(packet)?;
    if packet.len() < read.total {
        return Err(format!("says {} bytes, has {}", read.total, packet.len()));
    }
    let payload = &packet[read.l4..read.total];
    match read.fragment {
        true => Ok(()),
        false => transport(&read, payload),
    }
}

struct Read {
    addresses: Vec<u8>,
    protocol: u8,
    l4: usize,
    total: usize,
    fragment: bool,
}

impl Read {
    fn header(packet: &[u8]) -> Result<Read, String> {
        match packet.first().map(|first| first >> 4) {
            Some(4) => Read::v4(packet),
            Some(6) => Read::v6(packet),
            _ => Err(format!("no IP packet: {packet:02x?}")),
        }
    }

    fn v4(packet: &[u8]) -> Result<Read, String> {
        let header_bytes = usize::from(packet[0] & 15) * 4;
        let header = packet.get(..header_bytes).ok_or("IPv4 header cut off")?;
        if fold(header) != 0xffff {
            return Err(format!("IPv4 header sums to {:#06x}: {header:02x?}", fold(header)));
        }
        Ok(Read {
            addresses: header[12..20].to_vec(),
            protocol: header[9],
            l4: header_bytes,
            total: usize::from(be16(packet, 2)?),
            fragment: be16(packet, 6)? & 0x3fff != 0,
        })
    }

    fn v6(packet: &[u8]) -> Result<Read, String> {
        let header = packet.get(..40).ok_or("IPv6 header cut off")?;
        let mut read = Read {
            addresses: header[8..40].to_vec(),
            protocol: header[6],
            l4: 40,
            total: 40 + usize::from(be16(packet, 4)?),
            fragment: false,
        };
        loop {
            let length = match read.protocol {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                    8 + 8 * usize::from(byte(packet, read.l4 + 1)?)
                }
                protocol::AUTHENTICATION => 8 + 4 * usize::from(byte(packet, read.l4 + 1)?),
                protocol::FRAGMENT => {
                    read.fragment |= be16(packet, read.l4 + 2)? & 0xfff9 != 0;
                    8
                }
                _ => return Ok(read),
            };
            read.protocol = byte(packet, read.l4)?;
            read.l4 += length;
        }
    }

    fn pseudo(&self, length: usize) -> Vec<u8> {
        let tail = [&(length as u32).to_be_bytes()[..], &[0, 0, 0, self.protocol]].concat();
        [&self.addresses[..], &tail].concat()
    }
}

fn transport(read: &Read, payload: &[u8]) -> Result<(), String> {
    let pseudo = read.pseudo(payload.len());
    let whole = |what: &str, bytes: &[u8]| match fold(bytes) {
        0xffff => Ok(()),
        sum => Err(format!("{what} sums to {sum:#06x}: {payload:02x?}")),
    };
    match read.protocol {
        protocol::TCP => whole("TCP", &[&pseudo, payload].concat()),
        protocol::ICMP => whole("ICMP", payload).and_then(|()| quoted(payload, &[3, 11, 12])),
        protocol::ICMP6 => whole("ICMPv6", &[&pseudo, payload].concat())
            .and_then(|()| quoted(payload, &[1, 2, 3, 4])),
        protocol::UDP => {
            let length = usize::from(be16(payload, 4)?);
            if length != payload.len() {
                return Err(format!("UDP says {length} bytes, has {}", payload.len()));
            }
            // RFC 6935 allows none in IPv6 for tunnels; whether it is one is the caller's to know.
            if be16(payload, 6)? != 0 {
                whole("UDP", &[&pseudo, payload].concat())?;
            }
            Ok(())
        }
        protocol::IPIP | protocol::IPV6 => {
            let version = if read.protocol == protocol::IPIP { 4 } else { 6 };
            if byte(payload, 0)? >> 4 != version {
                return Err(format!("IPv{version} expected in {payload:02x?}"));
            }
            verify_ip(payload)
        }
        _ => Ok(()),
    }
}

/// The packet quoted by an ICMP error: its header's checksum, and its transport's as far as it is
/// quoted whole.
fn quoted(message: &[u8], errors: &[u8]) -> Result<(), String> {
    if !errors.contains(&byte(message, 0)?) || message.len() <= 8 {
        return Ok(());
    }
    let packet = &message[8..];
    let read = Read::header(packet).map_err(|error| format!("quoted packet: {error}"))?;
    if read.fragment || packet.len() < read.total {
        return Ok(());
    }
    transport(&read, &packet[read.l4..read.total])
        .map_err(|error| format!("quoted packet: {error}"))
}

fn byte(bytes: &[u8], at: usize) -> Result<u8, String> {
    bytes.get(at).copied().ok_or_else(|| format!("ends before byte {at}"))
}

fn be16(bytes: &[u8], at: usize) -> Result<u16, String> {
    Ok(u16::from_be_bytes([byte(bytes, at)?, byte(bytes, at + 1)?]))
}
