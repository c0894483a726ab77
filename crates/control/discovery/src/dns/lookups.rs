//! Bounds of the lookups of many names.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::lookup::{Found, LookupError, look_up};

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
    /// Resolves `HOST:PORT` by the system's resolver once a place is free.
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
            let of = "/etc/resolv.conf";
            return Err(LookupError::Timeout { of, within: YOUNG_FOR });
        };
        drop(young);
        lookup.await
    }
}
