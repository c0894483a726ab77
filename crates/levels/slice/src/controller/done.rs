//! Computes the finished positions of slices over all their owners.

use std::sync::Arc;

use crate::by_slice::BySlice;
use crate::controller::{Controller, Handover};
use crate::ids::{HandoverId, Incarnation, SliceId};
use crate::positions::Positions;

impl<T: Clone> Controller<T> {
    /// The positions finished before the current owner had each slice.
    pub(super) fn floors_of(&self, slices: &[SliceId]) -> BySlice {
        let floor = |slice| self.table.get(&slice).and_then(|row| row.floor.clone());
        // Slices that came together share it.
        let key = |slice| floor(slice).map(|floor| Arc::as_ptr(&floor));
        BySlice::grouped(slices.iter().copied(), key, |slice| floor(slice).unwrap_or_default())
    }

    /// The finished positions of each slice, by the claims of its owner and by its floor.
    pub(super) fn done_by_owners(&self, slices: &[SliceId]) -> BySlice {
        let claims = |slice| {
            let row = self.table.get(&slice)?;
            let claims = self.members.claims(row.owner?)?;
            (claims.epoch(slice) == Some(row.epoch)).then_some(claims)
        };
        let floor = |slice| self.table.get(&slice).and_then(|row| row.floor.clone());
        let key = |slice| match claims(slice) {
            Some(claims) => Ok((self.owner_of(slice), claims.floors.part(slice))),
            None => Err(floor(slice).map(|floor| Arc::as_ptr(&floor))),
        };
        BySlice::grouped(slices.iter().copied(), key, |slice| match claims(slice) {
            Some(claims) => Arc::new(claims.committed(slice)),
            None => floor(slice).unwrap_or_default(),
        })
    }

    fn owner_of(&self, slice: SliceId) -> Option<Incarnation> {
        self.table.get(&slice).and_then(|row| row.owner)
    }

    /// The positions of each slice that the source of a handover, and earlier owners, had finished.
    pub(super) fn done_by_source(&self, handover: HandoverId, open: &Handover) -> BySlice {
        match open.source {
            Some(source) => self.done_before(source, handover, open, open.cut.as_deref()),
            None => BySlice::default(),
        }
    }

    /// The positions that `source` and earlier owners had finished before the handover `given`, at
    /// most `up_to`.
    pub(super) fn done_before(
        &self,
        source: Incarnation,
        given: HandoverId,
        open: &Handover,
        up_to: Option<&Positions>,
    ) -> BySlice {
        let cut = self.members.committed_as_source(source, given);
        // Claims from before the cut.
        let owned = self.members.claims(source).filter(|_| cut.is_none());
        let owned = |slice| owned.filter(|claims| claims.epoch(slice).is_some());
        let key = |slice| {
            let claimed = owned(slice).map(|claims| claims.floors.part(slice));
            (open.floors.part(slice), claimed)
        };
        BySlice::grouped(open.slices.iter().copied(), key, |slice| {
            let claimed = owned(slice).map(|claims| claims.committed(slice));
            let claimed = claimed.or_else(|| cut.clone()).unwrap_or_default();
            let done = match open.floors.of(slice) {
                Some(floor) => floor.furthest(&claimed),
                None => claimed,
            };
            Arc::new(up_to.map_or_else(|| done.clone(), |up_to| done.least(up_to)))
        })
    }

    /// The positions that the target has finished, if it claims all slices.
    pub(super) fn done_by_target(&self, handover: HandoverId, open: &Handover) -> Option<BySlice> {
        let claims = self.members.claims(open.target)?;
        if !claims.has_since(&open.slices, handover) {
            return None;
        }
        let slices = open.slices.iter().copied();
        let committed = |slice| Arc::new(claims.committed(slice));
        Some(BySlice::grouped(slices, |slice| claims.floors.part(slice), committed))
    }
}
