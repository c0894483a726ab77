//! The slots of a service: small stable numbers for its backends. A backend keeps its slot while it
//! may have flows.

use std::time::{Duration, Instant};

use crate::abi::SLOTS_MAX;
use crate::snapshot::{BackendId, Standing};

/// The slots of one service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
}

#[derive(Clone, Debug)]
enum Slot {
    Held(Holder),
    /// Free since this time. For a while, records of the former holder may remain (pending,
    /// fragments); a new holder would get its flows.
    Free(Option<Instant>),
}

/// Holder of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) backend: BackendId,
    /// Of its counters.
    pub(crate) number: u16,
    pub(crate) weight: u32,
    /// Eligible or draining: one that is gone holds no slot.
    pub(crate) standing: Standing,
    /// Whether the snapshot has it.
    pub(crate) listed: bool,
    /// Since when it has had no flows and has not been given any.
    pub(crate) idle_since: Option<Instant>,
}

impl Slots {
    /// As they are published.
    pub(crate) fn adopted(holders: Vec<Option<Holder>>, now: Instant) -> Slots {
        let slot = |holder: Option<Holder>| holder.map_or(Slot::Free(Some(now)), Slot::Held);
        Slots { slots: holders.into_iter().map(slot).collect() }
    }

    /// Makes slots for new tables, without records of earlier holders of the free ones.
    pub(crate) fn seated(holders: Vec<Option<Holder>>) -> Slots {
        let slot = |holder: Option<Holder>| holder.map_or(Slot::Free(None), Slot::Held);
        Slots { slots: holders.into_iter().map(slot).collect() }
    }

    /// All of them, free ones included.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn holder(&self, slot: u16) -> Option<&Holder> {
        match self.slots.get(usize::from(slot))? {
            Slot::Held(holder) => Some(holder),
            Slot::Free(_) => None,
        }
    }

    pub(crate) fn holder_mut(&mut self, slot: u16) -> Option<&mut Holder> {
        match self.slots.get_mut(usize::from(slot))? {
            Slot::Held(holder) => Some(holder),
            Slot::Free(_) => None,
        }
    }

    /// Whether packets may go there.
    #[inline(always)]
    pub(crate) fn live(&self, slot: u16) -> bool {
        matches!(self.slots.get(usize::from(slot)), Some(Slot::Held(_)))
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = (u16, &Holder)> {
        (0..).zip(&self.slots).filter_map(|(slot, state)| match state {
            Slot::Held(holder) => Some((slot, holder)),
            Slot::Free(_) => None,
        })
    }

    pub(crate) fn of(&self, backend: &BackendId) -> Option<u16> {
        self.held().find(|(_, holder)| holder.backend == *backend).map(|(slot, _)| slot)
    }

    /// Gives `holder` the lowest slot that has been free for `quarantine` and is not `in_use` (by a
    /// ring), or a new one if there are fewer than `len_max`, or else the one that has been free
    /// for longest.
    pub(crate) fn take(
        &mut self,
        holder: Holder,
        len_max: usize,
        quarantine: Duration,
        now: Instant,
        in_use: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let free = (0..).zip(&self.slots).filter_map(|(slot, state)| match state {
            Slot::Free(since) if !in_use(slot) => Some((*since, slot)),
            _ => None,
        });
        let free: Vec<(Option<Instant>, u16)> = free.collect();
        let rested = |since: Option<Instant>| since.is_none_or(|since| now >= since + quarantine);
        let slot = match free.iter().find(|(since, _)| rested(*since)) {
            Some((_, slot)) => *slot,
            None if self.slots.len() < len_max.min(SLOTS_MAX) => {
                self.slots.push(Slot::Free(None));
                (self.slots.len() - 1) as u16
            }
            None => free.iter().min()?.1,
        };
        self.slots[usize::from(slot)] = Slot::Held(holder);
        Some(slot)
    }

    /// Takes the slot from its holder.
    pub(crate) fn vacate(&mut self, slot: u16, now: Instant) -> Option<Holder> {
        let state = self.slots.get_mut(usize::from(slot))?;
        match std::mem::replace(state, Slot::Free(Some(now))) {
            Slot::Held(holder) => Some(holder),
            free => {
                *state = free;
                None
            }
        }
    }

    /// Drops free slots at the end that no ring uses: fewer slots, fewer false matches.
    pub(crate) fn trim(
        &mut self,
        quarantine: Duration,
        now: Instant,
        in_use: impl Fn(u16) -> bool,
    ) {
        while let Some(Slot::Free(since)) = self.slots.last()
            && since.is_none_or(|since| now >= since + quarantine)
            && !in_use((self.slots.len() - 1) as u16)
        {
            self.slots.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const REST: Duration = Duration::from_secs(30);

    fn holder(last: u8) -> Holder {
        Holder {
            backend: BackendId { address: IpAddr::from([10, 0, 0, last]), port: None },
            number: u16::from(last),
            weight: 1,
            standing: Standing::Eligible,
            listed: true,
            idle_since: None,
        }
    }

    #[test]
    fn a_slot_is_reused_when_it_has_rested_and_no_ring_has_it() {
        let mut slots = Slots::default();
        let start = Instant::now();
        let take = |slots: &mut Slots, last, after: u64, used: u16| {
            slots.take(holder(last), 100, REST, start + Duration::from_secs(after), |it| it == used)
        };
        assert_eq!(
            [1, 2, 3].map(|last| take(&mut slots, last, 0, 99)),
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!(slots.vacate(1, start).unwrap().number, 2);
        assert!(slots.vacate(1, start).is_none() && !slots.live(1) && slots.live(2));
        assert_eq!(take(&mut slots, 4, 29, 99), Some(3), "too early");
        assert_eq!(take(&mut slots, 5, 30, 1), Some(4), "a ring has it");
        assert_eq!(take(&mut slots, 6, 30, 99), Some(1));
        assert_eq!(slots.of(&holder(6).backend), Some(1));
        assert_eq!(slots.of(&holder(2).backend), None);
    }

    #[test]
    fn without_room_the_slot_that_rested_longest_is_reused() {
        let mut slots = Slots::default();
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        for last in 0..3 {
            slots.take(holder(last), 3, REST, now, |_| false).unwrap();
        }
        assert_eq!(slots.take(holder(9), 3, REST, now, |_| false), None);
        slots.vacate(2, now);
        slots.vacate(0, later);
        assert_eq!(slots.take(holder(9), 3, REST, later, |slot| slot == 2), Some(0));
        assert_eq!(slots.take(holder(8), 3, REST, later, |_| false), Some(2));
    }

    #[test]
    fn free_slots_at_the_end_go_when_they_have_rested() {
        let mut slots = Slots::default();
        let now = Instant::now();
        for last in 0..4 {
            slots.take(holder(last), 9, REST, now, |_| false).unwrap();
        }
        for slot in [0, 2, 3] {
            slots.vacate(slot, now).unwrap();
        }
        slots.trim(REST, now, |_| false);
        assert_eq!(slots.len(), 4);
        slots.trim(REST, now + REST, |slot| slot == 2);
        assert_eq!(slots.len(), 3);
        slots.trim(REST, now + REST, |_| false);
        assert_eq!(slots.len(), 2, "slot 1 is held");
    }
}
