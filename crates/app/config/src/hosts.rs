//! Host names that a configuration has for backends, and their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use equipoise_discovery::dns::Lookups;
use equipoise_session::config::{Place, SessionConfig};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The host names of all backends.
pub fn names(config: &SessionConfig) -> BTreeSet<Arc<str>> {
    let backends = config.pools.iter().flat_map(|pool| &pool.backends);
    let name = |place: &Place| match place {
        Place::Host { name, .. } => Some(Arc::clone(name)),
        Place::Address | Place::Socket(_) => None,
    };
    backends.filter_map(|backend| name(&backend.place)).collect()
}

/// Names of `config` that do not resolve, each with the reason. Tries each name once, all of them
/// within `patience`.
pub async fn unresolved(config: &SessionConfig, patience: Duration) -> BTreeMap<Arc<str>, String> {
    let bounded = Arc::new(Lookups::default());
    let mut lookups = JoinSet::new();
    let mut left: BTreeMap<_, _> = BTreeMap::new();
    for name in names(config) {
        left.insert(Arc::clone(&name), format!("no answer within {} s", patience.as_secs()));
        let bounded = Arc::clone(&bounded);
        lookups.spawn(async move {
            let found = bounded.look_up(&name, patience).await;
            (name, found)
        });
    }
    let all = async {
        while let Some(ended) = lookups.join_next().await {
            match ended {
                Ok((name, Ok(_))) => drop(left.remove(&name)),
                Ok((name, Err(error))) => drop(left.insert(name, error.to_string())),
                Err(_) => {}
            }
        }
    };
    let _ = timeout(patience, all).await;
    left
}
