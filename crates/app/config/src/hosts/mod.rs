//! Host names that a configuration has for backends, and their addresses.

mod lookup;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use equipoise_session::config::{Place, SessionConfig};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::lookup::look_up;
pub use self::lookup::{Found, LookupError};

/// Largest number of young lookups; a lookup is young for at most [`YOUNG_FOR`].
const YOUNG_MAX: usize = 32;
/// Time after which a lookup makes room for another young one. Servers that work have answered by
/// this time.
const YOUNG_FOR: Duration = Duration::from_millis(500);
/// Largest number of older lookups. A further lookup ends when it is no longer young, and is
/// retried.
const OLD_MAX: usize = 64;

/// Bounds the lookups in progress, so that names without an answer do not delay the others.
pub struct Lookups {
    young: Semaphore,
    old: Semaphore,
}

impl Default for Lookups {
    fn default() -> Lookups {
        Lookups { young: Semaphore::new(YOUNG_MAX), old: Semaphore::new(OLD_MAX) }
    }
}

impl Lookups {
    /// Resolves a name once a place is free.
    ///
    /// # Errors
    /// [`LookupError`].
    pub async fn look_up(&self, name: &str, within: Duration) -> Result<Found, LookupError> {
        // Neither semaphore is ever closed.
        let young = self.young.acquire().await;
        let mut lookup = pin!(look_up(name, within));
        if let Ok(found) = timeout(YOUNG_FOR, &mut lookup).await {
            return found;
        }
        let Ok(_old) = self.old.try_acquire() else {
            return Err(LookupError::Timeout(YOUNG_FOR));
        };
        drop(young);
        lookup.await
    }
}

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
