//! Forgets workers that are gone for good.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::controller::{Controller, Output, Record};
use crate::ids::Incarnation;

/// Largest number of lost workers that are remembered. Beyond it those lost first are forgotten
/// early. If such a worker returns, it is unknown, and is not admitted with its slices.
const LOST_MAX: usize = 4096;

impl<T: Clone> Controller<T> {
    /// Forgets unused incarnations, and workers that were lost long ago. If such a worker still
    /// runs, it has begun a new incarnation, so it holds nothing that belongs to another.
    pub(super) fn tick_forget(&mut self, now: Duration) {
        if now.saturating_sub(self.forgot) < self.config.claims {
            return;
        }
        self.forgot = now;
        // The references are complete only after all workers have reported.
        if self.surveying || !self.members.has_any_gone() {
            return;
        }
        let needed = self.lives_in_use();
        self.members.bury(|incarnation| needed.contains(&incarnation));
        // The lease of the last received claims must be over, and then the worker's own time.
        let after = self.config.lease + self.config.margin + self.config.retire;
        let gone =
            self.members.forget(now, after, LOST_MAX, |incarnation| needed.contains(&incarnation));
        for worker in gone {
            self.out.push_back(Output::Record(Record::Forgotten(worker)));
        }
    }

    /// Incarnations that own slices or take part in a handover.
    fn lives_in_use(&self) -> BTreeSet<Incarnation> {
        let owners = self.table.values().filter_map(|row| row.owner);
        let parties = self.handovers.values().flat_map(|h| h.source.into_iter().chain([h.target]));
        owners.chain(parties).collect()
    }
}
