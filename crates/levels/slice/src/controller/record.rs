//! Records in the store, from which the next controller starts.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{HandoverId, Incarnation, SliceId, WorkerId};
use crate::numbering::Numbering;
use crate::positions::Positions;

/// A planned change of owners. An assignment is stored before the worker receives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The slices.
    pub slices: Arc<[SliceId]>,
    /// The source; `None` for an assignment.
    pub source: Option<Incarnation>,
    /// The target.
    pub target: Incarnation,
    /// For an assignment: the positions that the lost owner had committed; `None` if there was no
    /// owner.
    pub after: Option<Positions>,
    /// The target was the source of this handover and gets the slices back. It may still process
    /// items below its cut.
    pub returns: Option<HandoverId>,
}

/// A change of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// Handovers of this term may have numbers up to this. Stored before the first of them is sent.
    Numbers(HandoverId),
    /// Slices are being assigned.
    Opened(HandoverId, Intent),
    /// The target owns the slices.
    Owned(HandoverId, Incarnation, Arc<[SliceId]>),
    /// An assignment is over.
    Closed(HandoverId),
    /// A new incarnation reported. Stored before it is answered, so that the next controller waits
    /// for its claims.
    Heard(Incarnation),
    /// An incarnation was given up. It may still run, fenced, and must not be admitted again.
    Lost(Incarnation),
    /// The stream is resized: slices are split or joined.
    Resized {
        /// The old numbering.
        from: Numbering,
        /// The new numbering.
        to: Numbering,
    },
    /// It was given up so long ago that it holds no slices any more, even if it still runs.
    Forgotten(WorkerId),
}

/// The contents of the store: all records, applied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stored {
    /// The largest number that a handover may have had.
    pub last: HandoverId,
    /// Owner and epoch of each slice with an owner.
    pub owners: BTreeMap<SliceId, (Incarnation, HandoverId)>,
    /// Assignments that are not over. Planned moves are missing here: workers claim those in
    /// progress.
    pub open: BTreeMap<HandoverId, Intent>,
    /// The last incarnation of each worker that was given up and not forgotten.
    pub lost: BTreeMap<WorkerId, u64>,
    /// The incarnation of each worker that reported and was not given up.
    pub heard: BTreeMap<WorkerId, u64>,
    /// The numbering of slices, if the stream was ever resized. Encoded separately, to keep the
    /// older encoding of the other fields.
    #[serde(skip)]
    pub numbering: Option<Numbering>,
}

impl Stored {
    /// Applies a record. Applying it again changes nothing.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Numbers(reserved) => self.last = self.last.max(*reserved),
            Record::Opened(handover, intent) => {
                self.last = self.last.max(*handover);
                self.open.insert(*handover, intent.clone());
            }
            Record::Owned(handover, target, slices) => {
                for slice in slices.iter() {
                    self.owners.insert(*slice, (*target, *handover));
                }
            }
            Record::Closed(handover) => {
                self.open.remove(handover);
            }
            Record::Heard(incarnation) => {
                let last = self.heard.entry(incarnation.worker).or_insert(incarnation.number);
                *last = incarnation.number.max(*last);
            }
            Record::Lost(incarnation) => {
                if self
                    .heard
                    .get(&incarnation.worker)
                    .is_some_and(|heard| *heard <= incarnation.number)
                {
                    self.heard.remove(&incarnation.worker);
                }
                let last = self.lost.entry(incarnation.worker).or_insert(incarnation.number);
                *last = incarnation.number.max(*last);
            }
            Record::Resized { from, to } => self.renumber(from, to),
            Record::Forgotten(worker) => {
                self.lost.remove(worker);
                self.heard.remove(worker);
            }
        }
    }

    /// Two slices that are joined have the same owner, and the later epoch counts.
    fn renumber(&mut self, from: &Numbering, to: &Numbering) {
        if self.numbering.is_some_and(|known| known.epoch >= to.epoch) {
            return;
        }
        let mut owners: BTreeMap<SliceId, (Incarnation, HandoverId)> = BTreeMap::new();
        for (slice, (incarnation, epoch)) in &self.owners {
            for slice in from.becomes(*slice, to) {
                let owner = owners.entry(slice).or_insert((*incarnation, *epoch));
                if owner.1 < *epoch {
                    *owner = (*incarnation, *epoch);
                }
            }
        }
        self.owners = owners;
        self.numbering = Some(*to);
    }
}
