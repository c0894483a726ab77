//! Takes in what a peer sends.

use std::cmp::Ordering;
use std::time::Instant;

use super::super::Control;
use super::{Ack, FleetMessage, FlowPart, MISSING_MAX};
use crate::abi::{FlowKey, Forward};
use crate::registry::{Evidence, Flow, FlowState};
use crate::slots::Holder;
use crate::snapshot::{BackendId, Standing, VipId};
use crate::twin::Translated;

impl Control {
    /// Takes in a peer's message. The next publication pins its flows where that is necessary.
    /// `now_ns`: `now` by the kernel's monotonic clock.
    pub fn take_in(&mut self, message: &FleetMessage, now: Instant, now_ns: u64) -> Ack {
        let Some(asks) = self.fleet.as_ref().map(|fleet| fleet.asks) else { return Ack::default() };
        let mut ack = Ack { asks, ..Ack::default() };
        let places = message.places.iter().map(|(vip, at)| self.place_of(vip, *at, now));
        let places: Vec<_> = places.collect();
        let mut sent = vec![0_u64; places.len()];
        for part in &message.flows {
            let at = usize::from(part.place);
            match places.get(at).copied().flatten() {
                Some((service, slot)) => {
                    let backend = message.places[at].1;
                    ack.full += u32::from(!self.take_in_flow(part, service, slot, backend));
                }
                None => {
                    ack.unplaced += 1;
                    sent[at] += 1;
                }
            }
        }
        self.note_translated(message, &places, now_ns);
        for pin in &message.pins {
            ack.full += u32::from(!self.take_in_pin(pin));
        }
        if let Some(fleet) = &mut self.fleet {
            fleet.totals.received += message.flows.len() as u64;
            fleet.totals.unplaced += u64::from(ack.unplaced);
            fleet.totals.full += u64::from(ack.full);
            let unplaced = message.places.iter().zip(sent).filter(|(_, sent)| *sent > 0);
            let room = MISSING_MAX.saturating_sub(fleet.missing.len());
            fleet.missing.extend(unplaced.map(|(place, _)| *place).take(room));
        }
        ack
    }

    /// Has replies of the message's flows under nat translated, also before the next packet of
    /// their clients.
    fn note_translated(&self, message: &FleetMessage, places: &[Option<(u16, u16)>], now_ns: u64) {
        for words in self.memories.iter().map(|memory| memory.translated.words()) {
            // Without a VIP with nat there are none.
            if words.is_empty() {
                continue;
            }
            let translated = Translated::of_other_balancers(words, &self.head(), now_ns);
            for part in &message.flows {
                let place = places.get(usize::from(part.place)).copied().flatten();
                let place = place.filter(|(number, _)| self.translates_by_digest(*number));
                let Some((number, slot)) = place else { continue };
                // A flow that this balancer knows better has its own record.
                let flow = self.flows.get(part.digest).filter(|it| it.remote);
                if let Some(flow) = flow.filter(|it| (it.service, it.slot) == (number, slot)) {
                    translated.put_reported(flow.digest, slot, flow.state == FlowState::Open);
                }
            }
        }
    }

    /// Whether the digests of a VIP's flows are those by which the program finds flows of replies.
    fn translates_by_digest(&self, number: u16) -> bool {
        self.services[usize::from(number)].as_ref().is_some_and(|it| {
            it.forward == Forward::Nat && it.key == FlowKey::FiveTuple && it.quic.is_none()
        })
    }

    /// Returns the numbers of a VIP and of its backend's slot.
    fn place_of(&mut self, vip: &VipId, backend: BackendId, now: Instant) -> Option<(u16, u16)> {
        let number = self.number_of(&vip.normal())?;
        let service = self.services[usize::from(number)].as_ref()?;
        let slot = service.slots.of(&backend).or_else(|| self.seat_leaving(number, backend, now));
        Some((number, slot?))
    }

