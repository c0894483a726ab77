//! Requests about streams, answered by the slice level.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_api::metrics::StreamReading;
use equipoise_api::wire::slice::{
    SliceMove, SliceMoves, SlicePlan, StreamStatus, StreamSummary, Streams, TakenPin,
};
use equipoise_api::{OperateError, SliceOperator};
use equipoise_planes::{RunningStream, SlicePlane};
use equipoise_slice::SliceId;
use equipoise_slice::controller::MoveRefused;
use equipoise_slices::{AskError, Handle, Status};
use equipoise_status::slice;

use crate::run::control::Control;

/// Longest wait for the leader's name from the store. After it, the name is left out.
const LEADER_PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait until the status shows a change. The status is updated ten times a second.
const SEEN_PATIENCE: Duration = Duration::from_secs(2);

impl SliceOperator for Control {
    async fn streams(&self) -> Result<Streams, OperateError> {
        let running = self.levels.slices.streams();
        if running.is_empty() {
            return Err(OperateError::NoSliceLevel);
        }
        let mut streams = Vec::new();
        for stream in running {
            streams.push(Asked(stream).status().await);
        }
        Ok(Streams { streams })
    }

    async fn slice_plan(&self, stream: &str) -> Result<SlicePlan, OperateError> {
        let asked = one(&self.levels.slices, stream)?;
        match asked.handle()?.plan().await {
            Ok(planned) => Ok(slice::plan(stream, &planned)),
            Err(error) => Err(asked.refused(error).await),
        }
    }

    /// Moves slices, those of an owner together.
    async fn move_slices(&self, stream: &str, wish: SliceMove) -> Result<SliceMoves, OperateError> {
        self.accepts_changes()?;
        one(&self.levels.slices, stream)?.move_slices(&wish).await
    }

    async fn resize_stream(&self, stream: &str, slices: u32) -> Result<StreamStatus, OperateError> {
        self.accepts_changes()?;
        let asked = one(&self.levels.slices, stream)?;
        if let Err(error) = asked.handle()?.resize(slices).await {
            return Err(asked.refused(error).await);
        }
        let seen = |it: &Status| {
            let wanted = it.resizing.as_ref().map(|(slices, _)| *slices);
            wanted == Some(slices) || wanted.is_none() && it.slices.len() == slices as usize
        };
        Ok(asked.once_seen(seen).await)
    }

    async fn drain_worker(
        &self,
        stream: &str,
        worker: &str,
        drained: bool,
    ) -> Result<StreamStatus, OperateError> {
        self.accepts_changes()?;
        let asked = one(&self.levels.slices, stream)?;
        if let Err(error) = asked.handle()?.set_leaving(worker, drained).await {
            return Err(asked.refused(error).await);
        }
        let seen =
            |it: &Status| it.workers.iter().any(|w| w.name == worker && w.drained == drained);
        Ok(asked.once_seen(seen).await)
    }

    async fn pin_slice(
        &self,
        stream: &str,
        slice: u32,
        worker: Option<String>,
    ) -> Result<StreamStatus, OperateError> {
        self.accepts_changes()?;
        let asked = one(&self.levels.slices, stream)?;
        if let Err(error) = asked.handle()?.pin(SliceId(slice), worker.as_deref()).await {
            return Err(asked.refused(error).await);
        }
        let seen = |it: &Status| it.slices.iter().any(|s| s.slice.0 == slice && s.pinned == worker);
        Ok(asked.once_seen(seen).await)
    }
}

/// The streams in one line each. Sends no request, and does not wait.
pub(super) fn summary(level: &SlicePlane) -> Vec<StreamSummary> {
    level.streams().iter().map(slice::summary).collect()
}

/// The figures for metrics.
pub(super) fn reading(level: &SlicePlane) -> Vec<StreamReading> {
    let status = |it: &RunningStream| it.handle.as_ref().map(Handle::status).unwrap_or_default();
    level.streams().iter().map(|it| slice::reading(&it.config, &status(it))).collect()
}

fn one(level: &SlicePlane, name: &str) -> Result<Asked, OperateError> {
    let running = level.streams();
    let known: Vec<_> = running.iter().map(|it| it.config.name.clone()).collect();
    if known.is_empty() {
        return Err(OperateError::NoSliceLevel);
    }
    let found = running.into_iter().find(|it| it.config.name == name);
    found.map(Asked).ok_or_else(|| {
        let known = known.join("`, `");
        OperateError::NotFound(format!("there is no stream `{name}`; the streams are `{known}`"))
    })
}

/// A stream that a request is about.
struct Asked(RunningStream);

impl Asked {
    async fn leader(&self) -> Option<String> {
        let asked = self.0.election.as_ref()?.leader();
        let leader = tokio::time::timeout(LEADER_PATIENCE, asked).await.ok()?;
        leader.ok().flatten().map(|leader| leader.name)
    }

    async fn status(&self) -> StreamStatus {
        let leader = self.leader().await;
        let (status, problem) = match &self.0.handle {
            Ok(handle) => (handle.status(), None),
            Err(why) => (Status::default(), Some(why.clone())),
        };
        slice::stream(&self.0.config, &status, leader, problem)
    }

    fn handle(&self) -> Result<&Handle, OperateError> {
        self.0.handle.as_ref().map_err(|why| OperateError::NotLeading(why.clone()))
    }

