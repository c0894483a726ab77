use std::sync::Arc;

use super::maglev::Table;
use super::{Ask, Scheduler};

/// The candidate that the client's address finds: one client, whatever its port, has one backend. O(1).
///
/// A client leaves its backend while that is full, as in [`super::maglev`], and comes back.
///
/// It goes by a [`Table`] of its own pool, keyed by the source instead of the flow. Weighted rendezvous
/// hashing would move no client but those of a lost backend (the table moves a few more, see its tests), at
/// the price of hashing all candidates in every pick: 1000 hashes and logarithms against one lookup.
///
/// # Source
/// The purpose is LVS `sh` (`ip_vs_sh.c`) without its fault: LVS deals 256 buckets out in order, so any
/// change of the backends moves most clients. Maglev's table instead (NSDI 2016, section 3.4).
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
