//! From the program's logs and from pending to the registry; and out of it again when flows are over.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use equipoise_pog::{KeyHash, SipHash13};

use super::service::{Change, Service};
use super::{Control, Tick};
use crate::abi::{Event, EventKind, How, Pick};
use crate::digest::Digest;
use crate::registry::{Evidence, Flow, FlowState, Full, Verdict};
use crate::snapshot::Protocol;

/// Events ahead of which the registry is fetched.
const AHEAD: usize = 12;
/// Intervals for which a flow is kept that was found in pending and never logged.
const RECORDED_INTERVALS: u32 = 2;
/// How long, in a full registry, a flow keeps its place that opened, was seen in no other interval and is idle.
const OPENED_IDLE: Duration = Duration::from_secs(60);
/// Intervals for which a flow is kept that has ended, of a backend that takes no new ones: a client that uses the port
/// again gets another backend.
const LEAVING_INTERVALS: u32 = 1;

impl Control {
    /// Takes everything from the logs.
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
            // It went to a backend that is gone: it is to be logged again where it goes next.
            self.unlogged.push(digest);
            return;
        }
        let before = self.flows.get(digest);
        let seen = self.interval;
        let kind = event.kind;
        let after = match before {
            Some(before) => {
                let state = state_after(&before, kind, before.idle(seen));
                let slot = if self.keeps_slot(&before, event) { before.slot } else { event.slot };
                let service = event.service;
                let evidence = self.evidence_after(&before);
                Flow { slot, service, state, seen, evidence, ..before }
            }
            None if kind == EventKind::Rst as u8 => return,
            None => {
                let is_fin = kind == EventKind::Fin as u8;
                let state = if is_fin { FlowState::Closing } else { FlowState::Open };
                let met = Flow::new(digest, event.service, event.slot, state, seen);
                Flow { evidence: self.evidence_of_new(digest), ..met }
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

    /// Of a flow that is logged once more.
    fn evidence_after(&self, before: &Flow) -> Evidence {
        match before.evidence {
            _ if before.idle(self.interval) > 0 => Evidence::Confirmed,
            // It may be known from pending alone, or have opened anew.
            Evidence::None => self.evidence_of_new(before.digest),
            known => known,
        }
    }

    /// Whether a flow is where it was learnt, though this packet of it went elsewhere; else it has opened anew.
    fn keeps_slot(&self, before: &Flow, event: &Event) -> bool {
        let is_stray = self.may_stray(before) && event.how != How::Pending as u8;
        before.pinned || before.registered || is_stray
    }

    /// In a fleet, another balancer may get a packet before the pin does, and go by its ring.
    fn may_stray(&self, known: &Flow) -> bool {
        self.memories.len() > 1 && known.state == FlowState::Open && known.seen == self.interval
    }

    /// Brings the registry from `before` to `after`, and has the pins look at the flow if it went elsewhere.
    fn put(&mut self, after: Flow, before: Option<&Flow>, tick: &mut Tick) {
        let admitted = match before {
            // It is there, so that there is room for it.
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
        if before.is_none() {
            tick.learnt += 1;
            self.pins.may_match(after.digest);
        }
        let is_where_it_was =
            before.is_some_and(|it| (it.slot, it.service) == (after.slot, after.service));
        if !is_where_it_was {
            self.suspect(&after);
        }
    }

    /// Adds a flow that the registry does not have; returns the flow that gave way to it.
    pub(super) fn admit(&mut self, flow: Flow) -> Result<Option<Flow>, Full> {
        let interval = self.settings.interval.as_micros().max(1);
        let patience = OPENED_IDLE.as_micros().div_ceil(interval) as u32;
        let displaced = self.flows.admit(flow, patience)?;
        if let Some(displaced) = displaced.filter(|it| it.pinned) {
            self.pins.forgotten.push(displaced.digest);
        }
        Ok(displaced)
    }

    fn suspect(&mut self, flow: &Flow) {
        let Some(Some(service)) = self.services.get(usize::from(flow.service)) else { return };
        if !self.pins.agrees(flow, service) {
            self.pins.suspects.push(flow.digest);
        }
    }

    /// Begins an interval when it is time: flows get other tags.
    pub(super) fn roll_interval(&mut self, now: Instant) {
        if now < self.clocks.interval_began + self.settings.interval {
            return;
        }
        self.clocks.interval_began = now;
        self.interval = self.interval.wrapping_add(1);
        self.flows.registry.interval().store(u64::from(self.interval), Relaxed);
        self.renew_tags();
    }

    /// Has every flow logged again, with its next packet.
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

    /// Forgets flows that are over, a part of the registry at a time: all of it in an interval.
    pub(super) fn expire(&mut self, now: Instant, tick: &mut Tick) {
        let interval = self.settings.interval;
        let elapsed = now.saturating_duration_since(self.clocks.expired_at).min(interval);
        let entries = self.flows.registry.entries();
        let share = elapsed.as_micros() as usize * entries / interval.as_micros().max(1) as usize;
        if share == 0 {
            return;
        }
        self.clocks.expired_at = now;
        let limits = self.limits_of_idleness();
        let (seen, services, forgotten) = (self.interval, &self.services, &mut self.pins.forgotten);
        let mut expired = 0;
        self.sweep_at = self.flows.sweep(self.sweep_at, share + 1, |flow| {
            let service = services.get(usize::from(flow.service)).and_then(Option::as_ref);
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

    /// Intervals for which an open, UDP, closing, reset flow may be idle.
    fn limits_of_idleness(&self) -> [u32; 4] {
        let interval = self.settings.interval.as_micros().max(1);
        let timeouts = self.settings.timeouts;
        [timeouts.open, timeouts.udp, timeouts.closing, timeouts.reset]
            .map(|timeout| timeout.as_micros().div_ceil(interval).min(1 << 27) as u32)
    }

    /// Goes through what the program recorded: what is known and goes the same way by the tables is taken away, what
    /// is known and does not becomes a suspect, what only opened grows old.
    pub(super) fn absorb(&mut self, now: Instant, tick: &mut Tick) {
        let mut recorded = std::mem::take(&mut self.recorded);
        let is_safe = self.is_mended && now >= self.clocks.published_at + self.settings.grace;
        for which in 0..self.pending.len() {
            self.pending[which].read(now, &mut recorded);
            self.pending[which].share_out(self.services.iter().map(Option::is_some));
            let is_pressed = self.pending[which].is_pressed();
            for flow in &recorded {
                let is_over = match self.flows.get(flow.digest) {
                    Some(known) => self.absorb_known(known, flow.slot, tick),
                    None => self.absorb_unknown(flow, is_pressed, tick),
                };
                // Until a grace period after a publication, a packet may be on its way by the tables before it.
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
        if slot != known.slot && !self.may_stray(&known) {
            // A flow of the same key that opened anew. A pinned flow cannot: it goes by its pin.
            if known.pinned || known.registered || !service.slots.live(slot) {
                return true;
            }
            flow = Flow { slot, ..known };
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

    /// Of a flow that was never logged: mostly a SYN that nothing followed.
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
            // A packet within the transition that was no SYN, of a flow that is not logged in this interval.
            let flow = Flow::new(digest, number, slot, FlowState::Recorded, self.interval);
            self.put(flow, None, tick);
            return false;
        }
        let is_needed = |it: &Service| it.pick != Pick::Ring || it.change != Change::None;
        let opening = self.settings.opening_timeout;
        let patience = match is_pressed {
            true => opening,
            // Long enough to be logged under two seeds: under one, the tag of another flow may hide it.
            false => opening.max(2 * self.settings.interval + 2 * self.settings.tick),
        };
        let patience = patience.max(self.settings.transition + Duration::from_secs(1));
        is_known && !service.is_some_and(is_needed) || age >= patience
    }

    /// Makes the next packet of flows be logged, which went to a backend that is gone.
    pub(super) fn clear_tags(&mut self) {
        for memory in &self.memories {
            for digest in &self.unlogged {
                let (tag, bucket) = memory.state.touched_by(digest.0);
                for place in bucket {
                    let _ = place.compare_exchange(tag, 0, Relaxed, Relaxed);
                }
            }
        }
        self.unlogged.clear();
    }
}

/// A FIN begins the end, but a flow that is still seen intervals later is open (half-closed, or the FIN was not its
/// own); a RST that anything follows was not the flow's own.
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
