//! A batch of changes of pins, within the room available.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use equipoise_pog::Update;

use super::flows::Flows;
use super::shares::Shares;
use crate::digest::Digest;
use crate::registry::{Evidence, Flow};
use crate::tables::PogCell;

/// A batch of changes of pins.
pub(super) struct Wanted {
    pub(super) updates: Vec<Update<Digest, PogCell>>,
    /// Flows that should be pinned, but for which there is no room.
    pub(super) full: Vec<Flow>,
    pins: usize,
    pins_max: usize,
    /// Shares after the changes.
    shares: Shares,
}

/// Priority of a flow's pin when there is no room for all; later variants take precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// It ended in an earlier interval.
    Ended,
    Living(Evidence),
    Registered,
}

/// Returns the priority in interval `now`.
fn claim(flow: &Flow, now: u32) -> Claim {
    if flow.registered {
        Claim::Registered
    } else if !flow.is_active() && flow.idle(now) > 0 {
        Claim::Ended
    } else {
        Claim::Living(flow.evidence)
    }
}

impl Wanted {
    /// Makes an empty batch for `pins` pins, distributed over services as in `shares`.
    pub(super) fn new(pins: usize, pins_max: usize, shares: Shares) -> Wanted {
        Wanted { updates: Vec::new(), full: Vec::new(), pins, pins_max, shares }
    }

    fn has_room(&self, service: u16) -> bool {
        self.pins < self.pins_max && self.shares.has_room(service)
    }

    /// Adds or changes the pin of a flow. Returns the flow after the change.
    pub(super) fn pin(&mut self, flow: Flow) -> Flow {
        if flow.pinned {
            self.updates.push(Update::Alter(flow.digest, flow.slot));
        } else if !self.has_room(flow.service) {
            self.full.push(flow);
            return flow;
        } else {
            self.insert(&flow);
        }
        Flow { pinned: true, ..flow }
    }

    fn insert(&mut self, flow: &Flow) {
        self.pins += 1;
        self.shares.add(flow.service);
        self.updates.push(Update::Insert(flow.digest, flow.slot));
    }

    pub(super) fn unpin(&mut self, flow: &Flow) {
        self.shares.take(flow.service);
        self.forget(flow.digest);
    }

    /// Unpins a flow that the registry has forgotten, and updates its service's share.
    pub(super) fn forget(&mut self, digest: Digest) {
        self.pins = self.pins.saturating_sub(1);
        self.updates.push(Update::Delete(digest));
    }

    /// Adds an opening flow to the registry and pins it; `false`: there is no room.
    pub(super) fn pin_opening(&mut self, flow: Flow, flows: &mut Flows) -> bool {
        if flows.get(flow.digest).is_some() {
            // Another balancer of the fleet has noted its SYN, too.
            return true;
        }
        let pinned = Flow { pinned: true, ..flow };
        if !self.has_room(flow.service) || flows.set(pinned, None).is_err() {
            return false;
        }
        self.insert(&flow);
        true
    }

    /// Gives flows without room the pins of flows with lower priority, of their own service or of
    /// one beyond its share. Returns the latter: they are no longer pinned, and the registry still
    /// has their backends.
    pub(super) fn displace(&mut self, flows: &mut Flows) -> Vec<Flow> {
        let now = flows.now();
        let claim = |flow: &Flow| claim(flow, now);
        let Some(highest) = self.full.iter().map(claim).max() else { return Vec::new() };
        let pinned = flows.registry.iter().filter(|it| it.pinned && claim(it) < highest);
        let mut pinned: Vec<Flow> = pinned.collect();
        pinned.sort_unstable_by_key(claim);
        let mut lesser = BTreeMap::<u16, VecDeque<Flow>>::new();
        for flow in pinned {
            lesser.entry(flow.service).or_default().push_back(flow);
        }
        let mut full = std::mem::take(&mut self.full);
        full.sort_by_key(|flow| Reverse(claim(flow)));
        let mut displaced = Vec::new();
        for flow in full {
            // Other flows may have lost their pins in the meantime.
            if self.has_room(flow.service) {
                self.insert(&flow);
                let _ = flows.set(Flow { pinned: true, ..flow }, Some(&flow));
                continue;
            }
            let may_take = |of: u16| of == flow.service || self.shares.beyond(of) > 0;
            let least = lesser
                .iter()
                .filter(|(of, _)| may_take(**of))
                .filter_map(|(of, flows)| Some((claim(flows.front()?), *of)))
                .min()
                .filter(|(least, _)| *least < claim(&flow));
            let gives_way =
                least.and_then(|(_, of)| lesser.get_mut(&of).and_then(VecDeque::pop_front));
            let Some(gives_way) = gives_way else {
                self.full.push(flow);
                continue;
            };
            self.unpin(&gives_way);
            let unpinned = Flow { pinned: false, ..gives_way };
            // Both flows are already in the registry, so there is room.
            let _ = flows.set(unpinned, Some(&gives_way));
            displaced.push(unpinned);
            self.insert(&flow);
            let _ = flows.set(Flow { pinned: true, ..flow }, Some(&flow));
        }
        displaced
    }
}
