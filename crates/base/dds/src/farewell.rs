//! Announces the death of a participant after its process has ended without an announcement.
//!
//! A participant that leaves disposes of itself in the discovery protocol, and all others forget it
//! at once. A killed participant cannot. All others then wait for its lease, and reliable writers
//! wait for its readers. This module sends the same message in the name of the dead participant.
//! The message is part of the standard, so DDS of any vendor reacts to it.
//!
//! It has no effect on participants that DDS Security has authenticated: there the lease decides.
//!
//! # Source
//! DDSI-RTPS 2.5, sections 8.5.3 (SPDP), 9.4 (messages), 9.6.2.3 (ports), 9.6.4.9 (status info).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

use socket2::SockRef;

use crate::domain::{Multicast, Settings};
use crate::endpoint::Guid;

/// Multicast group of discovery.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 0, 1);
/// Greatest number of participants of one host with numbered ports, as `MaxAutoParticipantIndex` of
/// [`Settings::xml`].
const NUMBERED: u16 = 120;
/// Larger than any sequence number of a participant's own announcements, because some
/// implementations ignore a number that is not new.
const SEQUENCE: u32 = 1 << 30;

/// Makes all members of `domain` forget the participant `guid`, after its process has ended. May
/// block, because it resolves the names of peers.
///
/// # Errors
/// The error of the first attempt, if no message could be sent.
pub fn announce_death(domain: u32, settings: &Settings, guid: Guid) -> io::Result<()> {
    let message = message(guid, SystemTime::now());
    let base = u16::try_from(7400 + 250 * domain).map_err(io::Error::other)?;
    let mut outcome = Err(io::ErrorKind::AddrNotAvailable.into());
    let mut note = |sent: io::Result<usize>| match sent {
        Ok(_) => outcome = Ok(()),
        Err(error) if outcome.is_err() => outcome = Err(error),
        Err(_) => {}
    };
    let own = settings.addresses();
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    if settings.multicast != Multicast::Off {
        for address in &own {
            let IpAddr::V4(address) = address else { continue };
            let chosen = SockRef::from(&socket).set_multicast_if_v4(address);
            note(chosen.and_then(|()| socket.send_to(&message, (GROUP, base))));
        }
    }
    // Ports of participants that are reached without multicast.
    let numbered = || (0..NUMBERED).map(|index| base + 10 + 2 * index);
    let named = settings.peers.iter().flat_map(|peer| resolved(peer));
    let own = own.into_iter().map(|address| SocketAddr::new(address, 0));
    for peer in named.chain(own).filter(SocketAddr::is_ipv4) {
        if peer.port() != 0 {
            note(socket.send_to(&message, peer));
            continue;
        }
        for port in numbered() {
            note(socket.send_to(&message, (peer.ip(), port)));
        }
    }
    outcome
}

/// Resolves `ADDRESS` or `ADDRESS:PORT`. Without a port it is 0.
fn resolved(peer: &str) -> Vec<SocketAddr> {
    if let Ok(address) = peer.parse::<IpAddr>() {
        return vec![SocketAddr::new(address, 0)];
    }
    let found = peer.to_socket_addrs().or_else(|_| (peer, 0).to_socket_addrs());
    found.map(Iterator::collect).unwrap_or_default()
}

/// The disposal message that the participant would send itself.
fn message(guid: Guid, now: SystemTime) -> Vec<u8> {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Fraction of a second, in units of 2^-32.
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    let mut data = Vec::new();
    let words = |data: &mut Vec<u8>, words: &[u16]| {
        words.iter().for_each(|word| data.extend_from_slice(&word.to_le_bytes()));
    };
    // No extra flags; the inline QoS begins 16 bytes later.
    words(&mut data, &[0, 16]);
    // Reader and writer of participant data.
    data.extend_from_slice(&[0, 1, 0, 0xc7, 0, 1, 0, 0xc2]);
    data.extend_from_slice(&[0; 4]);
    data.extend_from_slice(&SEQUENCE.to_le_bytes());
    // Status info (disposed and unregistered), the key, the end of the list.
    words(&mut data, &[0x71, 4]);
    data.extend_from_slice(&[0, 0, 0, 3]);
    words(&mut data, &[0x70, 16]);
    data.extend_from_slice(&guid.0);
    words(&mut data, &[1, 0]);
    // The key as a parameter list, little-endian.
    data.extend_from_slice(&[0, 3, 0, 0]);
    words(&mut data, &[0x50, 16]);
    data.extend_from_slice(&guid.0);
    words(&mut data, &[1, 0]);

    // RTPS version 2.1, as Cyclone DDS.
    let mut message = b"RTPS\x02\x01\x01\x10".to_vec();
    message.extend_from_slice(&guid.0[..12]);
    // Timestamp.
    message.extend_from_slice(&[0x09, 0x01, 8, 0]);
    message.extend_from_slice(&(since.as_secs() as u32).to_le_bytes());
    message.extend_from_slice(&(fraction as u32).to_le_bytes());
    // Data submessage: little-endian, with inline QoS and a key.
    message.extend_from_slice(&[0x15, 0x0b]);
    words(&mut message, &[data.len() as u16]);
    message.append(&mut data);
    message
}
