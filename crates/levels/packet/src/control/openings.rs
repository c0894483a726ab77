//! Flows that have sent only a SYN: the registry does not know them, but a publication must not
//! move them.
//!
//! The image at the time of a SYN determines its backend; it mistakes about slots/65536 of all
//! flows for pinned ones. A newer image mistakes other flows. Therefore each publication checks the
//! SYNs that the program noted, and pins flows that the new image would move. A change of rings
//! moves no opening flow, because the program records those.
//!
//! Limit: it misses a SYN between this check and the switch to the new image, some microseconds
//! later.

use super::flows::Flows;
use super::pins::service_of;
use super::service::Service;
use crate::abi::{How, Opening};
use crate::digest::Digest;
use crate::memory::Memory;
use crate::registry::{Flow, FlowState};
use crate::tables::Pins;

/// Number of flows looked up at once.
const BATCH: usize = 1024;

/// The SYNs that a program noted recently.
#[derive(Debug)]
pub(super) struct Openings {
    openings: Vec<Opening>,
    /// Number of the interval.
    now: u32,
}

impl Openings {
    pub(super) fn of(memories: &[Memory], now: u32) -> Openings {
        let noted = memories.iter().flat_map(|memory| memory.state.openings());
        // For other values of `how`, pending has the slot, and the program looks there first.
        let hows = [How::Ring, How::Fallback, How::Pin].map(|how| how as u8);
        Openings { openings: noted.filter(|it| hows.contains(&it.how)).collect(), now }
    }

    /// Returns the flows that tables with the image `pog` would not send to the backend of their
    /// SYN.
    pub(super) fn astray(
        &self,
        pog: &Pins,
        flows: &Flows,
        services: &[Option<Service>],
    ) -> Vec<Flow> {
        let mut astray = Vec::new();
        let mut slots = vec![None; BATCH];
        for openings in self.openings.chunks(BATCH) {
            let digests: Vec<Digest> = openings.iter().map(|it| Digest(it.digest)).collect();
            let slots = &mut slots[..digests.len()];
            pog.pinned_batch(&digests, slots);
            let pinned = openings.iter().zip(&*slots);
            let may_move = pinned.filter(|(it, slot)| match slot {
                Some(slot) => *slot != it.slot,
                None => it.how == How::Pin as u8,
            });
            astray.extend(may_move.filter_map(|(it, slot)| self.moved(it, *slot, flows, services)));
        }
        astray
    }

    /// Returns the flow of a SYN if the registry does not know it and the tables, with slot
    /// `pinned` from the image, would move it.
    fn moved(
        &self,
        opening: &Opening,
        pinned: Option<u16>,
        flows: &Flows,
        services: &[Option<Service>],
    ) -> Option<Flow> {
        let Opening { digest, slot, service: number, .. } = *opening;
        let flow = Flow::new(Digest(digest), number, slot, FlowState::Recorded, self.now);
        let service = service_of(services, &flow)?;
        let by_pin = pinned.filter(|slot| service.slots.live(*slot));
        if by_pin.is_none() && opening.how != How::Pin as u8 {
            return None;
        }
        let goes_to = by_pin.or_else(|| service.ring_slot(flow.digest));
        let is_moved = service.slots.live(slot) && goes_to != Some(slot);
        (is_moved && flows.get(flow.digest).is_none()).then_some(flow)
    }
}
