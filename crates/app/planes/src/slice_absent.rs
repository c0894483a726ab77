//! The slice level of a binary that was built without it.

use std::sync::Arc;

use anyhow::bail;
use equipoise_config::{Config, SliceStream};

/// The error of commands that need the slice level.
const ABSENT: &str = "this equipoise was built without the slice level: build it with the feature `slice`, which is on by default";

/// A slice level without streams.
pub struct SlicePlane;

impl SlicePlane {
    /// The level without streams.
    pub fn new(_: &Config) -> Arc<SlicePlane> {
        Arc::new(SlicePlane)
    }

    /// Refuses every stream.
    ///
    /// # Errors
    /// There is a stream.
    pub async fn follow(&self, wished: &[SliceStream]) -> anyhow::Result<()> {
        match wished {
            [] => Ok(()),
            [first, ..] => bail!("[[slice]] {}: {ABSENT}", first.name),
        }
    }

    /// Does nothing.
    pub async fn try_again(self: Arc<Self>) {}

    /// Does nothing.
    pub async fn stop(&self) {}
}
