//! The set of pinned flows: those that the rings would send elsewhere, and those that an image
//! would falsely match.

use equipoise_pog::{BuildError, Delta, PogBuilder, Update, UpdateError};

use super::flows::Flows;
use super::openings::Openings;
use super::service::Service;
use super::unpinned::Unpinned;
use super::wanted::Wanted;
use crate::digest::{Digest, DigestHash};
use crate::registry::{Flow, Verdict};
use crate::tables::{PinController, PogCell, pin_form};

/// Up to this many changes are made individually, however few pins there are.
const FEW: usize = 512;
/// Maximum number of padding keys, which belong to no flow. In an image of a few cells many flows
/// share a pair of cells and would all match falsely together. With this many keys, each flow
/// matches with the probability of the form.
const PADDING_MAX: usize = 256;
/// Slot of the padding keys: the last one.
const PADDING_SLOT: PogCell = (1 << crate::abi::SLOT_BITS) - 1;

fn padding(pins_max: usize) -> usize {
    PADDING_MAX.min(pins_max / 8)
}

/// The pinned flows, and the flows whose pin may change with the next publication.
#[derive(Debug)]
pub(super) struct PinSet {
    pub(super) controller: PinController,
    pins_max: usize,
    /// Learned flows to check, which the tables may send elsewhere.
    pub(super) suspects: Vec<Digest>,
    /// Pinned flows that the registry has forgotten.
    pub(super) forgotten: Vec<Digest>,
    /// Set while a publication is made.
    unpinned: Option<Unpinned>,
    random_seed: Option<u64>,
    outcomes: Vec<Result<(), UpdateError>>,
    /// Deltas since the last publication.
    pub(super) deltas: Vec<Delta<PogCell>>,
}

/// Result of a change of pins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Whether the image changed.
    pub(super) image: bool,
    /// Number of flows without room for a pin.
    pub(super) full: usize,
    /// Number of flows that lost their backend, including those without room.
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
    /// Makes a set without pinned flows.
    pub(super) fn empty(pins_max: usize, random_seed: Option<u64>) -> Result<PinSet, BuildError> {
        PinSet::of(Vec::new(), pins_max, random_seed)
    }

    /// Makes a set of all flows that the registry marks as pinned.
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

    /// Returns the number of pinned flows.
    pub(super) fn len(&self) -> usize {
        self.controller.len() - padding(self.pins_max)
    }

    /// Returns the maximum number of pinned flows.
    pub(super) fn room(&self) -> usize {
        self.pins_max - padding(self.pins_max)
    }

    fn wanted(&self, flows: &Flows) -> Wanted {
        Wanted::new(self.controller.len(), self.pins_max, flows.pin_shares().clone())
    }

    /// Returns the slot of a flow that the image falsely matches, if its service has that many
    /// slots.
    pub(super) fn false_match(&self, flow: &Flow, service: &Service) -> Option<u16> {
        let slot = self.controller.pog().pinned(&flow.digest)?;
        (!flow.pinned && usize::from(slot) < service.slots.len() && slot != flow.slot)
            .then_some(slot)
    }

    /// Whether the tables send a flow to its backend if no record exists.
    pub(super) fn agrees(&self, flow: &Flow, service: &Service) -> bool {
        if flow.pinned {
            return self.controller.pog().pinned(&flow.digest) == Some(flow.slot);
        }
        let by_tables = || {
            service.rings_agree(flow.digest, flow.slot) && self.false_match(flow, service).is_none()
        };
        !flow.registered && (flow.by_id || by_tables())
    }

    /// Pins the suspects that need it and unpins forgotten flows.
    pub(super) fn settle(&mut self, flows: &mut Flows, services: &[Option<Service>]) -> Changed {
        let mut wanted = self.wanted(flows);
        for digest in std::mem::take(&mut self.forgotten) {
            // It may have been learned again, as an unpinned flow.
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
                // It is already in the registry, so there is room.
                let _ = flows.set(after, Some(&flow));
            }
        }
        self.suspects = suspects;
        self.make(wanted, flows, services)
    }

    /// Checks every flow after rings have changed: pins flows that they would move, unpins others,
    /// and forgets flows without a backend, which are added to `orphans`.
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
            let agrees = flow.by_id || backed.rings_agree(flow.digest, flow.slot);
            let agrees = !flow.registered && agrees;
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

    /// Makes the updates individually or, if they are many, by a rebuild.
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
            // A build only fails without random numbers; the existing image can still be changed.
            Some(Err(_)) | None => self.alter(updates),
        }
        changed.add(give_up(full, flows, services));
        changed
    }

    fn alter(&mut self, updates: Vec<Update<Digest, PogCell>>) {
        let delta = self.controller.update(updates, &mut self.outcomes);
        self.deltas.push(delta.clone());
    }

    /// Notes a flow that was learned or has lost its pin.
    pub(super) fn may_match(&mut self, digest: Digest) {
        if let Some(unpinned) = &mut self.unpinned {
            unpinned.add(digest);
        }
    }

    /// Pins the flows that the image would falsely match, including opening ones, until there are
    /// none. Until [`Self::rest`], newly learned flows are checked, too.
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
                    follow(flows, &flow, Some(slot));
                }
                break;
            }
            // Never by a rebuild: a new image has as many false matches, of other flows.
            self.alter(wanted.updates);
            changed.image = true;
        }
        self.unpinned = Some(unpinned);
        changed
    }

    /// Ends a publication.
    pub(super) fn rest(&mut self) {
        self.unpinned = None;
    }
}

fn pins_of(flows: &Flows) -> Vec<(Digest, PogCell)> {
    flows.registry.select(true, |flow| (flow.digest, flow.slot))
}

/// Estimates the number of false matches of a new image. It reserves room for them, so that the
/// image does not grow, with all its cells, while they are added.
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

/// Gives up flows without pins: they go where the rings send them.
fn give_up(full: Vec<Flow>, flows: &mut Flows, services: &[Option<Service>]) -> Changed {
    let mut changed = Changed::default();
    for flow in full {
        // During a transition nothing is lost yet: the current ring may still agree.
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

/// Updates a flow without a pin: the registry records the backend that the ring selects.
fn follow_ring(flows: &mut Flows, flow: &Flow, service: Option<&Service>) {
    follow(flows, flow, service.and_then(|service| service.ring_slot(flow.digest)));
}

/// Records the backend to which the tables send a flow. Another balancer's flow is forgotten
/// instead: it has its backend there.
fn follow(flows: &mut Flows, flow: &Flow, slot: Option<u16>) {
    match slot.filter(|_| !flow.remote) {
        Some(slot) => {
            let _ = flows.set(Flow { slot, ..*flow }, Some(flow));
        }
        None => {
            flows.remove(flow.digest);
        }
    }
}
