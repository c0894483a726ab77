//! Checks a whole snapshot before anything changes.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::Control;
use super::error::ApplyError;
use crate::abi::{Forward, RANGES_MAX, SLOTS_MAX};
use crate::directory;
use crate::limits::{CHANGES_PER_PREFIX, Limits, SERVER_IDS_PER_BACKEND};
use crate::snapshot::{BackendId, BackendSpec, Ports, Protocol, Snapshot, Sources, VipId, VipSpec};

pub(super) fn checked(
    snapshot: &Snapshot,
    limits: &Limits,
    control: &Control,
) -> Result<(), ApplyError> {
    for vip in &snapshot.vips {
        check_vip(vip)?;
    }
    check_overlaps(snapshot)?;
    check_loops(snapshot)?;
    check_replies(snapshot)?;
    check_sources(snapshot, limits)?;
    check_room(snapshot, limits, control)
}

fn check_vip(spec: &VipSpec) -> Result<(), ApplyError> {
    let vip = spec.id();
    let (first, last) = spec.ports.bounds();
    if last < first {
        return Err(ApplyError::Range { vip });
    }
    let mut ids = HashSet::new();
    for backend in &spec.backends {
        let backend = backend.id();
        if !ids.insert(backend) {
            return Err(ApplyError::Twice { vip, backend });
        }
        let is_tunnel = spec.forward.is_tunnel();
        if !is_tunnel && backend.address.is_ipv4() != spec.address.is_ipv4() {
            return Err(ApplyError::Family { vip, backend });
        }
        // The port of a reply could not be translated back to one of many.
        let may_have_port = spec.forward.translates() && matches!(vip.ports, Ports::One(_));
        if backend.port.is_some() && !may_have_port {
            return Err(ApplyError::Port { vip, backend });
        }
    }
    Ok(())
}

fn check_overlaps(snapshot: &Snapshot) -> Result<(), ApplyError> {
    let ids: Vec<VipId> = snapshot.vips.iter().map(VipSpec::id).collect();
    for (at, first) in ids.iter().enumerate() {
        if let Some(second) = ids[at + 1..].iter().find(|second| first.overlaps(second)) {
            return Err(ApplyError::Overlap { first: *first, second: *second });
        }
        let is_beside = |it: &&VipId| {
            (it.address, it.protocol) == (first.address, first.protocol)
                && !matches!(it.ports, Ports::One(1..))
        };
        if ids.iter().filter(is_beside).count() > RANGES_MAX {
            return Err(ApplyError::Ranges { vip: *first });
        }
    }
    Ok(())
}

/// A backend with the address of a VIP would send packets back here, and each packet could loop
/// until its TTL expires.
fn check_loops(snapshot: &Snapshot) -> Result<(), ApplyError> {
    let owners: HashMap<IpAddr, VipId> =
        snapshot.vips.iter().rev().map(|spec| (spec.address, spec.id())).collect();
    for spec in &snapshot.vips {
        let found = spec.backends.iter().find_map(|backend| owners.get(&backend.address));
        if let Some(of) = found {
            return Err(ApplyError::Loop { vip: spec.id(), of: *of });
        }
    }
    Ok(())
}

/// nat: the backend's address, port and protocol must identify the VIP of a reply.
fn check_replies(snapshot: &Snapshot) -> Result<(), ApplyError> {
    let mut owners: HashMap<(BackendId, Protocol), VipId> = HashMap::new();
    for spec in snapshot.vips.iter().filter(|spec| spec.forward == Forward::Nat) {
        let second = spec.id();
        for backend in spec.backends.iter().map(BackendSpec::id) {
            let vip_port = match second.ports {
                Ports::One(port) => Some(port),
                _ => None,
            };
            let from = BackendId { port: backend.port.or(vip_port), ..backend };
            if let Some(first) = owners.insert((from, second.protocol), second) {
                return Err(ApplyError::Reverse { first, second, backend });
            }
        }
    }
    Ok(())
}

