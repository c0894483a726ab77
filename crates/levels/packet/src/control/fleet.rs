//! Flows shared with the other balancers of a fleet.
//!
//! A flow that is learned, or that changes its backend or state, is noted in a log. Each peer has a
//! [`Position`] in it. A message has the present state of a flow, so nothing is queued for a peer:
//! one that falls behind the log gets all flows again. Flows that this balancer carries are sent
//! again every few intervals, so that they do not expire at peers that see no packet of them.

mod collect;
mod message;
mod pins;
mod take_in;

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

pub use self::collect::{Collected, Position};
pub use self::message::{Ack, FleetMessage, FlowPart, PinPart, UnreadableMessage};
use self::pins::SharedPins;
use super::Control;
use crate::digest::Digest;
use crate::registry::{Evidence, Flow, FlowState};
use crate::snapshot::{BackendId, VipId};

/// Flows that the log holds: 2 MiB. A peer that is further behind gets all flows.
const LOG_MAX: usize = 1 << 18;
/// Intervals in which every flow that this balancer carries is sent once.
const REFRESH_INTERVALS: u32 = 6;
/// Additional intervals for which an idle flow is kept, because another balancer may have had its
/// packets: two refreshes.
const GRACE_INTERVALS: u32 = 2 * REFRESH_INTERVALS;
/// Largest number of flows without [`Evidence`] that are shared per second. Others follow when they
/// have evidence, so that a flood of forged packets is not multiplied.
const UNPROVEN_PER_SECOND: u32 = 10_000;
/// Largest number of unknown backends that are remembered.
const MISSING_MAX: usize = 1024;

/// Counters of the exchange, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetTotals {
    /// Flows received.
    pub received: u64,
    /// Flows received that were not known.
    pub added: u64,
    /// Flows received without a VIP or backend here.
    pub unplaced: u64,
    /// Flows and pins received for which there was no room.
    pub full: u64,
    /// Flows that two balancers had sent to different backends.
    pub conflicts: u64,
    /// How often a peer fell behind the log and was sent all flows again.
    pub overtaken: u64,
    /// Flows without evidence that were held back.
    pub held_back: u64,
}

/// State of the exchange.
#[derive(Debug)]
pub(super) struct Fleet {
    log: VecDeque<Digest>,
    /// Number of the first entry of the log.
    log_start: u64,
    pins: SharedPins,
    /// Number of the last request for all flows of each peer.
    asks: u64,
    /// Backends of received flows that do not exist here (yet).
    missing: BTreeSet<(VipId, BackendId)>,
    /// Whether a backend that the snapshot does not have got a slot.
    has_seated: bool,
    unproven_left: u32,
    renewed_at: Instant,
    totals: FleetTotals,
}

impl Fleet {
    fn log_end(&self) -> u64 {
        self.log_start + self.log.len() as u64
    }

    fn push(&mut self, digest: Digest) {
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
            self.log_start += 1;
        }
        self.log.push_back(digest);
    }

    /// Notes a flow for the peers.
    fn note(&mut self, flow: &Flow) {
        if flow.registered || flow.state == FlowState::Recorded {
            return;
        }
        if flow.evidence == Evidence::None {
            if self.unproven_left == 0 {
                self.totals.held_back += 1;
                return;
            }
            self.unproven_left -= 1;
        }
        self.push(flow.digest);
    }
}

/// Properties of a flow that peers must know at once.
fn told(flow: &Flow) -> (u16, u16, FlowState, bool, bool) {
    (flow.service, flow.slot, flow.state, flow.evidence == Evidence::None, flow.registered)
}

impl Control {
    /// Begins to share flows: notes changes for peers, and accepts their messages.
    pub fn share(&mut self, now: Instant) {
        let mut pins = SharedPins::default();
        for pin in self.pins_noted() {
            pins.set((pin.vip, pin.flow), Some(pin.backend), 0);
        }
        self.fleet = Some(Fleet {
            log: VecDeque::new(),
            log_start: 0,
            pins,
            asks: 1,
            missing: BTreeSet::new(),
            has_seated: false,
            unproven_left: UNPROVEN_PER_SECOND,
            renewed_at: now,
            totals: FleetTotals::default(),
        });
    }

    /// Ends sharing.
    pub fn share_no_more(&mut self) {
        self.fleet = None;
    }

    /// Returns a number that rises when there is something to send.
    pub fn fleet_news(&self) -> u64 {
        self.fleet.as_ref().map_or(0, |fleet| fleet.log_end() + fleet.pins.changes())
    }

    /// Returns the number of the last request for all flows.
    pub fn fleet_asks(&self) -> u64 {
        self.fleet.as_ref().map_or(0, |fleet| fleet.asks)
    }

    /// Whether backends that the snapshot does not have got slots since the last call: their next
    /// hops are needed.
    pub fn has_seated(&mut self) -> bool {
        self.fleet.as_mut().is_some_and(|fleet| std::mem::take(&mut fleet.has_seated))
    }

    /// Returns the counters of the exchange.
    pub fn fleet_totals(&self) -> FleetTotals {
        self.fleet.as_ref().map(|fleet| fleet.totals).unwrap_or_default()
    }

    /// Notes a flow for the peers if it has changed.
    pub(super) fn note_for_peers(&mut self, before: Option<&Flow>, after: &Flow) {
        if let Some(fleet) = &mut self.fleet
            && before.map(told) != Some(told(after))
        {
            fleet.note(after);
        }
    }

    /// Allows more flows without evidence to be shared.
    pub(super) fn renew_share(&mut self, now: Instant) {
        let Some(fleet) = &mut self.fleet else { return };
        if now >= fleet.renewed_at + Duration::from_secs(1) {
            (fleet.unproven_left, fleet.renewed_at) = (UNPROVEN_PER_SECOND, now);
        }
    }

    /// Requests all flows of the peers if a backend now exists of which flows were received before.
    pub(super) fn ask_for_missing(&mut self) {
        let Some(fleet) = &mut self.fleet else { return };
        let services = &self.services;
        let before = fleet.missing.len();
        fleet.missing.retain(|(vip, backend)| {
            let service = services.iter().flatten().find(|it| it.id == *vip);
            service.is_none_or(|it| it.slots.of(backend).is_none())
        });
        fleet.asks += u64::from(fleet.missing.len() < before);
    }

    /// Returns the additional intervals for which an idle flow is kept.
    pub(super) fn grace_intervals(&self) -> u32 {
        if self.fleet.is_some() { GRACE_INTERVALS } else { 0 }
    }
}
