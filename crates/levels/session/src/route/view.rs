//! Routes as data-plane threads see them.

use std::sync::Arc;

use super::mirror::MirrorView;
use crate::limiter::Limiter;
use crate::stats::{Counter, Sharded};

/// A route in a snapshot.
#[derive(Clone, Debug)]
pub struct RouteView {
    /// Its pools, in the order of the configuration.
    pub pools: Vec<PoolPlace>,
    /// The mirror of its requests.
    pub mirror: Option<MirrorView>,
    /// The counts of its limits on clients; kept across snapshots.
    pub limiter: Arc<Limiter>,
    /// Counters, kept across snapshots.
    pub stats: Arc<Sharded<RouteStats>>,
}

impl PartialEq for RouteView {
    fn eq(&self, other: &RouteView) -> bool {
        self.pools == other.pools
            && self.mirror == other.mirror
            && Arc::ptr_eq(&self.limiter, &other.limiter)
            && Arc::ptr_eq(&self.stats, &other.stats)
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
