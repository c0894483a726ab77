//! Workers that are gone for good.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::controller::{Controller, Output, Record};
use crate::ids::Life;

/// Lost workers that are remembered at most. Beyond it the first that were lost go early: one of them that comes back after all is
/// not let in with what it had, as it is not known.
const LOST_MAX: usize = 4096;

impl<T: Clone> Controller<T> {
    /// Forgets lives that nothing refers to, and workers that were lost long ago: those have begun a new life by now, if
    /// they are still there, and so hold nothing that is another's.
    pub(super) fn tick_forget(&mut self, now: Duration) {
        if now.saturating_sub(self.forgot) < self.config.claims {
            return;
        }
        self.forgot = now;
        // Until everybody has spoken it is not known who refers to whom.
        if self.surveying || !self.members.has_any_gone() {
            return;
        }
        let needed = self.lives_in_use();
        self.members.bury(|life| needed.contains(&life));
        // The lease of the last claims that were heard has to be over, and then the worker's own time.
        let after = self.config.lease + self.config.margin + self.config.retire;
        let gone = self.members.forget(now, after, LOST_MAX, |life| needed.contains(&life));
        for worker in gone {
            self.out.push_back(Output::Record(Record::Forgotten(worker)));
        }
    }

    /// Lives that own slices, or have a part in a handover.
    fn lives_in_use(&self) -> BTreeSet<Life> {
        let owners = self.table.values().filter_map(|row| row.owner);
        let parties = self.handovers.values().flat_map(|h| h.giver.into_iter().chain([h.taker]));
        owners.chain(parties).collect()
    }
}
