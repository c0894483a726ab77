use std::sync::Arc;

use super::maglev::Table;
use super::{Ask, Scheduler};

/// The candidate for the client's address: a client keeps its backend, whatever its port. O(1).
///
/// A client leaves its backend while that is full, as in [`super::maglev`], and returns.
///
/// It uses a [`Table`] of its own pool, keyed by the source instead of the flow. Weighted
/// rendezvous hashing would move only clients of a lost backend (the table moves a few more, see
/// its tests), but would hash all candidates in every pick: 1000 hashes and logarithms against one
/// lookup.
///
/// # Source
/// The purpose of LVS `sh` (`ip_vs_sh.c`) without its fault: LVS assigns 256 buckets in order, so
/// any change of the backends moves most clients. Here it is Maglev's table (NSDI 2016, section
/// 3.4).
pub(super) struct SourceHash {
    table: Arc<Table>,
}

impl SourceHash {
    pub(super) fn new(table: Arc<Table>) -> SourceHash {
        SourceHash { table }
    }
}

impl Scheduler for SourceHash {
    fn pick(&mut self, ask: &mut Ask<'_>) -> Option<usize> {
        self.table.lookup(ask.source_hash, ask.avoid, ask.loads)
    }
}
