//! The route that a request has taken.
#![allow(
    clippy::redundant_allocation,
    reason = "the outer Rc is cloned per request without touching the count that threads share"
)]

use std::rc::Rc;
use std::sync::Arc;

use crate::limiter::Limiter;
use crate::route::{Action, Mirror, MirrorLive, RouteConfig, RouteOptions};
use crate::snapshot::{FrontDoorView, Snapshot};

/// A route that a request has taken, with the snapshot that it was decided by.
#[derive(Clone)]
pub(crate) struct Routed {
    view: Rc<Arc<FrontDoorView>>,
    /// Index of the route.
    at: usize,
    /// The snapshot in which `view` names pools.
    pub(crate) snapshot: Rc<Arc<Snapshot>>,
    /// Index of the request's pool in `snapshot`.
    pub(crate) pool: usize,
}

impl Routed {
    /// The route `at`, and the pool in which a request with this hash is served.
    pub(crate) fn new(
        view: Rc<Arc<FrontDoorView>>,
        at: usize,
        snapshot: Rc<Arc<Snapshot>>,
        hash: impl FnOnce() -> u64,
    ) -> Routed {
        let pool = pool_of(&view, at, hash);
        Routed { view, at, snapshot, pool }
    }

    pub(crate) fn route(&self) -> &RouteConfig {
        &self.view.config.routes.routes()[self.at]
    }

    pub(crate) fn options(&self) -> &RouteOptions {
        &self.route().options
    }

    /// The mirror of its requests, and that mirror's counters.
    pub(crate) fn mirror(&self) -> Option<(&Mirror, &Arc<MirrorLive>)> {
        let view = self.view.routes.get(self.at)?.mirror.as_ref()?;
        Some((self.route().mirror.as_ref()?, &view.live))
    }

    /// Index of the mirror's pool in `snapshot`.
    pub(crate) fn mirror_pool(&self) -> Option<usize> {
        Some(self.view.routes.get(self.at)?.mirror.as_ref()?.pool.at)
    }

    /// Its limits on clients, if it has any.
    pub(crate) fn limiter(&self) -> Option<&Limiter> {
        let view = self.view.routes.get(self.at)?;
        Some(&*view.limiter).filter(|limiter| !limiter.is_empty())
    }

    /// Counts a request, on the thread of this index.
    pub(crate) fn count(&self, thread: usize) {
        if let Some(view) = self.view.routes.get(self.at) {
            view.stats.shard(thread).requests.add(1);
        }
    }
}

/// Index of the pool in which a request with this hash is served if it takes the route `at`.
pub(super) fn pool_of(view: &FrontDoorView, at: usize, hash: impl FnOnce() -> u64) -> usize {
    let pools = view.routes.get(at).map(|it| &it.pools[..]).unwrap_or_default();
    let place = match (pools, view.config.routes.routes().get(at).map(|it| &it.action)) {
        ([only], _) => Some(only),
        (several, Some(Action::Pools(pools))) => several.get(pools.split.pick(hash())),
        _ => None,
    };
    place.map_or(view.pool, |place| place.at)
}
