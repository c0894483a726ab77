//! Reads a directory that another process published.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::bytes::{bytes, get};
use crate::abi::{
    AccessChange, Backend, Directory, PROBES_MAX, QUIC_CONFIGS, QuicServer, Range, SERVICE_QUIC,
    SLOTS_MAX, Service, Source, SourceSet, Vip, vip_kind,
};
use crate::access::Access;
use crate::limits::Limits;
use crate::quic::{Quic, QuicConfig, ServerId};
use crate::ring::Ring;
use crate::snapshot::{BackendId, Ports, Protocol, Sources, VipId};

/// The published directory.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) head: Directory,
    pub(crate) services: Vec<PublishedService>,
    /// Every source address of full-nat, also those that only known flows have.
    pub(crate) sources: BTreeSet<IpAddr>,
}

/// A published service.
#[derive(Clone, Debug)]
pub(crate) struct PublishedService {
    pub(crate) vip: VipId,
    pub(crate) service: Service,
    pub(crate) backends: Vec<Backend>,
    pub(crate) access: Access,
    pub(crate) sources: Sources,
    pub(crate) ring: Ring,
    pub(crate) next: Ring,
    pub(crate) sequence: Ring,
    pub(crate) quic: Option<Quic>,
}

/// Reads a directory; `None` if it is inconsistent.
pub(crate) fn read(limits: &Limits, words: &[u64]) -> Option<Published> {
    let bytes = bytes(words);
    let at = |offset: u32| (offset - limits.directory_offset) as usize;
    let head: Directory = get(bytes, 0, 0)?;
    if head.services > limits.services_max || head.vip_mask >= limits.vips_max {
        return None;
    }
    let mut vips = vec![None; head.services as usize];
    let mut known = |service: u16, vip: &Vip, ports| {
        *vips.get_mut(usize::from(service))? = Some(vip_id(vip, ports)?);
        Some(())
    };
    let mut sources = BTreeSet::new();
    let entries = head.vip_mask as usize + 1;
    for index in 0..entries.max(PROBES_MAX) {
        let vip: Vip = get(bytes, at(limits.vips_offset), index)?;
        match vip.kind {
            vip_kind::EXACT => known(vip.service, &vip, Ports::One(u16::from_be_bytes(vip.port)))?,
            vip_kind::RANGES => {
                for range in vip.ranges_first..vip.ranges_first.checked_add(vip.ranges)? {
                    let range: Range = get(bytes, at(limits.ranges_offset), usize::from(range))?;
                    known(range.service, &vip, Ports::Range(range.first, range.last))?;
                }
            }
            vip_kind::SOURCE => drop(sources.insert(address_of(&vip.address, vip.family)?)),
            _ => {}
        }
    }
    let services = (0..).zip(vips).map(|(index, vip)| {
        let service: Service = get(bytes, at(limits.services_offset), index)?;
        let mut of = service_of(limits, bytes, service, vip?)?;
        of.quic = quic_of(limits, bytes, &head, index, &of);
        Some(of)
    });
    Some(Published { head, services: services.collect::<Option<_>>()?, sources })
}

/// The connection ids of the service at an index.
fn quic_of(
    limits: &Limits,
    bytes: &[u8],
    head: &Directory,
    index: usize,
    of: &PublishedService,
) -> Option<Quic> {
    let at = |offset: u32| (offset - limits.directory_offset) as usize;
    if of.service.flags & SERVICE_QUIC == 0 {
        return None;
    }
    let first = index * QUIC_CONFIGS;
    let config = |rotation: u8| {
        let index = first + usize::from(rotation);
        QuicConfig::of_published(rotation, &get(bytes, at(limits.quic_configs_offset), index)?)
    };
    let configs: Vec<QuicConfig> = (0..=QuicConfig::ROTATION_MAX).filter_map(config).collect();
    let entries = (head.quic_mask & (limits.quic_servers_max - 1)) as usize + 1;
    let server = |entry: usize| {
        let server: QuicServer = get(bytes, at(limits.quic_servers_offset), entry)?;
        let rotation = usize::from(server.config).checked_sub(first + 1)? as u8;
        let config = configs.iter().find(|it| it.rotation == rotation)?;
        let backend = of.backends.get(usize::from(server.slot))?;
        let address = address_of(&backend.address, backend.family)?;
        let port = Some(u16::from_be_bytes(backend.port)).filter(|port| *port != 0);
        let id = ServerId::of(&server.id[..usize::from(config.server_id_bytes)]);
        Some(((rotation, BackendId { address, port }), id))
    };
    let servers = (0..entries).filter_map(server).collect();
    Some(Quic { configs, servers })
}

