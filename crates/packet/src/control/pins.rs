//! The set of pinned flows: those that the rings would send elsewhere, and those that an image would falsely take for
//! pinned.

use equipoise_pog::{BuildError, Delta, PogBuilder, Update, UpdateError};

use super::flows::Flows;
use super::openings::Openings;
use super::service::Service;
use super::unpinned::Unpinned;
use super::wanted::Wanted;
use crate::digest::{Digest, DigestHash};
use crate::registry::{Flow, Verdict};
use crate::tables::{PinController, PogCell, pin_form};

/// Up to this many changes are made one by one, however few pins there are.
const FEW: usize = 512;
/// Keys of no flow. In an image of a few cells many flows share a pair, and would falsely match all together; among the
/// cells of so many keys, each flow does with the probability of the form.
const PADDING_MAX: usize = 256;
/// What they are pinned to: the last slot.
const PADDING_SLOT: PogCell = (1 << crate::abi::SLOT_BITS) - 1;

fn padding(pins_max: usize) -> usize {
    PADDING_MAX.min(pins_max / 8)
}

/// The pinned flows, and those whose pin is to change with the next publication.
#[derive(Debug)]
pub(super) struct PinSet {
    pub(super) controller: PinController,
    pins_max: usize,
    /// To be looked at: learnt, and perhaps not where the tables send it.
    pub(super) suspects: Vec<Digest>,
    /// Pinned and forgotten.
    pub(super) forgotten: Vec<Digest>,
    /// While a publication is made.
    unpinned: Option<Unpinned>,
    random_seed: Option<u64>,
    outcomes: Vec<Result<(), UpdateError>>,
    /// Of the changes since the last publication.
    pub(super) deltas: Vec<Delta<PogCell>>,
}

/// What a change of pins did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Whether the image is another.
    pub(super) image: bool,
    /// Flows that found no room.
    pub(super) full: usize,
    /// Flows that lost their backend, those without room included.
    pub(super) moved: usize,
}

impl Changed {
    pub(super) fn add(&mut self, other: Changed) {
        self.image |= other.image;
        self.full += other.full;
        self.moved += other.moved;
    }
}

impl PinSet {
    /// Without any pinned flow.
    pub(super) fn empty(pins_max: usize, random_seed: Option<u64>) -> Result<PinSet, BuildError> {
        PinSet::of(Vec::new(), pins_max, random_seed)
    }

    /// All flows of the registry that are marked as pinned.
    pub(super) fn build(
        flows: &Flows,
        pins_max: usize,
        random_seed: Option<u64>,
    ) -> Result<PinSet, BuildError> {
        PinSet::of(pins_of(flows), pins_max, random_seed)
    }

    fn of(
        pinned: Vec<(Digest, PogCell)>,
        pins_max: usize,
        random_seed: Option<u64>,
    ) -> Result<PinSet, BuildError> {
        Ok(PinSet {
            controller: built(pinned, pins_max, 0, random_seed)?,
            pins_max,
            suspects: Vec::new(),
            forgotten: Vec::new(),
            unpinned: None,
            random_seed,
            outcomes: Vec::new(),
            deltas: Vec::new(),
        })
    }

    /// Pinned flows.
    pub(super) fn len(&self) -> usize {
        self.controller.len() - padding(self.pins_max)
    }

    /// Flows for which there is room, pinned ones included.
    pub(super) fn room(&self) -> usize {
        self.pins_max - padding(self.pins_max)
    }

    fn wanted(&self, flows: &Flows) -> Wanted {
        Wanted::new(self.controller.len(), self.pins_max, flows.pin_shares().clone())
    }

    /// The slot that the image gives a flow that is not pinned, if its service has so many.
    pub(super) fn false_match(&self, flow: &Flow, service: &Service) -> Option<u16> {
        let slot = self.controller.pog().pinned(&flow.digest)?;
        (!flow.pinned && usize::from(slot) < service.slots.len() && slot != flow.slot)
            .then_some(slot)
    }

