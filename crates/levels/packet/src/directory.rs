//! The directory: VIPs, services, backends and rings as the program reads them, in words that are
//! published together with the pins.

mod bytes;
mod lookup;
mod read;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub(crate) use read::{Published, PublishedService, address_of, read};

use self::bytes::{bytes_mut, put};
use self::lookup::Lookup;
use crate::abi::{
    AccessChange, Backend, DIRECTORY_PORTS, DIRECTORY_REPLIES_ALL, DIRECTORY_REVERSE, Directory,
    Forward, Mac, QUIC_CONFIGS, QuicServer, Range, Reverse, Service, Source, SourceSet, Vip,
    vip_kind,
};
use crate::access::Access;
use crate::limits::Limits;
use crate::packet;
use crate::quic::{QuicConfig, ServerId};
use crate::snapshot::{BackendSpec, Ports, Protocol, Snapshot, Sources, Station, VipId, VipSpec};

/// A service of the directory. Writing it fills in its positions.
#[derive(Clone, Debug)]
pub(crate) struct ServiceRecord {
    pub(crate) vip: VipId,
    pub(crate) service: Service,
    /// By slot; free slots are zero.
    pub(crate) backends: Vec<Backend>,
    pub(crate) access: Access,
    pub(crate) quic: Vec<QuicConfig>,
    /// Server ids by config rotation id, and the slots of their backends.
    pub(crate) servers: Vec<(u8, ServerId, u16)>,
    /// full-nat: sources of its packets.
    pub(crate) sources: Sources,
}

/// The hash tables do not fit with any of the seeds tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSeed;

/// Returns an address as in packets (IPv4 in the first bytes), and its family.
pub(crate) fn address_bytes(address: IpAddr) -> ([u8; 16], u8) {
    (packet::address_bytes(address), if address.is_ipv4() { 4 } else { 6 })
}

/// Number of seeds to try for a table size.
const SEEDS: u32 = 32;

/// Writes everything except the rings. `words` is the directory and everything after it. `leaving`
/// are source addresses of full-nat that only known flows have.
///
/// # Errors
/// [`NoSeed`]; then `words` is unspecified.
pub(crate) fn write(
    limits: &Limits,
    mut head: Directory,
    records: &[ServiceRecord],
    leaving: &BTreeSet<IpAddr>,
    stations: &BTreeSet<Station>,
    words: &mut [u64],
) -> Result<(), NoSeed> {
    let rings = ((limits.rings_offset - limits.directory_offset) / 8) as usize;
    words[..rings].fill(0);
    let (vips, ranges) = vips(records, leaving);
    let macs: Vec<Mac> = stations.iter().map(mac).collect();
    let lookups =
        lookups(limits, head.vip_seed, &vips, &replies(records), &quic_servers(records), &macs);
    let Lookups { vips, replies, servers, macs } = lookups.ok_or(NoSeed)?;
    head.vip_seed = vips.seed;
    (head.vip_mask, head.reverse_mask) = (vips.mask(), replies.mask());
    head.quic_mask = servers.mask();
    head.services = records.len() as u32;
    head.flags = match replies.is_empty() {
        true => 0,
        false => head.flags & DIRECTORY_REPLIES_ALL | DIRECTORY_REVERSE,
    };
    if records.iter().any(|record| !record.sources.addresses.is_empty()) {
        head.flags |= DIRECTORY_PORTS;
    }
    let bytes = bytes_mut(words);
    let at = |offset: u32| (offset - limits.directory_offset) as usize;
    put(bytes, 0, 0, &head);
    vips.write(bytes, at(limits.vips_offset));
    replies.write(bytes, at(limits.reverse_offset));
    servers.write(bytes, at(limits.quic_servers_offset));
    macs.write(bytes, at(limits.macs_offset));
    for (index, range) in ranges.iter().enumerate() {
        put(bytes, at(limits.ranges_offset), index, range);
    }
    let (mut backends_first, mut changes_first) = (0, 0);
    for (index, record) in records.iter().enumerate() {
        let slots = record.backends.len() as u32;
        let changes = record.access.changes().len() as u32;
        let service = Service { backends_first, slots, changes_first, changes, ..record.service };
        put(bytes, at(limits.services_offset), index, &service);
        for (slot, backend) in record.backends.iter().enumerate() {
            put(bytes, at(limits.backends_offset), backends_first as usize + slot, backend);
        }
        for (change, bits) in record.access.changes().iter().enumerate() {
            let change = changes_first as usize + change;
            let (high, low) = ((bits >> 64) as u64, *bits as u64);
            put(bytes, at(limits.changes_offset), change, &AccessChange { high, low });
        }
        for config in &record.quic {
            let index = index * QUIC_CONFIGS + usize::from(config.rotation);
            put(bytes, at(limits.quic_configs_offset), index, &config.published());
        }
        backends_first += slots;
        changes_first += changes;
    }
    write_sources(limits, records, bytes);
    Ok(())
}

