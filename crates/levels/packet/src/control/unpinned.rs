//! The flows that an image must not match.

use super::flows::Flows;
use super::pins::service_of;
use super::service::Service;
use crate::digest::Digest;
use crate::registry::Flow;
use crate::tables::{Pins, PogCell};

/// Number of flows looked up at once.
const BATCH: usize = 1024;

/// Digests of the flows that are not pinned, copied from the registry once. Each added pin changes
/// the image, so one publication checks these flows several times, and the registry is larger and
/// sparser. A flow may occur twice, and may have been pinned or forgotten since.
#[derive(Debug)]
pub(super) struct Unpinned {
    digests: Vec<Digest>,
}

impl Unpinned {
    pub(super) fn of(flows: &Flows) -> Unpinned {
        Unpinned { digests: flows.registry.select(false, |flow| flow.digest) }
    }

    pub(super) fn add(&mut self, digest: Digest) {
        self.digests.push(digest);
    }

    /// Returns the flows to which the image gives another slot of their service than their own;
    /// each once.
    pub(super) fn false_matches(
        &self,
        pog: &Pins,
        flows: &Flows,
        services: &[Option<Service>],
    ) -> Vec<Flow> {
        let slots_max = services.iter().flatten().map(|it| it.slots.len()).max().unwrap_or(0);
        let mut matching: Vec<Digest> = Vec::new();
        let mut slots = vec![None; BATCH];
        for digests in self.digests.chunks(BATCH) {
            let slots = &mut slots[..digests.len()];
            pog.pinned_batch(digests, slots);
            let counts =
                |slot: &Option<PogCell>| slot.is_some_and(|it| usize::from(it) < slots_max);
            matching.extend(
                digests.iter().zip(&*slots).filter(|(_, it)| counts(it)).map(|(it, _)| *it),
            );
        }
        matching.sort_unstable();
        matching.dedup();
        let is_false = |flow: &Flow| {
            let (Some(service), Some(slot)) =
                (service_of(services, flow), pog.pinned(&flow.digest))
            else {
                return false;
            };
            let is_unpinned = !flow.pinned && !flow.by_id;
            is_unpinned && usize::from(slot) < service.slots.len() && slot != flow.slot
        };
        matching.into_iter().filter_map(|digest| flows.get(digest)).filter(is_false).collect()
    }
}
