//! Transfers flows from the program's logs and from pending to the registry, and removes flows that
//! have ended.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use equipoise_pog::{KeyHash, SipHash13};

use super::service::{Change, Service};
use super::{Control, Tick};
use crate::abi::{Event, EventKind, How, Pick};
use crate::digest::Digest;
use crate::registry::{Evidence, Flow, FlowState, Full, Verdict};
use crate::snapshot::Protocol;

/// Prefetch distance in the registry, in events.
const AHEAD: usize = 12;
/// Number of intervals for which a flow is kept that was found in pending and never logged.
const RECORDED_INTERVALS: u32 = 2;
/// Time for which a full registry keeps a flow that opened, was seen in no other interval and is
/// idle.
const OPENED_IDLE: Duration = Duration::from_secs(60);
/// Number of intervals for which an ended flow is kept if its backend takes no new flows: a client
/// that reuses the port then gets another backend.
const LEAVING_INTERVALS: u32 = 1;

impl Control {
    /// Reads all events from the logs.
    pub(super) fn drain(&mut self, tick: &mut Tick) {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        for cpu in self.memories.iter().flat_map(|memory| &memory.cpus) {
            cpu.drain(|event| events.push(event));
        }
        tick.events += events.len();
        for (at, event) in events.iter().enumerate() {
            if let Some(later) = events.get(at + AHEAD) {
                self.flows.registry.prefetch(Digest(later.digest));
            }
            self.learn(event, tick);
        }
        self.events = events;
    }

    fn learn(&mut self, event: &Event, tick: &mut Tick) {
        let digest = Digest(event.digest);
        let Some(Some(service)) = self.services.get(usize::from(event.service)) else { return };
        if !service.slots.live(event.slot) {
            // Its backend is gone: its next packet, to another backend, must be logged.
            self.unlogged.push(digest);
            return;
        }
        let before = self.flows.get(digest);
        let seen = self.interval;
        let kind = event.kind;
        let is_named = event.how == How::ConnectionId as u8;
        let after = match before {
            Some(before) => {
                let state = state_after(&before, kind, before.idle(seen));
                let slot = if self.keeps_slot(&before, event) { before.slot } else { event.slot };
                let service = event.service;
                let evidence = self.evidence_after(&before);
                // A packet to another backend than the peer's came before the pin.
                let remote = before.remote && slot != event.slot;
                // An id that agrees with the tables does not change what they know.
                let by_id = is_named && (before.by_id || slot != before.slot);
                Flow { slot, service, state, seen, evidence, remote, by_id, ..before }
            }
            None if kind == EventKind::Rst as u8 => return,
            None => {
                let is_fin = kind == EventKind::Fin as u8;
                let state = if is_fin { FlowState::Closing } else { FlowState::Open };
                let met = Flow::new(digest, event.service, event.slot, state, seen);
                Flow { evidence: self.evidence_of_new(digest), by_id: is_named, ..met }
            }
        };
        self.put(after, before.as_ref(), tick);
    }

    fn evidence_of_new(&self, digest: Digest) -> Evidence {
        match self.memories.iter().any(|memory| memory.state.has_opened(digest.0)) {
            true => Evidence::Opened,
            false => Evidence::None,
        }
    }

    /// Returns the evidence of a flow that is logged again.
    fn evidence_after(&self, before: &Flow) -> Evidence {
        match before.evidence {
            _ if before.idle(self.interval) > 0 => Evidence::Confirmed,
            // The flow may be known from pending alone, or may have opened again.
            Evidence::None => self.evidence_of_new(before.digest),
            known => known,
        }
    }

    /// Whether a flow keeps its slot although this packet went elsewhere. Otherwise the flow has
    /// opened again.
    fn keeps_slot(&self, before: &Flow, event: &Event) -> bool {
        // Another connection may use the same addresses and ports now. Its server is known. A pin
        // stays: it is for packets without an id, and anyone can repeat an id.
        if event.how == How::ConnectionId as u8 {
            return before.pinned || before.registered;
        }
        let is_stray = !before.by_id && self.may_stray(before) && event.how != How::Pending as u8;
        before.pinned || before.registered || is_stray
    }

    /// In a fleet, another balancer may receive a packet before the pin, and use its ring. The same
    /// holds for this balancer if it knows the flow from another one.
    fn may_stray(&self, known: &Flow) -> bool {
        let is_shared = self.memories.len() > 1 && known.seen == self.interval;
        known.state == FlowState::Open && (known.remote && self.fleet.is_some() || is_shared)
    }

