//! The file format of captures: pcapng (draft-ietf-opsawg-pcapng), little-endian, with one
//! interface. The comment of a packet names its backend.

use std::time::UNIX_EPOCH;

use super::CapturedPacket;
use crate::abi::How;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const INTERFACE_STATISTICS: u32 = 5;
const LINKTYPE_ETHERNET: u16 = 1;

const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const RECEIVED: u16 = 4;
const DROPPED: u16 = 5;

/// Nanoseconds: 10 to the power of minus this.
const NANOSECONDS: u8 = 9;
/// `epb_flags`: received by the interface.
const INBOUND: u32 = 1;

/// The beginning of a file. `name` is that of the interface, and `snap_bytes` the largest number of
/// bytes of a packet.
pub fn start(name: &str, snap_bytes: u32) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0x1a2b_3c4d_u32.to_le_bytes());
    body.extend(1_u16.to_le_bytes());
    body.extend(0_u16.to_le_bytes());
    // The length of the section is not known.
    body.extend((-1_i64).to_le_bytes());
    option(&mut body, USER_APPLICATION, b"equipoise");
    let mut file = block(SECTION_HEADER, body);
    let mut body = Vec::new();
    body.extend(LINKTYPE_ETHERNET.to_le_bytes());
    body.extend(0_u16.to_le_bytes());
    body.extend(snap_bytes.to_le_bytes());
    option(&mut body, INTERFACE_NAME, name.as_bytes());
    option(&mut body, TIME_RESOLUTION, &[NANOSECONDS]);
    file.extend(block(INTERFACE, body));
    file
}

/// A packet.
pub fn packet(packet: &CapturedPacket) -> Vec<u8> {
    let at = packet.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut body = Vec::with_capacity(packet.bytes.len() + 128);
    body.extend(0_u32.to_le_bytes());
    time(&mut body, u64::try_from(at.as_nanos()).unwrap_or(u64::MAX));
    body.extend((packet.bytes.len() as u32).to_le_bytes());
    body.extend(packet.frame_bytes.to_le_bytes());
    padded(&mut body, &packet.bytes);
    option(&mut body, COMMENT, comment(packet).as_bytes());
    option(&mut body, PACKET_FLAGS, &INBOUND.to_le_bytes());
    block(ENHANCED_PACKET, body)
}

/// The end of a file: numbers of packets.
pub fn end(packets: u64, lost: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0_u32.to_le_bytes());
    let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time(&mut body, u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    option(&mut body, RECEIVED, &(packets + lost).to_le_bytes());
    option(&mut body, DROPPED, &lost.to_le_bytes());
    block(INTERFACE_STATISTICS, body)
}

/// Where the packet went: `to 10.0.0.21 by ring`, `dropped: no_backend`.
fn comment(packet: &CapturedPacket) -> String {
    let how = match packet.how {
        Some(How::Ring) => " by ring",
        Some(How::Pin) => " by pin",
        Some(How::Pending) => " by pending",
        Some(How::Turn) => " by turn",
        Some(How::Fallback) => " by fallback",
        Some(How::Fragment) => " by fragment",
        Some(How::ConnectionId) => " by connection id",
        None => "",
    };
    let to = packet.backend.map(|backend| format!("to {backend}{how}"));
    let dropped = packet.dropped.map(|reason| format!("dropped: {}", reason.name()));
    let parts: Vec<_> = to.into_iter().chain(dropped).collect();
    if parts.is_empty() { "to an unknown backend".into() } else { parts.join("; ") }
}

/// The time in two words, the upper one first.
fn time(body: &mut Vec<u8>, nanoseconds: u64) {
    body.extend(((nanoseconds >> 32) as u32).to_le_bytes());
    body.extend((nanoseconds as u32).to_le_bytes());
}

fn padded(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend_from_slice(bytes);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    padded(body, value);
}

/// A block, with the end of its options.
fn block(kind: u32, mut body: Vec<u8>) -> Vec<u8> {
    body.extend([0; 4]);
    let bytes = (body.len() + 12) as u32;
    let mut block = Vec::with_capacity(bytes as usize);
    block.extend(kind.to_le_bytes());
    block.extend(bytes.to_le_bytes());
    block.append(&mut body);
    block.extend(bytes.to_le_bytes());
    block
}
