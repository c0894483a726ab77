//! What a giver keeps of one handover.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Life, SliceId, Writer};
use crate::message::{Backlog, Item, Progress, TailEntry};
use crate::positions::Positions;
use crate::worker::backlog::{Unstarted, unstarted_of};
use crate::worker::giver_table::GiverState;
use crate::worker::reason::Reason;

/// Tail entries in one message, at most.
pub const TAIL_PART: usize = 512;
/// Bytes of items in one message of the tail: the last item may exceed it.
pub const TAIL_BYTES: usize = 256 << 10;

/// One handover, at its giver.
#[derive(Debug)]
pub(super) struct Giving<T> {
    pub state: GiverState,
    pub slices: Arc<[SliceId]>,
    pub taker: Life,
    /// P.
    pub ahead: Positions,
    /// The taker lacks no writer.
    pub covered: bool,
    /// Writers that the taker has: those of P, and those whose tail has ended.
    known: HashSet<Writer>,
    /// C, once there is a cut.
    pub cut: Positions,
    /// Waits for the items that are not started: [`Worker::recalled`](crate::worker::Worker::recalled).
    pub recalls: bool,
    /// The items that were not started, and what CUT says of them.
    pub unstarted: Unstarted,
    pub backlog: Vec<Backlog>,
    /// See [`Progress::claimed`].
    pub claimed: bool,
    /// It was cut for an earlier controller.
    pub is_inherited: bool,
    /// Cut slices that have unfinished items, or whose state is not exported.
    pub undrained: BTreeSet<SliceId>,
    /// When a slice was last drained.
    pub drained_at: Duration,
    /// Drained slices that the taker may not know of.
    pub drained: BTreeMap<SliceId, Option<Vec<u8>>>,
    /// Items after C, until the taker is active.
    pub released: VecDeque<Item<T>>,
    /// Entries of the tail that are not items after C: no room of theirs is taken.
    unstarted_count: usize,
    /// The tail that the taker has not acknowledged.
    tail: VecDeque<TailEntry<T>>,
    tail_first: u64,
    /// The number after the last entry that was sent.
    tail_sent: u64,
    /// The tail has had its last entry.
    ended: bool,
    /// The taker has items of these writers from this position on, as it said first then.
    until: BTreeMap<Writer, (u64, Duration)>,
    /// When something was last said.
    pub said: Duration,
}

impl<T: Clone> Giving<T> {
    pub(super) fn new(slices: Arc<[SliceId]>, taker: Life) -> Self {
        Self {
            state: GiverState::Unknown,
            slices,
            taker,
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
            ended: false,
            until: BTreeMap::new(),
            said: Duration::ZERO,
        }
    }

    /// Notes P.
    pub(super) fn wait(&mut self, ahead: Positions, settled: bool) {
        self.known = ahead.iter().map(|(writer, _)| writer).collect();
        self.covered = settled;
        self.ahead = ahead;
    }

    pub(super) fn has_cut(&self) -> bool {
        matches!(self.state, GiverState::Cut | GiverState::Draining)
    }

    /// An item after C. Says what had to go because there was no room.
    pub(super) fn release(&mut self, item: Item<T>, max: usize) -> Option<Reason> {
        let mut dropped = None;
        if !self.covered && !self.ended && !self.known.contains(&item.writer) {
            if self.tail.len() < max + self.unstarted_count {
                self.tail.push_back(TailEntry::Item(item.clone()));
            } else {
                dropped = Some(Reason::TailFull);
            }
        }
        if self.state == GiverState::Cut {
            if self.released.len() >= max {
                self.released.pop_front();
                dropped = Some(Reason::ReleasedFull);
            }
            self.released.push_back(item);
        }
        dropped
    }

    /// The taker's progress.
    pub(super) fn heard(&mut self, now: Duration, progress: &Progress) {
        while self.tail_first < progress.tail_next && self.tail.pop_front().is_some() {
            self.tail_first += 1;
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
            // All that the taker could lack was put into the tail before this.
            self.ended = true;
            self.until.clear();
            self.tail.push_back(TailEntry::EndAll);
        }
    }

    /// Ends the tails of writers that are followed to where the taker has them. `reached`: the writer is followed up to
    /// a position, or gone, or that was waited for since then for long enough: what it wrote meanwhile may never come here.
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

    /// Whether a tail is waited for since then or longer.
    pub(super) fn waits_since(&self, then: Duration) -> bool {
        self.until.values().any(|(_, since)| *since <= then)
    }

    /// The first entries of the tail: what was not started.
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

    /// Whether the taker has all of `slice` that was not started.
    pub(super) fn is_handed_over(&self, slice: SliceId) -> bool {
        self.tail_first >= self.unstarted.end(slice)
    }

    /// Drained slices of which the taker has all, but had not when it had the tail up to `first`. 0: of any.
    pub(super) fn drained_since(&self, first: u64) -> Vec<(SliceId, Option<Vec<u8>>)> {
        let is_new = |slice: SliceId| {
            self.is_handed_over(slice) && (first == 0 || self.unstarted.end(slice) > first)
        };
        let drained = self.drained.iter().filter(|(slice, _)| is_new(**slice));
        drained.map(|(slice, state)| (*slice, state.clone())).collect()
    }

    /// Items of `slices` that were not started and that the taker has not acknowledged.
    pub(super) fn unstarted_in_tail(&self, slices: &[SliceId]) -> Vec<Item<T>> {
        unstarted_of(&self.tail, slices)
    }

    /// What the taker has not acknowledged, as much as goes into one message, with the number of its first entry.
    pub(super) fn tail(&mut self, size: fn(&T) -> usize) -> Option<(u64, Vec<TailEntry<T>>)> {
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

    /// The number of the first entry that the taker has not acknowledged.
    pub(super) fn tail_first(&self) -> u64 {
        self.tail_first
    }

    /// Whether it lacks more, and all that was sent is acknowledged.
    pub(super) fn is_next_due(&self) -> bool {
        !self.tail.is_empty() && self.tail_first >= self.tail_sent
    }

    /// The last entry alone, with its number: what was just added. `None`: others are to be sent before it.
    pub(super) fn tail_last(&mut self) -> Option<(u64, Vec<TailEntry<T>>)> {
        let number = (self.tail_end()).checked_sub(1)?;
        if self.tail_sent < number {
            return None;
        }
        self.tail_sent = number + 1;
        self.tail.back().map(|last| (number, vec![last.clone()]))
    }

    /// The number after the last tail entry.
    pub(super) fn tail_end(&self) -> u64 {
        self.tail_first + self.tail.len() as u64
    }

    /// Only the taker's progress is wanted.
    pub(super) fn needs_progress(&self) -> bool {
        self.state == GiverState::Draining
            && self.undrained.is_empty()
            && !(self.covered && self.claimed)
            && self.tail.is_empty()
    }

    /// Items of the tail that the taker has not acknowledged.
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

    /// Drained and replied to, and the taker lacks nothing. `reply`: how long replies are on their way.
    pub(super) fn is_finished(&self, now: Duration, reply: Duration) -> bool {
        let replied = now.saturating_sub(self.drained_at) >= reply;
        let has_all = self.covered && self.claimed && self.tail.is_empty();
        self.undrained.is_empty() && self.drained.is_empty() && has_all && replied
    }
}
