//! A CPU's events on their way to userspace: appended to `recent`, looked up in batches, logged if
//! they are news.
//!
//! `bpf/include/learn.h` is the program's side. Userspace takes what is in the log and what stands
//! in `recent`; what it took from there the program does not log. An event comes twice if the
//! program looks a batch up at that moment, each time in order with the others of its CPU.

use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use super::CpuMemory;
use crate::abi::{Cpu, Event, EventKind, RECENT};

const BATCH: u32 = RECENT as u32;

/// Events copied from `recent`, and what its head was.
struct Copied {
    head: u32,
    events: [Event; RECENT],
    count: usize,
}

impl CpuMemory {
    /// Reads the events since the last call: first those in the log, then those that the program
    /// has not looked up yet. Skips events of unknown `kind`. Returns their number.
    pub fn drain(&self, mut each: impl FnMut(Event)) -> usize {
        let copied = self.copy_recent();
        let logged = self.drain_log(&mut each);
        if !self.is_batch_of(copied.head) {
            // A batch was completed in the meantime. Its new flows are in the log, or reach it now,
            // as if the batch's last packet were still being handled.
            return logged + self.drain_log(each);
        }
        copied.events[..copied.count].iter().copied().filter(is_event).for_each(each);
        // Not behind a batch that is complete: the program may be about to look it up, and nothing
        // of it has been copied.
        if copied.count > 0 {
            self.recent_taken().store(copied.head, Release);
        }
        logged + copied.count
    }

    /// Takes what the program has logged since the last time, and leaves what it has yet to look
    /// up.
    pub fn drain_log(&self, mut each: impl FnMut(Event)) -> usize {
        let head = self.log_head().load(Acquire);
        let tail_word = self.log_tail();
        let tail = tail_word.load(Relaxed);
        let entries = self.limits.log_entries;
        let count = head.wrapping_sub(tail).min(entries);
        let log = self.words(self.limits.cpu_log_offset, 0, entries as usize * 2);
        for position in 0..count {
            let at = (tail.wrapping_add(position) & (entries - 1)) as usize;
            Some(load_event(log, at)).filter(is_event).into_iter().for_each(&mut each);
        }
        tail_word.store(tail.wrapping_add(count), Release);
        count as usize
    }

    /// Copies the events that were appended since the last batch and not taken yet.
    fn copy_recent(&self) -> Copied {
        let head = self.recent_head().load(Acquire);
        let appended = head % BATCH;
        let untaken = head.wrapping_sub(self.recent_taken().load(Relaxed)).min(appended);
        let first = (appended - untaken) as usize;
        let recent = self.recent();
        let mut events = [Event::default(); RECENT];
        for (to, at) in (first..appended as usize).enumerate() {
            events[to] = load_event(recent, at);
        }
        // The head is not to be looked at again before all is copied.
        fence(Acquire);
        Copied { head, events, count: untaken as usize }
    }

    /// Whether no batch was completed since the head was this: what was copied then is whole, and
    /// is not in the log.
    fn is_batch_of(&self, head: u32) -> bool {
        self.recent_head().load(Acquire) / BATCH == head / BATCH
    }

    /// Appends an event, as the program does; `true`: it completes a batch, which is to be looked
    /// up.
    pub(crate) fn append(&self, event: Event) -> bool {
        let head = self.recent_head().load(Relaxed);
        store_event(self.recent(), (head % BATCH) as usize, event);
        if event.kind != EventKind::Touch as u8 {
            let ends = self.recent_ends();
            ends.store(ends.load(Relaxed) | 1 << (head % BATCH), Relaxed);
        }
        self.recent_head().store(head.wrapping_add(1), Release);
        head % BATCH == BATCH - 1
    }

    /// The events of a complete batch, each with whether userspace has taken it.
    pub(crate) fn batch(&self) -> impl Iterator<Item = (Event, bool)> {
        let begin = self.recent_head().load(Relaxed).wrapping_sub(BATCH);
        let taken = self.recent_taken().load(Relaxed).wrapping_sub(begin);
        let taken = if taken > BATCH { 0 } else { taken as usize };
        self.recent_ends().store(0, Relaxed);
        let recent = self.recent();
        (0..RECENT).map(move |at| (load_event(recent, at), at < taken))
    }

    /// Logs an event, as the program does; `false` if the log is full.
    pub(crate) fn push(&self, event: Event) -> bool {
        let head = self.log_head().load(Relaxed);
        let tail = self.log_tail().load(Acquire);
        let entries = self.limits.log_entries;
        if head.wrapping_sub(tail) >= entries {
            return false;
        }
        let log = self.words(self.limits.cpu_log_offset, 0, entries as usize * 2);
        store_event(log, (head & (entries - 1)) as usize, event);
        self.log_head().store(head.wrapping_add(1), Release);
        true
    }

    /// Makes the next event complete a batch of which it is all that is not taken: the program
    /// looks it up at once. For tests, while no program runs.
    pub fn look_up_next(&self) {
        self.recent_head().store(BATCH - 1, Relaxed);
        self.recent_taken().store(BATCH - 1, Relaxed);
    }

    fn half(&self, offset: usize) -> &AtomicU32 {
        &self.area.halves(self.start + offset, 1)[0]
    }

    fn log_head(&self) -> &AtomicU32 {
        self.half(offset_of!(Cpu, log_head))
    }

    fn recent_head(&self) -> &AtomicU32 {
        self.half(offset_of!(Cpu, recent_head))
    }

    /// For the program, which looks at them without looking at each event.
    fn recent_ends(&self) -> &AtomicU64 {
        &self.words(offset_of!(Cpu, recent_ends) as u32, 0, 1)[0]
    }

    fn log_tail(&self) -> &AtomicU32 {
        self.half(offset_of!(Cpu, log_tail))
    }

    fn recent_taken(&self) -> &AtomicU32 {
        self.half(offset_of!(Cpu, recent_taken))
    }

    fn recent(&self) -> &[AtomicU64] {
        self.words(self.limits.cpu_recent_offset, 0, RECENT * 2)
    }
}

fn is_event(event: &Event) -> bool {
    (EventKind::Touch as u8..=EventKind::Rst as u8).contains(&event.kind)
}

fn load_event(words: &[AtomicU64], at: usize) -> Event {
    let (digest, rest) = (words[2 * at].load(Relaxed), words[2 * at + 1].load(Relaxed));
    let [s0, s1, v0, v1, kind, how, ..] = rest.to_ne_bytes();
    let (slot, service) = (u16::from_ne_bytes([s0, s1]), u16::from_ne_bytes([v0, v1]));
    Event { digest, slot, service, kind, how, padding: 0 }
}

fn store_event(words: &[AtomicU64], at: usize, event: Event) {
    let [s0, s1] = event.slot.to_ne_bytes();
    let [v0, v1] = event.service.to_ne_bytes();
    let rest = u64::from_ne_bytes([s0, s1, v0, v1, event.kind, event.how, 0, 0]);
    words[2 * at].store(event.digest, Relaxed);
    words[2 * at + 1].store(rest, Relaxed);
}

#[cfg(test)]
mod tests;
