//! The claims of a worker.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::by_slice::BySlice;
use crate::ids::{HandoverId, Incarnation, Process, SliceId};
use crate::message::Backlog;
use crate::numbering::Numbering;
use crate::positions::Positions;

/// All that a worker holds. From claims the controller determines the state of a lost worker, and a
/// new controller continues the handovers in progress. Claims under a controller's term include a
/// promise: handovers of an earlier controller without a cut are never cut.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Claims {
    /// Increases with each claims message.
    pub number: u64,
    /// The process of the worker.
    pub process: Process,
    /// The slices it owns, in order, with their epochs.
    pub slices: Vec<(SliceId, HandoverId)>,
    /// Committed positions: of all slices that it owns or owned, items at or below are finished.
    pub marks: Positions,
    /// Positions per slice up to which items belonged to an earlier owner, and are finished or
    /// still that owner's. Omitted when the marks have passed them.
    pub floors: BySlice,
    /// Handovers in which it cut and has not drained.
    pub given: Vec<Given>,
    /// Handovers in which it takes, or took and has not received the end.
    pub taken: Vec<Taken>,
    /// Handovers that it finished recently as the source: for a new controller, until that has
    /// received them.
    pub past: Vec<Past>,
    /// The numbering of its slices.
    pub numbering: Numbering,
    /// The announced resize, if this worker can take it now: [`Message::Resize`].
    pub ready_for: Option<HandoverId>,
}

impl Claims {
    /// The epoch by which it owns `slice`; `None` if it does not.
    pub fn epoch(&self, slice: SliceId) -> Option<HandoverId> {
        let found = self.slices.binary_search_by_key(&slice, |(slice, _)| *slice).ok()?;
        self.slices.get(found).map(|(_, epoch)| *epoch)
    }

    /// Whether it owns all of `slices` by `epoch`.
    pub fn has_since(&self, slices: &[SliceId], epoch: HandoverId) -> bool {
        slices.iter().all(|slice| self.epoch(*slice) == Some(epoch))
    }

    /// The committed positions of `slice`, which it owns.
    pub fn committed(&self, slice: SliceId) -> Positions {
        match self.floors.of(slice) {
            Some(floor) => self.marks.furthest(floor),
            None => self.marks.clone(),
        }
    }
}

/// A handover at its source, after the cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The handover.
    pub handover: HandoverId,
    /// The slices that moved.
    pub slices: Arc<[SliceId]>,
    /// The target.
    pub target: Incarnation,
    /// C.
    pub cut: Positions,
}

/// A finished handover at its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The slices that moved.
    pub slices: Arc<[SliceId]>,
    /// Items at or below are finished, by this worker or an earlier owner, except for `backlog`.
    pub done: Positions,
    /// Items that the source did not start: the target received them.
    pub backlog: Vec<Backlog>,
}

/// A handover at its target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The handover.
    pub handover: HandoverId,
    /// The slices to move.
    pub slices: Arc<[SliceId]>,
    /// Their owner.
    pub source: Incarnation,
}

impl Claims {
    /// Converts the claims to `to`, as the worker would report them with that numbering.
    pub(crate) fn renumber(&mut self, to: &Numbering) {
        let from = std::mem::replace(&mut self.numbering, *to);
        if !from.is_step_to(to.slices) {
            return;
        }
        let numbers: Vec<_> = self.slices.iter().map(|(slice, _)| *slice).collect();
        let whole = from.convert(&numbers, to);
        let mut slices: Vec<_> = self
            .slices
            .iter()
            .flat_map(|(slice, epoch)| from.becomes(*slice, to).map(|it| (it, *epoch)))
            .filter(|(slice, _)| whole.binary_search(slice).is_ok())
            .collect();
        // For two joined slices the later epoch counts.
        slices.sort_unstable_by_key(|(slice, epoch)| (*slice, std::cmp::Reverse(*epoch)));
        slices.dedup_by_key(|(slice, _)| *slice);
        self.slices = slices;
        self.floors = self.floors.renumbered(&from, to);
        let convert = |slices: &[SliceId]| from.convert(slices, to).into();
        let given = |it: &Given| Given { slices: convert(&it.slices), ..it.clone() };
        self.given = self.given.iter().map(given).collect();
        let taken = |it: &Taken| Taken { slices: convert(&it.slices), ..it.clone() };
        self.taken = self.taken.iter().map(taken).collect();
        self.past = self.past.iter().filter_map(|past| past.converted(&from, to)).collect();
    }
}

impl Past {
    /// Converts it to `to`. `None` if no slice is left.
    fn converted(&self, from: &Numbering, to: &Numbering) -> Option<Self> {
        let slices = from.convert(&self.slices, to);
        let is_left = |slice: &SliceId| slices.binary_search(slice).is_ok();
        let becomes = |of: &Backlog| {
            let (writer, after) = (of.writer, of.after);
            from.becomes(of.slice, to).map(move |slice| Backlog { slice, writer, after })
        };
        let backlog = self.backlog.iter().flat_map(becomes).filter(|of| is_left(&of.slice));
        let backlog = least(backlog.collect());
        let done = self.done.clone();
        (!slices.is_empty()).then(|| Self { slices: slices.into(), done, backlog })
    }
}

/// Merges the backlogs of each slice and writer into one, after the smallest position.
pub(crate) fn least(mut backlog: Vec<Backlog>) -> Vec<Backlog> {
    backlog.sort_unstable_by_key(|of| (of.slice, of.writer, of.after));
    backlog.dedup_by_key(|of| (of.slice, of.writer));
    backlog
}
