//! The slice level of a binary that was built without it.

use std::sync::Arc;

use anyhow::bail;
use equipoise_api::OperateError;
use equipoise_api::metrics::StreamReading;
use equipoise_api::wire::slice::{
    SliceMove, SliceMoves, SlicePlan, StreamStatus, StreamSummary, Streams,
};

use equipoise_config::{Config, SliceStream};

/// The error of commands that need the slice level.
pub(crate) const ABSENT: &str = "this equipoise was built without the slice level: build it with the feature `slice`, which is on by default";

/// A slice level without streams.
pub(crate) struct SlicePlane;

impl SlicePlane {
    pub(crate) fn new(_: &Config) -> Arc<SlicePlane> {
        Arc::new(SlicePlane)
    }

    pub(crate) async fn follow(&self, wished: &[SliceStream]) -> anyhow::Result<()> {
        match wished {
            [] => Ok(()),
            [first, ..] => bail!("[[slice]] {}: {ABSENT}", first.name),
        }
    }

    pub(crate) async fn try_again(self: Arc<Self>) {}

    pub(crate) async fn stop(&self) {}

    pub(crate) fn summary(&self) -> Vec<StreamSummary> {
        Vec::new()
    }

    pub(crate) fn reading(&self) -> Vec<StreamReading> {
        Vec::new()
    }

    pub(crate) async fn status(&self) -> Result<Streams, OperateError> {
        Err(OperateError::NoSliceLevel)
    }

    pub(crate) async fn plan(&self, _: &str) -> Result<SlicePlan, OperateError> {
        Err(OperateError::NoSliceLevel)
    }

    pub(crate) async fn move_slices(
        &self,
        _: &str,
        _: &SliceMove,
    ) -> Result<SliceMoves, OperateError> {
        Err(OperateError::NoSliceLevel)
    }

    pub(crate) async fn resize(&self, _: &str, _: u32) -> Result<StreamStatus, OperateError> {
        Err(OperateError::NoSliceLevel)
    }

    pub(crate) async fn drain(
        &self,
        _: &str,
        _: &str,
        _: bool,
    ) -> Result<StreamStatus, OperateError> {
        Err(OperateError::NoSliceLevel)
    }

    pub(crate) async fn pin(
        &self,
        _: &str,
        _: u32,
        _: Option<String>,
    ) -> Result<StreamStatus, OperateError> {
        Err(OperateError::NoSliceLevel)
    }
}
