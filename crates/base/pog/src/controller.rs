//! The controller: has every key, and maintains a data-plane image with their taus.

mod batch;
mod fingerprint;
mod rebuild;
#[cfg(test)]
mod tests;
mod update;

use std::borrow::Borrow;

pub use batch::Update;

use crate::cell::Cell;
use crate::delta::Delta;
use crate::error::BuildError;
use crate::forest::{End, Ends, Forest, NONE, Walk};
use crate::form::{Form, Plain};
use crate::hash::{KeyHash, Randomness, SipHash13};
use crate::key::Key;
use crate::pog::{Pog, new_lineage};
use crate::sizes::Sizes;

/// A dynamic set of keys with a tau each, and the image that data planes use for lookups.
///
/// The keys are the edges of an acyclic bipartite graph between the cells of A and those of B. A
/// new key either joins two components or closes a cycle. In the first case the smaller component
/// is xored with the value that makes the key's tau right. In the second case all keys are hashed
/// with a new seed. Therefore [`build`](crate::PogBuilder::build) is expected O(n), and insert,
/// delete and alter are expected O(1), including rare rebuilds.
///
/// Each change returns the [`Delta`] to apply to data planes, valid until the next change.
///
/// Memory besides the keys, at the density of a build: 11.2 bytes per key for vertices, 8 for
/// edges, and the image (5.6 with 16-bit cells).
///
/// # Source
/// SDLB, MECOMM 2017, section "controller". Deviates: sizes need not be powers of two; the ends of
/// an edge are not stored but hashed again; of two components the smaller one is changed, which is
/// found by walking both alternately.
#[derive(Debug)]
pub struct PogController<K, C: Cell = u16, H: KeyHash = SipHash13, F: Form = Plain> {
    pog: Pog<C, H, F>,
    forest: Forest,
    /// The key of each edge.
    keys: Vec<K>,
    keys_max: usize,
    attempts: u32,
    random: Randomness,
    delta: Delta<C>,
    walks: [Walk; 2],
    seeds_tried: u64,
}

/// The clone has its own lineage: its deltas and images are not compatible with those of the
/// original.
impl<K: Clone, C: Cell, H: KeyHash, F: Form> Clone for PogController<K, C, H, F> {
    fn clone(&self) -> Self {
        let mut pog = self.pog.clone();
        pog.lineage = new_lineage();
        PogController {
            pog,
            forest: self.forest.clone(),
            keys: self.keys.clone(),
            keys_max: self.keys_max,
            attempts: self.attempts,
            random: self.random.clone(),
            delta: self.delta.clone(),
            walks: Default::default(),
            seeds_tried: self.seeds_tried,
        }
    }
}

impl<K: Key + Eq, C: Cell, H: KeyHash, F: Form> PogController<K, C, H, F> {
    pub(crate) fn build(
        form: F,
        sizes: Sizes,
        mut keys: Vec<K>,
        taus: Vec<C>,
        keys_max: usize,
        attempts: u32,
        mut random: Randomness,
    ) -> Result<PogController<K, C, H, F>, BuildError> {
        let tau_bits = form.tau_bits::<C>();
        let fits = |tau: &C| tau_bits == C::BITS || tau.widen() >> tau_bits == 0;
        if let Some(position) = taus.iter().position(|tau| !fits(tau)) {
            return Err(BuildError::Value { position, value: taus[position].widen(), tau_bits });
        }
        keys.shrink_to_fit();
        let mut controller = PogController {
            pog: Pog::new(H::with_seed(random.next_seed()), form, sizes),
            forest: Forest::new(sizes.cells(), keys.len()),
            keys,
            keys_max,
            attempts,
            random,
            delta: Delta::new(),
            walks: Default::default(),
            seeds_tried: 0,
        };
        controller.solve(sizes, &taus)?;
        controller.link();
        Ok(controller)
    }

    /// Returns the image for data planes. Clone it, and apply the deltas to the clone.
    pub fn pog(&self) -> &Pog<C, H, F> {
        &self.pog
    }

    /// Returns the delta of the last change.
    pub fn delta(&self) -> &Delta<C> {
        &self.delta
    }

    /// Starts an empty delta.
    pub(crate) fn begin(&mut self) {
        self.delta.restart(self.pog.lineage, self.pog.generation);
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the tau of `key`, or `None` if it is not in the set.
    ///
    /// A borrowed form of the key must have the same bytes as the key (as `[u8]` for `Vec<u8>`).
    pub fn get<Q: Key + Eq + ?Sized>(&self, key: &Q) -> Option<C>
    where
        K: Borrow<Q>,
    {
        let hash = self.pog.hash.hash(key);
        self.find(key, hash).map(|_| self.pog.value(hash))
    }

    /// Whether `key` is in the set.
    pub fn contains<Q: Key + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key, self.pog.hash.hash(key)).is_some()
    }

    /// Returns all keys with their taus, in an unspecified order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, C)> {
        self.keys.iter().map(|key| (key, self.pog.value(self.pog.hash.hash(key))))
    }

    /// Returns all keys, in an unspecified order.
    pub fn keys(&self) -> &[K] {
        &self.keys
    }

    /// Returns the number of hash seeds tried: one more than the number of cycles found.
    pub fn seeds_tried(&self) -> u64 {
        self.seeds_tried
    }

    /// Returns the memory besides the keys, bytes: graph, image, and unused capacity for keys.
    pub fn memory_bytes(&self) -> usize {
        let spare = (self.keys.capacity() - self.keys.len()) * size_of::<K>();
        self.forest.memory_bytes() + self.pog.cells.capacity() * size_of::<C>() + spare
    }

    /// Returns the edge of `key`. The list at its vertex in A serves as the index of keys.
    #[inline(always)]
    fn find<Q: Key + Eq + ?Sized>(&self, key: &Q, hash: u64) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        let (a, _) = self.pog.sizes.cells_of(hash);
        let mut edge = self.forest.first(a);
        while edge != NONE {
            // The links are needed whatever the comparison yields, so they are fetched with the
            // key.
            self.forest.prefetch_edge(edge);
            if self.keys[edge as usize].borrow() == key {
                return Some(edge);
            }
            edge = self.forest.next(edge, End::A);
        }
        None
    }

    #[inline(always)]
    fn ends(&self, edge: u32) -> Ends {
        self.pog.sizes.cells_of(self.pog.hash.hash(&self.keys[edge as usize]))
    }
}