    /// Gives a slot to a backend that the snapshot does not have, because it left the pool before
    /// this balancer began, or joins it a moment later. It keeps its flows, and gets no new ones.
    fn seat_leaving(&mut self, number: u16, backend: BackendId, now: Instant) -> Option<u16> {
        let quarantine = self.quarantine();
        let is_vip = self.services.iter().flatten().any(|it| it.id.address == backend.address);
        let used: usize = self.services.iter().flatten().map(|it| it.slots.len()).sum();
        let room = (self.limits.backends_max as usize).saturating_sub(used);
        let service = self.services[usize::from(number)].as_mut()?;
        // Under nat, the listed backends determine which replies are translated.
        let is_possible = !service.forward.translates() && backend.port.is_none();
        let is_family = service.forward.is_tunnel()
            || backend.address.is_ipv4() == service.id.address.is_ipv4();
        // One that is listed without a slot is down, or has no room.
        let is_listed = service.listed.iter().any(|it| it.id() == backend);
        if !is_possible || !is_family || is_vip || is_listed || service.scheduler.is_none() {
            return None;
        }
        let (counter, is_new) = self.numbers.of(service.id, backend)?;
        let holder = Holder {
            backend,
            number: counter,
            weight: 1,
            standing: Standing::Draining,
            listed: false,
            idle_since: None,
        };
        let (slots_before, rings) = (service.slots.len(), &service.rings);
        let len_max = slots_before + room;
        let slot = service.slots.take(holder, len_max, quarantine, now, |slot| rings.have(slot))?;
        self.slots_grew |= service.slots.len() > slots_before;
        self.is_dirty = true;
        if is_new {
            for cpu in self.memories.iter().flat_map(|memory| &memory.cpus) {
                cpu.clear_backend(usize::from(counter));
            }
        }
        if let Some(fleet) = &mut self.fleet {
            fleet.has_seated = true;
        }
        Some(slot)
    }

    /// Returns `false` if there is no room for the flow.
    fn take_in_flow(&mut self, part: &FlowPart, service: u16, slot: u16, at: BackendId) -> bool {
        let seen = self.interval.wrapping_sub(u32::from(part.idle));
        let theirs = Flow::new(part.digest, service, slot, part.state, seen);
        let evidence = part.evidence;
        let theirs = Flow { evidence, remote: true, by_id: part.by_id, ..theirs };
        let Some(mine) = self.flows.get(part.digest) else {
            return self.take_in_new(theirs);
        };
        if mine.registered || mine.service != service {
            return true;
        }
        // The tables' backend prevails: packets without an id go there.
        let loses_id = mine.by_id && !theirs.by_id;
        if mine.slot == slot {
            let merged = merged(&mine, &theirs, self.interval);
            if merged != mine {
                // It is in the registry already, so there is room.
                let _ = self.flows.set(merged, Some(&mine));
                if loses_id {
                    self.suspect(&merged);
                }
            }
            return true;
        }
        if theirs.by_id && !mine.by_id {
            return true;
        }
        let holder = self.services[usize::from(service)].as_ref().and_then(|it| {
            let holder = it.slots.holder(mine.slot)?;
            Some(holder.backend)
        });
        let prevails = loses_id
            || holder.is_none_or(|holder| {
                prevails((&theirs, at, part.remote), (&mine, holder, mine.remote), self.interval)
            });
        if let Some(fleet) = &mut self.fleet {
            fleet.totals.conflicts += 1;
            if !prevails {
                fleet.push(part.digest);
                return true;
            }
        }
        let after = Flow { pinned: mine.pinned, ..theirs };
        let _ = self.flows.set(after, Some(&mine));
        self.pins.suspects.push(part.digest);
        true
    }

    fn take_in_new(&mut self, theirs: Flow) -> bool {
        let Some(Some(service)) = self.services.get(usize::from(theirs.service)) else {
            return true;
        };
        let limit = self.limits_of_idleness(service)[0];
        if theirs.idle(self.interval) > limit {
            return true;
        }
        if self.admit(theirs).is_err() {
            return false;
        }
        if let Some(fleet) = &mut self.fleet {
            fleet.totals.added += 1;
        }
        self.pins.may_match(theirs.digest);
        self.suspect(&theirs);
        true
    }
}

/// Combines what two balancers know of a flow at one backend.
fn merged(mine: &Flow, theirs: &Flow, now: u32) -> Flow {
    let evidence = mine.evidence.max(theirs.evidence);
    let (seen, state, remote) = match theirs.idle(now).cmp(&mine.idle(now)) {
        Ordering::Less => (theirs.seen, theirs.state, true),
        Ordering::Equal if ends(theirs) > ends(mine) => (mine.seen, theirs.state, mine.remote),
        _ => (mine.seen, mine.state, mine.remote),
    };
    let by_id = mine.by_id && theirs.by_id;
    // Within an interval, an end is later than other packets.
    Flow { seen: seen & crate::registry::SEEN_MASK, state, remote, evidence, by_id, ..*mine }
}

fn ends(flow: &Flow) -> u8 {
    match flow.state {
        FlowState::Recorded => 0,
        FlowState::Open => 1,
        FlowState::Closing => 2,
        FlowState::Reset => 3,
    }
}

