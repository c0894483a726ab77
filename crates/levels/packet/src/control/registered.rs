//! Registered flows: an operator or application pinned them to a backend.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use equipoise_pog::{FiveTupleV4, FiveTupleV6};

use super::service::Service;
use super::{Control, PinError};
use crate::abi::FlowKey;
use crate::digest::{Digest, KeyBytes, first_of_prefix};
use crate::directory::{address_bytes, address_of};
use crate::ledger::{Ledger, LedgerPin};
use crate::registry::{Evidence, Flow, FlowState, Full, Verdict};
use crate::snapshot::{BackendId, VipId};

/// Identification of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowId {
    /// The client, and the VIP's address and port.
    FiveTuple(SocketAddr, SocketAddr),
    /// The client's address.
    SourceAddress(IpAddr),
    /// The sender's MAC address.
    SourceMac([u8; 6]),
    /// The first address of a prefix, and the prefix's length: [`FlowId::prefix`].
    SourcePrefix(IpAddr, u8),
}

/// A registered flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredPin {
    /// VIP of the flow.
    pub vip: VipId,
    /// The flow.
    pub flow: FlowId,
    /// Backend of the flow.
    pub backend: BackendId,
    /// Whether it is in force: the backend has a slot and there is room.
    pub in_force: bool,
}

/// All registered flows.
#[derive(Clone, Debug, Default)]
pub(super) struct Registrations {
    by_flow: BTreeMap<(VipId, FlowId), Registration>,
    /// Whether the ledger has all of them.
    pub(super) are_noted: bool,
}

impl Registrations {
    fn digests(&self) -> impl Iterator<Item = Digest> {
        self.by_flow.values().map(|it| it.digest)
    }
}

#[derive(Clone, Copy, Debug)]
struct Registration {
    digest: Digest,
    backend: BackendId,
}

impl FlowId {
    /// The flow of the clients that have the first bits of an address in common.
    pub fn prefix(address: IpAddr, bits: u8) -> FlowId {
        let (bytes, family) = address_bytes(address);
        let first = address_of(&first_of_prefix(&bytes, bits), family);
        FlowId::SourcePrefix(first.unwrap_or(address), bits)
    }

    fn kind(&self) -> (FlowKey, &'static str) {
        match self {
            FlowId::FiveTuple(..) => (FlowKey::FiveTuple, "a five-tuple"),
            FlowId::SourceAddress(_) => (FlowKey::SourceAddress, "a source address"),
            FlowId::SourceMac(_) => (FlowKey::SourceMac, "a source MAC address"),
            FlowId::SourcePrefix(_, bits) => (FlowKey::SourcePrefix(*bits), "a source prefix"),
        }
    }

    /// Returns the bytes that the program hashes.
    fn key_bytes(&self, vip: VipId) -> Result<KeyBytes, PinError> {
        let address = |address| PinError::Address { vip, address };
        Ok(match *self {
            FlowId::FiveTuple(source, destination) => {
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
            FlowId::SourceAddress(source) | FlowId::SourcePrefix(source, _) => {
                match (source, vip.address) {
                    (IpAddr::V4(source), IpAddr::V4(_)) => KeyBytes::SourceV4(source.octets()),
                    (IpAddr::V6(source), IpAddr::V6(_)) => KeyBytes::SourceV6(source.octets()),
                    (other, _) => return Err(address(other)),
                }
            }
            FlowId::SourceMac(mac) => KeyBytes::Mac(mac),
        })
    }
}

impl Control {
    fn digest_of(&self, service: &Service, flow: &FlowId) -> Result<Digest, PinError> {
        let (vip, wanted) = (service.id, service.key);
        let (key, given) = flow.kind();
        if key != wanted {
            return Err(PinError::Key { vip, wanted, given });
        }
        self.digest_at(vip, flow)
    }

    /// Returns the digest of a flow; the VIP need not exist.
    fn digest_at(&self, vip: VipId, flow: &FlowId) -> Result<Digest, PinError> {
        let salt = self.seeds.salt(&vip);
        Ok(flow.key_bytes(vip)?.digest(self.seeds.digest, salt))
    }

    /// Restores the pins that an earlier control side noted. They take effect when their backends
    /// have slots.
    pub(super) fn remember_pins(&mut self, ledger: Option<&Ledger>) {
        let Some(ledger) = ledger else {
            self.begun.nameless = self.flows.registry.iter().filter(|it| it.registered).count();
            return;
        };
        for LedgerPin { vip, flow, backend } in ledger.pins.iter().copied() {
            let vip = vip.normal();
            if let Ok(digest) = self.digest_at(vip, &flow) {
                let registration = Registration { digest, backend };
                self.registrations.by_flow.insert((vip, flow), registration);
            }
        }
        // A flow that is registered but not noted belongs to an operation that a kill interrupted;
        // no caller got its result.
        let noted: HashSet<Digest> = self.registrations.digests().collect();
        let seen = self.interval;
        self.flows.sweep_all(|flow| {
            if !flow.registered || noted.contains(&flow.digest) {
                return Verdict::Keep;
            }
            Verdict::Set(Flow { registered: false, seen, ..flow })
        });
    }

    /// Returns the pins in the order of VIPs and flows.
    pub(super) fn pins_noted(&self) -> Vec<LedgerPin> {
        let registrations = self.registrations.by_flow.iter();
        registrations
            .map(|(&(vip, flow), it)| LedgerPin { vip, flow, backend: it.backend })
            .collect()
    }

    /// Whether an operator or application pinned the flow of this digest.
    pub fn is_registered(&self, digest: Digest) -> bool {
        self.flows.get(digest).is_some_and(|flow| flow.registered)
    }

