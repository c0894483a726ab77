//! Reading the published tables, by `abi.h`, out of the copy in force.

use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use equipoise_pog::Seed;

use crate::abi::{
    AccessChange, BACKEND_LIVE, Backend, DIRECTORY_PORTS, DIRECTORY_REPLIES_ALL, DIRECTORY_REVERSE,
    Directory, FlowKey, MACS, Mac, PROBES_MAX, Plain, QUIC_CONFIGS, QuicConfig, QuicServer,
    RANGES_MAX, Range, Reverse, SENDERS, Service, Source, SourceSet, Vip, vip_kind,
};
use crate::address_hash::{address_hash, station_hash};
use crate::digest::{Digest, KeyBytes, first_of_prefix};
use crate::limits::Limits;
use crate::packet::{AddressBytes, Tuple, protocol};
use crate::tables::TablesView;

/// The tables in force.
pub(super) struct Tables<'a> {
    view: &'a TablesView<'a>,
    words: &'a [AtomicU64],
    limits: &'a Limits,
    pub(super) directory: Directory,
}

/// A service and its place in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceAt {
    /// Into the directory's services.
    pub index: u32,
    /// Contents of the service's record.
    pub service: Service,
}

/// Result of a search in the VIP table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VipAnswer {
    Unknown,
    Service(u16),
}

