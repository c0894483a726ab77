//! Another process under the same name.

use std::time::Duration;

use crate::ids::Process;
use crate::worker::Worker;

/// Why a worker is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Who works under its name.
    pub holder: Process,
    /// Since when it is refused.
    pub since: Duration,
    /// How long before the last refusal the other was heard.
    pub heard: Duration,
}

impl<T: Clone> Worker<T> {
    /// Whether another process works under this worker's name. One that has just ended may seem to, until its lease is
    /// over.
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    pub(super) fn on_refuse(&mut self, now: Duration, last: u64, holder: Process, heard: Duration) {
        // It had its place, and lost it while nobody heard of it.
        if self.claims.was_granted() {
            self.expelled(now, last);
        }
        let since = match &self.refused {
            Some(refused) if refused.holder == holder => refused.since,
            _ => now,
        };
        self.refused = Some(Refused { holder, since, heard });
    }
}
