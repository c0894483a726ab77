//! Open connections of a thread, ordered by idle time. Selects the connection to close when the
//! limit is reached.
//!
//! A client that opens the maximum number of connections and leaves them idle must not lock out
//! other clients, and one network must not displace the connections of all others. Therefore a new
//! connection at the limit replaces the longest idle connection. If the new connection's prefix has
//! more than an [eighth](PREFIX_PART) of the thread's connections, it replaces one of that prefix.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use equipoise_core::SourcePrefix;

/// A prefix with more than this fraction (1/N) of the connections replaces its own.
const PREFIX_PART: usize = 8;

/// Identifies a connection and orders connections by last activity: higher is more recent.
pub(super) type Stamp = u64;

/// Open connections. `C` is the handle that closes one.
#[derive(Debug)]
pub(super) struct Connections<C> {
    next: Stamp,
    open: BTreeMap<Stamp, (SourcePrefix, C)>,
    by_prefix: HashMap<SourcePrefix, BTreeSet<Stamp>>,
}

impl<C> Default for Connections<C> {
    fn default() -> Connections<C> {
        Connections { next: 0, open: BTreeMap::new(), by_prefix: HashMap::new() }
    }
}

impl<C> Connections<C> {
    /// Adds a connection from `prefix` that is active now.
    pub(super) fn add(&mut self, prefix: SourcePrefix, close: C) -> Stamp {
        self.next += 1;
        self.open.insert(self.next, (prefix, close));
        self.by_prefix.entry(prefix).or_default().insert(self.next);
        self.next
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Marks a connection as active now and returns its new stamp. O(log n).
    pub(super) fn active(&mut self, stamp: Stamp) -> Stamp {
        if stamp == self.next {
            return stamp;
        }
        match self.remove(stamp) {
            Some((prefix, close)) => self.add(prefix, close),
            None => stamp,
        }
    }

    /// Removes a connection if it is still present.
    pub(super) fn remove(&mut self, stamp: Stamp) -> Option<(SourcePrefix, C)> {
        let (prefix, close) = self.open.remove(&stamp)?;
        if let Some(own) = self.by_prefix.get_mut(&prefix) {
            own.remove(&stamp);
            if own.is_empty() {
                self.by_prefix.remove(&prefix);
            }
        }
        Some((prefix, close))
    }

    /// Removes the connection that a new one from `prefix` replaces and returns its handle. `None`:
    /// there are no connections.
    pub(super) fn make_room(&mut self, prefix: SourcePrefix) -> Option<C> {
        let own = self.by_prefix.get(&prefix);
        let own = own.filter(|own| own.len() * PREFIX_PART > self.open.len());
        let longest = own.and_then(BTreeSet::first).or_else(|| self.open.keys().next()).copied();
        longest.and_then(|stamp| self.remove(stamp)).map(|(_, close)| close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(number: u8) -> SourcePrefix {
        SourcePrefix::of([10, 0, number, 1].into())
    }

    #[test]
    fn the_longest_idle_connection_makes_room() {
        let mut connections = Connections::default();
        let stamps: Vec<_> = (0..16).map(|n| connections.add(prefix(n), n)).collect();
        let first = connections.active(stamps[0]);
        connections.remove(stamps[1]);
        assert_eq!(connections.make_room(prefix(99)), Some(2));
        assert_eq!(connections.remove(stamps[2]), None, "it is gone already");
        assert_eq!(connections.active(stamps[2]), stamps[2]);
        connections.remove(first);
        let left: Vec<_> = std::iter::from_fn(|| connections.make_room(prefix(99))).collect();
        assert_eq!(left, (3..16).collect::<Vec<_>>());
        assert!(connections.by_prefix.is_empty());
    }

    #[test]
    fn a_prefix_with_over_an_eighth_of_connections_replaces_its_own() {
        let mut connections = Connections::default();
        for n in 0..14 {
            connections.add(prefix(n), u32::from(n));
        }
        let flood: Vec<_> = (100..103).map(|n| connections.add(prefix(200), n)).collect();
        connections.active(flood[0]);
        assert_eq!(connections.make_room(prefix(200)), Some(101), "3 of 17");
        assert_eq!(
            connections.make_room(prefix(200)),
            Some(0),
            "2 of 16 are no more than an eighth"
        );
        assert_eq!(connections.make_room(prefix(7)), Some(1));
    }

    #[test]
    fn a_new_prefix_always_gets_a_connection_during_a_flood() {
        let mut connections = Connections::default();
        for n in 0..64 {
            connections.add(prefix(1), n);
        }
        // Always active, with ever more connections.
        for round in 0..1000u64 {
            let own = connections.add(prefix(2), u64::MAX);
            assert!(connections.make_room(prefix(1)).is_some_and(|closed| closed != u64::MAX));
            connections.add(prefix(1), round);
            connections.remove(own);
        }
    }
}
