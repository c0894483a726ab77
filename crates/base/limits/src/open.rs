use std::collections::HashMap;
use std::hash::BuildHasher;
use std::hash::{Hash, RandomState};
use std::sync::{Arc, Mutex};

use equipoise_basics::lock;

const SHARDS: usize = 16;

/// How many connections of each key are open. It has as many entries as keys have connections.
#[derive(Debug)]
pub struct OpenCounts<K> {
    hasher: RandomState,
    shards: [Mutex<HashMap<K, u32>>; SHARDS],
}

/// One connection of a key, counted until this is dropped.
#[derive(Debug)]
pub struct Entered<K: Hash + Eq + Copy> {
    counts: Arc<OpenCounts<K>>,
    key: K,
}

impl<K> Default for OpenCounts<K> {
    fn default() -> Self {
        OpenCounts { hasher: RandomState::new(), shards: Default::default() }
    }
}

impl<K: Hash + Eq + Copy> OpenCounts<K> {
    /// Counts one more connection of `key`; `None` if it has `most` already.
    pub fn enter(self: &Arc<Self>, key: K, most: u32) -> Option<Entered<K>> {
        let mut shard = lock(self.shard(&key));
        let open = shard.entry(key).or_insert(0);
        if *open >= most {
            if *open == 0 {
                shard.remove(&key);
            }
            return None;
        }
        *open += 1;
        drop(shard);
        Some(Entered { counts: Arc::clone(self), key })
    }

    /// Open connections of `key`.
    pub fn of(&self, key: &K) -> u32 {
        lock(self.shard(key)).get(key).copied().unwrap_or(0)
    }

    /// Keys that have connections.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether no key has a connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, key: &K) -> &Mutex<HashMap<K, u32>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }
}

impl<K: Hash + Eq + Copy> Drop for Entered<K> {
    fn drop(&mut self) {
        let mut shard = lock(self.counts.shard(&self.key));
        if let Some(open) = shard.get_mut(&self.key) {
            *open -= 1;
            if *open == 0 {
                shard.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_so_many_connections_and_none_is_kept_of_one_that_has_left() {
        let counts = Arc::new(OpenCounts::default());
        let first = counts.enter("a", 2).expect("room");
        let second = counts.enter("a", 2).expect("room");
        assert!(counts.enter("a", 2).is_none());
        assert_eq!((counts.of(&"a"), counts.of(&"b")), (2, 0));
        assert!(counts.enter("b", 2).is_some());
        drop(first);
        let third = counts.enter("a", 2).expect("room again");
        assert!(counts.enter("a", 2).is_none());
        drop((second, third));
        assert!(counts.enter("a", 0).is_none());
        assert!(counts.is_empty());
    }
}