    /// Updates the registry from `before` to `after`. If the flow changed its backend, schedules a
    /// check of its pin.
    fn put(&mut self, after: Flow, before: Option<&Flow>, tick: &mut Tick) {
        let admitted = match before {
            // It is already in the registry, so there is room.
            Some(_) => self.flows.set(after, before).map(|()| None),
            None => self.admit(after),
        };
        if !matches!(admitted, Ok(None)) {
            tick.registry_full += 1;
            self.totals.registry_full += 1;
        }
        if admitted.is_err() {
            return;
        }
        self.note_for_peers(before, &after);
        if before.is_none() {
            tick.learnt += 1;
            self.pins.may_match(after.digest);
        }
        let of_tables = |it: &Flow| (it.slot, it.service, it.by_id);
        let is_where_it_was = before.is_some_and(|it| of_tables(it) == of_tables(&after));
        if !is_where_it_was {
            self.suspect(&after);
        }
    }

    /// Adds a flow that the registry does not have. Returns the flow that it replaced.
    pub(super) fn admit(&mut self, flow: Flow) -> Result<Option<Flow>, Full> {
        let interval = self.settings.interval.as_micros().max(1);
        let patience = OPENED_IDLE.as_micros().div_ceil(interval) as u32;
        let displaced = self.flows.admit(flow, patience)?;
        if let Some(displaced) = displaced.filter(|it| it.pinned) {
            self.pins.forgotten.push(displaced.digest);
        }
        Ok(displaced)
    }

    pub(super) fn suspect(&mut self, flow: &Flow) {
        let Some(Some(service)) = self.services.get(usize::from(flow.service)) else { return };
        if !self.pins.agrees(flow, service) {
            self.pins.suspects.push(flow.digest);
        }
    }

    /// Begins a new interval when it is due; flows then get other tags.
    pub(super) fn roll_interval(&mut self, now: Instant) {
        if now < self.clocks.interval_began + self.settings.interval {
            return;
        }
        self.clocks.interval_began = now;
        self.interval = self.interval.wrapping_add(1);
        self.flows.registry.interval().store(u64::from(self.interval), Relaxed);
        self.renew_tags();
    }

    /// Makes the next packet of every flow be logged again.
    pub(super) fn renew_tags(&mut self) {
        let hash = SipHash13::with_seed(self.settings.fleet_seed);
        for memory in &self.memories {
            let interval = memory.state.interval();
            let before = interval.load(Relaxed);
            memory.state.previous_interval().store(before, Relaxed);
            interval.store(hash.hash(&before) | 1, Relaxed);
            memory.state.clear_touched();
        }
    }

    /// Forgets expired flows. Sweeps a part of the registry per call, and all of it per interval.
    pub(super) fn expire(&mut self, now: Instant, tick: &mut Tick) {
        let interval = self.settings.interval;
        let elapsed = now.saturating_duration_since(self.clocks.expired_at).min(interval);
        let entries = self.flows.registry.entries();
        let share = elapsed.as_micros() as usize * entries / interval.as_micros().max(1) as usize;
        if share == 0 {
            return;
        }
        self.clocks.expired_at = now;
        let limits: Vec<_> = self
            .services
            .iter()
            .map(|it| it.as_ref().map(|it| self.limits_of_idleness(it)).unwrap_or_default())
            .collect();
        let (seen, services, forgotten) = (self.interval, &self.services, &mut self.pins.forgotten);
        let mut expired = 0;
        self.sweep_at = self.flows.sweep(self.sweep_at, share + 1, |flow| {
            let service = services.get(usize::from(flow.service)).and_then(Option::as_ref);
            let limits = limits.get(usize::from(flow.service)).copied().unwrap_or_default();
            let is_udp = service.is_some_and(|it| it.id.protocol == Protocol::Udp);
            let most = match flow.state {
                FlowState::Open if is_udp => limits[1],
                FlowState::Open => limits[0],
                FlowState::Closing => limits[2],
                FlowState::Reset => limits[3],
                FlowState::Recorded => RECORDED_INTERVALS,
            };
            let is_over = !flow.is_active() && service.is_some_and(|it| !it.takes_new(flow.slot));
            let most = if is_over { most.min(LEAVING_INTERVALS) } else { most };
            if flow.registered || flow.idle(seen) <= most {
                return Verdict::Keep;
            }
            expired += 1;
            if flow.pinned {
                forgotten.push(flow.digest);
            }
            Verdict::Remove
        });
        tick.expired += expired;
    }

    /// Returns the maximum idle intervals of a service's open, UDP, closing and reset flows.
    pub(super) fn limits_of_idleness(&self, service: &Service) -> [u32; 4] {
        let interval = self.settings.interval.as_micros().max(1);
        let timeouts = self.timeouts_of(service);
        let [open, udp, closing, reset] =
            [timeouts.open, timeouts.udp, timeouts.closing, timeouts.reset]
                .map(|timeout| timeout.as_micros().div_ceil(interval).min(1 << 26) as u32);
        let grace = self.grace_intervals();
        [open + grace, udp + grace, closing, reset]
    }

