//! Batches of changes. The memory of later changes is prefetched during earlier ones.

use super::PogController;
use crate::cell::Cell;
use crate::delta::Delta;
use crate::error::{BuildError, UpdateError};
use crate::forest::NONE;
use crate::form::Form;
use crate::hash::KeyHash;
use crate::key::Key;
use crate::memory;
use crate::sizes::Sizes;

/// Change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update<K, C> {
    /// Adds a key with its tau.
    Insert(K, C),
    /// Removes a key from the set.
    Delete(K),
    /// Changes the tau of a key.
    Alter(K, C),
}

impl<K, C> Update<K, C> {
    fn key(&self) -> &K {
        match self {
            Update::Insert(key, _) | Update::Delete(key) | Update::Alter(key, _) => key,
        }
    }
}

/// Distance, in changes, between fetching a key's vertices and fetching the first edge at each, and
/// between that and the change itself.
const AHEAD: usize = 12;

impl<K: Key + Eq, C: Cell, H: KeyHash, F: Form> PogController<K, C, H, F> {
    /// Makes each change in order, like [`Self::insert`], [`Self::delete`] and [`Self::alter`],
    /// with one delta for all. `outcomes` receives one result per update. A failed update changes
    /// nothing and does not stop the batch.
    pub fn update(
        &mut self,
        updates: impl IntoIterator<Item = Update<K, C>>,
        outcomes: &mut Vec<Result<(), UpdateError>>,
    ) -> &Delta<C> {
        self.begin();
        outcomes.clear();
        let mut waiting = std::collections::VecDeque::with_capacity(2 * AHEAD + 1);
        for update in updates {
            let hash = self.pog.hash.hash(update.key());
            self.prefetch_cells(hash);
            waiting.push_back((update, hash, self.seeds_tried));
            if let Some((_, hash, seeds_tried)) = waiting.iter().rev().nth(AHEAD)
                && *seeds_tried == self.seeds_tried
            {
                self.prefetch_edges(*hash);
            }
            if waiting.len() > 2 * AHEAD {
                let (update, hash, seeds_tried) = waiting.pop_front().expect("just counted");
                outcomes.push(self.update_hashed(update, hash, seeds_tried));
            }
        }
        for (update, hash, seeds_tried) in waiting {
            outcomes.push(self.update_hashed(update, hash, seeds_tried));
        }
        self.finish();
        &self.delta
    }

    /// Prefetches the memory that a change of a key with this hash reads first.
    #[inline(always)]
    pub(super) fn prefetch_cells(&self, hash: u64) {
        let (a, b) = self.pog.sizes.cells_of(hash);
        for vertex in [a, b] {
            self.forest.prefetch_vertex(vertex);
            memory::prefetch(&self.pog.cells, vertex as usize);
        }
    }

    /// Prefetches the first edge at each end, and its key.
    #[inline(always)]
    pub(super) fn prefetch_edges(&self, hash: u64) {
        let (a, b) = self.pog.sizes.cells_of(hash);
        for vertex in [a, b] {
            let edge = self.forest.first(vertex);
            if edge != NONE {
                self.forest.prefetch_edge(edge);
                memory::prefetch(&self.keys, edge as usize);
            }
        }
    }

    /// `hash` was computed after `seeds_tried` seeds; it is valid if no seed has been tried since.
    #[inline(always)]
    fn update_hashed(
        &mut self,
        update: Update<K, C>,
        hash: u64,
        seeds_tried: u64,
    ) -> Result<(), UpdateError> {
        let hash = (seeds_tried == self.seeds_tried).then_some(hash);
        match update {
            Update::Insert(key, tau) => self.insert_hashed(key, tau, hash),
            Update::Delete(key) => self.delete_hashed(&key, hash),
            Update::Alter(key, tau) => self.alter_hashed(&key, tau, hash),
        }
    }

    /// Adds all `entries` or none, by one rebuild. For few entries, [`Self::update`] is cheaper.
    ///
    /// # Errors
    /// [`BuildError`]; then nothing has changed. Positions count the existing keys first (in the
    /// order of [`Self::keys`]), then `entries`.
    pub fn insert_all(
        &mut self,
        entries: impl IntoIterator<Item = (K, C)>,
    ) -> Result<&Delta<C>, BuildError> {
        self.begin();
        let known = self.keys.len();
        let mut taus = Vec::new();
        for (key, tau) in entries {
            self.keys.push(key);
            taus.push(tau);
        }
        let done = self.insert_last(known, &taus);
        if done.is_err() {
            self.keys.truncate(known);
        }
        done?;
        self.finish();
        Ok(&self.delta)
    }

    /// Adds the keys from position `known` on, with `taus`, to the graph.
    fn insert_last(&mut self, known: usize, taus: &[C]) -> Result<(), BuildError> {
        let keys = self.keys.len();
        if keys > self.keys_max {
            return Err(BuildError::TooMany { keys, most: self.keys_max });
        }
        let tau_bits = self.pog.form.tau_bits::<C>();
        if let Some(at) =
            taus.iter().position(|tau| tau_bits < C::BITS && tau.widen() >> tau_bits != 0)
        {
            let (position, value) = (known + at, taus[at].widen());
            return Err(BuildError::Value { position, value, tau_bits });
        }
        if taus.is_empty() {
            return Ok(());
        }
        self.rebuild_with(Sizes::for_build(keys), taus)
    }
}
