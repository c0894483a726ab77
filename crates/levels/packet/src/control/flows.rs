//! The registry with counts per backend, and the rules that admit flows.
//!
//! Anyone can send packets from forged addresses, so a full registry keeps the flows with more
//! [`Evidence`]: a flow replaces one with less. Each service has a share of the registry, and one
//! of the pins: see [`Shares`].

use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;

use super::shares::Shares;
use crate::digest::Digest;
use crate::registry::{Evidence, Flow, Full, Registry, Verdict};

/// The known flows, and their number per slot.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) registry: Registry,
    census: Census,
}

/// The numbers of flows per service.
#[derive(Debug)]
struct Census {
    /// By service number.
    services: Vec<Tallies>,
    flows: Shares,
    pins: Shares,
}

#[derive(Clone, Debug, Default)]
struct Tallies {
    /// By slot.
    slots: Vec<Tally>,
    /// Pinned flows without evidence.
    unproven_pins: usize,
    /// Registered flows that are not pinned (yet).
    waiting: usize,
}

/// Numbers of flows of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Active, inactive.
    flows: [u32; 2],
    /// Number of flows that became active here since the start; wraps.
    begun: u32,
}

impl Flows {
    /// Makes it with room for `pins` pinned flows.
    pub(super) fn new(registry: Registry, services: usize, pins: usize) -> Flows {
        let mut census = Census {
            services: vec![Tallies::default(); services],
            flows: Shares::new(registry.flows_max() as usize, services),
            pins: Shares::new(pins, services),
        };
        for flow in registry.iter() {
            census.add(&flow);
        }
        Flows { registry, census }
    }

    /// Returns the number of the current interval.
    pub(super) fn now(&self) -> u32 {
        self.registry.interval().load(Relaxed) as u32
    }

    pub(super) fn get(&self, digest: Digest) -> Option<Flow> {
        self.registry.get(digest)
    }

    fn tally_of(&self, service: u16, slot: u16) -> Option<&Tally> {
        self.census.services.get(usize::from(service))?.slots.get(usize::from(slot))
    }

    /// Returns the active and inactive flows of a slot.
    pub(super) fn tally(&self, service: u16, slot: u16) -> [u32; 2] {
        self.tally_of(service, slot).map_or([0; 2], |tally| tally.flows)
    }

    /// Returns the number of flows that became active at a slot since the start; wraps.
    pub(super) fn begun(&self, service: u16, slot: u16) -> u32 {
        self.tally_of(service, slot).map_or(0, |tally| tally.begun)
    }

    /// Returns the number of flows of a service.
    pub(super) fn total(&self, service: u16) -> usize {
        self.census.flows.used(service)
    }

    /// Divides the room among the services in use.
    pub(super) fn share_out(&mut self, in_use: impl Iterator<Item = bool> + Clone) {
        self.census.flows.share_out(in_use.clone());
        self.census.pins.share_out(in_use);
    }

    /// Returns the pins of each service.
    pub(super) fn pin_shares(&self) -> &Shares {
        &self.census.pins
    }

    /// Whether one more registered flow of a service can be pinned: with a free pin, or that of a
    /// flow without evidence.
    pub(super) fn has_pin(&self, service: u16) -> bool {
        let Census { services, pins, .. } = &self.census;
        let gives_way = |(number, tallies): (u16, &Tallies)| {
            let most = if number == service { usize::MAX } else { pins.beyond(number) };
            tallies.unproven_pins.min(most)
        };
        let displaceable: usize = (0..).zip(services).map(gives_way).sum();
        let waiting = services.get(usize::from(service)).map_or(0, |it| it.waiting);
        pins.free(service) + displaceable > waiting
    }

    /// Adds a flow that the registry does not have. If there is no room, it replaces a flow with
    /// less evidence, which is returned. A flow that opened and is idle for more than `patience`
    /// intervals may be replaced by another one that opened.
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
        self.registry.len() < room && self.census.flows.has_room(service)
    }

    /// Returns a flow near the position of `flow` that it may replace: of its own service, or of
    /// one beyond its share.
    fn displaceable(&self, flow: &Flow, patience: u32) -> Option<Flow> {
        let now = self.now();
        let is_beyond = |service: u16| self.census.flows.beyond(service) > 0;
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

    /// Adds a flow, or replaces `before`, the registry's current version.
    pub(super) fn set(&mut self, flow: Flow, before: Option<&Flow>) -> Result<(), Full> {
        self.registry.set(flow)?;
        if let Some(before) = before {
            self.census.take(before);
        }
        let tally = self.census.add(&flow);
        let is_same = before.is_some_and(|before| place_of(before) == place_of(&flow));
        // A flow of another balancer was not assigned by this one's program.
        let is_own = flow.is_active() && !flow.remote;
        if let Some(tally) = tally.filter(|_| is_own && !is_same) {
            tally.begun = tally.begun.wrapping_add(1);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, digest: Digest) -> Option<Flow> {
        let flow = self.registry.remove(digest)?;
        self.census.take(&flow);
        Some(flow)
    }

    /// See [`Registry::sweep`].
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
                Verdict::Set(after) if counted(after) == counted(&flow) => {}
                Verdict::Set(after) => {
                    census.take(&flow);
                    census.add(after);
                }
            }
            verdict
        })
    }

    /// Like [`Self::sweep`], over all flows.
    pub(super) fn sweep_all(&mut self, each: impl FnMut(Flow) -> Verdict) {
        self.sweep(0, usize::MAX, each);
    }
}

/// Fields that determine where a flow is counted.
fn place_of(flow: &Flow) -> (u16, u16, bool) {
    (flow.service, flow.slot, flow.is_active())
}

fn is_unproven_pin(flow: &Flow) -> bool {
    flow.pinned && !flow.registered && flow.evidence == Evidence::None
}

fn is_waiting(flow: &Flow) -> bool {
    flow.registered && !flow.pinned
}

/// All properties by which a flow is counted.
fn counted(flow: &Flow) -> ((u16, u16, bool), [bool; 3]) {
    (place_of(flow), [flow.pinned, is_unproven_pin(flow), is_waiting(flow)])
}

impl Census {
    /// Counts a flow. Returns the tally of its slot.
    fn add(&mut self, flow: &Flow) -> Option<&mut Tally> {
        let tallies = self.services.get_mut(usize::from(flow.service))?;
        self.flows.add(flow.service);
        if flow.pinned {
            self.pins.add(flow.service);
        }
        tallies.unproven_pins += usize::from(is_unproven_pin(flow));
        tallies.waiting += usize::from(is_waiting(flow));
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
        self.flows.take(flow.service);
        if flow.pinned {
            self.pins.take(flow.service);
        }
        tallies.unproven_pins -= usize::from(is_unproven_pin(flow));
        tallies.waiting -= usize::from(is_waiting(flow));
        if let Some(tally) = tallies.slots.get_mut(usize::from(flow.slot)) {
            tally.flows[usize::from(!flow.is_active())] -= 1;
        }
    }
}
