//! Applies a snapshot to the control side's desired state.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::Control;
use super::check::checked;
use super::error::ApplyError;
use super::service::{Change, Service};
use crate::abi::Pick;
use crate::capture::CaptureError;
use crate::registry::Verdict;
use crate::snapshot::{BackendId, Snapshot, VipId, VipSpec};

/// Numbers of counters. A backend of a VIP keeps its number as long as the VIP has the backend.
/// They are given out in rotation, because flows of full-nat that have not sent a packet since
/// their backend was removed still have its number.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    backends: Vec<Option<(VipId, BackendId)>>,
    /// The first number to try for a new backend.
    next: usize,
}

impl Numbers {
    pub(super) fn new(room: u32) -> Numbers {
        Numbers { backends: vec![None; room as usize], next: 0 }
    }

    /// Adopts a published number.
    pub(super) fn adopt(&mut self, number: u16, vip: VipId, backend: BackendId) {
        if let Some(holder) = self.backends.get_mut(usize::from(number)) {
            *holder = Some((vip, backend));
            self.next = self.next.max(usize::from(number) + 1);
        }
    }

    /// Returns the number of a backend, a new one if it has none, and whether it is new.
    pub(super) fn of(&mut self, vip: VipId, backend: BackendId) -> Option<(u16, bool)> {
        let known = self.find(vip, backend);
        let len = self.backends.len();
        let in_turn = || (self.next..self.next + len).map(|number| number % len);
        let free = || in_turn().find(|number| self.backends[*number].is_none());
        let number = known.map(usize::from).or_else(free)?;
        self.backends[number] = Some((vip, backend));
        if known.is_none() {
            self.next = number + 1;
        }
        Some((number as u16, known.is_none()))
    }

    /// The backend of a VIP with a number.
    pub(super) fn name(&self, number: u16, of: VipId) -> Option<BackendId> {
        let (vip, backend) = self.backends.get(usize::from(number))?.as_ref()?;
        (*vip == of).then_some(*backend)
    }

    /// The backends by their numbers.
    pub(super) fn names(&self) -> impl Iterator<Item = (u32, BackendId)> {
        let numbered = (0..).zip(&self.backends);
        numbered.filter_map(|(number, holder)| Some((number, holder.as_ref()?.1)))
    }

    pub(super) fn find(&self, vip: VipId, backend: BackendId) -> Option<u16> {
        let is_it = |holder: &Option<_>| *holder == Some((vip, backend));
        self.backends.iter().position(is_it).map(|number| number as u16)
    }

    fn retain(&mut self, keep: impl Fn(&VipId, &BackendId) -> bool) {
        for holder in &mut self.backends {
            if holder.as_ref().is_some_and(|(vip, backend)| !keep(vip, backend)) {
                *holder = None;
            }
        }
    }
}

impl Control {
    /// Sets the desired state. The next tick publishes it; it is due at once.
    ///
    /// # Errors
    /// [`ApplyError`]; then nothing has changed.
    pub fn apply(&mut self, snapshot: &Snapshot, now: Instant) -> Result<(), ApplyError> {
        if snapshot.generation < self.generation {
            let (given, running) = (snapshot.generation, self.generation);
            return Err(ApplyError::Stale { given, running });
        }
        checked(snapshot, &self.limits, self)?;
        self.generation = snapshot.generation;
        let sources = self.sources();
        self.remove_vips(snapshot);
        for spec in &snapshot.vips {
            let number = self.number_of(&spec.id()).or_else(|| self.add_vip(spec));
            if let Some(number) = number {
                self.list(number, spec, now);
            }
        }
        self.retire_sources(sources);
        self.free_numbers();
        self.share_room();
        self.reinstate();
        self.ask_for_missing();
        self.is_dirty = true;
        self.clocks.next_tick = now;
        Ok(())
    }

    /// Returns the numbers of a VIP and perhaps of a backend, as the program counts them.
    ///
    /// # Errors
    /// [`CaptureError`], if one does not exist.
    pub(crate) fn numbers_of(
        &self,
        vip: &VipId,
        backend: Option<&BackendId>,
    ) -> Result<(u16, Option<u16>), CaptureError> {
        let vip = vip.normal();
        let service = self.number_of(&vip).ok_or(CaptureError::Vip(vip))?;
        let number = backend.map(|&backend| {
            self.numbers.find(vip, backend).ok_or(CaptureError::Backend { vip, backend })
        });
        Ok((service, number.transpose()?))
    }

    /// Returns the backends by their numbers.
    pub(crate) fn backend_names(&self) -> HashMap<u32, BackendId> {
        self.numbers.names().collect()
    }

    /// Divides registry and pins among the services, after VIPs were added or removed.
    pub(super) fn share_room(&mut self) {
        self.flows.share_out(self.services.iter().map(Option::is_some));
    }

    pub(super) fn number_of(&self, vip: &VipId) -> Option<u16> {
        let is_it = |service: &Option<Service>| service.as_ref().is_some_and(|it| it.id == *vip);
        self.services.iter().position(is_it).map(|number| number as u16)
    }

