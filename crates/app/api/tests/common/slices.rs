//! The streams of the recorder.

use std::collections::BTreeMap;

use equipoise_api::wire::slice::{
    SliceMove, SliceMoves, SlicePlan, SlicePlanReason, SliceState, SliceWorker, StreamStatus,
    Streams, WorkerState,
};
use equipoise_api::{OperateError, SliceOperator};

use super::recorder::Recorder;

impl Recorder {
    fn stream(&self) -> StreamStatus {
        let worker = SliceWorker {
            name: "w".into(),
            state: WorkerState::Active,
            state_seconds: 0.0,
            reason: None,
            drained: *self.drained.lock().unwrap(),
            problem: None,
            host: Some("rack-3".into()),
            pid: Some(4711),
            started_unix_seconds: Some(1.7e9),
            slices: 1,
            load: 0.0,
            items_per_second: 0.0,
            queued: 0,
            in_hand: 1,
            queue_age_seconds: 0.2,
            stalled_seconds: 1.5,
            items_total: 0,
            drops: BTreeMap::new(),
            checkpoints: None,
        };
        let slice = SliceState {
            slice: 3,
            owner: Some("w".into()),
            epoch: 1,
            load: 0.0,
            queued: 0,
            queue_age_seconds: 0.0,
            pinned: self.slice_pin.lock().unwrap().clone(),
            blocked: None,
            blocked_seconds: None,
            cool_down_seconds: None,
        };
        StreamStatus {
            name: "images".into(),
            slices_total: 1,
            resizing: None,
            domain: 0,
            leading: true,
            leader: Some("test".into()),
            problem: None,
            imbalance: 0.0,
            workers: vec![worker],
            slices: vec![slice],
            handovers: Vec::new(),
            hot: Vec::new(),
            unread: Vec::new(),
            connections_strange_total: 0,
            handovers_moved_total: 0,
            handovers_called_off_total: 0,
            handover_seconds_p50: None,
            handover_seconds_max: None,
        }
    }
}

impl SliceOperator for Recorder {
    async fn streams(&self) -> Result<Streams, OperateError> {
        Ok(Streams { streams: vec![self.stream()] })
    }

    async fn slice_plan(&self, stream: &str) -> Result<SlicePlan, OperateError> {
        Ok(SlicePlan {
            stream: stream.into(),
            moves: Vec::new(),
            reason: SlicePlanReason::NothingMeasured,
            explanation: "no load was measured".into(),
            workers: Vec::new(),
            hot: Vec::new(),
            imbalance: 0.0,
        })
    }

    async fn move_slices(&self, _: &str, wish: SliceMove) -> Result<SliceMoves, OperateError> {
        self.note(format!("move {:?} to {}", wish.slices, wish.worker));
        let pinned = self.slice_pin.lock().unwrap().clone().filter(|worker| *worker != wish.worker);
        if let Some(worker) = pinned.filter(|_| !wish.force) {
            return Err(OperateError::Conflict(format!("slice 3 is pinned to {worker}")));
        }
        let (there, refused, unpinned) = (Vec::new(), Vec::new(), Vec::new());
        Ok(SliceMoves { handovers: vec![1], moving: wish.slices, there, refused, unpinned })
    }

    async fn resize_stream(&self, _: &str, slices: u32) -> Result<StreamStatus, OperateError> {
        self.note(format!("resize to {slices}"));
        Ok(self.stream())
    }

    async fn drain_worker(
        &self,
        _: &str,
        worker: &str,
        drained: bool,
    ) -> Result<StreamStatus, OperateError> {
        self.note(format!("{worker} drained {drained}"));
        *self.drained.lock().unwrap() = drained;
        Ok(self.stream())
    }

    async fn pin_slice(
        &self,
        _: &str,
        slice: u32,
        worker: Option<String>,
    ) -> Result<StreamStatus, OperateError> {
        self.note(format!("slice {slice} on {worker:?}"));
        *self.slice_pin.lock().unwrap() = worker;
        Ok(self.stream())
    }
}
