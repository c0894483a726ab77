//! Failures of the store.

use std::time::Duration;

use tokio::time::Instant;

/// A failure of the store that lasts.
#[derive(Clone, Debug)]
pub(crate) struct Failing {
    pub(crate) since: Instant,
    /// The last error.
    pub(crate) last: String,
    /// The store does not accept plans. A successful read does not end this failure.
    pub(crate) is_unwritten: bool,
}

/// A request to the store that timed out.
#[derive(Debug, thiserror::Error)]
#[error("it did not answer within {0:?}; check that it runs with a majority of its members")]
pub(crate) struct Late(pub(crate) Duration);

/// A campaign that the store refused.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) at: Instant,
    pub(crate) said: String,
}

/// A candidate retries at once. An older refusal no longer holds: the candidate waits for the
/// leader's end.
const REFUSED_FOR: Duration = Duration::from_secs(15);

impl Refused {
    pub(crate) fn holds(&self) -> bool {
        self.at.elapsed() < REFUSED_FOR
    }
}
