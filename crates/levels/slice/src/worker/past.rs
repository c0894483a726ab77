//! Finished handovers of this worker as the source, as long as a controller may have to ask for
//! them.
//!
//! The controller that sees a handover knows its cut. The next controller learns it from the
//! target. If the target is lost, only the source knows which items it has executed, and that no
//! other worker may execute them again. It reports them to every new controller until that has
//! received them. [`Config::forget`](crate::Config::forget) after that, no process keeps such items
//! any more: their clients have their replies, and standbys know that they are committed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Groups, HandoverId, SliceId, Writer};
use crate::message::{Backlog, Past, least};
use crate::numbering::Numbering;
use crate::positions::Positions;

/// Slices that were given away, by handover.
#[derive(Debug, Default)]
pub(super) struct Pasts {
    given: BTreeMap<HandoverId, Given>,
    told: Told,
}

#[derive(Debug)]
struct Given {
    slices: BTreeSet<SliceId>,
    /// Items up to this are finished, except for the backlog.
    done: Positions,
    backlog: Vec<Backlog>,
    since: Duration,
}

/// Whether the current controller knows these handovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Told {
    /// It has received all, or saw them itself.
    #[default]
    Yes,
    /// It has received nothing.
    No,
    /// Claims from this number on contain them.
    Since(u64),
}

impl Pasts {
    /// Adds a handover: the slices were given away, and all of this worker's items are finished and
    /// replied to. `groups`: those that carry items of the slices.
    pub(super) fn add(
        &mut self,
        now: Duration,
        handover: HandoverId,
        slices: BTreeSet<SliceId>,
        groups: Groups,
        cut: &Positions,
        backlog: Vec<Backlog>,
    ) {
        if slices.is_empty() {
            return;
        }
        // Removes slices that were given away earlier and have returned since.
        self.given.retain(|_, given| {
            given.slices.retain(|slice| !slices.contains(slice));
            given.backlog.retain(|of| !slices.contains(&of.slice));
            !given.slices.is_empty()
        });
        let done = cut.iter().filter(|(writer, _)| groups.contains(writer.group)).collect();
        self.given.insert(handover, Given { slices, done, backlog, since: now });
    }

    /// The items of `slice` that were handed over unstarted when it was last given away: all of
    /// each writer after the position.
    pub(super) fn handed(&self, slice: SliceId) -> BTreeMap<Writer, u64> {
        let backlogs = self.given.values().flat_map(|given| &given.backlog);
        backlogs.filter(|of| of.slice == slice).map(|of| (of.writer, of.after)).collect()
    }

    /// Whether the slices of all handovers after `since` exist in `to`.
    pub(super) fn fits(&self, from: &Numbering, to: &Numbering, since: Option<Duration>) -> bool {
        let joins = to.slices < from.slices;
        let is_old = |given: &Given| since.is_some_and(|since| given.since <= since);
        let has_both = |given: &Given| {
            given.slices.iter().all(|slice| given.slices.contains(&from.partner(*slice, to)))
        };
        !joins || self.given.values().all(|given| is_old(given) || has_both(given))
    }

    /// Converts all slices to `to`. Forgets halves that were given away alone.
    pub(super) fn renumber(&mut self, from: &Numbering, to: &Numbering) {
        self.given.retain(|_, given| {
            let slices: Vec<_> = given.slices.iter().copied().collect();
            given.slices = from.convert(&slices, to).into_iter().collect();
            let becomes =
                |of: Backlog| from.becomes(of.slice, to).map(move |slice| Backlog { slice, ..of });
            let backlog = std::mem::take(&mut given.backlog).into_iter().flat_map(becomes);
            let left = &given.slices;
            given.backlog = least(backlog.filter(|of| left.contains(&of.slice)).collect());
            !given.slices.is_empty()
        });
    }

    /// A new controller begins.
    pub(super) fn begin_term(&mut self, now: Duration) {
        self.tell();
        self.given.values_mut().for_each(|given| given.since = now);
    }

    /// Reports all to the current controller.
    pub(super) fn tell(&mut self) {
        self.told = if self.given.is_empty() { Told::Yes } else { Told::No };
    }

    /// The handovers for claims with this number.
    pub(super) fn say(&mut self, number: u64) -> Vec<Past> {
        match self.told {
            Told::Yes => return Vec::new(),
            Told::No => self.told = Told::Since(number),
            Told::Since(_) => {}
        }
        let said = self.given.values().map(|given| {
            let slices: Arc<[SliceId]> = given.slices.iter().copied().collect();
            Past { slices, done: given.done.clone(), backlog: given.backlog.clone() }
        });
        said.collect()
    }

    /// The controller has received claims with this number, which were sent at `sent`.
    pub(super) fn heard(&mut self, number: u64, sent: Duration, forget: Duration) {
        if let Told::Since(first) = self.told
            && number >= first
        {
            self.told = Told::Yes;
        }
        if self.told == Told::Yes {
            self.given.retain(|_, given| sent.saturating_sub(given.since) < forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Group;

    const FORGET: Duration = Duration::from_secs(60);

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn writer(slice: u32) -> Writer {
        Writer { group: Group::of(SliceId(slice)), id: 7 }
    }

    fn groups(slices: &[u32]) -> Groups {
        Groups::of(&slices.iter().copied().map(SliceId).collect::<Vec<_>>())
    }

    fn pasts() -> Pasts {
        let mut pasts = Pasts::default();
        let cut = [1, 2, 3].map(|slice| (writer(slice), 10)).into_iter().collect();
        pasts.add(
            at(0),
            HandoverId(1),
            [1, 2].map(SliceId).into(),
            groups(&[1, 2]),
            &cut,
            Vec::new(),
        );
        pasts
    }

    #[test]
    fn finished_handovers_are_reported_until_a_new_controller_has_received_them() {
        let mut pasts = pasts();
        assert!(pasts.say(1).is_empty(), "the first saw it itself");
        pasts.begin_term(at(1));
        pasts.heard(1, at(1), FORGET);
        let said = pasts.say(2);
        assert_eq!(said[0].slices[..], [1, 2].map(SliceId));
        assert_eq!(said[0].done, [1, 2].map(|slice| (writer(slice), 10)).into_iter().collect());
        // Claims sent before it was added do not contain it.
        pasts.heard(1, at(1), FORGET);
        assert_eq!(pasts.say(3).len(), 1);
        pasts.heard(3, at(1), FORGET);
        assert!(pasts.say(4).is_empty());
    }

    #[test]
    fn a_handover_is_forgotten_some_time_after_a_controller_received_it() {
        let mut pasts = pasts();
        pasts.heard(1, at(59), FORGET);
        // A day without a controller.
        pasts.begin_term(at(86_400));
        assert_eq!(pasts.say(2).len(), 1);
        pasts.heard(2, at(86_401), FORGET);
        pasts.begin_term(at(86_402));
        assert_eq!(pasts.say(3).len(), 1);
        pasts.heard(3, at(86_462), FORGET);
        pasts.begin_term(at(86_463));
        assert!(pasts.say(4).is_empty());
    }

    #[test]
    fn a_slice_given_away_twice_is_reported_only_once() {
        let mut pasts = pasts();
        let cut = [(writer(2), 30)].into_iter().collect();
        pasts.add(at(1), HandoverId(5), [SliceId(2)].into(), groups(&[2]), &cut, Vec::new());
        pasts.begin_term(at(2));
        let said: Vec<_> = pasts.say(1).into_iter().map(|past| past.slices.to_vec()).collect();
        assert_eq!(said, [vec![SliceId(1)], vec![SliceId(2)]]);
    }
}
