//! What the controller writes to the store, and what the next one starts from.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{HandoverId, Life, SliceId, WorkerId};
use crate::numbering::Numbering;
use crate::positions::Positions;

/// What is meant to be done. Of slices that nobody hands over it is noted before anybody gets them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The slices.
    pub slices: Arc<[SliceId]>,
    /// Who owns them; `None` if nobody hands them over.
    pub giver: Option<Life>,
    /// Who is to have them.
    pub taker: Life,
    /// Without a giver: what the lost owner had committed; `None` if there was no owner.
    pub after: Option<Positions>,
    /// The taker gave the slices away in this handover and gets them back, while it may still be at items below its
    /// cut.
    pub returns: Option<HandoverId>,
}

/// A change of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// Handovers of this term may have numbers up to this. Noted before the first of them is told to anybody.
    Numbers(HandoverId),
    /// Slices are assigned.
    Opened(HandoverId, Intent),
    /// The slices are the taker's.
    Owned(HandoverId, Life, Arc<[SliceId]>),
    /// An assignment is over.
    Closed(HandoverId),
    /// A life was heard of. Noted before it is answered, so that the next controller asks it what it holds.
    Heard(Life),
    /// A life was given up. It may still be there, fenced, and must not be let in again.
    Lost(Life),
    /// Slices are split or joined.
    Resized {
        /// The numbers before.
        from: Numbering,
        /// And from now on.
        to: Numbering,
    },
    /// It was given up so long ago that it holds nothing any more, even if it is still there.
    Forgotten(WorkerId),
}

/// What the store holds: every record, applied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stored {
    /// The largest number that a handover may have had.
    pub last: HandoverId,
    /// Owner and epoch of each slice that has an owner.
    pub owners: BTreeMap<SliceId, (Life, HandoverId)>,
    /// Assignments that are not over. Planned moves are not here: workers claim what is under way of them.
    pub open: BTreeMap<HandoverId, Intent>,
    /// Of each worker that was given up, the last life that was; until it is forgotten.
    pub lost: BTreeMap<WorkerId, u64>,
    /// Of each worker that was heard of and not given up, its life.
    pub heard: BTreeMap<WorkerId, u64>,
    /// The numbers of slices, if the stream was ever resized. Encoded separately: the encoding of
    /// the rest is older.
    #[serde(skip)]
    pub numbering: Option<Numbering>,
}

impl Stored {
    /// Applies a record. One that was applied before changes nothing.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Numbers(reserved) => self.last = self.last.max(*reserved),
            Record::Opened(handover, intent) => {
                self.last = self.last.max(*handover);
                self.open.insert(*handover, intent.clone());
            }
            Record::Owned(handover, taker, slices) => {
                for slice in slices.iter() {
                    self.owners.insert(*slice, (*taker, *handover));
                }
            }
            Record::Closed(handover) => {
                self.open.remove(handover);
            }
            Record::Heard(life) => {
                let last = self.heard.entry(life.worker).or_insert(life.number);
                *last = life.number.max(*last);
            }
            Record::Lost(life) => {
                if self.heard.get(&life.worker).is_some_and(|heard| *heard <= life.number) {
                    self.heard.remove(&life.worker);
                }
                let last = self.lost.entry(life.worker).or_insert(life.number);
                *last = life.number.max(*last);
            }
            Record::Resized { from, to } => self.renumber(from, to),
            Record::Forgotten(worker) => {
                self.lost.remove(worker);
                self.heard.remove(worker);
            }
        }
    }

    /// Of two slices that are joined the owner is the same, and the later epoch counts.
    fn renumber(&mut self, from: &Numbering, to: &Numbering) {
        if self.numbering.is_some_and(|known| known.epoch >= to.epoch) {
            return;
        }
        let mut owners: BTreeMap<SliceId, (Life, HandoverId)> = BTreeMap::new();
        for (slice, (life, epoch)) in &self.owners {
            for slice in from.becomes(*slice, to) {
                let owner = owners.entry(slice).or_insert((*life, *epoch));
                if owner.1 < *epoch {
                    *owner = (*life, *epoch);
                }
            }
        }
        self.owners = owners;
        self.numbering = Some(*to);
    }
}
