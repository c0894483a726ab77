//! Connections of each backend, for schedulers that go by them.
//!
//! LVS's two numbers (`ip_vs_wlc.c`): active are the flows in the registry that are open; inactive those that are
//! closing, and those that are opening. The program counts the latter itself as it places them; what the control side
//! then learns is taken from them, and what it never learns fades in the time that opening may take.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::Control;
use crate::abi::Pick;

/// Flows of a backend that are opening.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opening {
    flows: f64,
    /// Flows learnt when they were last counted.
    known: u32,
    /// What was last written as inactive, and at which index.
    written: u32,
    index: usize,
}

impl Control {
    /// Brings the loads in line with the registry.
    pub(super) fn store_loads(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.clocks.ticked_at).as_secs_f64();
        let fading = (1.0 - elapsed / self.settings.opening_timeout.as_secs_f64()).clamp(0.0, 1.0);
        let mut first = 0;
        for (number, service) in (0..).zip(&self.services) {
            let Some(service) = service else { continue };
            if matches!(service.pick, Pick::Least | Pick::LeastWeighted) {
                for (slot, _) in service.slots.held() {
                    let index = first + usize::from(slot);
                    let tally = self.flows.tally(number, slot);
                    let opening = self.opening.entry((number, slot)).or_default();
                    opening.flows *= fading;
                    for memory in &self.memories {
                        let [active, inactive] = memory.state.load(index);
                        active.store(tally[0], Relaxed);
                        let read = inactive.load(Relaxed);
                        if opening.index == index {
                            opening.flows += f64::from(read.wrapping_sub(opening.written) as i32);
                        }
                    }
                    let known = tally[0] + tally[1];
                    let learnt = known.saturating_sub(opening.known);
                    opening.flows = (opening.flows - f64::from(learnt)).max(0.0);
                    opening.written = tally[1] + opening.flows as u32;
                    (opening.known, opening.index) = (known, index);
                    for memory in &self.memories {
                        memory.state.load(index)[1].store(opening.written, Relaxed);
                    }
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