/// Writes the sources of full-nat: the sets by service number.
fn write_sources(limits: &Limits, records: &[ServiceRecord], bytes: &mut [u8]) {
    let at = |offset: u32| (offset - limits.directory_offset) as usize;
    let mut first = 0;
    for (record, service) in records.iter().zip(0..) {
        let Sources { addresses, port_first, port_last, .. } = &record.sources;
        let sources = addresses.len() as u16;
        if sources == 0 {
            continue;
        }
        for (address, index) in addresses.iter().zip(usize::from(first)..) {
            let (address, _) = address_bytes(*address);
            put(bytes, at(limits.sources_offset), index, &Source { address });
        }
        let (vip, _) = address_bytes(record.vip.address);
        let Service { translated_tcp, translated_closing, translated_udp, .. } = record.service;
        let set = SourceSet {
            vip,
            first,
            sources,
            port_first: *port_first,
            ports: port_last - port_first + 1,
            tcp: translated_tcp,
            closing: translated_closing,
            udp: translated_udp,
            service,
        };
        put(bytes, at(limits.source_sets_offset), usize::from(record.service.number), &set);
        first += sources;
    }
}

/// Whether the tables of these VIPs and replies fit, starting with the same seed as [`write`].
pub(crate) fn fits(limits: &Limits, seed: u32, snapshot: &Snapshot) -> bool {
    let record = |spec: &VipSpec| {
        let backend = |backend: &BackendSpec| {
            let (address, family) = address_bytes(backend.address);
            let port = backend.port.unwrap_or(0).to_be_bytes();
            Backend { address, family, port, ..Backend::default() }
        };
        let service = Service { forward: spec.forward as u8, ..Service::default() };
        let backends = spec.backends.iter().map(backend).collect();
        let servers = spec.quic.iter().flat_map(|quic| &quic.servers);
        let servers = servers.map(|((rotation, _), id)| (*rotation, *id, 0)).collect();
        let (access, quic, sources) = (Access::default(), Vec::new(), spec.sources.clone());
        ServiceRecord { vip: spec.id(), service, backends, access, quic, servers, sources }
    };
    let records: Vec<_> = snapshot.vips.iter().map(record).collect();
    let servers = quic_servers(&records);
    lookups(limits, seed, &vips(&records, &BTreeSet::new()).0, &replies(&records), &servers, &[])
        .is_some()
}

struct Lookups {
    vips: Lookup<Vip>,
    replies: Lookup<Reverse>,
    servers: Lookup<QuicServer>,
    macs: Lookup<Mac>,
}

fn mac(station: &Station) -> Mac {
    Mac { address: station.mac, ifindex: station.ifindex, ..Mac::default() }
}

/// Makes the tables with the first suitable seed; those of VIPs and replies as small as possible.
fn lookups(
    limits: &Limits,
    seed: u32,
    vips: &[Vip],
    replies: &[Reverse],
    servers: &[QuicServer],
    macs: &[Mac],
) -> Option<Lookups> {
    let seeds = (0..SEEDS).map(|attempt| seed.wrapping_add(attempt.wrapping_mul(0x9e37_79b9)));
    let tries = [4, 16, 64, usize::MAX]
        .into_iter()
        .flat_map(|room| seeds.clone().map(move |seed| (room, seed)));
    tries.into_iter().find_map(|(room, seed)| {
        Some(Lookups {
            vips: Lookup::vips(vips, room, limits.vips_max, seed)?,
            replies: Lookup::replies(replies, room, limits.reverse_max, seed)?,
            servers: Lookup::servers(servers, room, limits.quic_servers_max, seed)?,
            macs: Lookup::macs(macs, seed)?,
        })
    })
}

/// Writes a ring.
pub(crate) fn write_ring(limits: &Limits, index: u32, entries: &[u16], words: &mut [u64]) {
    let offset = (limits.rings_offset - limits.directory_offset) as usize;
    let start = offset + index as usize * limits.ring_entries as usize * size_of::<u16>();
    let bytes = bytes_mut(words);
    for (at, slot) in entries.iter().enumerate() {
        put(bytes, start, at, slot);
    }
}

