//! Backends that a roster does not know, and some member has.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Entry, Roster, Seen, Wanted};
use crate::MadeState;

/// Numbers of names that this roster never gave: a roster did which the store has forgotten, or a machine without a leader.
/// Members may have such backends, and keep them until the roster has taken them in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forgotten {
    /// The first.
    pub from: u64,
    /// The one after the last.
    pub to: u64,
    /// Those that the roster has taken in since.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taken_in: BTreeSet<u64>,
}

impl Forgotten {
    pub(super) fn is_empty(&self) -> bool {
        self.from == self.to
    }
}

impl Roster {
    /// Whether a member may have a backend of this name although the roster does not know it.
    pub fn has_forgotten(&self, pool: &str, name: &str) -> bool {
        let Some(number) = number_of(pool, name) else { return false };
        let Forgotten { from, to, taken_in } = &self.forgotten;
        let is_open = (from..to).contains(&&number) && !taken_in.contains(&number);
        !self.backends.contains_key(name) && (is_open || number >= self.next_number)
    }

    /// Takes in backends that this roster has forgotten. A member that may have lost some of its entries is waited for, so
    /// that none counts twice.
    pub(super) fn take_in(&mut self, pool: &str, seen: &Seen<'_>) {
        for making in seen.making.values() {
            let numbers = making.backends.keys().filter_map(|name| number_of(pool, name));
            let after = numbers.map(|number| number + 1).max().unwrap_or(0);
            self.go_on_from(after.max(making.next_number).min(Roster::CLAIM_MAX));
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
                let (state, address, id) = (made.state, made.address, made.id.clone());
                let entry = self.entry(pool, number, seen, member, made.size.clone());
                let entry = Entry { wanted, state, address, id, ..entry };
                self.backends.insert(name.clone(), entry);
                self.forgotten.taken_in.insert(number);
            }
        }
    }

    /// Gives no number below this one any more.
    fn go_on_from(&mut self, number: u64) {
        if number <= self.next_number {
            return;
        }
        if self.forgotten.to != self.next_number {
            let (from, taken_in) = (self.next_number, BTreeSet::new());
            self.forgotten = Forgotten { from, to: from, taken_in };
        }
        (self.forgotten.to, self.next_number) = (number, number);
    }
}

/// The number in a name of this pool; `None` for other names.
fn number_of(pool: &str, name: &str) -> Option<u64> {
    let number = name.strip_prefix(pool)?.strip_prefix("-e")?;
    let is_canonical = !number.starts_with(['0', '+']);
    number.parse().ok().filter(|number| is_canonical && *number < Roster::CLAIM_MAX)
}
