//! Connection counts of each backend, for the least-connection schedulers.
//!
//! The two numbers of LVS (`ip_vs_wlc.c`): active flows are opening or established; inactive flows
//! are closing. The program counts a flow as active when it picks a backend for the first packet,
//! as LVS does (`ip_vs_proto_tcp.c`: `SYN_RECV` is active). Later the registry's count replaces it,
//! or the count is subtracted when the opening times out.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::Control;
use crate::memory::Memory;

/// Flows that the program assigned to a backend, and that are not in the registry yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Opening {
    /// Oldest first: time when they were read, and number that is left.
    batches: VecDeque<(Instant, u32)>,
    /// Number of flows that had become active at the last count; wraps.
    begun: u32,
    /// Index of the backend, and the number of active flows last written there.
    written: Option<(usize, u32)>,
}

impl Opening {
    /// Adds flows that the program assigned.
    fn add(&mut self, picked: u32, now: Instant) {
        if picked > 0 {
            self.batches.push_back((now, picked));
        }
    }

    /// Subtracts the flows that the registry has learned. The latest first: a handshake takes
    /// milliseconds, and older entries are mostly SYNs without further packets.
    fn take(&mut self, mut learnt: u32) {
        while let Some((_, flows)) = self.batches.back_mut() {
            let taken = learnt.min(*flows);
            (*flows, learnt) = (*flows - taken, learnt - taken);
            if *flows > 0 {
                return;
            }
            self.batches.pop_back();
        }
    }

    /// Drops the flows that were read before `oldest`.
    fn expire(&mut self, oldest: Option<Instant>) {
        while self.batches.front().is_some_and(|(read, _)| Some(*read) < oldest) {
            self.batches.pop_front();
        }
    }

    fn flows(&self) -> u32 {
        self.batches.iter().map(|(_, flows)| flows).sum()
    }
}

impl Control {
    /// Updates the loads from the registry.
    pub(super) fn store_loads(&mut self, now: Instant) {
        let mut first = 0;
        for (number, service) in (0..).zip(&self.services) {
            let Some(service) = service else { continue };
            if service.pick.reads_loads() {
                for (slot, _) in service.slots.held() {
                    let opening = self.opening.entry((number, slot)).or_default();
                    let flows = (self.flows.tally(number, slot), self.flows.begun(number, slot));
                    let index = first + usize::from(slot);
                    let oldest = now.checked_sub(self.settings.opening_timeout);
                    store_load(&self.memories, index, opening, flows, (now, oldest));
                }
            }
            first += service.slots.len();
        }
        let services = &self.services;
        self.opening.retain(|(number, slot), _| {
            let service = services.get(usize::from(*number)).and_then(Option::as_ref);
            service.is_some_and(|service| service.slots.live(*slot))
        });
    }
}

/// Updates the load of the backend at `index`. The registry has `tally` flows of it, `begun` in
/// all.
fn store_load(
    memories: &[Memory],
    index: usize,
    opening: &mut Opening,
    (tally, begun): ([u32; 2], u32),
    (now, oldest): (Instant, Option<Instant>),
) {
    let written = opening.written.filter(|(at, _)| *at == index).map(|(_, written)| written);
    let read = |memory: &Memory| memory.state.load(index)[0].load(Relaxed);
    let found: Vec<u32> = memories.iter().map(read).collect();
    // At another index, the previous value belonged to another backend.
    if let Some(written) = written {
        let picked = found.iter().map(|found| found.wrapping_sub(written));
        opening.add(picked.fold(0, u32::saturating_add), now);
        opening.take(begun.wrapping_sub(opening.begun));
    }
    opening.expire(oldest);
    let active = tally[0].saturating_add(opening.flows());
    for (memory, found) in memories.iter().zip(found) {
        let [active_word, inactive_word] = memory.state.load(index);
        // The program may have counted more in the meantime.
        active_word.fetch_add(active.wrapping_sub(found), Relaxed);
        inactive_word.store(tally[1], Relaxed);
    }
    (opening.begun, opening.written) = (begun, Some((index, active)));
}