    fn vip(&self, vip: &VipId) -> Result<(u16, &Service), PinError> {
        let number = self.number_of(&vip.normal());
        let service =
            number.and_then(|it| self.services[usize::from(it)].as_ref().map(|s| (it, s)));
        service.ok_or(PinError::Vip(*vip))
    }

    /// Pins a flow to a backend until it is unpinned, replacing an earlier pin of the flow. If
    /// there is no room, a flow without evidence loses its pin. The pin takes effect with the next
    /// publication, a tick and a grace period later.
    ///
    /// # Errors
    /// [`PinError`]; then nothing has changed.
    pub fn pin(&mut self, vip: &VipId, flow: &FlowId, backend: &BackendId) -> Result<(), PinError> {
        let (number, service) = self.vip(vip)?;
        let vip = service.id;
        let digest = self.digest_of(service, flow)?;
        let (vip_of, backend) = (vip, *backend);
        let slot = service.slots.of(&backend).ok_or(PinError::Backend { vip, backend })?;
        let before = self.flows.get(digest);
        let needs_pin = before.is_none_or(|it| !it.pinned && !it.registered);
        if needs_pin && !self.flows.has_pin(number) {
            return Err(PinError::Full { pins: self.pins.len() });
        }
        self.register(digest, number, slot)
            .map_err(|Full| PinError::Full { pins: self.pins.len() })?;
        self.registrations.by_flow.insert((vip_of, *flow), Registration { digest, backend });
        self.registrations.are_noted = false;
        self.share_pin((vip_of, *flow), Some(backend));
        self.is_dirty = true;
        Ok(())
    }

    /// Registers a flow at a slot.
    fn register(&mut self, digest: Digest, service: u16, slot: u16) -> Result<(), Full> {
        let before = self.flows.get(digest);
        let (state, seen) = (FlowState::Open, self.interval);
        let pinned = before.is_some_and(|it| it.pinned);
        let after = Flow::new(digest, service, slot, state, seen);
        let after = Flow { pinned, registered: true, evidence: Evidence::Confirmed, ..after };
        if before != Some(Flow { seen: before.map_or(0, |it| it.seen), ..after }) {
            match before {
                Some(before) => self.flows.set(after, Some(&before))?,
                None => drop(self.admit(after)?),
            }
            self.pins.suspects.push(digest);
        }
        Ok(())
    }

    /// Moves the pin of a flow to another backend.
    ///
    /// # Errors
    /// [`PinError`]; then nothing has changed.
    pub fn move_pin(
        &mut self,
        vip: &VipId,
        flow: &FlowId,
        backend: &BackendId,
    ) -> Result<(), PinError> {
        let id = vip.normal();
        if !self.registrations.by_flow.contains_key(&(id, *flow)) {
            return Err(PinError::Unknown(*vip));
        }
        self.pin(vip, flow, backend)
    }

    /// Removes a pin: the flow keeps its backend, and expires like any other.
    ///
    /// # Errors
    /// [`PinError`]; then nothing has changed.
    pub fn unpin(&mut self, vip: &VipId, flow: &FlowId) -> Result<(), PinError> {
        self.release(vip, flow)?;
        self.share_pin((vip.normal(), *flow), None);
        Ok(())
    }

    /// Removes a pin here.
    pub(super) fn release(&mut self, vip: &VipId, flow: &FlowId) -> Result<(), PinError> {
        let id = vip.normal();
        let registration = self.registrations.by_flow.remove(&(id, *flow));
        let digest = match registration {
            // Its VIP may be gone, or may now identify flows by other fields.
            Some(registration) => registration.digest,
            None => self.digest_of(self.vip(vip)?.1, flow)?,
        };
        self.registrations.are_noted = false;
        // Of a flow that an earlier process registered, possibly only the digest is known.
        let known = self.flows.get(digest).filter(|it| it.registered);
        if let Some(known) = known {
            let after = Flow { registered: false, seen: self.interval, ..known };
            let _ = self.flows.set(after, Some(&known));
            self.note_for_peers(Some(&known), &after);
        }
        if registration.is_none() && known.is_none() {
            return Err(PinError::Unknown(*vip));
        }
        Ok(())
    }

    /// Registers a flow that was pinned at another balancer, also if its backend does not exist
    /// here (yet). Returns `false` if there is no room.
    pub(super) fn adopt_pin(&mut self, vip: VipId, flow: FlowId, backend: BackendId) -> bool {
        let Ok(digest) = self.digest_at(vip, &flow) else { return true };
        self.registrations.by_flow.insert((vip, flow), Registration { digest, backend });
        self.registrations.are_noted = false;
        self.is_dirty = true;
        self.reinstate_one(vip, &flow, digest, &backend).is_ok()
    }

    /// Returns all registered pins, by VIP and flow, including those of VIPs that are gone.
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

    /// Updates registered flows after slots have changed: they follow their backends.
    pub(super) fn reinstate(&mut self) {
        let registrations: Vec<_> =
            self.registrations.by_flow.iter().map(|(&(vip, flow), it)| (vip, flow, *it)).collect();
        for (vip, flow, Registration { digest, backend }) in registrations {
            // Without room the pin is not in force, as without a backend.
            let _ = self.reinstate_one(vip, &flow, digest, &backend);
        }
    }

    fn reinstate_one(
        &mut self,
        vip: VipId,
        flow: &FlowId,
        digest: Digest,
        backend: &BackendId,
    ) -> Result<(), Full> {
        let Ok((number, service)) = self.vip(&vip) else { return Ok(()) };
        if flow.kind().0 != service.key {
            return Ok(());
        }
        match service.slots.of(backend) {
            Some(slot) => self.register(digest, number, slot),
            None => Ok(()),
        }
    }
}
