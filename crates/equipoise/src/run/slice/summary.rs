//! Summaries of streams, one line each, for `equipoise status`.

use equipoise_api::wire::slice::{StreamSummary, WorkerState};

use super::{SlicePlane, Told, views};
use equipoise_basics::lock;

impl SlicePlane {
    /// The streams as this process knows them. It sends no request, and does not block.
    pub(crate) fn summary(&self) -> Vec<StreamSummary> {
        lock(&self.told).iter().map(line).collect()
    }
}

fn line(told: &Told) -> StreamSummary {
    let (status, problem) = match &told.handle {
        Ok(handle) => (handle.status(), None),
        Err(why) => (Default::default(), Some(why.clone())),
    };
    let stream = views::stream(&told.config, &status, None, problem);
    let count = |all: usize| u32::try_from(all).unwrap_or(u32::MAX);
    let is_here =
        |state| !matches!(state, WorkerState::Lost | WorkerState::Awaited | WorkerState::Refused);
    let here = stream.workers.iter().filter(|worker| is_here(worker.state));
    let blocked = stream.slices.iter().filter(|slice| slice.blocked.is_some());
    let unowned = stream.slices.iter().filter(|slice| slice.owner.is_none());
    StreamSummary {
        workers: count(here.count()),
        slices_unowned: count(unowned.count()),
        slices_blocked: count(blocked.count()),
        // A sum of none is -0.0.
        items_per_second: stream.workers.iter().fold(0.0, |sum, it| sum + it.items_per_second),
        queued: stream.workers.iter().map(|worker| worker.queued).sum(),
        name: stream.name,
        leading: stream.leading,
        problem: stream.problem,
        slices_total: stream.slices_total,
        imbalance: stream.imbalance,
    }
}
