//! Changes of a single key.

use std::borrow::Borrow;

use super::PogController;
use crate::cell::Cell;
use crate::delta::{CellWrite, Delta};
use crate::error::UpdateError;
use crate::forest::{End, NONE, Step};
use crate::form::Form;
use crate::hash::KeyHash;
use crate::key::Key;
use crate::sizes::Sizes;

/// The two ends of an edge; a walk starts at each.
const SIDES: [End; 2] = [End::A, End::B];

impl<K: Key + Eq, C: Cell, H: KeyHash, F: Form> PogController<K, C, H, F> {
    /// Adds `key` with `tau`. Expected O(1); a cycle or growth causes a rebuild.
    ///
    /// # Errors
    /// [`UpdateError::Duplicate`], [`UpdateError::Value`], [`UpdateError::Full`],
    /// [`UpdateError::Rebuild`]; then nothing has changed.
    pub fn insert(&mut self, key: K, tau: C) -> Result<&Delta<C>, UpdateError> {
        self.begin();
        self.insert_hashed(key, tau, None)?;
        self.finish();
        Ok(&self.delta)
    }

    /// Removes `key` from the set. Expected O(1).
    ///
    /// In the plain form its cells stay, so its answer becomes as arbitrary as that of any key
    /// outside the set. In the fingerprint form its cells change so that it is unknown. Afterwards
    /// it is like any key outside the set: the next change, or a rebuild that shrinks the arrays,
    /// may make it match falsely.
    ///
    /// # Errors
    /// [`UpdateError::Unknown`]; then nothing has changed.
    pub fn delete<Q: Key + Eq + ?Sized>(&mut self, key: &Q) -> Result<&Delta<C>, UpdateError>
    where
        K: Borrow<Q>,
    {
        self.begin();
        self.delete_hashed(key, None)?;
        self.finish();
        Ok(&self.delta)
    }

    /// Changes the tau of `key`. Expected O(1).
    ///
    /// # Errors
    /// [`UpdateError::Unknown`], [`UpdateError::Value`]; then nothing has changed.
    pub fn alter<Q: Key + Eq + ?Sized>(&mut self, key: &Q, tau: C) -> Result<&Delta<C>, UpdateError>
    where
        K: Borrow<Q>,
    {
        self.begin();
        self.alter_hashed(key, tau, None)?;
        self.finish();
        Ok(&self.delta)
    }

    /// `hash` is the key's hash if it is already known; likewise in the next two functions.
    #[inline(always)]
    pub(super) fn insert_hashed(
        &mut self,
        key: K,
        tau: C,
        hash: Option<u64>,
    ) -> Result<(), UpdateError> {
        self.refuse_value(tau)?;
        let hash = hash.unwrap_or_else(|| self.fetched_hash(&key));
        if self.find(&key, hash).is_some() {
            return Err(UpdateError::Duplicate { tau: self.pog.value(hash).widen() });
        }
        let keys = self.keys.len();
        if keys >= self.keys_max {
            return Err(UpdateError::Full { keys });
        }
        if self.pog.sizes.too_small(keys + 1) {
            return self.insert_by_rebuild(key, tau, Sizes::for_change(keys + 1));
        }
        let ends = self.pog.sizes.cells_of(hash);
        let Some(side) = self.smaller_side(ends, NONE) else {
            return self.insert_by_rebuild(key, tau, self.pog.sizes);
        };
        self.flip(side, self.pog.value(hash) ^ tau);
        self.forest.push(ends);
        crate::memory::grow_for_one(&mut self.keys);
        self.keys.push(key);
        Ok(())
    }

    #[cold]
    fn insert_by_rebuild(&mut self, key: K, tau: C, sizes: Sizes) -> Result<(), UpdateError> {
        crate::memory::grow_for_one(&mut self.keys);
        self.keys.push(key);
        self.rebuild_to(sizes, Some(tau)).map_err(|error| {
            self.keys.pop();
            UpdateError::Rebuild(error)
        })
    }

