//! Rebuilds: new seeds, new sizes, new random cells.

use std::cell::RefCell;

use super::PogController;
use crate::block::{self, Block};
use crate::cell::Cell;
use crate::delta::{Delta, Scope};
use crate::error::BuildError;
use crate::form::Form;
use crate::hash::KeyHash;
use crate::key::Key;
use crate::memory;
use crate::pog::Pog;
use crate::sizes::Sizes;
use crate::union;

impl<K: Key + Eq, C: Cell, H: KeyHash, F: Form> PogController<K, C, H, F> {
    /// Hashes all keys with a new seed, at the size of a fresh build. Keys keep their taus.
    /// Expected O(n).
    ///
    /// # Errors
    /// [`BuildError::NoSeed`]; then nothing has changed.
    pub fn rebuild(&mut self) -> Result<&Delta<C>, BuildError> {
        self.begin();
        self.rebuild_to(Sizes::for_build(self.keys.len()), None)?;
        self.finish();
        Ok(&self.delta)
    }

    /// Randomizes the answers for keys outside the set: xors every component with a random value,
    /// and draws every isolated cell. Afterwards the taus of these keys are uniform. Keys of the
    /// set keep theirs. O(n).
    pub fn rebalance(&mut self) -> &Delta<C> {
        self.begin();
        let secret = self.random.next_seed();
        let mut parents = memory::filled(self.pog.sizes.cells(), 0);
        union::rebalance(&mut self.pog, &self.keys, &mut parents, secret);
        self.delta.whole();
        self.finish();
        &self.delta
    }

    /// Rebuilds with `sizes`. The last keys, with the taus `extra`, are not in the graph yet. On an
    /// error the graph is unchanged, and the caller removes those keys.
    pub(super) fn rebuild_with(&mut self, sizes: Sizes, extra: &[C]) -> Result<(), BuildError> {
        let known = self.keys.len() - extra.len();
        let mut taus = Vec::with_capacity(self.keys.len());
        let (pog, keys) = (&self.pog, &self.keys[..known]);
        pog.values(keys, |_, tau| taus.push(tau));
        taus.extend_from_slice(extra);
        let mut image = Pog::new(self.pog.hash, self.pog.form, sizes);
        (image.lineage, image.generation) = (self.pog.lineage, self.pog.generation);
        let before = std::mem::replace(&mut self.pog, image);
        let solved = self.solve(sizes, &taus);
        match solved {
            Ok(()) => {
                self.link();
                self.delta.whole();
                Ok(())
            }
            Err(error) => {
                self.pog = before;
                let unknown = self.keys.split_off(known);
                self.forest.resize(self.pog.sizes.cells(), known);
                self.link();
                self.keys.extend(unknown);
                Err(error)
            }
        }
    }

    /// Rebuilds with `sizes`. `last` is the tau of the last key if that is not in the graph yet.
    pub(super) fn rebuild_to(&mut self, sizes: Sizes, last: Option<C>) -> Result<(), BuildError> {
        self.rebuild_with(sizes, last.as_slice())
    }

    /// Searches for a seed that makes the graph of all keys acyclic, and fills the cells. Uses the
    /// forest's memory, so [`Self::link`] must follow.
    pub(super) fn solve(&mut self, sizes: Sizes, taus: &[C]) -> Result<(), BuildError> {
        self.forest.resize(sizes.cells(), self.keys.len());
        for _ in 0..self.attempts {
            self.seeds_tried += 1;
            self.pog.hash = H::with_seed(self.random.next_seed());
            let secret = self.random.next_seed();
            let parents = self.forest.scratch();
            match union::assign(&mut self.pog, &self.keys, taus, parents, secret) {
                Ok(()) => return Ok(()),
                Err(second) => self.refuse_duplicate(second)?,
            }
        }
        Err(BuildError::NoSeed { attempts: self.attempts, keys: self.keys.len() })
    }

    /// Reports a duplicate key, which closes a cycle with every seed. The scan costs less than the
    /// attempt did.
    fn refuse_duplicate(&self, second: usize) -> Result<(), BuildError> {
        match self.keys[..second].iter().position(|key| *key == self.keys[second]) {
            Some(first) => Err(BuildError::Duplicate { first, second }),
            None => Ok(()),
        }
    }

    /// Builds the forest of all keys, with the image's seed and sizes.
    pub(super) fn link(&mut self) {
        self.forest.clear();
        let forest = RefCell::new(&mut self.forest);
        let fetch = |block: &Block| {
            let forest = forest.borrow();
            for &vertex in block.a.iter().chain(&block.b) {
                forest.prefetch_vertex(vertex);
            }
        };
        block::ahead(&self.pog.hash, self.pog.sizes, &self.keys, fetch, |_, len, block| {
            let mut forest = forest.borrow_mut();
            for at in 0..len {
                forest.push((block.a[at], block.b[at]));
            }
            true
        });
    }

    /// Ends a change. Increments the image's generation if anything was written.
    pub(super) fn finish(&mut self) {
        let whole = self.delta.scope == Scope::Whole;
        let changed = whole || !self.delta.writes.is_empty();
        if whole {
            // The whole image replaces writes that a batch made after a rebuild.
            self.delta.writes.clear();
        }
        self.pog.generation = self.delta.generation_before + u64::from(changed);
        self.delta.generation = self.pog.generation;
    }
}