    /// Processes the flows that the program recorded. Deletes records of known flows for which the
    /// tables agree, schedules known flows for which they do not, and ages flows that only opened.
    pub(super) fn absorb(&mut self, now: Instant, tick: &mut Tick) {
        let mut recorded = std::mem::take(&mut self.recorded);
        let is_safe = self.is_mended && now >= self.clocks.published_at + self.settings.grace;
        for which in 0..self.pending.len() {
            self.pending[which].read(now, &mut recorded);
            self.pending[which].share_out(self.services.iter().map(Option::is_some));
            let is_pressed = self.pending[which].is_pressed();
            for flow in &recorded {
                let is_over = match self.flows.get(flow.digest) {
                    Some(known) => {
                        let is_over = self.absorb_known(known, flow.slot, tick);
                        is_over && !self.opens_again(&known, flow.age, is_pressed)
                    }
                    None => self.absorb_unknown(flow, is_pressed, tick),
                };
                // Until a grace period after a publication, a packet may still be processed with
                // the previous tables.
                if is_over && is_safe {
                    self.pending[which].delete(flow);
                }
            }
        }
        self.recorded = recorded;
    }

    /// Whether the record is no longer needed.
    fn absorb_known(&mut self, known: Flow, slot: u16, tick: &mut Tick) -> bool {
        let Some(Some(service)) = self.services.get(usize::from(known.service)) else {
            return true;
        };
        let mut flow = known;
        if known.by_id || slot != known.slot && !self.may_stray(&known) {
            // A flow with the same key has opened again. This cannot happen to a pinned flow, which
            // always follows its pin.
            if known.pinned || known.registered || !service.slots.live(slot) {
                return true;
            }
            flow = Flow { slot, by_id: false, ..known };
            self.put(flow, Some(&known), tick);
        }
        let Some(Some(service)) = self.services.get(usize::from(flow.service)) else {
            return true;
        };
        let agrees = self.pins.agrees(&flow, service);
        if !agrees {
            self.pins.suspects.push(flow.digest);
        }
        agrees
    }

    /// Whether a SYN has reused the key of a flow that ends. Its record keeps repeated SYNs at the
    /// backend that a scheduler chose, until a packet of the new connection is logged.
    fn opens_again(&self, known: &Flow, age: Duration, is_pressed: bool) -> bool {
        let ends = matches!(known.state, FlowState::Closing | FlowState::Reset);
        let service = self.services.get(usize::from(known.service)).and_then(Option::as_ref);
        let is_scheduled = service.is_some_and(|it| it.pick != Pick::Ring);
        // A pinned flow follows its pin.
        ends && is_scheduled && !known.pinned && age < self.patience(is_pressed)
    }

    /// Longest age of a record of a flow that is not logged.
    fn patience(&self, is_pressed: bool) -> Duration {
        let opening = self.settings.opening_timeout;
        let patience = match is_pressed {
            true => opening,
            // Long enough to be logged with two seeds: with one, the tag of another flow may hide
            // the flow.
            false => opening.max(2 * self.settings.interval + 2 * self.settings.tick),
        };
        patience.max(self.settings.transition + Duration::from_secs(1))
    }

    /// Processes a record of a flow that was never logged: usually a SYN without further packets.
    fn absorb_unknown(
        &mut self,
        recorded: &super::pending::Recorded,
        is_pressed: bool,
        tick: &mut Tick,
    ) -> bool {
        let super::pending::Recorded { digest, service: number, slot, age, .. } = *recorded;
        let service = self.services.get(usize::from(number)).and_then(Option::as_ref);
        let is_known = age > Duration::ZERO;
        if is_known && service.is_some_and(|it| it.went_by_old_ring(digest, slot)) {
            // The record is of a packet in the transition that was not a SYN, of a flow that is not
            // logged in this interval.
            let flow = Flow::new(digest, number, slot, FlowState::Recorded, self.interval);
            self.put(flow, None, tick);
            return false;
        }
        let is_needed = |it: &Service| it.pick != Pick::Ring || it.change != Change::None;
        is_known && !service.is_some_and(is_needed) || age >= self.patience(is_pressed)
    }

    /// Makes the next packet be logged of flows that went to a removed backend.
    pub(super) fn clear_tags(&mut self) {
        for memory in &self.memories {
            for digest in &self.unlogged {
                memory.state.touched_by(digest.0).clear();
            }
        }
        self.unlogged.clear();
    }
}

/// A FIN begins the end. But a flow that is still seen intervals later is open (half-closed, or the
/// FIN was forged). A RST that further packets follow was forged.
fn state_after(before: &Flow, kind: u8, idle: u32) -> FlowState {
    if kind == EventKind::Fin as u8 {
        return FlowState::Closing;
    }
    if kind == EventKind::Rst as u8 {
        return FlowState::Reset;
    }
    match before.state {
        FlowState::Closing if idle == 0 => FlowState::Closing,
        _ => FlowState::Open,
    }
}
