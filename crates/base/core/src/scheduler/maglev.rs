use std::sync::Arc;

use super::{Ask, Candidate, Loads, Scheduler};
use crate::hash;

/// The candidate at the flow's hash in a Maglev table. A flow has the same candidate in every
/// thread and process with the same seed, and nearly every flow keeps it when other candidates
/// change. O(1).
///
/// A retry takes the next entry of the table with another candidate, which is consistent, too. A
/// full candidate is skipped in the same way.
///
/// # Source
/// For full candidates: Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with bounded loads",
/// SODA 2018, as in HAProxy's `hash-balance-factor` and Envoy's bounded-load ring. Deviates: the
/// bound is the concurrency limit.
pub(super) struct Maglev {
    table: Arc<Table>,
}

impl Maglev {
    pub(super) fn new(table: Arc<Table>) -> Maglev {
        Maglev { table }
    }
}

impl Scheduler for Maglev {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        self.table.lookup(ask.flow_hash, ask.avoid, ask.loads)
    }
}

/// A Maglev lookup table: hash to slot.
///
/// # Source
/// Eisenbud et al., "Maglev: a fast and reliable software network load balancer", NSDI 2016,
/// section 3.4 and pseudocode 1. Deviates: a candidate takes a turn in the first round and then in
/// `weight / largest weight` of the rounds (Katran and Envoy give weights this meaning), so that
/// even the lightest has an entry. Turns are taken in the order of identity, so that the order of
/// the configuration does not matter. The entry is found by multiplication, not by the remainder.
#[derive(Debug)]
pub(super) struct Table {
    entries: Box<[u32]>,
    /// The slots with entries.
    slots: Box<[u32]>,
}

/// The paper's small size. Nearly all pools have the same size, because a change of size moves
/// nearly all flows.
const SIZE: usize = 65_537;
/// The paper's large size, for pools in which a candidate would have too few entries of the small
/// one.
const SIZE_LARGE: usize = 655_373;
/// Entries per candidate below which the large size is used. Shares are exact to one entry.
const ENTRIES_PER_CANDIDATE_MIN: usize = 32;

const EMPTY: u32 = u32::MAX;

impl Table {
    pub(super) fn new(candidates: &[Candidate], seed: u64) -> Table {
        let turns = turns(candidates);
        let slots = turns.iter().map(|turn| turn.slot).collect();
        let size = if turns.len() * ENTRIES_PER_CANDIDATE_MIN <= SIZE { SIZE } else { SIZE_LARGE };
        Table { entries: entries(turns, size, seed), slots }
    }

    /// The slot of `hash`, or the next slot in the table that is neither avoided nor full. O(1). If
    /// it has to search, O(n) and the entries up to that slot's.
    pub(super) fn lookup(
        &self,
        hash: u64,
        avoid: Option<usize>,
        loads: &dyn Loads,
    ) -> Option<usize> {
        let at = ((u128::from(hash) * self.entries.len() as u128) >> u64::BITS) as usize;
        let first = *self.entries.get(at)? as usize;
        let avoid = avoid.filter(|_| self.slots.len() > 1);
        let may_be_picked = |slot: &usize| avoid != Some(*slot) && !loads.is_full(*slot);
        if may_be_picked(&first) {
            return Some(first);
        }
        if !self.slots.iter().any(|&slot| may_be_picked(&(slot as usize))) {
            return None;
        }
        let (before, after) = self.entries.split_at(at);
        after.iter().chain(before).map(|&slot| slot as usize).find(may_be_picked)
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> &[u32] {
        &self.entries
    }
}

/// The entries of the Maglev table of `size` for these candidates: hash to slot. `size` is prime.
/// Empty if no candidate has a weight above zero. For levels that look up entries themselves.
///
/// # Source
/// The table of the `maglev` scheduler.
///
/// # Panics
/// If a permutation of `size` entries is incomplete, which is possible if `size` is not prime.
pub fn maglev_table(candidates: &[Candidate], size: usize, seed: u64) -> Box<[u32]> {
    entries(turns(candidates), size, seed)
}

fn entries(mut turns: Vec<Turn>, size: usize, seed: u64) -> Box<[u32]> {
    if turns.is_empty() {
        return Box::default();
    }
    for turn in &mut turns {
        turn.permute(size, seed);
    }
    fill(&mut turns, size)
}

/// A candidate's state in its permutation of the table.
struct Turn {
    identity: u64,
    slot: u32,
    weight: u64,
    /// A turn is due in every round `r` for which this is at most `r * weight`.
    due: u64,
    preferred: usize,
    skip: usize,
}

impl Turn {
    fn permute(&mut self, size: usize, seed: u64) {
        let (offset, skip) = hash::offset_and_skip(self.identity, seed);
        self.preferred = (offset % size as u64) as usize;
        // The size is prime, so any skip of 1..size visits every entry.
        self.skip = (skip % (size as u64 - 1)) as usize + 1;
    }

    /// The next entry of the permutation.
    fn next(&mut self, size: usize) -> usize {
        let at = self.preferred;
        let next = at + self.skip;
        self.preferred = if next >= size { next - size } else { next };
        at
    }
}

fn turns(candidates: &[Candidate]) -> Vec<Turn> {
    let mut turns: Vec<Turn> = candidates
        .iter()
        .zip(0..EMPTY)
        .filter(|(candidate, _)| candidate.weight > 0)
        .map(|(candidate, slot)| Turn {
            identity: candidate.identity,
            slot,
            weight: u64::from(candidate.weight),
            due: 0,
            preferred: 0,
            skip: 0,
        })
        .collect();
    turns.sort_by_key(|turn| (turn.identity, turn.slot));
    turns
}

/// Fills the table round by round: each due candidate takes its next preferred free entry.
fn fill(turns: &mut [Turn], size: usize) -> Box<[u32]> {
    let mut entries = vec![EMPTY; size].into_boxed_slice();
    let largest = turns.iter().map(|turn| turn.weight).max().unwrap_or(1);
    let mut free = size;
    for round in 0.. {
        for turn in &mut *turns {
            if turn.due > round * turn.weight {
                continue;
            }
            turn.due += largest;
            // The loop ends, because an entry is free and the permutation visits all.
            let at = loop {
                let at = turn.next(size);
                if entries[at] == EMPTY {
                    break at;
                }
            };
            entries[at] = turn.slot;
            free -= 1;
            if free == 0 {
                return entries;
            }
        }
    }
    unreachable!("every round fills at least the entry of the heaviest candidate");
}
