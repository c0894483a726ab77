//! What the numbers in the flow registry mean, noted for the next control side; and flows kept by it when the tables are
//! gone, or are of another size or version.

use std::collections::HashMap;

use super::Control;
use super::service::Service;
use crate::abi::{Forward, Pick, SLOTS_MAX};
use crate::ledger::{Ledger, Seats, fleet_of};
use crate::registry::{Flow, Verdict};
use crate::slots::{Holder, Slots};
use crate::snapshot::{BackendId, Standing};

/// What a control side found when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Whether the memories were new.
    pub is_anew: bool,
    /// Flows of the registry that keep their backends.
    pub flows: usize,
    /// Flows of the registry that are forgotten: what it says of them has no meaning, or no place in tables of this size.
    pub forgotten: usize,
    /// Flows of a larger registry that found no room in this one.
    pub left_out: usize,
    /// Flows that somebody pinned, and of which no more than that is known.
    pub nameless: usize,
}

/// Flows of each service number and slot.
type Census = HashMap<(u16, u16), usize>;

impl Control {
    /// How it began.
    pub fn begun(&self) -> Begun {
        self.begun
    }

    /// Gives the flows of the registry the backends that they had, as far as that is known, and forgets the others. None
    /// is pinned yet: the first publication looks at each, when there are rings.
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

    /// Seats the backends of a service that have flows. `room` is for slots of all services.
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
            // An empty slot takes a place as well.
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
        let (salt, ring_seed) = self.seeds.of_vip(&vip);
        // How packets are forwarded, and how backends are picked, the snapshot says before anything is published.
        let (forward, pick) = (Forward::DirectRouting, Pick::Ring);
        let mut service = Service::unlisted(vip, forward, seats.key, pick, salt, ring_seed);
        service.slots = Slots::seated(holders);
        self.services[usize::from(number)] = Some(service);
    }

    /// Has `note` write down what has changed since it last did.
    pub(super) fn note_changes(&mut self, note: impl FnOnce(&Ledger) -> bool) {
        // Whatever changes a slot is published.
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

/// Until a snapshot says otherwise.
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
