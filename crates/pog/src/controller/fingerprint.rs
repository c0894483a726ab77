//! The fingerprint form: which flows would match falsely.

use super::PogController;
use crate::cell::Cell;
use crate::form::Fingerprint;
use crate::hash::KeyHash;
use crate::key::Key;

impl<K: Key + Eq, C: Cell, H: KeyHash> PogController<K, C, H, Fingerprint> {
    /// Those of `flows` that are not in the set and that data planes would yet take for pinned, each with the tau
    /// that it would be given. Who knows all flows inserts these, or rebuilds.
    pub fn false_matches<'a>(
        &'a self,
        flows: impl IntoIterator<Item = &'a K>,
    ) -> impl Iterator<Item = (&'a K, C)> {
        flows.into_iter().filter_map(|flow| {
            let tau = self.pog.pinned(flow)?;
            (!self.contains(flow)).then_some((flow, tau))
        })
    }
}
