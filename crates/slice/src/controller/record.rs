//! What the controller writes to the store, and what the next one starts from.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{HandoverId, Life, SliceId, WorkerId};
use crate::positions::Positions;

/// What is meant to be done, noted before anybody gives or gets anything.
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
    /// A handover begins.
    Opened(HandoverId, Intent),
    /// Its slices are the taker's.
    Owned(HandoverId),
    /// It is over.
    Closed(HandoverId),
    /// A life was given up. It may still be there, fenced, and must not be let in again.
    Lost(Life),
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
    /// Handovers that are not over.
    pub open: BTreeMap<HandoverId, Intent>,
    /// Of each worker that was given up, the last life that was; until it is forgotten.
    pub lost: BTreeMap<WorkerId, u64>,
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
            Record::Owned(handover) => {
                let Some(intent) = self.open.get(handover) else { return };
                for slice in intent.slices.iter() {
                    self.owners.insert(*slice, (intent.taker, *handover));
                }
            }
            Record::Closed(handover) => {
                self.open.remove(handover);
            }
            Record::Lost(life) => {
                let last = self.lost.entry(life.worker).or_insert(life.number);
                *last = life.number.max(*last);
            }
            Record::Forgotten(worker) => {
                self.lost.remove(worker);
            }
        }
    }
}