/// Decides which of two backends a flow keeps, identically on both balancers. `remote` says whether
/// a balancer knows the flow from another one.
fn prevails(
    (theirs, their_backend, their_remote): (&Flow, BackendId, bool),
    (mine, my_backend, my_remote): (&Flow, BackendId, bool),
    now: u32,
) -> bool {
    let has_evidence = |flow: &Flow| flow.evidence != Evidence::None;
    // The sender has rounded up the idleness of what it knows from another balancer.
    let their_idle = theirs.idle(now);
    let my_idle = mine.idle(now) + u32::from(my_remote);
    let is_fresher = |one: u32, other: u32| one + 1 < other;
    let order = has_evidence(theirs)
        .cmp(&has_evidence(mine))
        .then(theirs.is_active().cmp(&mine.is_active()))
        .then(is_fresher(their_idle, my_idle).cmp(&is_fresher(my_idle, their_idle)))
        .then(theirs.evidence.cmp(&mine.evidence))
        .then(my_remote.cmp(&their_remote))
        .then(my_backend.cmp(&their_backend));
    order == Ordering::Greater
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    const NOW: u32 = 100;

    fn flow(slot: u16, state: FlowState, evidence: Evidence, idle: u32) -> Flow {
        Flow { evidence, ..Flow::new(Digest(7), 0, slot, state, NOW - idle) }
    }

    fn backend(last: u8) -> BackendId {
        BackendId { address: [10, 0, 0, last].into(), port: None }
    }

    #[test]
    fn two_balancers_agree_on_the_prevailing_backend_of_a_flow() {
        use Evidence::{Confirmed, None, Opened};
        use FlowState::{Closing, Open, Reset};
        let mut flows = Vec::new();
        for state in [Open, Closing, Reset] {
            for evidence in [None, Opened, Confirmed] {
                for idle in [0, 1, 2, 9] {
                    flows.extend([false, true].map(|remote| (state, evidence, idle, remote)));
                }
            }
        }
        for &(state, evidence, idle, remote) in &flows {
            let one = flow(1, state, evidence, idle);
            for &(state, evidence, idle, other_remote) in &flows {
                let other = flow(2, state, evidence, idle);
                // The sender rounds up what it knows from another balancer.
                let sent = |flow: &Flow, remote: bool| Flow {
                    seen: flow.seen - u32::from(remote),
                    ..*flow
                };
                let (one_sent, other_sent) = (sent(&one, remote), sent(&other, other_remote));
                let there = prevails(
                    (&one_sent, backend(1), remote),
                    (&other, backend(2), other_remote),
                    NOW,
                );
                let here = prevails(
                    (&other_sent, backend(2), other_remote),
                    (&one, backend(1), remote),
                    NOW,
                );
                assert_ne!(there, here, "{one:?} {remote}, {other:?} {other_remote}");
            }
        }
    }

    #[test]
    fn evidence_prevails_then_the_open_state_then_the_fresher_flow() {
        use Evidence::{Confirmed, None, Opened};
        use FlowState::{Closing, Open};
        let wins = |theirs: Flow, mine: Flow| {
            prevails((&theirs, backend(2), false), (&mine, backend(1), false), NOW)
        };
        assert!(wins(flow(2, Closing, Opened, 5), flow(1, Open, None, 0)));
        assert!(wins(flow(2, Open, Opened, 0), flow(1, Closing, Confirmed, 0)));
        assert!(wins(flow(2, Open, Opened, 0), flow(1, Open, Confirmed, 2)));
        assert!(!wins(flow(2, Open, Opened, 0), flow(1, Open, Confirmed, 1)));
        assert!(!wins(flow(2, Open, Opened, 0), flow(1, Open, Opened, 0)), "the lower address");
    }

    #[test]
    fn the_later_state_of_a_flow_is_kept() {
        use Evidence::{Confirmed, Opened};
        use FlowState::{Closing, Open};
        let mine = flow(1, Open, Opened, 3);
        let fresher = Flow { remote: true, ..flow(1, Closing, Confirmed, 1) };
        assert_eq!(merged(&mine, &fresher, NOW), fresher);
        let older = Flow { remote: true, ..flow(1, Closing, Confirmed, 4) };
        assert_eq!(merged(&mine, &older, NOW), Flow { evidence: Confirmed, ..mine });
        let end = Flow { remote: true, ..flow(1, Closing, Opened, 3) };
        assert_eq!(merged(&mine, &end, NOW), Flow { state: Closing, ..mine });
        let open = Flow { remote: true, ..mine };
        assert_eq!(merged(&flow(1, Closing, Opened, 3), &open, NOW).state, Closing);
    }
}