    /// Whether the tables send a flow where it belongs when nothing is recorded of it.
    pub(super) fn agrees(&self, flow: &Flow, service: &Service) -> bool {
        if flow.pinned {
            return self.controller.pog().pinned(&flow.digest) == Some(flow.slot);
        }
        !flow.registered
            && service.rings_agree(flow.digest, flow.slot)
            && self.false_match(flow, service).is_none()
    }

    /// Pins the suspects that need it and takes the forgotten away.
    pub(super) fn settle(&mut self, flows: &mut Flows, services: &[Option<Service>]) -> Changed {
        let mut wanted = self.wanted(flows);
        for digest in std::mem::take(&mut self.forgotten) {
            // It may have been learnt again meanwhile: as one that is not pinned.
            wanted.forget(digest);
        }
        let mut suspects = std::mem::take(&mut self.suspects);
        suspects.sort_unstable();
        suspects.dedup();
        for digest in suspects.drain(..) {
            let Some(flow) = flows.get(digest) else { continue };
            let Some(service) = service_of(services, &flow) else { continue };
            if !self.agrees(&flow, service) {
                let after = wanted.pin(flow);
                // It is there: there is room for it.
                let _ = flows.set(after, Some(&flow));
            }
        }
        self.suspects = suspects;
        self.make(wanted, flows, services)
    }

    /// Looks at every flow after rings have changed: pins what they would move, frees what they no longer do, forgets
    /// what has no backend any more. `orphans` gets the latter.
    pub(super) fn settle_all(
        &mut self,
        flows: &mut Flows,
        services: &[Option<Service>],
        changed: impl Fn(u16) -> bool,
        orphans: &mut Vec<Digest>,
    ) -> Changed {
        let mut changes = self.settle(flows, services);
        let mut wanted = self.wanted(flows);
        let orphans_before = orphans.len();
        flows.sweep_all(|flow| {
            if !changed(flow.service) {
                return Verdict::Keep;
            }
            let service = service_of(services, &flow);
            let Some(backed) = service.filter(|it| it.slots.live(flow.slot)) else {
                if flow.pinned {
                    wanted.unpin(&flow);
                }
                if service.is_some() {
                    orphans.push(flow.digest);
                }
                return Verdict::Remove;
            };
            let agrees = !flow.registered && backed.rings_agree(flow.digest, flow.slot);
            match (agrees, flow.pinned) {
                (true, false) | (false, true) => Verdict::Keep,
                (false, false) => Verdict::Set(wanted.pin(flow)),
                (true, true) => {
                    wanted.unpin(&flow);
                    Verdict::Set(Flow { pinned: false, ..flow })
                }
            }
        });
        changes.moved += orphans.len() - orphans_before;
        changes.add(self.make(wanted, flows, services));
        changes
    }

    /// Makes the updates, one by one or, if they are many, by building anew.
    fn make(
        &mut self,
        mut wanted: Wanted,
        flows: &mut Flows,
        services: &[Option<Service>],
    ) -> Changed {
        let displaced = wanted.displace(flows);
        displaced.iter().for_each(|flow| self.may_match(flow.digest));
        let Wanted { updates, mut full, .. } = wanted;
        full.extend(displaced);
        let mut changed = Changed { image: !updates.is_empty(), ..Changed::default() };
        let are_few = updates.len() <= FEW.max(self.controller.len() / 4);
        let rebuilt = (!are_few).then(|| {
            let room = false_matches_expected(flows, services);
            built(pins_of(flows), self.pins_max, room, self.random_seed)
        });
        match rebuilt {
            Some(Ok(controller)) => self.controller = controller,
            // Building fails without random numbers only; then what there is can still be changed.
            Some(Err(_)) | None => self.alter(updates),
        }
        changed.add(give_up(full, flows, services));
        changed
    }

    fn alter(&mut self, updates: Vec<Update<Digest, PogCell>>) {
        let delta = self.controller.update(updates, &mut self.outcomes);
        self.deltas.push(delta.clone());
    }

    /// Takes notice of a flow that was learnt, or that has lost its pin.
    pub(super) fn may_match(&mut self, digest: Digest) {
        if let Some(unpinned) = &mut self.unpinned {
            unpinned.add(digest);
        }
    }