    /// Removes VIPs that the snapshot does not have. A VIP with a different flow key counts as
    /// another VIP.
    fn remove_vips(&mut self, snapshot: &Snapshot) {
        for number in 0..self.services.len() {
            let Some(service) = &self.services[number] else { continue };
            let stays = |spec: &VipSpec| spec.id() == service.id && spec.key == service.key;
            if !snapshot.vips.iter().any(stays) {
                self.services[number] = None;
                self.rearranged[number] = true;
            }
        }
    }

    /// Adds a VIP, if possible with a number that no flow of a removed VIP has.
    fn add_vip(&mut self, spec: &VipSpec) -> Option<u16> {
        let is_free = |number: &usize| self.services[*number].is_none();
        let free: Vec<usize> = (0..self.services.len()).filter(is_free).collect();
        let is_unknown = |number: &&usize| self.flows.total(**number as u16) == 0;
        let number = *free.iter().find(is_unknown).or(free.first())?;
        if self.flows.total(number as u16) > 0 {
            self.forget_service(number as u16);
        }
        let salt = self.seeds.salt(&spec.id());
        self.services[number] = Some(Service::new(spec, salt));
        for cpu in self.memories.iter().flat_map(|memory| &memory.cpus) {
            cpu.clear_service(number);
        }
        Some(number as u16)
    }

    fn forget_service(&mut self, number: u16) {
        let forgotten = &mut self.pins.forgotten;
        self.flows.sweep_all(|flow| {
            if flow.service != number {
                return Verdict::Keep;
            }
            if flow.pinned {
                forgotten.push(flow.digest);
            }
            Verdict::Remove
        });
    }

    fn list(&mut self, number: u16, spec: &VipSpec, now: Instant) {
        let quarantine = self.quarantine();
        let backends_max = self.limits.backends_max as usize;
        let held: usize = self.services.iter().flatten().map(|it| it.slots.len()).sum();
        let Some(service) = self.services[usize::from(number)].as_mut() else { return };
        let slots_before = service.slots.len();
        let was_live: Vec<u16> = service.slots.held().map(|(slot, _)| slot).collect();
        let len_max = slots_before + backends_max.saturating_sub(held);
        let pick = spec.scheduler.pick();
        if pick != service.pick {
            // Flows may now need a pin, or no longer need one.
            self.rearranged[usize::from(number)] = true;
            if pick == Pick::Ring && service.change == Change::None {
                // Flows with a turn are in pending, and must be pinned before the program no longer
                // searches there.
                service.change = Change::Absorbing(now);
            }
        }
        (service.forward, service.pick) = (spec.forward, pick);
        (service.access, service.timeouts) = (spec.access.clone(), spec.timeouts);
        service.second_chance = spec.has_second_chance();
        if !service.second_chance {
            service.rings.replaced = Arc::default();
        }
        service.sources = spec.sources.clone();
        service.scheduler = Some(spec.scheduler);
        service.set_quic(spec.quic.as_ref());
        let (numbers, memories) = (&mut self.numbers, &self.memories);
        let all = service.list(&spec.backends_in_turn(), len_max, quarantine, now, |backend| {
            let (number, is_new) = numbers.of(spec.id(), *backend)?;
            if is_new {
                for cpu in memories.iter().flat_map(|memory| &memory.cpus) {
                    cpu.clear_backend(usize::from(number));
                }
            }
            Some(number)
        });
        self.is_unseated |= !all;
        self.slots_grew |= service.slots.len() > slots_before;
        if was_live.into_iter().any(|slot| !service.slots.live(slot)) {
            self.rearranged[usize::from(number)] = true;
            service.forget_gone();
        }
    }

    /// Tries again to give slots to backends without one.
    pub(super) fn seat(&mut self, now: Instant) {
        self.is_unseated = false;
        for number in 0..self.services.len() {
            let Some(service) = &self.services[number] else { continue };
            let Some(scheduler) = service.scheduler else { continue };
            let spec = VipSpec {
                address: service.id.address,
                ports: service.id.ports,
                protocol: service.id.protocol,
                forward: service.forward,
                key: service.key,
                scheduler,
                access: service.access.clone(),
                timeouts: service.timeouts,
                quic: service.quic.clone(),
                second_chance: service.second_chance,
                sources: service.sources.clone(),
                backends: service.listed.clone(),
            };
            let held_before = service.slots.held().count();
            let was_stale = service.is_stale;
            self.list(number as u16, &spec, now);
            if let Some(service) = self.services[number].as_mut() {
                let is_seated = service.slots.held().count() != held_before;
                service.is_stale = was_stale || is_seated;
                self.is_dirty |= is_seated;
            }
        }
        self.reinstate();
        self.ask_for_missing();
    }

    /// Frees the numbers of backends that no VIP has any more.
    fn free_numbers(&mut self) {
        let services = &self.services;
        self.numbers.retain(|vip, backend| {
            let service = services.iter().flatten().find(|service| service.id == *vip);
            service.is_some_and(|service| {
                service.listed.iter().any(|it| it.id() == *backend)
                    || service.slots.of(backend).is_some()
            })
        });
    }
}