    #[inline(always)]
    pub(super) fn delete_hashed<Q: Key + Eq + ?Sized>(
        &mut self,
        key: &Q,
        hash: Option<u64>,
    ) -> Result<(), UpdateError>
    where
        K: Borrow<Q>,
    {
        // The last key moves to the place of the deleted one, so its vertices are needed, too.
        let last_ends = self.keys.last().map(|last| {
            let last_ends = self.pog.sizes.cells_of(self.pog.hash.hash(last));
            self.forest.prefetch_vertex(last_ends.0);
            self.forest.prefetch_vertex(last_ends.1);
            last_ends
        });
        let hash = hash.unwrap_or_else(|| self.fetched_hash(key));
        let (Some(edge), Some(last_ends)) = (self.find(key, hash), last_ends) else {
            return Err(UpdateError::Unknown);
        };
        let ends = self.pog.sizes.cells_of(hash);
        self.forest.swap_remove(edge, ends, last_ends);
        self.keys.swap_remove(edge as usize);
        if F::FORGETS {
            self.forget(ends);
        }
        if self.pog.sizes.too_large(self.keys.len()) {
            // Ignores a failure: the arrays stay larger than necessary, and all keys stay in place.
            // It can only happen with a hash that does not depend on its seed.
            let keys = self.keys.len();
            self.keys.shrink_to(keys + keys / 8);
            let _ = self.rebuild_to(Sizes::for_change(keys), None);
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn alter_hashed<Q: Key + Eq + ?Sized>(
        &mut self,
        key: &Q,
        tau: C,
        hash: Option<u64>,
    ) -> Result<(), UpdateError>
    where
        K: Borrow<Q>,
    {
        self.refuse_value(tau)?;
        let hash = hash.unwrap_or_else(|| self.fetched_hash(key));
        let edge = self.find(key, hash).ok_or(UpdateError::Unknown)?;
        let by = self.pog.value(hash) ^ tau;
        if by != C::default() {
            let side = self
                .smaller_side(self.pog.sizes.cells_of(hash), edge)
                .expect("without its edge, the ends of a key in a forest are apart");
            self.flip(side, by);
        }
        Ok(())
    }

    /// Hashes `key` and prefetches both its vertices and cells, then the first edge at each.
    /// Without prefetching, each access would be a separate cache miss.
    #[inline(always)]
    fn fetched_hash<Q: Key + ?Sized>(&self, key: &Q) -> u64 {
        let hash = self.pog.hash.hash(key);
        self.prefetch_cells(hash);
        self.prefetch_edges(hash);
        hash
    }

    fn refuse_value(&self, tau: C) -> Result<(), UpdateError> {
        let tau_bits = self.pog.form.tau_bits::<C>();
        if tau_bits < C::BITS && tau.widen() >> tau_bits != 0 {
            return Err(UpdateError::Value { value: tau.widen(), tau_bits });
        }
        Ok(())
    }

    /// Changes the cells at `ends`, which no edge joins any more, so that they match no
    /// fingerprint.
    fn forget(&mut self, ends: crate::forest::Ends) {
        let tau_bits = self.pog.form.tau_bits::<C>();
        let by = loop {
            let by = C::truncate(self.random.next());
            if by.widen() >> tau_bits != 0 {
                break by;
            }
        };
        let side =
            self.smaller_side(ends, NONE).expect("deleting an edge of a forest parts its ends");
        self.flip(side, by);
    }

    /// Walks the components of both ends alternately, without the edge `except`, until one is
    /// complete. Returns that side, the smaller one; its walk has the vertices. `None` if the ends
    /// are in one component.
    #[inline(always)]
    fn smaller_side(&mut self, ends: crate::forest::Ends, except: u32) -> Option<usize> {
        let [mut from_a, mut from_b] = std::mem::take(&mut self.walks);
        let mut walks = [&mut from_a, &mut from_b];
        for (walk, end) in walks.iter_mut().zip(SIDES) {
            walk.start(&self.forest, end.of(ends), except);
        }
        let a_len = self.pog.sizes.a();
        let side_of = |vertex| if vertex < a_len { End::A } else { End::B };
        let smaller = 'walking: loop {
            for (index, end) in SIDES.into_iter().enumerate() {
                match walks[index].step(&self.forest, |edge| self.ends(edge), side_of) {
                    Step::Done => break 'walking Some(index),
                    Step::Reached(vertex) if vertex == end.other().of(ends) => break 'walking None,
                    Step::Reached(_) | Step::Going => {}
                }
            }
        };
        self.walks = [from_a, from_b];
        smaller
    }

    /// Xors every cell that the walk of `side` reached.
    #[inline(always)]
    fn flip(&mut self, side: usize, by: C) {
        if by == C::default() {
            return;
        }
        for index in self.walks[side].vertices() {
            let cell = &mut self.pog.cells[index as usize];
            *cell ^= by;
            self.delta.writes.push(CellWrite { index, cell: *cell });
        }
    }
}
