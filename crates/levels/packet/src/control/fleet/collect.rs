//! Collects what a peer does not have.

use std::collections::HashMap;
use std::time::Instant;

use super::super::Control;
use super::{FleetMessage, FlowPart, PinPart, REFRESH_INTERVALS};
use crate::registry::{Evidence, Flow, FlowState};

/// Largest number of flows of a message.
const FLOWS_MAX: usize = 4096;
/// Largest number of pins of a message.
const PINS_MAX: usize = 1024;
/// Largest number of entries of the registry, and of the log, that are read for a message.
const STEPS_MAX: usize = 1 << 16;

/// Progress of a peer: all that it has acknowledged.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// Number of the peer's last request for all flows.
    pub asked: u64,
    /// Number of the last request that was fulfilled.
    pub swept: u64,
    /// The request that is being fulfilled, and the next step.
    sweep: Option<(u64, usize)>,
    /// Next entry of the log; `None`: the peer has got nothing.
    log: Option<u64>,
    /// The last change of pins.
    pins: u64,
    /// Next step of the refresh, and when it was last advanced.
    refresh: usize,
    refreshed_at: Option<Instant>,
}

/// A message, and the position of the peer when it has acknowledged it.
#[derive(Clone, Debug)]
pub struct Collected {
    /// The message; it may be empty.
    pub message: FleetMessage,
    /// The position after it.
    pub position: Position,
    /// Whether more can be sent at once.
    pub more: bool,
}

/// A message that is being filled.
#[derive(Default)]
struct Draft {
    message: FleetMessage,
    places: HashMap<(u16, u16), u16>,
}

impl Draft {
    fn is_full(&self) -> bool {
        self.message.flows.len() >= FLOWS_MAX
    }
}

impl Control {
    /// Returns the next message to the peer at a position.
    pub fn collect(&mut self, from: &Position, now: Instant) -> Collected {
        let (mut position, mut draft) = (from.clone(), Draft::default());
        if self.fleet.is_none() {
            return Collected { message: draft.message, position, more: false };
        }
        let pins_left = self.collect_pins(&mut position, &mut draft);
        let log_left = self.collect_log(&mut position, &mut draft);
        let sweep_left = self.collect_all(&mut position, &mut draft);
        self.collect_refresh(&mut position, &mut draft, now);
        draft.message.swept = position.swept;
        Collected { message: draft.message, position, more: pins_left || log_left || sweep_left }
    }

    fn collect_pins(&self, position: &mut Position, draft: &mut Draft) -> bool {
        let Some(fleet) = &self.fleet else { return false };
        for (change, (vip, flow), pin) in fleet.pins.after(position.pins).take(PINS_MAX) {
            let part = PinPart { vip, flow, backend: pin.backend, version: pin.version };
            draft.message.pins.push(part);
            position.pins = change;
        }
        position.pins < fleet.pins.last_change()
    }

    fn collect_log(&mut self, position: &mut Position, draft: &mut Draft) -> bool {
        let Some(fleet) = &mut self.fleet else { return false };
        let mut at = position.log.unwrap_or(fleet.log_end());
        if at < fleet.log_start {
            fleet.totals.overtaken += 1;
            at = fleet.log_end();
            // The request that was fulfilled last is fulfilled again.
            position.sweep = Some((position.asked, 0));
        }
        let Some(fleet) = &self.fleet else { return false };
        let end = fleet.log_end().min(at + STEPS_MAX as u64);
        while at < end && !draft.is_full() {
            let digest = fleet.log[(at - fleet.log_start) as usize];
            if let Some(flow) = self.flows.get(digest) {
                self.add(draft, &flow);
            }
            at += 1;
        }
        position.log = Some(at);
        at < fleet.log_end()
    }

    /// Adds all flows, if the peer has requested them.
    fn collect_all(&self, position: &mut Position, draft: &mut Draft) -> bool {
        if position.asked > position.sweep.map_or(position.swept, |(ask, _)| ask) {
            position.sweep = Some((position.asked, 0));
        }
        let Some((ask, mut step)) = position.sweep else { return false };
        let end = self.flows.registry.steps().min(step + STEPS_MAX);
        while step < end && !draft.is_full() {
            if let Some(flow) = self.flows.registry.at_step(step) {
                self.add(draft, &flow);
            }
            step += 1;
        }
        let is_left = step < self.flows.registry.steps();
        position.sweep = is_left.then_some((ask, step));
        if !is_left {
            position.swept = ask;
        }
        is_left
    }

    /// Adds a part of the flows that this balancer carries: each once in [`REFRESH_INTERVALS`].
    fn collect_refresh(&self, position: &mut Position, draft: &mut Draft, now: Instant) {
        let round = self.settings.interval * REFRESH_INTERVALS;
        let since = now.saturating_duration_since(*position.refreshed_at.get_or_insert(now));
        let steps = self.flows.registry.steps();
        let due = since.min(round).as_micros() as usize * steps / round.as_micros().max(1) as usize;
        if due == 0 {
            return;
        }
        position.refreshed_at = Some(now);
        for _ in 0..due.min(STEPS_MAX) {
            if draft.is_full() {
                return;
            }
            let flow = self.flows.registry.at_step(position.refresh);
            position.refresh = (position.refresh + 1) % steps;
            let carried = flow.filter(|it| !it.remote && it.evidence != Evidence::None);
            if let Some(flow) = carried.filter(|it| it.idle(self.interval) <= REFRESH_INTERVALS + 1)
            {
                self.add(draft, &flow);
            }
        }
    }

    fn add(&self, draft: &mut Draft, flow: &Flow) {
        if flow.registered || flow.state == FlowState::Recorded {
            return;
        }
        let service = self.services.get(usize::from(flow.service)).and_then(Option::as_ref);
        let Some(service) = service else { return };
        let Some(holder) = service.slots.holder(flow.slot) else { return };
        let Draft { message, places } = draft;
        let place = *places.entry((flow.service, flow.slot)).or_insert_with(|| {
            message.places.push((service.id, holder.backend));
            (message.places.len() - 1) as u16
        });
        // Rounded up if it is known from a peer, so that it does not become younger on its way.
        let idle = flow.idle(self.interval).saturating_add(u32::from(flow.remote));
        message.flows.push(FlowPart {
            digest: flow.digest,
            place,
            state: flow.state,
            evidence: flow.evidence,
            remote: flow.remote,
            by_id: flow.by_id,
            idle: u16::try_from(idle).unwrap_or(u16::MAX),
        });
    }
}
