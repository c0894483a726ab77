//! The trait of sources.

use std::time::Duration;

use async_trait::async_trait;

use crate::backend::Found;

/// The reason why a source has no answer, or why its answer cannot be used.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// A source of backends. Both methods may be cancelled at any `await`.
#[async_trait]
pub trait Source: Send {
    /// Reads the current set of backends.
    ///
    /// # Errors
    /// The source did not answer, or its answer cannot be used.
    async fn read(&mut self) -> Result<Read, SourceError>;

    /// Waits until another [`Source::read`] may give another set. Called after a successful read.
    ///
    /// # Errors
    /// The source cannot be watched. The caller reads it again after a pause.
    async fn changed(&mut self) -> Result<(), SourceError>;

    /// Longest pause between attempts while the source fails.
    fn retry_max(&self) -> Duration {
        Duration::from_secs(30)
    }
}

/// The answer of a source.
#[derive(Debug, Default)]
pub struct Read {
    /// The backends, in any order.
    pub backends: Vec<Found>,
    /// Part of the answer that is missing, such as a target without an address.
    pub missing: Option<String>,
}

impl From<Vec<Found>> for Read {
    fn from(backends: Vec<Found>) -> Read {
        Read { backends, missing: None }
    }
}