impl<'a> Tables<'a> {
    pub(super) fn new(view: &'a TablesView<'a>, limits: &'a Limits) -> Tables<'a> {
        let words = view.extra();
        Tables { view, words, limits, directory: read(words, 0) }
    }

    fn entry<T: Plain>(&self, table_offset: u32, index: u32) -> T {
        let offset = (table_offset - self.limits.directory_offset) as usize;
        read(self.words, offset + index as usize * size_of::<T>())
    }

    /// The entry of a VIP's address.
    pub(super) fn address(&self, family: u8, address: &AddressBytes) -> Option<Vip> {
        self.vip(family, address, 0, 0, vip_kind::ADDRESS)
    }

    /// The first service of a VIP's address, under which a packet of a protocol counts that leads
    /// to none.
    pub(super) fn first_service(&self, address: &Vip, protocol: u8) -> Option<ServiceAt> {
        self.service(if protocol == protocol::UDP { address.udp_service } else { address.service })
    }

    /// The service number of a destination: of its port, or of a range that holds it.
    pub(super) fn service_of(&self, tuple: &Tuple) -> VipAnswer {
        let Tuple { family, destination, destination_port: port, protocol, .. } = tuple;
        if let Some(vip) = self.vip(*family, destination, *port, *protocol, vip_kind::EXACT) {
            return VipAnswer::Service(vip.service);
        }
        let Some(vip) = self.vip(*family, destination, 0, *protocol, vip_kind::RANGES) else {
            return VipAnswer::Unknown;
        };
        (0..u32::from(vip.ranges).min(RANGES_MAX as u32))
            .map(|offset| u32::from(vip.ranges_first) + offset)
            .filter(|index| *index < self.limits.ranges_max)
            .map(|index| self.entry::<Range>(self.limits.ranges_offset, index))
            .find(|range| (range.first..=range.last).contains(port))
            .map_or(VipAnswer::Unknown, |range| VipAnswer::Service(range.service))
    }

    fn vip(
        &self,
        family: u8,
        address: &AddressBytes,
        port: u16,
        protocol: u8,
        kind: u8,
    ) -> Option<Vip> {
        let port = port.to_be_bytes();
        let hash = address_hash(self.directory.vip_seed, address, port, protocol);
        let mask = self.directory.vip_mask & (self.limits.vips_max - 1);
        (0..PROBES_MAX as u32)
            .map(|probe| hash.wrapping_add(probe) & mask)
            .map(|index| self.entry::<Vip>(self.limits.vips_offset, index))
            .take_while(|vip| vip.kind != vip_kind::FREE)
            .find(|vip| {
                (vip.kind, vip.family, vip.protocol) == (kind, family, protocol)
                    && (vip.port, &vip.address) == (port, address)
            })
    }

    /// Whether an address is a source of full-nat.
    pub(super) fn is_source(&self, family: u8, address: &AddressBytes) -> bool {
        self.directory.flags & DIRECTORY_PORTS != 0
            && self.vip(family, address, 0, 0, vip_kind::SOURCE).is_some()
    }

    /// The sources of a service number.
    pub(super) fn source_set(&self, number: u16) -> Option<SourceSet> {
        (u32::from(number) < self.limits.services_max)
            .then(|| self.entry(self.limits.source_sets_offset, number.into()))
    }

    /// The source address at an index.
    pub(super) fn source(&self, index: u32) -> AddressBytes {
        self.entry::<Source>(self.limits.sources_offset, index.min(self.limits.sources_max - 1))
            .address
    }

    /// Returns the hash of a source at a backend, from a reply: of all but the source's port, which
    /// is added.
    pub(super) fn port_key(&self, reply: &Tuple) -> u64 {
        let seed = Seed { k0: self.directory.digest_k0, k1: self.directory.digest_k1 };
        let of_address = Tuple { destination_port: 0, ..*reply };
        let hash = tuple_key(&of_address).digest(seed, PORT_SALT).0;
        hash.wrapping_add(reply.destination_port.into())
    }

    /// The entry of a client's way back.
    pub(super) fn sender_index(&self, client: &AddressBytes) -> usize {
        address_hash(self.directory.vip_seed, client, [0; 2], 0) as usize & (SENDERS - 1)
    }

    /// Whether replies are translated.
    pub(super) fn translates(&self) -> bool {
        self.directory.flags & DIRECTORY_REVERSE != 0
    }

    /// Whether replies are translated, whoever asked for them.
    pub(super) fn translates_all(&self) -> bool {
        self.directory.flags & DIRECTORY_REPLIES_ALL != 0
    }

    /// Returns the translation of a reply's source, with its index: by its port, or by its address
    /// alone if the backend keeps ports.
    pub(super) fn reverse(&self, tuple: &Tuple) -> Option<(u32, Reverse)> {
        let look = |port: u16| {
            let port = port.to_be_bytes();
            let Tuple { family, source, protocol, .. } = tuple;
            let hash = address_hash(self.directory.vip_seed, source, port, *protocol);
            let mask = self.directory.reverse_mask & (self.limits.reverse_max - 1);
            (0..PROBES_MAX as u32)
                .map(|probe| hash.wrapping_add(probe) & mask)
                .map(|index| (index, self.reverse_at(index)))
                .take_while(|(_, reverse)| reverse.family != 0)
                .find(|(_, reverse)| {
                    (reverse.family, reverse.protocol) == (*family, *protocol)
                        && (reverse.port, &reverse.address) == (port, source)
                })
        };
        look(tuple.source_port).or_else(|| look(0))
    }

    /// Whether frames to this MAC address are taken on the interface.
    pub(super) fn has_mac(&self, ifindex: u32, mac: [u8; 6]) -> bool {
        let hash = station_hash(self.directory.vip_seed, ifindex, mac);
        (0..PROBES_MAX as u32)
            .map(|probe| hash.wrapping_add(probe) & (MACS as u32 - 1))
            .map(|index| self.entry::<Mac>(self.limits.macs_offset, index))
            .take_while(|entry| entry.ifindex != 0)
            .any(|entry| (entry.ifindex, entry.address) == (ifindex, mac))
    }

    pub(super) fn reverse_at(&self, index: u32) -> Reverse {
        self.entry(self.limits.reverse_offset, index & (self.limits.reverse_max - 1))
    }

    /// `None`: the tables are not as they must be.
    pub(super) fn service(&self, index: u16) -> Option<ServiceAt> {
        let index = u32::from(index);
        let service = (index < self.limits.services_max)
            .then(|| self.entry::<Service>(self.limits.services_offset, index))?;
        let numbers = [service.number, service.cursor].map(u32::from);
        let inside = numbers.into_iter().all(|number| number < self.limits.services_max);
        inside.then_some(ServiceAt { index, service })
    }

    /// Whether the lists of the service refuse a source: the answer has changed an odd number of
    /// times up to its address.
    pub(super) fn refuses(&self, service: &Service, source: &AddressBytes) -> bool {
        let source = u128::from_be_bytes(*source);
        let (mut from, mut to) = (0, service.changes);
        while from < to {
            let middle = from.midpoint(to);
            let Some(index) = service.changes_first.checked_add(middle) else { break };
            if index >= self.limits.changes_max {
                break;
            }
            let change: AccessChange = self.entry(self.limits.changes_offset, index);
            if u128::from(change.high) << 64 | u128::from(change.low) <= source {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from % 2 == 1
    }

    /// The configuration of connection ids at an index.
    pub(super) fn quic_config(&self, index: u32) -> QuicConfig {
        if index >= self.limits.services_max * QUIC_CONFIGS as u32 {
            return QuicConfig::default();
        }
        self.entry(self.limits.quic_configs_offset, index)
    }

    /// The slot of the backend with this server id, of the configuration at an index.
    pub(super) fn quic_server(&self, config: u32, id: &[u8; 16]) -> Option<u16> {
        let config = config as u16 + 1;
        let hash = address_hash(self.directory.vip_seed, id, config.to_ne_bytes(), 0);
        let mask = self.directory.quic_mask & (self.limits.quic_servers_max - 1);
        (0..PROBES_MAX as u32)
            .map(|probe| hash.wrapping_add(probe) & mask)
            .map(|index| self.entry::<QuicServer>(self.limits.quic_servers_offset, index))
            .take_while(|server| server.config != 0)
            .find(|server| server.config == config && server.id == *id)
            .map(|server| server.slot)
    }

    /// The backend in a slot of the service. `None`: there is no such slot.
    pub(super) fn backend(&self, service: &Service, slot: u16) -> Option<(u32, Backend)> {
        let index = service.backends_first.checked_add(u32::from(slot))?;
        let inside = u32::from(slot) < service.slots && index < self.limits.backends_max;
        inside.then(|| (index, self.entry(self.limits.backends_offset, index)))
    }

    /// Whether the slot's backend may receive packets.
    pub(super) fn is_live(&self, service: &Service, slot: u16) -> bool {
        self.backend(service, slot).is_some_and(|(_, backend)| backend.flags & BACKEND_LIVE != 0)
    }

    /// Entry `at` of a ring.
    pub(super) fn ring(&self, ring: u32, at: u32) -> Option<u16> {
        if ring >= self.limits.rings_max || at >= self.limits.ring_entries {
            return None;
        }
        let first = (self.limits.rings_offset - self.limits.directory_offset) as usize / 2;
        let index = first + ring as usize * self.limits.ring_entries as usize + at as usize;
        let word = self.words[index / 4].load(Relaxed).to_ne_bytes();
        let [low, high] = [word[index % 4 * 2], word[index % 4 * 2 + 1]];
        Some(u16::from_ne_bytes([low, high]))
    }

    /// Returns the digest of a flow of the service, the same in all tables.
    pub(super) fn digest(&self, service: &Service, tuple: &Tuple, source_mac: [u8; 6]) -> Digest {
        let seed = Seed { k0: self.directory.digest_k0, k1: self.directory.digest_k1 };
        flow_key(service, tuple, source_mac).digest(seed, service.salt)
    }

    /// Returns the digest of a flow by addresses and ports, whatever the service's key is.
    pub(super) fn tuple_digest(&self, service: &Service, tuple: &Tuple) -> Digest {
        let by_tuple = Service { key: FlowKey::FiveTuple.number(), ..*service };
        self.digest(&by_tuple, tuple, [0; 6])
    }

    /// The slot that the POG says, if the fingerprint matches and it is one of the service's.
    pub(super) fn pinned(&self, service: &Service, digest: Digest) -> Option<u16> {
        self.view.pinned(&digest).filter(|slot| u32::from(*slot) < service.slots)
    }
}

fn flow_key(service: &Service, tuple: &Tuple, source_mac: [u8; 6]) -> KeyBytes {
    let of_source = |source: AddressBytes| match tuple.family {
        4 => KeyBytes::SourceV4(v4(&source)),
        _ => KeyBytes::SourceV6(source),
    };
    match FlowKey::from_numbers(service.key, service.key_bits) {
        Some(FlowKey::SourceMac) => KeyBytes::Mac(source_mac),
        Some(FlowKey::SourceAddress) => of_source(tuple.source),
        Some(FlowKey::SourcePrefix(bits)) => of_source(first_of_prefix(&tuple.source, bits)),
        _ => tuple_key(tuple),
    }
}

/// `EQP_PORT_SALT`
const PORT_SALT: u64 = 0x6571_705f_706f_7274;

fn tuple_key(tuple: &Tuple) -> KeyBytes {
    match tuple.family {
        4 => KeyBytes::V4(equipoise_pog::FiveTupleV4::new(
            (v4(&tuple.source).into(), tuple.source_port),
            (v4(&tuple.destination).into(), tuple.destination_port),
            tuple.protocol,
        )),
        _ => KeyBytes::V6(equipoise_pog::FiveTupleV6::new(
            (tuple.source.into(), tuple.source_port),
            (tuple.destination.into(), tuple.destination_port),
            tuple.protocol,
        )),
    }
}

fn v4(address: &AddressBytes) -> [u8; 4] {
    [address[0], address[1], address[2], address[3]]
}

/// The struct at a byte offset, of a multiple of 8 bytes, as every struct of the directory is.
fn read<T: Plain>(words: &[AtomicU64], offset: usize) -> T {
    const { assert!(size_of::<T>().is_multiple_of(8)) };
    let mut value = MaybeUninit::<T>::uninit();
    let from = &words[offset / 8..][..size_of::<T>() / 8];
    for (index, word) in from.iter().enumerate() {
        // SAFETY: inside `value`, which has a size that is a multiple of 8; unaligned writes need
        // no alignment.
        unsafe { value.as_mut_ptr().cast::<u64>().add(index).write_unaligned(word.load(Relaxed)) };
    }
    // SAFETY: every byte was written, and every bit pattern is a value.
    unsafe { value.assume_init() }
}
