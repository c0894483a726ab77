//! Registered state: flows that an operator or application pinned to a backend.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use equipoise_pog::{FiveTupleV4, FiveTupleV6};

use super::service::Service;
use super::{Control, PinError};
use crate::abi::FlowKey;
use crate::digest::{Digest, KeyBytes};
use crate::registry::{Flow, FlowState, Full};
use crate::snapshot::{BackendId, VipId};

/// What a flow is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowId {
    /// The client, and the VIP's address and port.
    FiveTuple(SocketAddr, SocketAddr),
    /// The client's address.
    SourceAddress(IpAddr),
    /// The sender's MAC address.
    SourceMac([u8; 6]),
}

/// A registered flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredPin {
    /// Of which VIP.
    pub vip: VipId,
    /// Which flow.
    pub flow: FlowId,
    /// Where it belongs.
    pub backend: BackendId,
    /// Whether it goes there: the backend has a slot and there is room.
    pub in_force: bool,
}

/// What was registered in this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Registrations {
    by_flow: BTreeMap<(VipId, FlowId), Registration>,
}

#[derive(Clone, Copy, Debug)]
struct Registration {
    digest: Digest,
    backend: BackendId,
}

impl FlowId {
    fn kind(&self) -> &'static str {
        match self {
            FlowId::FiveTuple(..) => "a five-tuple",
            FlowId::SourceAddress(_) => "a source address",
            FlowId::SourceMac(_) => "a source MAC address",
        }
    }

    /// The bytes that the program hashes.
    fn key_bytes(&self, service: &Service) -> Result<KeyBytes, PinError> {
        let vip = service.id;
        let address = |address| PinError::Address { vip, address };
        Ok(match (service.key, *self) {
            (FlowKey::FiveTuple, FlowId::FiveTuple(source, destination)) => {
                let (first, last) = vip.ports.bounds();
                let is_vip =
                    destination.ip() == vip.address && (first..=last).contains(&destination.port());
                if !is_vip {
                    return Err(address(destination.ip()));
                }
                let (from, to) = (source.port(), destination.port());
                let protocol = vip.protocol.number();
                match (source.ip(), destination.ip()) {
                    (IpAddr::V4(source), IpAddr::V4(destination)) => {
                        let key = FiveTupleV4::new((source, from), (destination, to), protocol);
                        KeyBytes::V4(key)
                    }
                    (IpAddr::V6(source), IpAddr::V6(destination)) => {
                        let key = FiveTupleV6::new((source, from), (destination, to), protocol);
                        KeyBytes::V6(key)
                    }
                    (other, _) => return Err(address(other)),
                }
            }
            (FlowKey::SourceAddress, FlowId::SourceAddress(source)) => {
                match (source, vip.address) {
                    (IpAddr::V4(source), IpAddr::V4(_)) => KeyBytes::SourceV4(source.octets()),
                    (IpAddr::V6(source), IpAddr::V6(_)) => KeyBytes::SourceV6(source.octets()),
                    (other, _) => return Err(address(other)),
                }
            }
            (FlowKey::SourceMac, FlowId::SourceMac(mac)) => KeyBytes::Mac(mac),
            (wanted, given) => return Err(PinError::Key { vip, wanted, given: given.kind() }),
        })
    }
}

impl Control {
    fn digest_of(&self, service: &Service, flow: &FlowId) -> Result<Digest, PinError> {
        Ok(flow.key_bytes(service)?.digest(self.seeds.digest, service.salt))
    }

    fn vip(&self, vip: &VipId) -> Result<(u16, &Service), PinError> {
        let number = self.number_of(&vip.normal());
        let service =
            number.and_then(|it| self.services[usize::from(it)].as_ref().map(|s| (it, s)));
        service.ok_or(PinError::Vip(*vip))
    }