    /// Converts an error to one of the API, with the leader or the known workers.
    async fn refused(&self, error: AskError) -> OperateError {
        let stream = &self.0.config.name;
        match error {
            AskError::NotLeading => OperateError::NotLeading(match self.leader().await {
                Some(leader) => {
                    format!("{leader} leads the stream {stream}: send the request to it")
                }
                None => format!(
                    "no controller leads the stream {stream} now: try again in some seconds"
                ),
            }),
            AskError::UnknownWorker(worker) => {
                let workers =
                    self.0.handle.as_ref().map(Handle::status).unwrap_or_default().workers;
                let known: Vec<_> = workers.iter().map(|worker| &*worker.name).collect();
                let known = known.join("`, `");
                OperateError::NotFound(format!(
                    "no worker of the stream {stream} is called `{worker}`; the workers are `{known}`"
                ))
            }
            AskError::Pinned { slice, worker } => OperateError::Conflict(format!(
                "slice {} is pinned to {worker}: unpin it first, or move it with `force` (--force), which removes the pin",
                slice.0
            )),
            AskError::NotPinned(slice) => {
                OperateError::NotFound(format!("slice {} is not pinned", slice.0))
            }
            AskError::Refused(unknown @ MoveRefused::UnknownSlice(_)) => {
                OperateError::NotFound(unknown.to_string())
            }
            AskError::Refused(refused) => OperateError::Refused(refused.to_string()),
            AskError::Size(refused) => OperateError::Refused(refused.to_string()),
            apart @ AskError::PinnedApart(..) => OperateError::Conflict(apart.to_string()),
            AskError::Ended => OperateError::Stopping,
        }
    }

    /// Returns the status once it shows the change, or after [`SEEN_PATIENCE`].
    async fn once_seen(&self, holds: impl FnMut(&Status) -> bool) -> StreamStatus {
        if let Ok(handle) = &self.0.handle {
            let mut status = handle.watch();
            // The change is made, whether or not the status shows it.
            let _ = tokio::time::timeout(SEEN_PATIENCE, status.wait_for(holds)).await;
        }
        self.status().await
    }

    /// Removes the pins of slices that are pinned to other workers than the target, if the request
    /// has `force`.
    async fn free(
        &self,
        handle: &Handle,
        status: &Status,
        wish: &SliceMove,
    ) -> Result<Vec<TakenPin>, OperateError> {
        if !status.workers.iter().any(|worker| worker.name == wish.worker) {
            return Err(self.refused(AskError::UnknownWorker(wish.worker.clone())).await);
        }
        let pinned = status.slices.iter().filter(|it| wish.slices.contains(&it.slice.0));
        let pinned = pinned.filter_map(|it| Some((it.slice, it.pinned.clone()?)));
        let mut taken = Vec::new();
        for (slice, worker) in pinned.filter(|(_, worker)| *worker != wish.worker) {
            if !wish.force {
                return Err(self.refused(AskError::Pinned { slice, worker }).await);
            }
            match handle.pin(slice, None).await {
                Ok(()) => taken.push(TakenPin { slice: slice.0, worker }),
                // The pin was removed since the status was read.
                Err(AskError::NotPinned(_)) => {}
                Err(error) => return Err(self.refused(error).await),
            }
        }
        Ok(taken)
    }

    async fn move_slices(&self, wish: &SliceMove) -> Result<SliceMoves, OperateError> {
        let handle = self.handle()?;
        let status = handle.status();
        if !status.leading {
            return Err(self.refused(AskError::NotLeading).await);
        }
        let mut moves = SliceMoves {
            handovers: Vec::new(),
            moving: Vec::new(),
            there: Vec::new(),
            refused: Vec::new(),
            unpinned: Vec::new(),
        };
        let mut by_owner: BTreeMap<&str, Vec<SliceId>> = BTreeMap::new();
        for number in &wish.slices {
            let slice = status.slices.iter().find(|it| it.slice.0 == *number);
            let slice = slice.ok_or_else(|| {
                OperateError::NotFound(MoveRefused::UnknownSlice(SliceId(*number)).to_string())
            })?;
            match &slice.owner {
                None => moves.refused.push(MoveRefused::Unowned(slice.slice).to_string()),
                Some(owner) if *owner == wish.worker => moves.there.push(*number),
                Some(owner) => by_owner.entry(owner).or_default().push(slice.slice),
            }
        }
        if wish.slices.is_empty() {
            return Err(OperateError::Refused(MoveRefused::Nothing.to_string()));
        }
        moves.unpinned = self.free(handle, &status, wish).await?;
        for (owner, slices) in by_owner {
            match handle.move_slices(slices.clone(), &wish.worker).await {
                Ok(handover) => {
                    moves.handovers.push(handover.0);
                    moves.moving.extend(slices.iter().map(|slice| slice.0));
                }
                Err(AskError::Refused(MoveRefused::Target(_, why))) => moves
                    .refused
                    .push(format!("worker {} cannot take slices of {owner}: {why}", wish.worker)),
                Err(AskError::Refused(why)) => moves.refused.push(why.to_string()),
                Err(error) => return Err(self.refused(error).await),
            }
        }
        if moves.moving.is_empty() && moves.there.is_empty() {
            for TakenPin { slice, worker } in &moves.unpinned {
                // No slice moves, so the pins are restored. If the leadership is lost in between,
                // so are the pins; the error reports that nothing was moved.
                let _ = handle.pin(SliceId(*slice), Some(worker)).await;
            }
            return Err(OperateError::Refused(moves.refused.join("; ")));
        }
        Ok(moves)
    }
}
