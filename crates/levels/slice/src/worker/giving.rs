//! The state of a handover at its source.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Incarnation, SliceId, Writer};
use crate::message::{Backlog, Item, Progress, TailEntry};
use crate::positions::Positions;
use crate::repeat::Repeat;
use crate::worker::backlog::{Unstarted, unstarted_of};
use crate::worker::reason::Reason;
use crate::worker::source_table::SourceState;

/// Largest number of tail entries in one message.
pub const TAIL_PART: usize = 512;
/// Bytes of items after which a message of the tail ends: the last item may exceed it.
pub const TAIL_BYTES: usize = 256 << 10;

/// A handover at its source.
#[derive(Debug)]
pub(super) struct Giving<T> {
    pub state: SourceState,
    pub slices: Arc<[SliceId]>,
    pub target: Incarnation,
    /// P.
    pub ahead: Positions,
    /// The target lacks items of no writer.
    pub covered: bool,
    /// Writers that the target follows: those in P, and those with a finished tail.
    known: HashSet<Writer>,
    /// C, once there is a cut.
    pub cut: Positions,
    /// Waits for the items that are not started:
    /// [`Worker::recalled`](crate::worker::Worker::recalled).
    pub recalls: bool,
    /// The items that were not started, and the backlog in CUT.
    pub unstarted: Unstarted,
    pub backlog: Vec<Backlog>,
    /// See [`Progress::claimed`].
    pub claimed: bool,
    /// It was cut under an earlier controller.
    pub is_inherited: bool,
    /// Cut slices with unfinished items or a state that is not exported.
    pub undrained: BTreeSet<SliceId>,
    /// When a slice was last drained.
    pub drained_at: Duration,
    /// Drained slices that the target may not know of.
    pub drained: BTreeMap<SliceId, Option<Vec<u8>>>,
    /// Items after C, until the target is active.
    pub released: VecDeque<Item<T>>,
    /// Tail entries that are not items after C, and do not count towards the limit.
    unstarted_count: usize,
    /// The tail entries that the target has not acknowledged.
    tail: VecDeque<TailEntry<T>>,
    tail_first: u64,
    /// The number after the last entry that was sent.
    tail_sent: u64,
    /// Of the message with the first entry.
    tail_repeat: Repeat,
    /// The tail contains its last entry.
    ended: bool,
    /// By writer: the position from which the target has its items, and when the target first
    /// reported it.
    until: BTreeMap<Writer, (u64, Duration)>,
    /// Of CUT, and of DRAINED.
    pub repeat: Repeat,
    pub drained_repeat: Repeat,
}

impl<T: Clone> Giving<T> {
    pub(super) fn new(slices: Arc<[SliceId]>, target: Incarnation) -> Self {
        Self {
            state: SourceState::Unknown,
            slices,
            target,
            ahead: Positions::default(),
            covered: false,
            known: HashSet::new(),
            cut: Positions::default(),
            recalls: false,
            unstarted: Unstarted::default(),
            backlog: Vec::new(),
            claimed: true,
            is_inherited: false,
            undrained: BTreeSet::new(),
            drained_at: Duration::ZERO,
            drained: BTreeMap::new(),
            released: VecDeque::new(),
            unstarted_count: 0,
            tail: VecDeque::new(),
            tail_first: 0,
            tail_sent: 0,
            tail_repeat: Repeat::default(),
            ended: false,
            until: BTreeMap::new(),
            repeat: Repeat::default(),
            drained_repeat: Repeat::default(),
        }
    }

    /// Stores P.
    pub(super) fn wait(&mut self, ahead: Positions, settled: bool) {
        self.known = ahead.iter().map(|(writer, _)| writer).collect();
        self.covered = settled;
        self.ahead = ahead;
    }

    pub(super) fn has_cut(&self) -> bool {
        matches!(self.state, SourceState::Cut | SourceState::Draining)
    }

    /// Keeps an item after C. Returns the reason if an item was dropped for lack of room.
    pub(super) fn release(&mut self, item: Item<T>, max: usize) -> Option<Reason> {
        let mut dropped = None;
        if !self.covered && !self.ended && !self.known.contains(&item.writer) {
            if self.tail.len() < max + self.unstarted_count {
                self.tail.push_back(TailEntry::Item(item.clone()));
            } else {
                dropped = Some(Reason::TailFull);
            }
        }
        if self.state == SourceState::Cut {
            if self.released.len() >= max {
                self.released.pop_front();
                dropped = Some(Reason::ReleasedFull);
            }
            self.released.push_back(item);
        }
        dropped
    }

    /// Handles the target's progress.
    pub(super) fn heard(&mut self, now: Duration, progress: &Progress) {
        let before = self.tail_first;
        while self.tail_first < progress.tail_next && self.tail.pop_front().is_some() {
            self.tail_first += 1;
        }
        if self.tail_first > before {
            self.tail_repeat.answered(now);
            // The target answers.
            self.repeat.first(now);
        }
        self.claimed |= progress.claimed;
        let held: HashSet<_> = progress.held.iter().collect();
        self.drained.retain(|slice, _| held.contains(slice));
        if self.ended || self.covered {
            self.covered |= self.tail.is_empty();
            return;
        }
        for (writer, from) in &progress.until {
            if !self.known.contains(writer) {
                self.until.entry(*writer).or_insert((*from, now));
            }
        }
        if progress.settled {
            // All items that the target could lack are in the tail already.
            self.ended = true;
            self.until.clear();
            self.tail.push_back(TailEntry::EndAll);
        }
    }

