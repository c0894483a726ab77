//! What a taker keeps of one handover.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Groups, Life, SliceId, Writer};
use crate::message::{Backlog, Item, Progress, TailEntry};
use crate::positions::Positions;
use crate::worker::taker_table::TakerState;

/// One handover, at its taker.
#[derive(Debug)]
pub(super) struct Taking<T> {
    pub state: TakerState,
    /// In order.
    pub slices: Arc<[SliceId]>,
    /// By which items of them come.
    pub groups: Groups,
    /// `None`: assigned, nobody hands over.
    pub giver: Option<Life>,
    /// P, as it was said.
    pub ahead: Positions,
    /// What came for the slices.
    pub shadow: Vec<Item<T>>,
    /// Writers that have no hole: those of P, and those whose tail has ended.
    known: HashSet<Writer>,
    /// No writer has a hole that the tail does not fill.
    pub settled: bool,
    /// No writer has a hole.
    pub covered: bool,
    /// C.
    pub cut: Arc<Positions>,
    /// C, raised by the tail: all at or below is done, or is in hand.
    pub floor: Arc<Positions>,
    /// What the giver had not started, as the cut says.
    pub backlog: Vec<Backlog>,
    /// All of it has come.
    pub backlog_came: bool,
    /// The slice of which it comes: that of the last item.
    backlog_at: Option<SliceId>,
    /// By slice, what of it has come: should the giver be lost, this does not come again.
    pub received: BTreeMap<SliceId, Vec<(Writer, u64)>>,
    /// The number of the first claims that cover it.
    pub covering: u64,
    /// See [`Progress::claimed`].
    pub claimed: bool,
    /// Slices that wait for the giver.
    pub held: BTreeSet<SliceId>,
    /// By writer: from where its items come here, and those that wait for the tail.
    open: BTreeMap<Writer, (u64, VecDeque<Item<T>>)>,
    tail_next: u64,
    /// An assignment of slices whose owner was lost.
    pub owner_lost: bool,
    /// The giver was lost, and the claims of this number are the first that say so.
    pub recovered: Option<u64>,
    /// When it was first heard of.
    pub since: Duration,
    /// When something was last said.
    pub said: Duration,
}

/// A hole that stays: after the first position, up to the second.
type Missing = (Writer, u64, u64);

/// What came by the tail. Items are those to be done, in order.
#[derive(Debug)]
pub(super) struct Came<T> {
    /// Items that the giver had not started.
    pub unstarted: Vec<Item<T>>,
    /// Slices of which all of these have come.
    pub whole: Vec<SliceId>,
    /// Items after C.
    pub ready: Vec<Item<T>>,
}

/// What is to be done with an item of a slice that was taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hole {
    /// There is none: go on with the item.
    None,
    /// The item was put by until the tail has come.
    Waits,
    /// As `Waits`, and the giver does not know yet from where on items come here.
    Asks,
}

impl<T> Taking<T> {
    pub(super) fn new(slices: Arc<[SliceId]>, groups: Groups, giver: Option<Life>) -> Self {
        Self {
            state: TakerState::Unknown,
            groups,
            slices,
            giver,
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
            said: Duration::ZERO,
        }
    }

    /// Notes P: these writers have no hole.
    pub(super) fn ready(&mut self, positions: &Positions) {
        self.known = positions.iter().map(|(writer, _)| writer).collect();
    }

    /// Its groups are needed: it is under way, or its slices are owned.
    pub(super) fn is_coming(&self) -> bool {
        matches!(self.state, TakerState::Subscribing | TakerState::Shadowing | TakerState::Active)
    }

    /// It waits for the cut.
    pub(super) fn is_before_cut(&self) -> bool {
        matches!(self.state, TakerState::Subscribing | TakerState::Shadowing)
    }

    /// Whether `item` can be done yet. `first`: from where on items of its writer came here.
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

    /// Whether all has come that the giver had not started.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog_came || self.backlog.is_empty()
    }

    /// Takes the tail from `first` on, as far as it is new and nothing is missing.
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
                // What comes of a giver that is lost is recovered otherwise.
                TailEntry::Unstarted(_) if self.recovered.is_some() => {}
                TailEntry::Unstarted(item) => {
                    let received = self.received.entry(item.slice).or_default();
                    received.push((item.writer, item.position));
                    // They come slice by slice.
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

    /// No tail will come: what waited for it, and the holes that stay: writer, after, through. `here`: from where on
    /// items of each writer came here. A writer that came has a hole up to there, if only of nothing.
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

    /// Whether something waits for a tail.
    pub(super) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// What is told the giver and the controller.
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