fn service_of(
    limits: &Limits,
    bytes: &[u8],
    service: Service,
    vip: VipId,
) -> Option<PublishedService> {
    let at = |offset: u32| (offset - limits.directory_offset) as usize;
    let end = service.backends_first.checked_add(service.slots)?;
    let is_sound = end <= limits.backends_max
        && service.slots as usize <= SLOTS_MAX
        && u32::from(service.number) < limits.services_max;
    if !is_sound {
        return None;
    }
    let backends = (service.backends_first..end)
        .map(|index| get(bytes, at(limits.backends_offset), index as usize))
        .collect::<Option<Vec<Backend>>>()?;
    let changes_end = service.changes_first.checked_add(service.changes)?;
    if changes_end > limits.changes_max {
        return None;
    }
    let change = |index: u32| {
        let start = at(limits.changes_offset);
        let change: AccessChange = get(bytes, start, index as usize)?;
        Some(u128::from(change.high) << 64 | u128::from(change.low))
    };
    let changes = (service.changes_first..changes_end).map(change).collect::<Option<Vec<_>>>()?;
    let ring = |index: u32, len: u32| -> Option<Ring> {
        if len == 0 {
            return Some(Ring::default());
        }
        let fits = index < limits.rings_max && len <= limits.ring_entries;
        let start = at(limits.rings_offset) + (index * limits.ring_entries) as usize * 2;
        let entries = (0..len as usize).map(|entry| get::<u16>(bytes, start, entry));
        fits.then(|| entries.collect::<Option<Vec<u16>>>())?.map(Ring::of)
    };
    Some(PublishedService {
        vip,
        ring: ring(service.ring, service.ring_len)?,
        next: ring(service.ring_next, service.ring_next_len)?,
        sequence: ring(service.sequence, service.sequence_len)?,
        service,
        backends,
        access: Access::published(changes),
        quic: None,
        sources: sources_of(limits, bytes, service.number, vip)?,
    })
}

/// Reads the sources of a service number.
fn sources_of(limits: &Limits, bytes: &[u8], number: u16, vip: VipId) -> Option<Sources> {
    let at = |offset: u32| (offset - limits.directory_offset) as usize;
    let set: SourceSet = get(bytes, at(limits.source_sets_offset), usize::from(number))?;
    if set.sources == 0 {
        return Some(Sources::default());
    }
    let end = set.first.checked_add(set.sources)?;
    let family = if vip.address.is_ipv4() { 4 } else { 6 };
    let address = |index: u16| {
        let source: Source = get(bytes, at(limits.sources_offset), usize::from(index))?;
        address_of(&source.address, family)
    };
    let addresses = (set.first..end).map(address).collect::<Option<Vec<_>>>()?;
    let port_last = set.port_first.checked_add(set.ports.checked_sub(1)?)?;
    Some(Sources { addresses, absent: Vec::new(), port_first: set.port_first, port_last })
}

/// Converts an address from the directory; `None` if the family is invalid.
pub(crate) fn address_of(bytes: &[u8; 16], family: u8) -> Option<IpAddr> {
    match family {
        4 => bytes.first_chunk::<4>().map(|&bytes| IpAddr::from(bytes)),
        6 => Some(IpAddr::from(*bytes)),
        _ => None,
    }
}

fn vip_id(vip: &Vip, ports: Ports) -> Option<VipId> {
    let protocol =
        [Protocol::Tcp, Protocol::Udp].into_iter().find(|it| it.number() == vip.protocol)?;
    let address = address_of(&vip.address, vip.family)?;
    Some(VipId { address, ports, protocol }.normal())
}
