//! The state of a handover at its target.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Groups, Incarnation, SliceId, Writer};
use crate::message::{Backlog, Item, Progress, TailEntry};
use crate::positions::Positions;
use crate::repeat::Repeat;
use crate::worker::target_table::TargetState;

/// A handover at its target.
#[derive(Debug)]
pub(super) struct Taking<T> {
    pub state: TargetState,
    /// In order.
    pub slices: Arc<[SliceId]>,
    /// The groups that bring their items.
    pub groups: Groups,
    /// `None` for an assignment, which has no source.
    pub source: Option<Incarnation>,
    /// P, as it was sent.
    pub ahead: Positions,
    /// Items of the slices that have arrived.
    pub shadow: Vec<Item<T>>,
    /// Writers without a gap: those in P, and those with a finished tail.
    known: HashSet<Writer>,
    /// No writer has a gap that the tail does not fill.
    pub settled: bool,
    /// No writer has a gap.
    pub covered: bool,
    /// C.
    pub cut: Arc<Positions>,
    /// C, raised by the tail: items up to this are finished or in progress.
    pub floor: Arc<Positions>,
    /// The items that the source had not started, from CUT.
    pub backlog: Vec<Backlog>,
    /// The whole backlog has arrived.
    pub backlog_came: bool,
    /// The slice of the last backlog item that arrived.
    backlog_at: Option<SliceId>,
    /// By slice: the backlog items that arrived. They are not repeated if the source is lost.
    pub received: BTreeMap<SliceId, Vec<(Writer, u64)>>,
    /// The number of the first claims that cover the backlog.
    pub covering: u64,
    /// See [`Progress::claimed`].
    pub claimed: bool,
    /// Slices that wait for the source.
    pub held: BTreeSet<SliceId>,
    /// By writer: the position from which its items arrive here, and the items that wait for the
    /// tail.
    open: BTreeMap<Writer, (u64, VecDeque<Item<T>>)>,
    tail_next: u64,
    /// An assignment after the loss of the owner.
    pub owner_lost: bool,
    /// The source was lost: the number of the first claims that say so.
    pub recovered: Option<u64>,
    /// When its first message arrived.
    pub since: Duration,
    /// Of ACTIVE.
    pub repeat: Repeat,
}

/// A gap that stays: after the first position, up to the second.
type Missing = (Writer, u64, u64);

/// Results of tail entries. The items should be processed, in order.
#[derive(Debug)]
pub(super) struct Came<T> {
    /// Items that the source had not started.
    pub unstarted: Vec<Item<T>>,
    /// Slices for which all unstarted items have arrived.
    pub whole: Vec<SliceId>,
    /// Items after C.
    pub ready: Vec<Item<T>>,
}

/// Whether an item of a taken slice can be processed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hole {
    /// There is no gap: process the item.
    None,
    /// The item was stored until the tail arrives.
    Waits,
    /// As `Waits`, and the source does not know yet from which position items arrive here.
    Asks,
}

impl<T> Taking<T> {
    pub(super) fn new(slices: Arc<[SliceId]>, groups: Groups, source: Option<Incarnation>) -> Self {
        Self {
            state: TargetState::Unknown,
            groups,
            slices,
            source,
            ahead: Positions::default(),
            shadow: Vec::new(),
            known: HashSet::new(),
            settled: false,
            covered: false,
            cut: Arc::default(),
            floor: Arc::default(),
            backlog: Vec::new(),
            backlog_came: false,
            backlog_at: None,
            received: BTreeMap::new(),
            covering: 0,
            claimed: false,
            held: BTreeSet::new(),
            open: BTreeMap::new(),
            tail_next: 0,
            owner_lost: false,
            recovered: None,
            since: Duration::ZERO,
            repeat: Repeat::default(),
        }
    }

    /// Stores P: these writers have no gap.
    pub(super) fn ready(&mut self, positions: &Positions) {
        self.known = positions.iter().map(|(writer, _)| writer).collect();
    }

    /// Whether its groups are needed: it is in progress, or its slices are owned.
    pub(super) fn is_coming(&self) -> bool {
        matches!(
            self.state,
            TargetState::Subscribing | TargetState::Shadowing | TargetState::Active
        )
    }

    /// Whether it waits for the cut.
    pub(super) fn is_before_cut(&self) -> bool {
        matches!(self.state, TargetState::Subscribing | TargetState::Shadowing)
    }

