//! Backends that a member has and the roster does not know.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Entry, Roster, Seen, Wanted};
use crate::MadeState;

/// Numbers of names that this roster never gave. A roster that the store has lost gave them, or a
/// machine without a leader. Members may have backends with these numbers, and keep them until the
/// roster adopts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// Ranges of numbers: the first of each, and the number after its last.
    #[serde(default)]
    ranges: BTreeMap<u64, u64>,
}

impl Forgotten {
    /// Greatest number of ranges. The oldest is dropped for a new one.
    const RANGES_MAX: usize = 1000;

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn has(&self, number: u64) -> bool {
        self.range_of(number).is_some()
    }

    fn range_of(&self, number: u64) -> Option<(u64, u64)> {
        let (from, to) = self.ranges.range(..=number).next_back()?;
        (number < *to).then_some((*from, *to))
    }

    /// Adds the numbers from `from` up to `to`, which are above all others.
    fn add(&mut self, from: u64, to: u64) {
        let last = self.ranges.last_key_value().filter(|(_, end)| **end == from);
        let from = last.map_or(from, |(first, _)| *first);
        self.insert(from, to);
        while self.ranges.len() > Forgotten::RANGES_MAX {
            self.ranges.pop_first();
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some((from, to)) = self.range_of(number) {
            self.ranges.remove(&from);
            self.insert(from, number);
            self.insert(number + 1, to);
        }
    }

    fn insert(&mut self, from: u64, to: u64) {
        if from < to {
            self.ranges.insert(from, to);
        }
    }
}

impl Roster {
    /// True if a member may have a backend of this name although the roster does not know it.
    pub fn has_forgotten(&self, pool: &str, name: &str) -> bool {
        let Some(number) = number_of(pool, name) else { return false };
        let is_open = self.forgotten.has(number) || number >= self.next_number;
        is_open && !self.backends.contains_key(name)
    }

    /// True if this roster gave the name to a backend that is gone.
    pub fn has_outlived(&self, pool: &str, name: &str) -> bool {
        let Some(number) = number_of(pool, name) else { return false };
        let is_open = self.forgotten.has(number) || number >= self.next_number;
        !is_open && !self.backends.contains_key(name)
    }

    /// A roster that gives this number next. Backends with lower numbers may exist.
    pub fn unknown_before(next_number: u64) -> Roster {
        let mut roster = Roster { next_number: 1, ..Roster::default() };
        roster.go_on_from(next_number);
        roster
    }

    /// Adds backends of the earlier roster `before` that outlive their process and that this roster
    /// does not know. Their numbers are not given again.
    pub fn keep_forgotten(&mut self, pool: &str, before: &Roster, is_there: impl Fn(&str) -> bool) {
        let forgotten = before.backends.iter().filter(|(name, entry)| {
            entry.outlives && self.has_forgotten(pool, name) && is_there(name)
        });
        let forgotten: Vec<_> =
            forgotten.map(|(name, entry)| (name.clone(), entry.clone())).collect();
        if !forgotten.is_empty() {
            self.next_number = self.next_number.max(before.next_number);
            self.backends.extend(forgotten);
        }
    }

    /// Adopts backends that this roster does not know. Nothing is adopted from a member that may
    /// have lost some of its entries, so that no backend counts twice.
    pub(super) fn take_in(&mut self, pool: &str, seen: &Seen<'_>) {
        for making in seen.making.values() {
            let numbers = making.backends.keys().filter_map(|name| number_of(pool, name));
            let after = numbers.map(|number| number + 1);
            let claims = after.chain([making.next_number]).filter(|it| *it <= Roster::CLAIM_MAX);
            self.go_on_from(claims.max().unwrap_or(0));
        }
        for (member, making) in &seen.making {
            let is_in_doubt = |(name, entry): (&String, &Entry)| {
                entry.executor == *member && !making.backends.contains_key(name)
            };
            if self.backends.iter().any(is_in_doubt) {
                continue;
            }
            for (name, made) in &making.backends {
                let Some(number) = number_of(pool, name).filter(|_| self.has_forgotten(pool, name))
                else {
                    continue;
                };
                let wanted = match made.state {
                    MadeState::Draining => Wanted::Drain,
                    MadeState::Leaving => Wanted::Leave,
                    MadeState::Starting | MadeState::Ready | MadeState::Failed => Wanted::Serve,
                };
                let entry = self.entry(pool, number, seen, member, made.size.clone());
                let (outlives, driver) = match made.outlives {
                    Some(outlives) => (outlives, made.driver.clone()),
                    None => (entry.outlives, entry.driver.clone()),
                };
                let replaces = made.replaces.clone().filter(|_| wanted == Wanted::Serve);
                let (state, address, id) = (made.state, made.address, made.id.clone());
                // If the driver is asked again, it gets the same key.
                let key = made.key.clone().unwrap_or_else(|| entry.key.clone());
                let entry =
                    Entry { outlives, driver, wanted, state, address, id, replaces, key, ..entry };
                self.backends.insert(name.clone(), entry);
                self.forgotten.remove(number);
            }
        }
    }

    /// Gives only numbers from this one on.
    fn go_on_from(&mut self, number: u64) {
        if number > self.next_number {
            self.forgotten.add(self.next_number, number);
            self.next_number = number;
        }
    }
}

/// The number in a name of this pool; `None` for other names.
fn number_of(pool: &str, name: &str) -> Option<u64> {
    let number = name.strip_prefix(pool)?.strip_prefix("-e")?;
    let is_canonical = !number.starts_with(['0', '+']);
    number.parse().ok().filter(|number| is_canonical && *number < Roster::CLAIM_MAX)
}
