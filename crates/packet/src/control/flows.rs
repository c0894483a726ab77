//! The registry with the flows of each backend counted.

use crate::digest::Digest;
use crate::registry::{Flow, Full, Registry, Verdict};

/// The flows known, and how many each slot has.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) registry: Registry,
    /// By service number and slot.
    tallies: Vec<Vec<Tally>>,
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
        let mut flows = Flows { registry, tallies: vec![Vec::new(); services] };
        for flow in flows.registry.iter() {
            add(&mut flows.tallies, &flow);
        }
        flows
    }

    pub(super) fn get(&self, digest: Digest) -> Option<Flow> {
        self.registry.get(digest)
    }

    /// Active and inactive flows of a slot.
    pub(super) fn tally(&self, service: u16, slot: u16) -> [u32; 2] {
        let slots = self.tallies.get(usize::from(service));
        slots.and_then(|slots| slots.get(usize::from(slot))).map_or([0; 2], |tally| tally.flows)
    }

    /// Flows that became active at a slot since the start; wraps.
    pub(super) fn begun(&self, service: u16, slot: u16) -> u32 {
        let slots = self.tallies.get(usize::from(service));
        slots.and_then(|slots| slots.get(usize::from(slot))).map_or(0, |tally| tally.begun)
    }

    /// Flows of a service.
    pub(super) fn total(&self, service: u16) -> usize {
        let slots = self.tallies.get(usize::from(service));
        slots.map_or(0, |slots| {
            slots.iter().flat_map(|it| it.flows).map(|count| count as usize).sum()
        })
    }

    /// Adds a flow, or replaces `before`, which is what the registry has of it.
    pub(super) fn set(&mut self, flow: Flow, before: Option<&Flow>) -> Result<(), Full> {
        self.registry.set(flow)?;
        if let Some(before) = before {
            take(&mut self.tallies, before);
        }
        let tally = add(&mut self.tallies, &flow);
        let is_same = before.is_some_and(|before| place_of(before) == place_of(&flow));
        if let Some(tally) = tally.filter(|_| flow.is_active() && !is_same) {
            tally.begun = tally.begun.wrapping_add(1);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, digest: Digest) -> Option<Flow> {
        let flow = self.registry.remove(digest)?;
        take(&mut self.tallies, &flow);
        Some(flow)
    }

    /// As [`Registry::sweep`].
    pub(super) fn sweep(
        &mut self,
        from: usize,
        count: usize,
        mut each: impl FnMut(Flow) -> Verdict,
    ) -> usize {
        let tallies = &mut self.tallies;
        self.registry.sweep(from, count, |flow| {
            let verdict = each(flow);
            match &verdict {
                Verdict::Keep => {}
                Verdict::Remove => take(tallies, &flow),
                Verdict::Set(after) if place_of(after) == place_of(&flow) => {}
                Verdict::Set(after) => {
                    take(tallies, &flow);
                    add(tallies, after);
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

/// Counts a flow; the tally of its slot.
fn add<'a>(tallies: &'a mut [Vec<Tally>], flow: &Flow) -> Option<&'a mut Tally> {
    let slots = tallies.get_mut(usize::from(flow.service))?;
    let slot = usize::from(flow.slot);
    if slots.len() <= slot {
        slots.resize(slot + 1, Tally::default());
    }
    let tally = &mut slots[slot];
    tally.flows[usize::from(!flow.is_active())] += 1;
    Some(tally)
}

fn take(tallies: &mut [Vec<Tally>], flow: &Flow) {
    let slots = tallies.get_mut(usize::from(flow.service));
    if let Some(tally) = slots.and_then(|slots| slots.get_mut(usize::from(flow.slot))) {
        tally.flows[usize::from(!flow.is_active())] -= 1;
    }
}
