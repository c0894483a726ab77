//! Changes of pins that are to be made together, within the room that there is.

use std::cmp::Reverse;

use equipoise_pog::Update;

use super::flows::Flows;
use crate::digest::Digest;
use crate::registry::{Evidence, Flow};
use crate::tables::PogCell;

/// Changes of pins.
pub(super) struct Wanted {
    pub(super) updates: Vec<Update<Digest, PogCell>>,
    /// Flows that should be pinned and for which there is no room.
    pub(super) full: Vec<Flow>,
    pins: usize,
    pins_max: usize,
}

/// Which flows keep their pins when there is no room for all; the last ones first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// It ended in an earlier interval.
    Ended,
    Living(Evidence),
    Registered,
}

/// In interval `now`.
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
    /// No changes of `pins` pins.
    pub(super) fn new(pins: usize, pins_max: usize) -> Wanted {
        Wanted { updates: Vec::new(), full: Vec::new(), pins, pins_max }
    }

    /// The flow as it is after its pin is added or altered.
    pub(super) fn pin(&mut self, flow: Flow) -> Flow {
        if flow.pinned {
            self.updates.push(Update::Alter(flow.digest, flow.slot));
        } else if self.pins >= self.pins_max {
            self.full.push(flow);
            return flow;
        } else {
            self.pins += 1;
            self.updates.push(Update::Insert(flow.digest, flow.slot));
        }
        Flow { pinned: true, ..flow }
    }

    pub(super) fn unpin(&mut self, digest: Digest) {
        self.pins = self.pins.saturating_sub(1);
        self.updates.push(Update::Delete(digest));
    }

    /// Adds an opening flow to the registry and pins it; `false`: there is no room for it.
    pub(super) fn pin_opening(&mut self, flow: Flow, flows: &mut Flows) -> bool {
        let pinned = Flow { pinned: true, ..flow };
        if self.pins >= self.pins_max || flows.set(pinned, None).is_err() {
            return false;
        }
        self.pin(flow);
        true
    }

    /// Gives the flows that found no room the pins of flows with a lesser claim. Returns those: they are no longer
    /// pinned, and the registry still has them where they were.
    pub(super) fn displace(&mut self, flows: &mut Flows) -> Vec<Flow> {
        let now = flows.now();
        let claim = |flow: &Flow| claim(flow, now);
        let Some(highest) = self.full.iter().map(claim).max() else { return Vec::new() };
        let pinned = flows.registry.iter().filter(|it| it.pinned && claim(it) < highest);
        let mut pinned: Vec<Flow> = pinned.collect();
        pinned.sort_unstable_by_key(claim);
        let mut lesser = pinned.into_iter().peekable();
        let mut full = std::mem::take(&mut self.full);
        full.sort_by_key(|flow| Reverse(claim(flow)));
        let mut displaced = Vec::new();
        for flow in full {
            if self.pins < self.pins_max {
                // Other flows have lost their pins since.
                let after = self.pin(flow);
                let _ = flows.set(after, Some(&flow));
                continue;
            }
            let Some(gives_way) = lesser.next_if(|it| claim(it) < claim(&flow)) else {
                self.full.push(flow);
                continue;
            };
            self.unpin(gives_way.digest);
            let unpinned = Flow { pinned: false, ..gives_way };
            // Both flows are there, so that there is room for them.
            let _ = flows.set(unpinned, Some(&gives_way));
            displaced.push(unpinned);
            let after = self.pin(flow);
            let _ = flows.set(after, Some(&flow));
        }
        displaced
    }
}
