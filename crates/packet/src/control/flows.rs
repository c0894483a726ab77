//! The registry with the flows of each backend counted, and the rules by which it admits flows.
//!
//! Anyone can send packets from forged addresses, so a full registry keeps the flows with more [`Evidence`]: a flow takes
//! the place of one with less. Each service has a share, of `room / 2n` flows for n services, that others cannot take: a
//! flow is admitted if its service has fewer, or if the others keep room for their shares.

use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;

use crate::digest::Digest;
use crate::registry::{Evidence, Flow, Full, Registry, Verdict};

/// The flows known, and how many each slot has.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) registry: Registry,
    census: Census,
}

/// The flows of each service.
#[derive(Debug)]
struct Census {
    /// By service number.
    services: Vec<Tallies>,
    /// Flows of all services, where one with fewer than its share counts as having its share.
    reserved: usize,
}

#[derive(Clone, Debug, Default)]
struct Tallies {
    /// By slot.
    slots: Vec<Tally>,
    flows: usize,
    /// Flows for which others leave room.
    share: usize,
}

/// The flows of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Active, inactive.
    flows: [u32; 2],
    /// Flows that became active here since the start; wraps.
    begun: u32,
}

impl Flows {
    pub(super) fn new(registry: Registry, services: usize) -> Flows {
        let mut census = Census { services: vec![Tallies::default(); services], reserved: 0 };
        for flow in registry.iter() {
            census.add(&flow);
        }
        Flows { registry, census }
    }

    /// The interval.
    pub(super) fn now(&self) -> u32 {
        self.registry.interval().load(Relaxed) as u32
    }

    pub(super) fn get(&self, digest: Digest) -> Option<Flow> {
        self.registry.get(digest)
    }

    fn tally_of(&self, service: u16, slot: u16) -> Option<&Tally> {
        self.census.services.get(usize::from(service))?.slots.get(usize::from(slot))
    }

    /// Active and inactive flows of a slot.
    pub(super) fn tally(&self, service: u16, slot: u16) -> [u32; 2] {
        self.tally_of(service, slot).map_or([0; 2], |tally| tally.flows)
    }

    /// Flows that became active at a slot since the start; wraps.
    pub(super) fn begun(&self, service: u16, slot: u16) -> u32 {
        self.tally_of(service, slot).map_or(0, |tally| tally.begun)
    }

    /// Flows of a service.
    pub(super) fn total(&self, service: u16) -> usize {
        self.census.services.get(usize::from(service)).map_or(0, |it| it.flows)
    }

    /// Gives each service that is in use its share. A lone one needs none.
    pub(super) fn share_out(&mut self, in_use: impl Iterator<Item = bool> + Clone) {
        let services = in_use.clone().filter(|it| *it).count();
        let share = match services {
            0 | 1 => 0,
            _ => self.registry.flows_max() as usize / (2 * services),
        };
        for (tallies, is_used) in self.census.services.iter_mut().zip(in_use) {
            tallies.share = if is_used { share } else { 0 };
        }
        self.census.reserved = self.census.services.iter().map(Tallies::reserved).sum();
    }

    /// Adds a flow that the registry does not have. If there is no room for it, it takes the place of a flow with less
    /// evidence, which is returned. One that opened and is idle for more than
    /// `patience` intervals gives way to another that opened.
    pub(super) fn admit(&mut self, flow: Flow, patience: u32) -> Result<Option<Flow>, Full> {
        if self.has_room(flow.service) {
            self.set(flow, None)?;
            return Ok(None);
        }
        let displaced = self.displaceable(&flow, patience).ok_or(Full)?;
        self.remove(displaced.digest);
        self.set(flow, None)?;
        Ok(Some(displaced))
    }

    fn has_room(&self, service: u16) -> bool {
        let room = self.registry.flows_max() as usize;
        let is_within =
            self.census.services.get(usize::from(service)).is_some_and(|it| it.flows < it.share);
        self.registry.len() < room && (is_within || self.census.reserved < room)
    }

    /// Of the flows near the place of `flow`, one that gives way to it: of its service, or of one beyond its share.
    fn displaceable(&self, flow: &Flow, patience: u32) -> Option<Flow> {
        let now = self.now();
        let is_beyond = |service: u16| {
            let tallies = self.census.services.get(usize::from(service));
            tallies.is_none_or(|it| it.flows > it.share)
        };
        self.registry
            .neighbours(flow.digest)
            .filter(|it| !it.registered && (it.service == flow.service || is_beyond(it.service)))
            .filter(|it| match (it.evidence, flow.evidence) {
                (Evidence::None, Evidence::None) => it.idle(now) > 1,
                (Evidence::Opened, Evidence::Opened) => it.idle(now) > patience,
                (its, others) => its < others,
            })
            .min_by_key(|it| (it.evidence, Reverse(it.idle(now))))
    }

    /// Adds a flow, or replaces `before`, which is what the registry has of it.
    pub(super) fn set(&mut self, flow: Flow, before: Option<&Flow>) -> Result<(), Full> {
        self.registry.set(flow)?;
        if let Some(before) = before {
            self.census.take(before);
        }
        let tally = self.census.add(&flow);
        let is_same = before.is_some_and(|before| place_of(before) == place_of(&flow));
        if let Some(tally) = tally.filter(|_| flow.is_active() && !is_same) {
            tally.begun = tally.begun.wrapping_add(1);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, digest: Digest) -> Option<Flow> {
        let flow = self.registry.remove(digest)?;
        self.census.take(&flow);
        Some(flow)
    }

    /// As [`Registry::sweep`].
    pub(super) fn sweep(
        &mut self,
        from: usize,
        count: usize,
        mut each: impl FnMut(Flow) -> Verdict,
    ) -> usize {
        let census = &mut self.census;
        self.registry.sweep(from, count, |flow| {
            let verdict = each(flow);
            match &verdict {
                Verdict::Keep => {}
                Verdict::Remove => census.take(&flow),
                Verdict::Set(after) if place_of(after) == place_of(&flow) => {}
                Verdict::Set(after) => {
                    census.take(&flow);
                    census.add(after);
                }
            }
            verdict
        })
    }

    /// As [`Self::sweep`], all flows.
    pub(super) fn sweep_all(&mut self, each: impl FnMut(Flow) -> Verdict) {
        self.sweep(0, usize::MAX, each);
    }
}

/// What decides where a flow is counted.
fn place_of(flow: &Flow) -> (u16, u16, bool) {
    (flow.service, flow.slot, flow.is_active())
}

impl Tallies {
    fn reserved(&self) -> usize {
        self.flows.max(self.share)
    }
}

impl Census {
    /// Counts a flow; the tally of its slot.
    fn add(&mut self, flow: &Flow) -> Option<&mut Tally> {
        let tallies = self.services.get_mut(usize::from(flow.service))?;
        self.reserved -= tallies.reserved();
        tallies.flows += 1;
        self.reserved += tallies.reserved();
        let slot = usize::from(flow.slot);
        if tallies.slots.len() <= slot {
            tallies.slots.resize(slot + 1, Tally::default());
        }
        let tally = &mut tallies.slots[slot];
        tally.flows[usize::from(!flow.is_active())] += 1;
        Some(tally)
    }

    fn take(&mut self, flow: &Flow) {
        let Some(tallies) = self.services.get_mut(usize::from(flow.service)) else { return };
        self.reserved -= tallies.reserved();
        tallies.flows -= 1;
        self.reserved += tallies.reserved();
        if let Some(tally) = tallies.slots.get_mut(usize::from(flow.slot)) {
            tally.flows[usize::from(!flow.is_active())] -= 1;
        }
    }
}