    /// Whether `item` can be processed yet. `first`: position of its writer's first item here.
    pub(super) fn hole(&mut self, item: &Item<T>, first: u64) -> Hole
    where
        T: Clone,
    {
        if self.covered || self.known.contains(&item.writer) {
            return Hole::None;
        }
        if let Some((_, waiting)) = self.open.get_mut(&item.writer) {
            waiting.push_back(item.clone());
            return Hole::Waits;
        }
        if first <= self.cut.of(item.writer) {
            self.known.insert(item.writer);
            return Hole::None;
        }
        self.open.insert(item.writer, (first, VecDeque::from([item.clone()])));
        Hole::Asks
    }

    /// Whether all items that the source had not started have arrived.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog_came || self.backlog.is_empty()
    }

    /// Handles tail entries numbered from `first`, as far as they are new and none is missing.
    pub(super) fn tail(&mut self, first: u64, entries: Vec<TailEntry<T>>) -> Came<T> {
        let (mut unstarted, mut whole, mut ready) = (Vec::new(), Vec::new(), Vec::new());
        for (number, entry) in (first..).zip(entries) {
            if number > self.tail_next {
                break;
            }
            if number < self.tail_next {
                continue;
            }
            self.tail_next += 1;
            match entry {
                // Items of a lost source are recovered from clients instead.
                TailEntry::Unstarted(_) if self.recovered.is_some() => {}
                TailEntry::Unstarted(item) => {
                    let received = self.received.entry(item.slice).or_default();
                    received.push((item.writer, item.position));
                    // Items arrive slice by slice.
                    let before = self.backlog_at.replace(item.slice);
                    whole.extend(before.filter(|slice| *slice != item.slice));
                    unstarted.push(item);
                }
                TailEntry::UnstartedEnd => {
                    self.backlog_came = true;
                    whole.extend(self.backlog_at.take());
                }
                TailEntry::Item(item) => {
                    let is_new = item.position > self.floor.of(item.writer);
                    if is_new && !self.is_known(item.writer) {
                        Arc::make_mut(&mut self.floor).set(item.writer, item.position);
                        ready.push(item);
                    }
                }
                TailEntry::End(writer) => {
                    let reached = self.floor.of(writer);
                    let waited = self.close(writer);
                    ready.extend(waited.into_iter().filter(|item| item.position > reached));
                }
                TailEntry::EndAll => {
                    let open = std::mem::take(&mut self.open).into_values();
                    let waited = open.flat_map(|(_, waiting)| waiting);
                    let floor = self.floor.clone();
                    let after = |item: &Item<T>| item.position > floor.of(item.writer);
                    ready.extend(waited.filter(after));
                    self.covered = true;
                }
            }
        }
        Came { unstarted, whole, ready }
    }

    fn close(&mut self, writer: Writer) -> VecDeque<Item<T>> {
        self.known.insert(writer);
        self.open.remove(&writer).map(|(_, waiting)| waiting).unwrap_or_default()
    }

    /// No tail will arrive: returns the items that waited for it, and the gaps that stay. `here`:
    /// position of each writer's first item here. Every such writer has a gap up to there, possibly
    /// an empty one.
    pub(super) fn give_up_tails(
        &mut self,
        here: &BTreeMap<Writer, u64>,
    ) -> (Vec<Item<T>>, Vec<Missing>) {
        let writers: BTreeSet<_> =
            here.keys().copied().chain(self.floor.iter().map(|(writer, _)| writer)).collect();
        let hole = |writer: Writer| match here.get(&writer) {
            _ if self.is_known(writer) => (writer, 0, 0),
            Some(first) => (writer, self.floor.of(writer), first - 1),
            None => (writer, self.floor.of(writer), u64::MAX),
        };
        let holes = writers.into_iter().map(hole).collect();
        (self.covered, self.backlog_came, self.claimed) = (true, true, true);
        let open = std::mem::take(&mut self.open).into_values();
        (open.flat_map(|(_, waiting)| waiting).collect(), holes)
    }

    pub(super) fn is_known(&self, writer: Writer) -> bool {
        self.covered || self.known.contains(&writer)
    }

    /// Whether an item waits for a tail.
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The progress for the source and the controller.
    pub(super) fn progress(&self) -> Progress {
        Progress {
            held: self.held.iter().copied().collect(),
            settled: self.settled || self.covered,
            tail_next: self.tail_next,
            until: self.open.iter().map(|(writer, (from, _))| (*writer, *from)).collect(),
            claimed: self.claimed || self.backlog.is_empty(),
            recovered: self.recovered,
        }
    }
}
