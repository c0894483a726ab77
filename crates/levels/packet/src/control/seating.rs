//! Writes and reads the ledger, which gives the numbers in the flow registry a meaning. With it,
//! flows keep their backends if the tables are lost, or have another size or version.

use std::collections::HashMap;

use super::Control;
use super::service::Service;
use crate::abi::{Forward, Pick, SLOTS_MAX};
use crate::ledger::{Ledger, Seats, fleet_of};
use crate::registry::{Flow, Verdict};
use crate::slots::{Holder, Slots};
use crate::snapshot::{BackendId, Standing};

/// State that a control side found at its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Whether the memories were new.
    pub is_anew: bool,
    /// Number of flows that keep their backends.
    pub flows: usize,
    /// Number of flows that were forgotten, because their data has no meaning or does not fit into
    /// these tables.
    pub forgotten: usize,
    /// Number of flows of a larger registry that did not fit into this one.
    pub left_out: usize,
    /// Number of pinned flows without further information.
    pub nameless: usize,
}

/// Number of flows by service number and slot.
type Census = HashMap<(u16, u16), usize>;

impl Control {
    /// Returns the state at the start.
    pub fn begun(&self) -> Begun {
        self.begun
    }

    /// Gives the flows of the registry their previous backends, as far as known, and forgets the
    /// others. No flow is pinned yet: the first publication checks each, when there are rings.
    pub(super) fn seat_known(&mut self, ledger: Option<&Ledger>) {
        let mut census = Census::new();
        for flow in self.flows.registry.iter() {
            *census.entry((flow.service, flow.slot)).or_default() += 1;
        }
        let ours = ledger.filter(|it| it.fleet == fleet_of(self.settings.fleet_seed));
        let mut room = self.limits.backends_max as usize;
        for seats in ours.iter().flat_map(|ledger| &ledger.services) {
            self.seat_service(seats, &census, &mut room);
        }
        let (services, rearranged) = (&self.services, &mut self.rearranged);
        let mut forgotten = 0;
        self.flows.sweep_all(|flow| {
            let number = usize::from(flow.service);
            let service = services.get(number).and_then(Option::as_ref);
            if !service.is_some_and(|service| service.slots.live(flow.slot)) {
                forgotten += 1;
                return Verdict::Remove;
            }
            rearranged[number] = true;
            Verdict::Set(Flow { pinned: false, ..flow })
        });
        self.begun.forgotten = forgotten;
    }

    /// Seats the backends of a service that have flows. `room` is the number of free slots of all
    /// services.
    fn seat_service(&mut self, seats: &Seats, census: &Census, room: &mut usize) {
        let Some(None) = self.services.get(usize::from(seats.number)) else { return };
        let (vip, number) = (seats.vip.normal(), seats.number);
        if self.number_of(&vip).is_some() {
            return;
        }
        let mut holders: Vec<Option<Holder>> = Vec::new();
        for &(slot, backend) in &seats.slots {
            let at = usize::from(slot);
            let has_flows = census.contains_key(&(number, slot));
            // An empty slot takes space, too.
            let fits = at < SLOTS_MAX && (at + 1).saturating_sub(holders.len()) <= *room;
            let is_free = holders.get(at).is_none_or(Option::is_none);
            if !has_flows || !fits || !is_free {
                continue;
            }
            let Some((counter, _)) = self.numbers.of(vip, backend) else { continue };
            *room -= (at + 1).saturating_sub(holders.len());
            holders.resize(holders.len().max(at + 1), None);
            holders[at] = Some(seated(backend, counter));
        }
        if holders.is_empty() {
            return;
        }
        let salt = self.seeds.salt(&vip);
        // The snapshot sets forwarding and scheduling before the first publication.
        let (forward, pick) = (Forward::DirectRouting, Pick::Ring);
        let mut service = Service::unlisted(vip, forward, seats.key, pick, salt);
        service.slots = Slots::seated(holders);
        self.services[usize::from(number)] = Some(service);
    }

    /// Calls `note` with the changes since the last call.
    pub(super) fn note_changes(&mut self, note: impl FnOnce(&Ledger) -> bool) {
        // Every change of a slot is published.
        if !self.is_dirty && self.registrations.are_noted {
            return;
        }
        let ledger = self.ledger();
        if self.noted.as_ref() != Some(&ledger) {
            if !note(&ledger) {
                self.registrations.are_noted = false;
                return;
            }
            self.noted = Some(ledger);
        }
        self.registrations.are_noted = true;
    }

    fn ledger(&self) -> Ledger {
        let seats = |(number, service): (u16, &Option<Service>)| {
            let service = service.as_ref()?;
            let slots = service.slots.held().map(|(slot, holder)| (slot, holder.backend)).collect();
            Some(Seats { number, vip: service.id, key: service.key, slots })
        };
        Ledger {
            fleet: fleet_of(self.settings.fleet_seed),
            services: (0..).zip(&self.services).filter_map(seats).collect(),
            pins: self.pins_noted(),
        }
    }
}

/// Makes a holder with assumed properties until the next snapshot.
fn seated(backend: BackendId, number: u16) -> Holder {
    Holder {
        backend,
        number,
        weight: 1,
        standing: Standing::Draining,
        listed: true,
        idle_since: None,
    }
}
