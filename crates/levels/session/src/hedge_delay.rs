//! After how long without a response a pool's requests are hedged.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::config::Hedge;
use crate::quantile::Quantile;
use crate::snapshot::{PoolView, Snapshot};

/// How long responses were awaited, in seconds, by pool; of one thread.
#[derive(Debug, Default)]
pub(crate) struct HedgeDelays(RefCell<HashMap<u32, Quantile>>);

impl HedgeDelays {
    /// The delay; `None` if requests are not hedged, or not yet because few responses were seen.
    pub(crate) fn of(&self, pool: &PoolView) -> Option<Duration> {
        match pool.options.hedge? {
            Hedge::After(delay) => Some(delay),
            Hedge::Share(_) => {
                let seconds = self.0.borrow().get(&pool.id)?.value()?;
                Some(Duration::from_secs_f64(seconds))
            }
        }
    }

    /// Notes how long a response was awaited.
    pub(crate) fn note(&self, pool: &PoolView, took: Duration) {
        if let Some(Hedge::Share(share)) = pool.options.hedge {
            let mut delays = self.0.borrow_mut();
            delays.entry(pool.id).or_default().observe(took.as_secs_f64().max(1e-6), share);
        }
    }

    /// Forgets pools that were removed or no longer hedge by a share.
    pub(crate) fn retain(&self, snapshot: &Snapshot) {
        let by_share = |pool: &&Arc<PoolView>| matches!(pool.options.hedge, Some(Hedge::Share(_)));
        let kept: HashSet<u32> =
            snapshot.pools.iter().filter(by_share).map(|pool| pool.id).collect();
        self.0.borrow_mut().retain(|id, _| kept.contains(id));
    }
}
