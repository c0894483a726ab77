//! The fingerprint form: finds flows that match falsely.

use super::PogController;
use crate::cell::Cell;
use crate::form::Fingerprint;
use crate::hash::KeyHash;
use crate::key::Key;

impl<K: Key + Eq, C: Cell, H: KeyHash> PogController<K, C, H, Fingerprint> {
    /// Returns those of `flows` that are not in the set but match a fingerprint, with the tau that
    /// data planes return for them. A caller with all flows inserts these, or rebuilds.
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
