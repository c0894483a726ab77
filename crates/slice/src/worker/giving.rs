//! What a giver keeps of one handover.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Life, SliceId, Writer};
use crate::message::{Item, Progress, TailEntry};
use crate::positions::Positions;
use crate::worker::giver_table::GiverState;
use crate::worker::reason::Reason;

/// Tail entries in one message.
const TAIL_PART: usize = 64;

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
    /// It was cut for an earlier controller.
    pub is_inherited: bool,
    /// Cut slices that have unfinished items, or whose state is not exported.
    pub undrained: BTreeSet<SliceId>,
    /// Cut slices that had nothing unfinished, until that is said.
    pub idle: Vec<SliceId>,
    /// When a slice was last drained.
    pub drained_at: Duration,
    /// Drained slices that the taker may not know of.
    pub drained: BTreeMap<SliceId, Option<Vec<u8>>>,
    /// Items after C, until the taker is active.
    pub released: VecDeque<Item<T>>,
    /// The tail that the taker has not acknowledged.
    tail: VecDeque<TailEntry<T>>,
    tail_first: u64,
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
            is_inherited: false,
            undrained: BTreeSet::new(),
            idle: Vec::new(),
            drained_at: Duration::ZERO,
            drained: BTreeMap::new(),
            released: VecDeque::new(),
            tail: VecDeque::new(),
            tail_first: 0,
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
            if self.tail.len() < max {
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
        self.drained.retain(|slice, _| progress.held.contains(slice));
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

    /// What the taker has not acknowledged, as much as goes into one message, with the number of its first entry.
    pub(super) fn tail(&self) -> Option<(u64, Vec<TailEntry<T>>)> {
        let part = || self.tail.iter().take(TAIL_PART).cloned().collect();
        (!self.tail.is_empty()).then(|| (self.tail_first, part()))
    }

    /// The number of the first entry that the taker has not acknowledged.
    pub(super) fn tail_first(&self) -> u64 {
        self.tail_first
    }

    /// Whether it lacks more than goes into one message.
    pub(super) fn is_tail_long(&self) -> bool {
        self.tail.len() > TAIL_PART
    }

    /// The last entry alone, with its number: what was just added.
    pub(super) fn tail_last(&self) -> Option<(u64, Vec<TailEntry<T>>)> {
        let last = self.tail.back()?;
        Some((self.tail_first + self.tail.len() as u64 - 1, vec![last.clone()]))
    }

    /// The number after the last tail entry.
    pub(super) fn tail_end(&self) -> u64 {
        self.tail_first + self.tail.len() as u64
    }

    /// Only the taker's progress is wanted.
    pub(super) fn needs_progress(&self) -> bool {
        self.state == GiverState::Draining
            && self.undrained.is_empty()
            && !self.covered
            && self.tail.is_empty()
    }

    /// Items of the tail that the taker has not acknowledged.
    pub(super) fn tail_items(&self) -> usize {
        self.tail.iter().filter(|entry| matches!(entry, TailEntry::Item(_))).count()
    }

    pub(super) fn drop_tail(&mut self) {
        self.covered = true;
        self.tail.clear();
        self.until.clear();
    }

    /// Drained and replied to, and the taker lacks nothing. `reply`: how long replies are on their way.
    pub(super) fn is_finished(&self, now: Duration, reply: Duration) -> bool {
        let replied = now.saturating_sub(self.drained_at) >= reply;
        self.undrained.is_empty() && self.drained.is_empty() && self.covered && replied
    }
}
