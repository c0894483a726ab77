//! Chooses a standby for each slice.
//!
//! # Source
//! Thaler, Ravishankar, "A name-based mapping scheme for rendezvous", 1998: of all workers but the
//! owner the one with the largest hash of slice and worker. So the result is the same before and
//! after the owner's loss, and a worker that joins or leaves changes only its own slices.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::controller::Controller;
use crate::ids::{Incarnation, SliceId, mixed};
use crate::message::Message;

/// The standby for `slice` among `workers`.
pub(super) fn standby_of(
    slice: SliceId,
    owner: Option<Incarnation>,
    workers: impl Iterator<Item = Incarnation>,
) -> Option<Incarnation> {
    let others =
        workers.filter(|incarnation| owner.is_none_or(|owner| owner.worker != incarnation.worker));
    others.max_by_key(|incarnation| {
        (mixed(incarnation.worker.0 ^ mixed(u64::from(slice.0) + 1)), *incarnation)
    })
}

impl<T: Clone> Controller<T> {
    /// Sends every worker the slices that it stands by for, and the positions up to which it need
    /// not keep items.
    pub(super) fn tick_standby(&mut self, now: Duration) {
        if !self.config.standby || now.saturating_sub(self.standby_said) < self.config.claims {
            return;
        }
        self.standby_said = now;
        let able: Vec<_> = self.members.able().collect();
        let mut duties: BTreeMap<Incarnation, Vec<SliceId>> =
            able.iter().map(|incarnation| (*incarnation, Vec::new())).collect();
        for (slice, row) in &self.table {
            let Some(owner) = row.owner else { continue };
            if let Some(standby) = standby_of(*slice, Some(owner), able.iter().copied()) {
                duties.entry(standby).or_default().push(*slice);
            }
        }
        for (standby, slices) in duties {
            self.send(standby, Message::Standby { committed: self.done_by_owners(&slices) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::WorkerId;

    #[test]
    fn the_standby_stays_the_same_when_the_owner_is_lost_and_duties_are_spread() {
        let lives: Vec<_> =
            (1..=5).map(|w| Incarnation { worker: WorkerId(w), number: 1 }).collect();
        let mut duties: BTreeMap<Incarnation, usize> = BTreeMap::new();
        for slice in (0..1000).map(SliceId) {
            let owner = lives[slice.0 as usize % lives.len()];
            let before = standby_of(slice, Some(owner), lives.iter().copied());
            let left = lives.iter().copied().filter(|incarnation| *incarnation != owner);
            assert_eq!(before, standby_of(slice, Some(owner), left));
            assert_ne!(before, Some(owner));
            *duties.entry(before.expect("there are others")).or_default() += 1;
        }
        assert!(duties.values().all(|count| (140..=260).contains(count)), "{duties:?}");
        assert_eq!(standby_of(SliceId(0), Some(lives[0]), lives[..1].iter().copied()), None);
    }
}