    /// Ends the tails of writers that have reached the position from which the target has their
    /// items. `reached`: the writer was followed up to the position, or is gone, or was waited for
    /// long enough since the given time, as its items may never arrive here.
    pub(super) fn end_tails(&mut self, reached: impl Fn(Writer, u64, Duration) -> bool) -> bool {
        let reached = |(w, (at, since)): &(&Writer, &(u64, Duration))| reached(**w, *at, *since);
        let ended: Vec<_> = self.until.iter().filter(reached).map(|(writer, _)| *writer).collect();
        for writer in &ended {
            self.until.remove(writer);
            self.known.insert(*writer);
            self.tail.push_back(TailEntry::End(*writer));
        }
        !ended.is_empty()
    }

    /// Whether a tail has waited since `then` or longer.
    pub(super) fn waits_since(&self, then: Duration) -> bool {
        self.until.values().any(|(_, since)| *since <= then)
    }

    /// Adds the unstarted items as the first entries of the tail.
    pub(super) fn hand_over(&mut self, items: Vec<Item<T>>) {
        if items.is_empty() {
            return;
        }
        self.unstarted = Unstarted::new(&items);
        self.backlog = self.unstarted.backlog();
        self.claimed = false;
        self.unstarted_count = items.len() + 1;
        let entries = items.into_iter().map(TailEntry::Unstarted);
        self.tail.extend(entries.chain([TailEntry::UnstartedEnd]));
    }

    /// Whether the target has received all unstarted items of `slice`.
    pub(super) fn is_handed_over(&self, slice: SliceId) -> bool {
        self.tail_first >= self.unstarted.end(slice)
    }

    /// Drained slices with unstarted items that the target has received since it had the tail up to
    /// `first`. With 0, all of them.
    pub(super) fn drained_since(&self, first: u64) -> Vec<(SliceId, Option<Vec<u8>>)> {
        let is_new = |slice: SliceId| {
            self.is_handed_over(slice) && (first == 0 || self.unstarted.end(slice) > first)
        };
        let drained = self.drained.iter().filter(|(slice, _)| is_new(**slice));
        drained.map(|(slice, state)| (*slice, state.clone())).collect()
    }

    /// Items of `slices` that were not started and that the target has not acknowledged.
    pub(super) fn unstarted_in_tail(&self, slices: &[SliceId]) -> Vec<Item<T>> {
        unstarted_of(&self.tail, slices)
    }

    /// Whether entries that were sent have to be sent again. `resend`: the least time for that.
    pub(super) fn repeats_tail(&self, now: Duration, resend: Duration) -> bool {
        !self.tail.is_empty() && self.tail_repeat.is_due(now, resend)
    }

    fn sends_tail(&mut self, now: Duration) {
        match self.tail_first >= self.tail_sent {
            true => self.tail_repeat.first(now),
            false => self.tail_repeat.again(now),
        }
    }

    /// Unacknowledged entries for one message, with the number of the first.
    pub(super) fn tail(
        &mut self,
        now: Duration,
        size: fn(&T) -> usize,
    ) -> Option<(u64, Vec<TailEntry<T>>)> {
        self.sends_tail(now);
        let mut bytes = 0;
        let mut fits = |entry: &&TailEntry<T>| {
            let room = bytes < TAIL_BYTES;
            if let TailEntry::Item(item) | TailEntry::Unstarted(item) = entry {
                bytes += size(&item.payload);
            }
            room
        };
        let part: Vec<_> =
            self.tail.iter().take(TAIL_PART).take_while(|entry| fits(entry)).cloned().collect();
        self.tail_sent = self.tail_first + part.len() as u64;
        (!part.is_empty()).then_some((self.tail_first, part))
    }

    /// The number of the first entry that the target has not acknowledged.
    pub(super) fn tail_first(&self) -> u64 {
        self.tail_first
    }

    /// Whether the target lacks more entries, and has acknowledged all that were sent.
    pub(super) fn is_next_due(&self) -> bool {
        !self.tail.is_empty() && self.tail_first >= self.tail_sent
    }

    /// The last entry alone, with its number: the one just added. `None` if earlier ones have to be
    /// sent first.
    pub(super) fn tail_last(&mut self, now: Duration) -> Option<(u64, Vec<TailEntry<T>>)> {
        let number = (self.tail_end()).checked_sub(1)?;
        if self.tail_sent < number {
            return None;
        }
        self.sends_tail(now);
        self.tail_sent = number + 1;
        self.tail.back().map(|last| (number, vec![last.clone()]))
    }

    /// The number after the last tail entry.
    pub(super) fn tail_end(&self) -> u64 {
        self.tail_first + self.tail.len() as u64
    }

    /// Whether only the target's progress is missing.
    pub(super) fn needs_progress(&self) -> bool {
        self.state == SourceState::Draining
            && self.undrained.is_empty()
            && !(self.covered && self.claimed)
            && self.tail.is_empty()
    }

    /// Items in the tail that the target has not acknowledged.
    pub(super) fn tail_items(&self) -> usize {
        let is_item =
            |entry: &&TailEntry<T>| matches!(entry, TailEntry::Item(_) | TailEntry::Unstarted(_));
        self.tail.iter().filter(is_item).count()
    }

    pub(super) fn drop_tail(&mut self) {
        (self.covered, self.claimed) = (true, true);
        self.tail.clear();
        self.until.clear();
    }

    /// Whether all is drained and replied to, and the target lacks nothing. `reply`: the time of a
    /// reply in transit.
    pub(super) fn is_finished(&self, now: Duration, reply: Duration) -> bool {
        let replied = now.saturating_sub(self.drained_at) >= reply;
        let has_all = self.covered && self.claimed && self.tail.is_empty();
        self.undrained.is_empty() && self.drained.is_empty() && has_all && replied
    }
}