/// full-nat: a packet to a source address is a reply, so nothing else may have the address.
fn check_sources(snapshot: &Snapshot, limits: &Limits) -> Result<(), ApplyError> {
    let full_nat = snapshot.vips.iter().filter(|spec| spec.forward == Forward::FullNat);
    let used = |address: &IpAddr| {
        let mut backends = snapshot.vips.iter().flat_map(|spec| &spec.backends);
        snapshot.vips.iter().any(|spec| spec.address == *address)
            || backends.any(|backend| backend.address == *address)
    };
    let mut wanted = 0;
    for spec in full_nat {
        let (vip, Sources { addresses, absent, port_first, port_last }) =
            (spec.id(), &spec.sources);
        let unique: HashSet<&IpAddr> = addresses.iter().collect();
        let is_of_family = |it: &IpAddr| it.is_ipv4() == spec.address.is_ipv4();
        let fits = (1..=Sources::ADDRESSES_MAX).contains(&addresses.len())
            && unique.len() == addresses.len()
            && addresses.iter().all(is_of_family)
            && *port_first > 0
            && port_first <= port_last;
        if !fits {
            return Err(ApplyError::Sources { vip });
        }
        if let Some(address) = addresses.iter().chain(absent).find(|it| used(it)).copied() {
            return Err(ApplyError::SourceUsed { vip, address });
        }
        // A program without full-nat has one place.
        if limits.ports_max == 1 {
            return Err(ApplyError::NoPorts { vip });
        }
        wanted += addresses.len() + absent.len();
    }
    if wanted > limits.sources_max as usize {
        let room = limits.sources_max as usize;
        return Err(ApplyError::TooManySources { wanted, room });
    }
    Ok(())
}

fn check_room(snapshot: &Snapshot, limits: &Limits, control: &Control) -> Result<(), ApplyError> {
    let room = |what, wanted, room: u32, option| {
        let room = room as usize;
        if wanted > room { Err(ApplyError::Room { what, wanted, room, option }) } else { Ok(()) }
    };
    room("VIPs", snapshot.vips.len(), limits.services_max, "[flows] vips-max")?;
    let changes: usize = snapshot.vips.iter().map(|spec| spec.access.changes().len()).sum();
    if changes > limits.changes_max as usize {
        let prefixes = |changes| changes / CHANGES_PER_PREFIX as usize;
        let room = prefixes((limits.changes_max - limits.services_max) as usize);
        let (what, wanted) = ("prefixes of `allow` and `deny`", prefixes(changes));
        return Err(ApplyError::Room { what, wanted, room, option: "[flows] prefixes-max" });
    }
    let ids = snapshot.vips.iter().flat_map(|spec| &spec.quic).map(|quic| quic.servers.len()).sum();
    let room_for_ids = limits.backends_max * SERVER_IDS_PER_BACKEND;
    room("server ids of QUIC", ids, room_for_ids, "[flows] backends-max")?;
    let mut backends = 0;
    let mut rings = 0;
    for spec in &snapshot.vips {
        let listed: HashSet<BackendId> = spec.backends.iter().map(BackendSpec::id).collect();
        let number = control.number_of(&spec.id());
        let service = number.and_then(|it| control.services[usize::from(it)].as_ref());
        let draining = service.map_or(0, |service| {
            service.slots.held().filter(|(_, it)| !listed.contains(&it.backend)).count()
        });
        if listed.len() + draining > SLOTS_MAX {
            return Err(ApplyError::Slots { vip: spec.id() });
        }
        backends += listed.len() + draining;
        rings += 1 + usize::from(spec.scheduler.pick().has_sequence());
    }
    room(
        "backends, draining ones included,",
        backends,
        limits.backends_max,
        "[flows] backends-max",
    )?;
    // One more ring, for a changing pool: further changes wait for it.
    room("rings", rings + usize::from(rings > 0), limits.rings_max, "[flows] vips-max")?;
    if !directory::fits(limits, control.seeds.vip, snapshot) {
        let (what, wanted) = ("VIPs of similar addresses", snapshot.vips.len());
        let room = limits.vips_max as usize / 8;
        return Err(ApplyError::Room { what, wanted, room, option: "[flows] vips-max" });
    }
    Ok(())
}