    /// Pins a flow to a backend until it is unpinned, and replaces a pin of the flow. The flow goes there from the next
    /// publication on, a tick and a grace period away; until then it goes where it went.
    ///
    /// # Errors
    /// [`PinError`]: nothing has changed.
    pub fn pin(&mut self, vip: &VipId, flow: &FlowId, backend: &BackendId) -> Result<(), PinError> {
        let (number, service) = self.vip(vip)?;
        let vip = service.id;
        let digest = self.digest_of(service, flow)?;
        let (vip_of, backend) = (vip, *backend);
        let slot = service.slots.of(&backend).ok_or(PinError::Backend { vip, backend })?;
        let before = self.flows.get(digest);
        if self.pins.len() >= self.pins.room() && before.is_none_or(|it| !it.pinned) {
            return Err(PinError::Full { pins: self.pins.len() });
        }
        self.register(digest, number, slot)
            .map_err(|Full| PinError::Full { pins: self.pins.len() })?;
        self.registrations.by_flow.insert((vip_of, *flow), Registration { digest, backend });
        self.is_dirty = true;
        Ok(())
    }

    /// Makes a flow's slot a registered one.
    fn register(&mut self, digest: Digest, service: u16, slot: u16) -> Result<(), Full> {
        let before = self.flows.get(digest);
        let (state, seen) = (FlowState::Open, self.interval);
        let pinned = before.is_some_and(|it| it.pinned);
        let after = Flow::new(digest, service, slot, state, seen);
        let after = Flow { pinned, registered: true, confirmed: true, ..after };
        if before != Some(Flow { seen: before.map_or(0, |it| it.seen), ..after }) {
            self.flows.set(after, before.as_ref())?;
            self.pins.suspects.push(digest);
        }
        Ok(())
    }

    /// Pins a flow that is pinned to another backend.
    ///
    /// # Errors
    /// [`PinError`]: nothing has changed.
    pub fn move_pin(
        &mut self,
        vip: &VipId,
        flow: &FlowId,
        backend: &BackendId,
    ) -> Result<(), PinError> {
        let id = self.vip(vip)?.1.id;
        if !self.registrations.by_flow.contains_key(&(id, *flow)) {
            return Err(PinError::Unknown(*vip));
        }
        self.pin(vip, flow, backend)
    }

    /// Takes a pin away: the flow goes on where it is, and is forgotten as any other.
    ///
    /// # Errors
    /// [`PinError`]: nothing has changed.
    pub fn unpin(&mut self, vip: &VipId, flow: &FlowId) -> Result<(), PinError> {
        let (_, service) = self.vip(vip)?;
        let (id, digest) = (service.id, self.digest_of(service, flow)?);
        let registration = self.registrations.by_flow.remove(&(id, *flow));
        // One that an earlier process registered is known by its digest only.
        let known = self.flows.get(digest).filter(|it| it.registered);
        if let Some(known) = known {
            let after = Flow { registered: false, seen: self.interval, ..known };
            let _ = self.flows.set(after, Some(&known));
        }
        if registration.is_none() && known.is_none() {
            return Err(PinError::Unknown(*vip));
        }
        Ok(())
    }

    /// All pins that were registered in this process, by VIP and flow.
    pub fn pins(&self) -> Vec<RegisteredPin> {
        let pin = |(&(vip, flow), registration): (&(VipId, FlowId), &Registration)| {
            let known = self.flows.get(registration.digest);
            let slot = self.vip(&vip).ok().and_then(|(_, it)| it.slots.of(&registration.backend));
            let in_force =
                known.is_some_and(|it| it.registered && it.pinned && Some(it.slot) == slot);
            RegisteredPin { vip, flow, backend: registration.backend, in_force }
        };
        self.registrations.by_flow.iter().map(pin).collect()
    }

    /// After slots have changed: registered flows follow their backends.
    pub(super) fn reinstate(&mut self) {
        let registrations: Vec<_> =
            self.registrations.by_flow.iter().map(|((vip, _), it)| (*vip, *it)).collect();
        for (vip, Registration { digest, backend }) in registrations {
            let Ok((number, service)) = self.vip(&vip) else { continue };
            if let Some(slot) = service.slots.of(&backend) {
                // Without room it is as without a backend: not in force.
                let _ = self.register(digest, number, slot);
            }
        }
    }
}
