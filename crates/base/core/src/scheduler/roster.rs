use rand::{Rng, RngExt};

use super::{Ask, Candidate, FAILURE_AS_IN_FLIGHT, Loads};

/// The candidates with weight above zero, in configured order, with running sums of their weights.
///
/// A *position* is an index into the roster; a *slot* is an index into the original candidates.
#[derive(Debug)]
pub(super) struct Roster {
    entries: Box<[Entry]>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) slot: usize,
    pub(super) weight: u32,
    /// Sum of the weights up to and including this one.
    end: u64,
}

impl Entry {
    /// The number in flight, plus recent failures.
    pub(super) fn load(&self, loads: &dyn Loads) -> u64 {
        let failures = u64::from(loads.recent_failures(self.slot));
        u64::from(loads.in_flight(self.slot)) + failures * u64::from(FAILURE_AS_IN_FLIGHT)
    }

    /// The divisors of both loads: the limits if both have one, otherwise the weights.
    pub(super) fn capacities(&self, other: &Entry, loads: &dyn Loads) -> (u32, u32) {
        match (loads.limit(self.slot), loads.limit(other.slot)) {
            (Some(own), Some(others)) => (own, others),
            _ => (self.weight, other.weight),
        }
    }

    fn start(&self) -> u64 {
        self.end - u64::from(self.weight)
    }
}

impl Roster {
    pub(super) fn new(candidates: &[Candidate]) -> Roster {
        let mut end = 0;
        let entries = candidates
            .iter()
            .enumerate()
            .filter(|(_, candidate)| candidate.weight > 0)
            .map(|(slot, candidate)| {
                end += u64::from(candidate.weight);
                Entry { slot, weight: candidate.weight, end }
            })
            .collect();
        Roster { entries }
    }

    /// Draws two candidates by weight, and takes the first unless the second is better. A full one
    /// is not taken; if both are full, another is drawn.
    pub(super) fn better_of_two(
        &self,
        ask: &mut Ask<'_>,
        second_is_better: impl FnOnce(&Entry, &Entry, &dyn Loads) -> bool,
    ) -> Option<usize> {
        let avoided = self.avoidable(ask.avoid);
        let (first, second) = self.draw_two(ask.rng, avoided)?;
        let first = &self.entries()[first];
        let second = second.map(|position| &self.entries()[position]);
        let is_free = |entry: &&Entry| !ask.loads.is_full(entry.slot);
        match (Some(first).filter(is_free), second.filter(is_free)) {
            (Some(first), Some(second)) if second_is_better(second, first, ask.loads) => {
                Some(second.slot)
            }
            (Some(free), _) | (None, Some(free)) => Some(free.slot),
            (None, None) => self.draw_free(ask, avoided),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn weights_total(&self) -> u64 {
        self.entries.last().map_or(0, |last| last.end)
    }

    /// The position of the slot to avoid; `None` if it could not be picked anyway, or is the only
    /// one.
    pub(super) fn avoidable(&self, avoid: Option<usize>) -> Option<usize> {
        if self.len() < 2 {
            return None;
        }
        self.entries.binary_search_by_key(&avoid?, |entry| entry.slot).ok()
    }

    /// A random position at which a rotation starts, so that threads do not move in step.
    pub(super) fn random_start(&self, rng: &mut dyn Rng) -> usize {
        if self.entries.is_empty() { 0 } else { rng.random_range(0..self.len()) }
    }

    /// Every position once, beginning at `start` and wrapping around.
    pub(super) fn rotated(&self, start: usize) -> impl Iterator<Item = (usize, &Entry)> {
        let (before, after) = self.entries.split_at(start);
        (start..).zip(after).chain((0..).zip(before))
    }

    /// The next position, wrapping around.
    pub(super) fn after(&self, position: usize) -> usize {
        if position + 1 == self.len() { 0 } else { position + 1 }
    }

    /// A random slot that is not full, in proportion to weight, and not at position `avoided`.
    /// O(n). Used if a choice without regard to limits was full.
    ///
    /// # Source
    /// Weighted reservoir sampling of one item (Chao, "A general purpose unequal probability
    /// sampling plan", Biometrika 69, 1982): one pass, so that loads may change during it.
    pub(super) fn draw_free(&self, ask: &mut Ask<'_>, avoided: Option<usize>) -> Option<usize> {
        let mut total = 0;
        let mut drawn = None;
        for (position, entry) in self.entries.iter().enumerate() {
            if Some(position) == avoided || ask.loads.is_full(entry.slot) {
                continue;
            }
            total += u64::from(entry.weight);
            if ask.rng.random_range(0..total) < u64::from(entry.weight) {
                drawn = Some(entry.slot);
            }
        }
        drawn
    }

    /// A random position in proportion to weight, not in `except` (ascending, without duplicates).
    ///
    /// O(log n): excepted intervals are cut out of the line of weights, so one draw is enough.
    pub(super) fn draw(&self, rng: &mut dyn Rng, except: &[usize]) -> Option<usize> {
        let excepted: u64 = except.iter().map(|&at| u64::from(self.entries[at].weight)).sum();
        let total = self.weights_total() - excepted;
        if total == 0 {
            return None;
        }
        let mut point = rng.random_range(0..total);
        for &at in except {
            if point >= self.entries[at].start() {
                point += u64::from(self.entries[at].weight);
            }
        }
        Some(self.entries.partition_point(|entry| entry.end <= point))
    }

    /// Two different random positions in proportion to weight, neither of them `avoided`. The
    /// second is `None` if there is no other.
    pub(super) fn draw_two(
        &self,
        rng: &mut dyn Rng,
        avoided: Option<usize>,
    ) -> Option<(usize, Option<usize>)> {
        let first = self.draw(rng, avoided.as_slice())?;
        let second = match avoided {
            None => self.draw(rng, &[first]),
            Some(other) => self.draw(rng, &[first.min(other), first.max(other)]),
        };
        Some((first, second))
    }
}