/// Returns the first service of TCP and of UDP at each address.
fn first_services(records: &[ServiceRecord]) -> BTreeMap<IpAddr, [Option<u16>; 2]> {
    let mut first = BTreeMap::<IpAddr, [Option<u16>; 2]>::new();
    for (record, service) in records.iter().zip(0..) {
        let [tcp, udp] = first.entry(record.vip.address).or_default();
        let of_protocol = if record.vip.protocol == Protocol::Udp { udp } else { tcp };
        of_protocol.get_or_insert(service);
    }
    first
}

/// Returns the entries of the VIP table, and the ranges of entries of kind `RANGES`.
fn vips(records: &[ServiceRecord], leaving: &BTreeSet<IpAddr>) -> (Vec<Vip>, Vec<Range>) {
    let (mut vips, mut ranges): (Vec<Vip>, Vec<Range>) = Default::default();
    let mut ranged: Vec<(VipId, u16)> = Vec::new();
    for (address, [tcp, udp]) in first_services(records) {
        let (address, family) = address_bytes(address);
        let kind = vip_kind::ADDRESS;
        let (Some(service), Some(udp_service)) = (tcp.or(udp), udp.or(tcp)) else { continue };
        vips.push(Vip { address, family, kind, service, udp_service, ..Vip::default() });
    }
    let sources = records.iter().map(|record| &record.sources);
    let sources = sources.flat_map(|it| it.addresses.iter().chain(&it.absent));
    for source in sources.chain(leaving).collect::<BTreeSet<_>>() {
        let ((address, family), kind) = (address_bytes(*source), vip_kind::SOURCE);
        vips.push(Vip { address, family, kind, ..Vip::default() });
    }
    for (record, service) in records.iter().zip(0..) {
        let VipId { address, ports, protocol } = record.vip;
        let (address, family) = address_bytes(address);
        match ports {
            Ports::One(port @ 1..) => {
                let (kind, port) = (vip_kind::EXACT, port.to_be_bytes());
                let protocol = protocol.number();
                vips.push(Vip { address, family, port, protocol, kind, service, ..Vip::default() });
            }
            _ => ranged.push((record.vip, service)),
        }
    }
    // "Any port" comes last, because it matches all remaining ports.
    ranged.sort_by_key(|(vip, _)| (vip.address, vip.protocol, vip.ports == Ports::Any, vip.ports));
    for chunk in
        ranged.chunk_by(|(a, _), (b, _)| (a.address, a.protocol) == (b.address, b.protocol))
    {
        let (address, family) = address_bytes(chunk[0].0.address);
        vips.push(Vip {
            address,
            family,
            protocol: chunk[0].0.protocol.number(),
            kind: vip_kind::RANGES,
            ranges_first: ranges.len() as u16,
            ranges: chunk.len() as u16,
            ..Vip::default()
        });
        ranges.extend(chunk.iter().map(|&(vip, service)| {
            let (first, last) = vip.ports.bounds();
            Range { first, last, service, padding: 0 }
        }));
    }
    (vips, ranges)
}

/// Returns the server ids of all services.
fn quic_servers(records: &[ServiceRecord]) -> Vec<QuicServer> {
    let of = |(index, record): (usize, &ServiceRecord)| {
        let servers = record.servers.clone().into_iter();
        servers.map(move |(rotation, id, slot)| {
            let config = (index * QUIC_CONFIGS) as u16 + u16::from(rotation) + 1;
            QuicServer { id: id.padded(), config, slot, padding: 0 }
        })
    };
    records.iter().enumerate().flat_map(of).collect()
}

/// Returns the translations of replies. A snapshot with two translations for one key is rejected
/// earlier.
fn replies(records: &[ServiceRecord]) -> Vec<Reverse> {
    let mut replies = Vec::new();
    let mut index = 0;
    for (record, service) in records.iter().zip(0..) {
        for backend in &record.backends {
            if record.service.forward == Forward::Nat as u8 && backend.family != 0 {
                let (vip, family) = address_bytes(record.vip.address);
                let vip_port = match record.vip.ports {
                    Ports::One(port) => port.to_be_bytes(),
                    _ => [0; 2],
                };
                let port = if backend.port == [0; 2] { vip_port } else { backend.port };
                replies.push(Reverse {
                    address: backend.address,
                    vip,
                    port,
                    vip_port,
                    protocol: record.vip.protocol.number(),
                    family,
                    service,
                    backend: index,
                    ..Reverse::default()
                });
            }
            index += 1;
        }
    }
    replies
}
