//! Routes as data-plane threads see them.

use std::sync::Arc;

use crate::stats::{Counter, Sharded};

/// A route in a snapshot.
#[derive(Clone, Debug)]
pub struct RouteView {
    /// Its pools, in the order of the configuration.
    pub pools: Vec<PoolPlace>,
    /// Counters, kept across snapshots.
    pub stats: Arc<Sharded<RouteStats>>,
}

impl PartialEq for RouteView {
    fn eq(&self, other: &RouteView) -> bool {
        self.pools == other.pools && Arc::ptr_eq(&self.stats, &other.stats)
    }
}

/// Where a pool is in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPlace {
    /// Index in the pools of the snapshot.
    pub at: usize,
    /// The pool's id.
    pub id: u32,
}

/// Counters of a route.
#[derive(Debug, Default)]
pub struct RouteStats {
    /// Requests that took it.
    pub requests: Counter,
}
