//! The slice level: streams, workers, slices.

use std::future::Future;

use super::OperateError;
use crate::wire::slice::{SliceMove, SliceMoves, SlicePlan, StreamStatus, Streams};

/// Operations on the slice level. Without implementations, there is no slice level.
pub trait SliceOperator: Send + Sync + 'static {
    /// The streams of the slice level.
    fn streams(&self) -> impl Future<Output = Result<Streams, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Returns the moves of a balancing round that would start now.
    fn slice_plan(
        &self,
        _stream: &str,
    ) -> impl Future<Output = Result<SlicePlan, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Moves slices to a worker.
    fn move_slices(
        &self,
        _stream: &str,
        _wish: SliceMove,
    ) -> impl Future<Output = Result<SliceMoves, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Splits or joins the slices of a stream. Returns the stream.
    fn resize_stream(
        &self,
        _stream: &str,
        _slices: u32,
    ) -> impl Future<Output = Result<StreamStatus, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Drains a worker of its slices, or gives it slices again. Returns the stream.
    fn drain_worker(
        &self,
        _stream: &str,
        _worker: &str,
        _drained: bool,
    ) -> impl Future<Output = Result<StreamStatus, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Keeps a slice on a worker or, with `None`, allows moves again. Returns the stream.
    fn pin_slice(
        &self,
        _stream: &str,
        _slice: u32,
        _worker: Option<String>,
    ) -> impl Future<Output = Result<StreamStatus, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }
}
