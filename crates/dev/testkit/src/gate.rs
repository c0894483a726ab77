use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::PATIENCE;

/// Holds a backend's script back until the test opens it, once and for all.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A closed gate.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Waits until it is open; `false` if it was not within [`PATIENCE`].
    pub fn wait(&self) -> bool {
        let open = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(open, PATIENCE, |open| !*open);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
