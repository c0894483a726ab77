//! Checks during a run and at its end.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{Incarnation, SliceId};
use crate::sim::client::ItemId;

/// The faults of a run, and its counters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    pub faults: Vec<String>,
    pub runs: u64,
    /// Handovers that began, and those that ended with the slices moved.
    pub begun: u64,
    pub moved: u64,
    pub items: u64,
    pub executions: u64,
    pub late: u64,
    pub tails: u64,
    /// Items that moved with their slices before they were started.
    pub handed_over: u64,
    pub recovered: u64,
    pub lost_workers: u64,
    /// Lost workers that were given up because their connections closed.
    pub known_at_once: u64,
    /// Connections that were reset while their workers lived.
    pub resets: u64,
    pub lost_replies: u64,
    pub answered_again: u64,
    /// Numbers of splits and joins of all slices.
    pub split: u64,
    pub joined: u64,
    /// Checkpoints of slices, and kills that were not done as they would have been the second
    /// fault.
    pub checkpoints: u64,
    pub unsafe_kills: u64,
    /// Workers that a controller gave up.
    pub given_up: u64,
    /// Handovers that were open when their controller crashed.
    pub interrupted: u64,
    /// Pauses of the controller for longer than a lease.
    pub controller_pauses: u64,
}

/// The order required of one client's items in one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderKept {
    /// None.
    None,
    /// Items that begin for the first time. After `Drained`, a target may have to repeat an item of
    /// a source that was lost before it sent the reply.
    First,
    /// In addition each worker keeps the order, even for items that it repeats of a lost one.
    Each,
    /// In addition no item is repeated.
    Once,
}

#[derive(Debug, Default)]
pub(super) struct Judge {
    pub executed: BTreeMap<ItemId, Vec<Incarnation>>,
    /// Items that began.
    begun: BTreeSet<ItemId>,
    /// The last item of each client that began, by slice.
    last: BTreeMap<(SliceId, u64), u64>,
    /// The same, for each incarnation.
    last_of: BTreeMap<(Incarnation, SliceId, u64), u64>,
    running: BTreeMap<SliceId, (Incarnation, ItemId)>,
    /// The items in each state, in order.
    state: BTreeMap<(SliceId, Incarnation), Vec<ItemId>>,
    /// All items, by slice and client.
    pub published: BTreeMap<(SliceId, u64), Vec<u64>>,
    /// Incarnations that crashed, or were given up.
    pub lost: BTreeSet<Incarnation>,
    given_up: BTreeSet<Incarnation>,
    /// Lost replies to an item while its worker lives.
    pub unanswered: BTreeMap<ItemId, usize>,
    pub verdict: Verdict,
}

impl Judge {
    pub(super) fn fault(&mut self, fault: String) {
        if self.verdict.faults.len() < 8 {
            self.verdict.faults.push(fault);
        }
    }

    /// A controller gave `incarnation` up: other workers may own its slices.
    pub(super) fn gives_up(&mut self, incarnation: Incarnation) {
        self.lost.insert(incarnation);
        self.given_up.insert(incarnation);
        self.verdict.given_up += 1;
    }

    /// An item begins. `kept`: the order to check.
    pub(super) fn begins(
        &mut self,
        incarnation: Incarnation,
        slice: SliceId,
        item: ItemId,
        kept: OrderKept,
    ) {
        if self.given_up.contains(&incarnation) {
            self.fault(format!("{slice:?}: {incarnation:?} begins {item:?} after it was given up"));
        }
        if kept == OrderKept::None {
            return;
        }
        if let Some((other, at)) = self.running.get(&slice)
            && *other != incarnation
            && !self.lost.contains(other)
        {
            self.fault(format!(
                "{slice:?}: {incarnation:?} begins {item:?} while {other:?} is at {at:?}"
            ));
        }
        self.running.insert(slice, (incarnation, item));
        let is_new = self.begun.insert(item);
        let last = self.last.entry((slice, item.0)).or_insert(0);
        let was = std::mem::replace(last, item.1.max(*last));
        // Items that a lost worker had begun are repeated, after its last item.
        if was >= item.1 && (is_new || kept == OrderKept::Once) {
            self.fault(format!("{slice:?}: {incarnation:?} begins {item:?} after {was}"));
        }
        let last = self.last_of.entry((incarnation, slice, item.0)).or_insert(0);
        let was = std::mem::replace(last, item.1.max(*last));
        if was >= item.1 && kept != OrderKept::First {
            self.fault(format!("{slice:?}: {incarnation:?} itself begins {item:?} after {was}"));
        }
    }

    pub(super) fn ends(&mut self, incarnation: Incarnation, slice: SliceId, item: ItemId) {
        if self.running.get(&slice) == Some(&(incarnation, item)) {
            self.running.remove(&slice);
        }
        self.state.entry((slice, incarnation)).or_default().push(item);
        self.executed.entry(item).or_default().push(incarnation);
        self.verdict.executions += 1;
    }

    /// Exports the state of a slice: the items that it has processed.
    pub(super) fn export(&mut self, incarnation: Incarnation, slice: SliceId) -> Vec<u8> {
        encode(&self.state.remove(&(slice, incarnation)).unwrap_or_default())
    }

    /// The same, and it stays.
    pub(super) fn snapshot(&self, incarnation: Incarnation, slice: SliceId) -> Vec<u8> {
        encode(&self.state_of(incarnation, slice))
    }

    pub(super) fn state_of(&self, incarnation: Incarnation, slice: SliceId) -> Vec<ItemId> {
        self.state.get(&(slice, incarnation)).cloned().unwrap_or_default()
    }

    /// Imports a state. If no worker was lost, there must be no state yet.
    pub(super) fn import(
        &mut self,
        incarnation: Incarnation,
        slice: SliceId,
        state: Option<Vec<u8>>,
        nobody_lost: bool,
    ) {
        let state = state.map(|bytes| decode(&bytes)).unwrap_or_default();
        if let Some(had) = self.state.insert((slice, incarnation), state)
            && nobody_lost
        {
            self.fault(format!("{slice:?}: {incarnation:?} had a state of {had:?} when one came"));
        }
    }

    /// The number of items in the states of `slice`.
    pub(super) fn states(&self, slice: SliceId) -> u64 {
        let of = self.state.iter().filter(|((of, _), _)| *of == slice);
        of.map(|(_, items)| items.len() as u64).sum()
    }
}

fn encode(items: &[ItemId]) -> Vec<u8> {
    items.iter().flat_map(|item| [item.0.to_le_bytes(), item.1.to_le_bytes()]).flatten().collect()
}

fn decode(bytes: &[u8]) -> Vec<ItemId> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    bytes.chunks_exact(16).map(|it| (number(&it[..8]), number(&it[8..]))).collect()
}

impl Verdict {
    /// Adds the counters of another run.
    pub(crate) fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.begun += other.begun;
        self.moved += other.moved;
        self.items += other.items;
        self.executions += other.executions;
        self.late += other.late;
        self.tails += other.tails;
        self.handed_over += other.handed_over;
        self.recovered += other.recovered;
        self.lost_workers += other.lost_workers;
        self.known_at_once += other.known_at_once;
        self.resets += other.resets;
        self.lost_replies += other.lost_replies;
        self.answered_again += other.answered_again;
        self.split += other.split;
        self.joined += other.joined;
        self.checkpoints += other.checkpoints;
        self.unsafe_kills += other.unsafe_kills;
        self.given_up += other.given_up;
        self.interrupted += other.interrupted;
        self.controller_pauses += other.controller_pauses;
    }
}
