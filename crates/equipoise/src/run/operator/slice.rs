//! Requests about streams, answered by the slice level.

use equipoise_api::wire::slice::{SliceMove, SliceMoves, SlicePlan, StreamStatus, Streams};
use equipoise_api::{OperateError, SliceOperator};

use crate::run::control::Control;

impl SliceOperator for Control {
    async fn streams(&self) -> Result<Streams, OperateError> {
        self.levels.slices.status().await
    }

    async fn slice_plan(&self, stream: &str) -> Result<SlicePlan, OperateError> {
        self.levels.slices.plan(stream).await
    }

    async fn move_slices(&self, stream: &str, wish: SliceMove) -> Result<SliceMoves, OperateError> {
        self.accepts_changes()?;
        self.levels.slices.move_slices(stream, &wish).await
    }

    async fn resize_stream(&self, stream: &str, slices: u32) -> Result<StreamStatus, OperateError> {
        self.accepts_changes()?;
        self.levels.slices.resize(stream, slices).await
    }

    async fn drain_worker(
        &self,
        stream: &str,
        worker: &str,
        drained: bool,
    ) -> Result<StreamStatus, OperateError> {
        self.accepts_changes()?;
        self.levels.slices.drain(stream, worker, drained).await
    }

    async fn pin_slice(
        &self,
        stream: &str,
        slice: u32,
        worker: Option<String>,
    ) -> Result<StreamStatus, OperateError> {
        self.accepts_changes()?;
        self.levels.slices.pin(stream, slice, worker).await
    }
}