    /// Pins the flows that the image would falsely take for pinned, opening ones included, until there are none. Until
    /// [`Self::rest`], flows that are learnt are looked at too.
    pub(super) fn mend(
        &mut self,
        flows: &mut Flows,
        openings: &Openings,
        services: &[Option<Service>],
    ) -> Changed {
        let mut changed = Changed::default();
        let mut unpinned = self.unpinned.take().unwrap_or_else(|| Unpinned::of(flows));
        loop {
            let mut wanted = self.wanted(flows);
            for flow in unpinned.false_matches(self.controller.pog(), flows, services) {
                let after = wanted.pin(flow);
                let _ = flows.set(after, Some(&flow));
            }
            let mut opening_full = 0;
            for flow in openings.astray(self.controller.pog(), flows, services) {
                opening_full += usize::from(!wanted.pin_opening(flow, flows));
            }
            let displaced = wanted.displace(flows);
            displaced.iter().for_each(|flow| unpinned.add(flow.digest));
            changed.add(give_up(displaced, flows, services));
            if wanted.updates.is_empty() {
                changed.full += opening_full;
                for flow in wanted.full {
                    changed.full += 1;
                    changed.moved += 1;
                    let slot = self.controller.pog().pinned(&flow.digest).unwrap_or(flow.slot);
                    let _ = flows.set(Flow { slot, ..flow }, Some(&flow));
                }
                break;
            }
            // Never by building anew: of a new image, other flows are false matches, and as many.
            self.alter(wanted.updates);
            changed.image = true;
        }
        self.unpinned = Some(unpinned);
        changed
    }

    /// The publication is made.
    pub(super) fn rest(&mut self) {
        self.unpinned = None;
    }
}

fn pins_of(flows: &Flows) -> Vec<(Digest, PogCell)> {
    flows.registry.select(true, |flow| (flow.digest, flow.slot))
}

/// About how many flows a new image will take for pinned: room for them, lest the image grows while they are added, and
/// all its cells with it.
fn false_matches_expected(flows: &Flows, services: &[Option<Service>]) -> usize {
    let slots = services.iter().flatten().map(|it| it.slots.len()).max().unwrap_or(0);
    let expected = (flows.registry.len() * slots) >> PogCell::BITS;
    expected + expected / 4 + PADDING_MAX / 4
}

fn built(
    pinned: Vec<(Digest, PogCell)>,
    pins_max: usize,
    room: usize,
    random_seed: Option<u64>,
) -> Result<PinController, BuildError> {
    let padded = (1..=padding(pins_max) as u64).map(|number| (Digest(number), PADDING_SLOT));
    let mut builder = PogBuilder::<PogCell>::new().hash::<DigestHash>().fingerprint(pin_form());
    if let Some(seed) = random_seed {
        builder = builder.random_seed(seed);
    }
    builder.keys_max(pins_max).room(room).build(padded.chain(pinned))
}

pub(super) fn service_of<'a>(services: &'a [Option<Service>], flow: &Flow) -> Option<&'a Service> {
    services.get(usize::from(flow.service))?.as_ref()
}

/// There are no pins for these flows: they go where the rings send them.
fn give_up(full: Vec<Flow>, flows: &mut Flows, services: &[Option<Service>]) -> Changed {
    let mut changed = Changed::default();
    for flow in full {
        // In a transition nothing is lost yet: the ring in force may still agree.
        let service = service_of(services, &flow);
        let may_wait = service.is_some_and(|it| {
            it.rings.next.is_some() && it.ring_slot(flow.digest) == Some(flow.slot)
        });
        if !may_wait {
            changed.full += 1;
            changed.moved += 1;
            follow_ring(flows, &flow, service);
        }
    }
    changed
}

/// There is no pin for the flow: it goes where the ring sends it, and is known to be there.
fn follow_ring(flows: &mut Flows, flow: &Flow, service: Option<&Service>) {
    let slot = service.and_then(|service| service.ring_slot(flow.digest));
    match slot {
        Some(slot) => {
            let _ = flows.set(Flow { slot, ..*flow }, Some(flow));
        }
        None => {
            flows.remove(flow.digest);
        }
    }
}
