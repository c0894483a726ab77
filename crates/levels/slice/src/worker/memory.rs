//! Remembers recently finished items, and watches items that no worker seems to have.
//!
//! Clients publish an item again until its reply has arrived. The reply may be lost even if the
//! worker lives: its client was paused, or cut off, or did not receive it. The item itself may be
//! lost, too: when a reader loses its writer and finds it again, DDS does not deliver the items
//! written in between. So the worker has to know whether it had an item that is published again. If
//! it finished the item recently, it sends the reply again. If it never had it, and no worker
//! before it can still have it, the item is an *orphan*: the worker processes it when it comes once
//! more after [`crate::Config::orphan`], or after a lease if that is longer.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::ids::Writer;

/// Largest number of finished items that are remembered.
const FINISHED_MAX: usize = 1 << 18;
/// Largest number of watched orphans: others wait until these are processed.
const ORPHANS_MAX: usize = 1 << 16;
/// Additional time for which a due orphan is watched: clients publish it again within this.
const ORPHAN_FORGOTTEN: Duration = Duration::from_secs(150);

type Name = (Writer, u64);

/// Memory of single items.
#[derive(Debug, Default)]
pub(super) struct Memory {
    finished: Finished,
    /// Orphans, with the time when each was first published again.
    orphans: HashMap<Name, Duration>,
    swept: Duration,
}

/// Finished items with their times: about 70 bytes each. A busy worker has a quarter of a million
/// of them.
#[derive(Debug, Default)]
struct Finished {
    /// By writer and position: the number of the last entry; `in_order` begins with number `first`.
    by_writer: HashMap<Writer, HashMap<u64, u32>>,
    in_order: VecDeque<Once>,
    first: u32,
}

/// One entry: an item was finished.
#[derive(Debug, Clone, Copy)]
struct Once {
    at_us: u64,
    position: u64,
    writer: Writer,
}

impl Finished {
    fn add(&mut self, now: Duration, writer: Writer, position: u64) {
        if self.in_order.len() >= FINISHED_MAX {
            self.forget_oldest();
        }
        let number = self.first.wrapping_add(self.in_order.len() as u32);
        self.by_writer.entry(writer).or_default().insert(position, number);
        self.in_order.push_back(Once { at_us: micros(now), position, writer });
    }

    /// When it was last finished, in microseconds.
    fn at_us(&self, writer: Writer, position: u64) -> Option<u64> {
        let number = self.by_writer.get(&writer)?.get(&position)?;
        let once = self.in_order.get(number.wrapping_sub(self.first) as usize)?;
        Some(once.at_us)
    }

    fn forget_oldest(&mut self) {
        let Some(once) = self.in_order.pop_front() else { return };
        let number = self.first;
        self.first = self.first.wrapping_add(1);
        let Some(positions) = self.by_writer.get_mut(&once.writer) else { return };
        // It may have been finished again.
        if positions.get(&once.position) == Some(&number) {
            positions.remove(&once.position);
        }
        if positions.is_empty() {
            self.by_writer.remove(&once.writer);
        }
    }

    fn forget(&mut self, before: Option<Duration>) {
        let Some(before) = before.map(micros) else { return };
        while self.in_order.front().is_some_and(|once| once.at_us <= before) {
            self.forget_oldest();
        }
        if self.in_order.is_empty() && self.in_order.capacity() > 0 {
            *self = Self::default();
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Memory {
    pub(super) fn finish(&mut self, now: Duration, writer: Writer, position: u64) {
        self.finished.add(now, writer, position);
    }

    /// Whether it was finished at `then` or earlier.
    pub(super) fn has_finished_before(&self, then: Duration, writer: Writer, at: u64) -> bool {
        self.finished.at_us(writer, at).is_some_and(|finished| finished <= micros(then))
    }

    pub(super) fn has_finished(&self, writer: Writer, position: u64) -> bool {
        self.finished.at_us(writer, position).is_some()
    }

    /// Whether it was finished after `then`.
    pub(super) fn has_finished_since(&self, then: Duration, writer: Writer, at: u64) -> bool {
        self.finished.at_us(writer, at).is_some_and(|finished| finished > micros(then))
    }

    /// Whether the item was first published again long enough ago to be processed. Then it is not
    /// watched any more.
    pub(super) fn is_orphan(
        &mut self,
        now: Duration,
        writer: Writer,
        position: u64,
        after: Duration,
    ) -> bool {
        let name = (writer, position);
        let Some(since) = self.orphans.get(&name) else {
            if self.orphans.len() < ORPHANS_MAX {
                self.orphans.insert(name, now);
            }
            return false;
        };
        let is_due = now.saturating_sub(*since) >= after;
        if is_due {
            self.orphans.remove(&name);
        }
        is_due
    }

    /// Forgets items finished longer ago than `keep`. `orphan`: time after which orphans are
    /// processed.
    pub(super) fn forget(&mut self, now: Duration, keep: Duration, orphan: Duration) {
        self.finished.forget(now.checked_sub(keep));
        if !self.orphans.is_empty() && now.saturating_sub(self.swept) >= Duration::from_secs(1) {
            self.swept = now;
            let watched = orphan + ORPHAN_FORGOTTEN;
            self.orphans.retain(|_, since| now.saturating_sub(*since) < watched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Group;

    const WRITER: Writer = Writer { group: Group::BASE, id: 1 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_finished_item_is_remembered_for_the_configured_time() {
        let mut memory = Memory::default();
        memory.finish(ms(0), WRITER, 1);
        memory.finish(ms(40), WRITER, 2);
        // Finished again: its time begins anew.
        memory.finish(ms(50), WRITER, 1);
        memory.forget(ms(100), ms(100), ms(1));
        assert!(memory.has_finished(WRITER, 1) && memory.has_finished(WRITER, 2));
        memory.forget(ms(140), ms(100), ms(1));
        assert!(memory.has_finished(WRITER, 1) && !memory.has_finished(WRITER, 2));
        memory.forget(ms(150), ms(100), ms(1));
        assert!(!memory.has_finished(WRITER, 1));
        assert_eq!(memory.finished.in_order.capacity(), 0, "nothing is left of it");
    }

    #[test]
    fn finished_items_and_orphans_are_bounded_in_number() {
        let mut memory = Memory::default();
        for position in 0..FINISHED_MAX as u64 + 10 {
            memory.finish(ms(0), WRITER, position);
        }
        assert_eq!(memory.finished.in_order.len(), FINISHED_MAX);
        assert_eq!(memory.finished.in_order.capacity(), FINISHED_MAX);
        assert!(!memory.has_finished(WRITER, 9) && memory.has_finished(WRITER, 10));
        for position in 0..ORPHANS_MAX as u64 + 10 {
            memory.is_orphan(ms(0), WRITER, position, ms(1));
        }
        assert_eq!(memory.orphans.len(), ORPHANS_MAX);
        memory.forget(ORPHAN_FORGOTTEN, ms(1), ms(1));
        assert!(!memory.orphans.is_empty());
        memory.forget(ORPHAN_FORGOTTEN + Duration::from_secs(1), ms(1), ms(1));
        assert!(memory.orphans.is_empty());
    }

    #[test]
    fn an_orphan_is_due_once_when_republished_after_its_delay() {
        let mut memory = Memory::default();
        let mut comes = |at| memory.is_orphan(ms(at), WRITER, 7, ms(100));
        assert_eq!([0, 50, 99, 100, 101].map(&mut comes), [false, false, false, true, false]);
    }
}
