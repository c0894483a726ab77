//! Changes of pools, in phases: announced, made, absorbed.
//!
//! A ring is never replaced at once. First the new ring is announced beside the current one, and
//! known flows that it would move are pinned. During this transition the program records flows that
//! the two rings would send to different backends. Then the new ring becomes current. Finally, the
//! recorded flows are pinned and the records are deleted.

use std::sync::Arc;
use std::time::Instant;

use super::service::Change;
use super::{Control, Tick};
use crate::snapshot::Standing;

impl Control {
    /// Advances every change that is due. Call it when a publication may follow immediately: a
    /// grace period after the last one.
    pub(super) fn advance(&mut self, now: Instant, tick: &mut Tick) {
        for number in 0..self.services.len() {
            match self.services[number].as_ref().map(|service| service.change) {
                Some(Change::None) => self.begin(number, now, tick),
                Some(Change::Transition(until)) if now >= until => self.cut(number, now),
                Some(Change::Absorbing(since)) if self.clocks.published_at >= since => {
                    self.end(number, tick);
                }
                _ => {}
            }
        }
    }

    /// Announces the pool's new ring if it differs from the current one.
    fn begin(&mut self, number: usize, now: Instant, tick: &mut Tick) {
        let used: usize =
            self.services.iter().flatten().map(|it| it.rings.published().count()).sum();
        let Some(service) = self.services[number].as_mut() else { return };
        if !service.is_stale {
            return;
        }
        let (ring, turns) = service.wanted(self.limits.ring_entries as usize, self.seeds.rings);
        let needed = usize::from(ring != *service.rings.current)
            + usize::from(service.rings.turns.entries().is_empty() && !turns.entries().is_empty());
        if used + needed > self.limits.rings_max as usize {
            // Another change uses the space: this one waits.
            return;
        }
        service.is_stale = false;
        if turns != *service.rings.turns {
            // Turns affect new flows only; no flow depends on the old ones.
            service.rings.turns = Arc::new(turns);
            self.is_dirty = true;
        }
        if ring == *service.rings.current {
            return;
        }
        self.is_dirty = true;
        self.rearranged[number] = true;
        let ring = Arc::new(ring);
        if service.rings.current.entries().is_empty() {
            // No flow of this balancer uses the current ring.
            service.rings.current = ring;
            service.note_drained(self.limits.ring_entries as usize, self.seeds.rings);
            return;
        }
        service.rings.next = Some(ring);
        service.change = Change::Transition(now + self.settings.transition);
        tick.began.push(service.id);
    }

    /// Makes the announced ring the current one.
    fn cut(&mut self, number: usize, now: Instant) {
        let Some(service) = self.services[number].as_mut() else { return };
        let next = service.rings.next.take().unwrap_or_default();
        let before = std::mem::replace(&mut service.rings.current, next);
        service.note_replaced(&before);
        service.rings.before = Some(before);
        service.change = Change::Absorbing(now);
        self.rearranged[number] = true;
        self.is_dirty = true;
    }

    /// Ends the change: the program no longer records flows by the old ring, and the recorded flows
    /// have been read. The next publication pins them.
    fn end(&mut self, number: usize, tick: &mut Tick) {
        let Some(service) = self.services[number].as_mut() else { return };
        service.rings.before = None;
        service.change = Change::None;
        tick.settled.push(service.id);
        self.is_dirty = true;
    }

    /// Frees the slots of backends that have left and have no flows. Other balancers may know flows
    /// that have a second chance there, so those of such VIPs are kept for the time in which a flow
    /// sends a packet.
    pub(super) fn free_drained(&mut self, now: Instant, tick: &mut Tick) {
        let (quarantine, timeouts) = (self.quarantine(), self.settings.timeouts);
        for (number, service) in (0..).zip(&mut self.services) {
            let Some(service) = service else { continue };
            let leaving: Vec<u16> = service
                .slots
                .held()
                .filter(|(_, it)| !it.listed && it.standing == Standing::Draining)
                .map(|(slot, _)| slot)
                .collect();
            let open = timeouts.with(&service.timeouts).open;
            let rest = if service.second_chance { quarantine.max(open) } else { quarantine };
            for slot in leaving {
                let is_idle = self.flows.tally(number, slot) == [0; 2] && !service.rings.pick(slot);
                let Some(holder) = service.slots.holder_mut(slot) else { continue };
                if !is_idle {
                    holder.idle_since = None;
                    continue;
                }
                let since = *holder.idle_since.get_or_insert(now);
                if now < since + rest {
                    continue;
                }
                tick.drained.push((service.id, holder.backend));
                service.slots.vacate(slot, now);
                self.is_dirty = true;
            }
            service.forget_gone();
            let slots_before = service.slots.len();
            let rings = &service.rings;
            service.slots.trim(quarantine, now, |slot| rings.have(slot));
            self.is_dirty |= service.slots.len() != slots_before;
        }
    }
}
