//! The paper's comparison: a hash table, and consistent hashing for keys that are not in it.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use equipoise_pog::{HostId, Key, KeyHash, SipHash13};

use crate::keys::{Kind, Random};

/// Hosts of every experiment.
pub(crate) const HOSTS: u16 = 64;

/// Points of a host on the ring, as many as ketama's.
const POINTS_PER_HOST: u64 = 160;

/// The ring of consistent hashing as a sorted array. Binary search in it has no branch to guess.
pub(crate) struct SortedRing {
    points: Vec<(u64, HostId)>,
}

/// The same as a search tree, as in textbooks.
pub(crate) struct TreeRing {
    points: BTreeMap<u64, HostId>,
}

fn points(random: &Random) -> impl Iterator<Item = (u64, HostId)> {
    let points = 0..u64::from(HOSTS) * POINTS_PER_HOST;
    points.map(|point| (random.at(point | 1 << 61), (point / POINTS_PER_HOST) as HostId))
}

/// The host with the next point at or after a hash.
pub(crate) trait Ring {
    fn new(random: &Random) -> Self;
    fn host(&self, hash: u64) -> HostId;
}

impl Ring for SortedRing {
    fn new(random: &Random) -> SortedRing {
        let mut points: Vec<_> = points(random).collect();
        points.sort_unstable();
        SortedRing { points }
    }

    fn host(&self, hash: u64) -> HostId {
        let at = self.points.partition_point(|(point, _)| *point < hash);
        self.points[if at == self.points.len() { 0 } else { at }].1
    }
}

impl Ring for TreeRing {
    fn new(random: &Random) -> TreeRing {
        TreeRing { points: points(random).collect() }
    }

    fn host(&self, hash: u64) -> HostId {
        let next = self.points.range(hash..).next().or_else(|| self.points.first_key_value());
        *next.expect("the ring has points").1
    }
}

/// The table: std's own with its SipHash-1-3, or hashbrown's with its default hash, which is faster
/// and weaker.
pub(crate) trait Table<K> {
    fn new(entries: impl Iterator<Item = (K, HostId)>) -> Self;
    fn get(&self, key: &K) -> Option<HostId>;
}

pub(crate) type StdTable<K> = std::collections::HashMap<K, HostId>;
pub(crate) type BrownTable<K> = hashbrown::HashMap<K, HostId>;

impl<K: Kind, S: BuildHasher + Default> Table<K> for std::collections::HashMap<K, HostId, S> {
    fn new(entries: impl Iterator<Item = (K, HostId)>) -> Self {
        entries.collect()
    }

    fn get(&self, key: &K) -> Option<HostId> {
        self.get(key).copied()
    }
}

impl<K: Kind> Table<K> for BrownTable<K> {
    fn new(entries: impl Iterator<Item = (K, HostId)>) -> Self {
        entries.collect()
    }

    fn get(&self, key: &K) -> Option<HostId> {
        self.get(key).copied()
    }
}

/// The paper's "HashTable".
pub(crate) struct TableAndRing<T, R> {
    table: T,
    ring: R,
    /// Places keys on the ring: keyed, as the POG's is.
    hash: SipHash13,
}

impl<T, R: Ring> TableAndRing<T, R> {
    pub(crate) fn new<K>(random: &Random, entries: impl Iterator<Item = (K, HostId)>) -> Self
    where
        T: Table<K>,
    {
        let seed = equipoise_pog::Seed { k0: random.at(7), k1: random.at(8) };
        TableAndRing {
            table: T::new(entries),
            ring: R::new(random),
            hash: SipHash13::with_seed(seed),
        }
    }

    #[inline]
    pub(crate) fn host<K: Key>(&self, key: &K) -> HostId
    where
        T: Table<K>,
    {
        match self.table.get(key) {
            Some(host) => host,
            None => self.ring.host(self.hash.hash(key)),
        }
    }
}
