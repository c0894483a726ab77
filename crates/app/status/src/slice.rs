//! The state of the slice level.

use std::collections::BTreeMap;
use std::time::Duration;

use equipoise_api::metrics::{StreamReading, TimeReading};
use equipoise_api::wire::slice::{
    HotSlice, PlannedSliceMove, PlannedSliceWorker, PlannedWorkerReason, SliceCheckpoints,
    SliceHandover, SlicePlan, SlicePlanReason, SliceResizing, SliceState, SliceWorker,
    StreamStatus, StreamSummary, UnreadPublisher, WorkerState,
};
use equipoise_config::SliceStream;
use equipoise_planes::RunningStream;
use equipoise_slice::balance::Hot;
use equipoise_slice::worker::Reason;
use equipoise_slice_dds::DropReason;
use equipoise_slices::{
    HandoverStatus, HandoverTotals, HoldReason, PlanReason, Planned, PlannedMove, PlannedWorker,
    SliceStatus, Status, Unread, WorkerCheckpoints, WorkerReason, WorkerState as Standing,
    WorkerStatus,
};

/// Converts a stream; `leader` is the leading controller, as far as known.
pub fn stream(
    config: &SliceStream,
    status: &Status,
    leader: Option<String>,
    problem: Option<String>,
) -> StreamStatus {
    let mut times = status.handover_times.clone();
    times.sort_unstable();
    let seconds = |time: Option<&Duration>| time.map(Duration::as_secs_f64);
    StreamStatus {
        name: config.name.clone(),
        slices_total: match status.slices.len() {
            0 => config.slices,
            known => u32::try_from(known).unwrap_or(u32::MAX),
        },
        resizing: status.resizing.as_ref().map(|(slices, waits_for)| SliceResizing {
            slices: *slices,
            waits_for: waits_for.clone(),
        }),
        domain: config.domain,
        leading: status.leading,
        leader,
        problem,
        imbalance: status.imbalance,
        workers: status.workers.iter().map(worker).collect(),
        slices: status.slices.iter().map(slice).collect(),
        handovers: status.handovers.iter().map(handover).collect(),
        hot: hot(&status.hot),
        unread: status.unread.iter().map(unread).collect(),
        connections_strange_total: status.connections_strange,
        handovers_moved_total: status.totals.moved,
        handovers_called_off_total: status.totals.called_off,
        handover_seconds_p50: seconds(times.get(times.len() / 2)),
        handover_seconds_max: seconds(times.last()),
    }
}

fn worker(worker: &WorkerStatus) -> SliceWorker {
    SliceWorker {
        name: worker.name.clone(),
        state: state(worker.state),
        state_seconds: worker.since.as_secs_f64(),
        reason: worker.reason.clone(),
        drained: worker.drained,
        problem: worker.problem.clone(),
        host: worker.process.as_ref().map(|process| process.host.clone()),
        pid: worker.process.as_ref().map(|process| process.pid),
        started_unix_seconds: worker
            .process
            .as_ref()
            .map(|process| process.since_unix_ms as f64 / 1000.0),
        slices: worker.slices,
        load: worker.load,
        items_per_second: worker.items_per_second,
        queued: worker.queued,
        in_hand: worker.in_hand,
        queue_age_seconds: worker.queue_age.as_secs_f64(),
        stalled_seconds: worker.stalled.as_secs_f64(),
        items_total: worker.done,
        drops: worker.drops.iter().cloned().collect(),
        checkpoints: worker.checkpoints.as_ref().map(checkpoints),
    }
}

fn checkpoints(of: &WorkerCheckpoints) -> SliceCheckpoints {
    SliceCheckpoints {
        keeper: of.keeper.clone(),
        age_seconds: of.age.as_secs_f64(),
        items_since: of.items,
        slices_exposed: of.exposed,
        slices_unstored: of.unstored,
        bytes: of.bytes,
    }
}

fn state(state: Standing) -> WorkerState {
    match state {
        Standing::Active => WorkerState::Active,
        Standing::Joining => WorkerState::Joining,
        Standing::Standby => WorkerState::Standby,
        Standing::Draining => WorkerState::Draining,
        Standing::Drained => WorkerState::Drained,
        Standing::Stuck => WorkerState::Stuck,
        Standing::Refused => WorkerState::Refused,
        Standing::Awaited => WorkerState::Awaited,
        Standing::Lost => WorkerState::Lost,
    }
}

fn slice(slice: &SliceStatus) -> SliceState {
    SliceState {
        slice: slice.slice.0,
        owner: slice.owner.clone(),
        epoch: slice.epoch.0,
        load: slice.load,
        queued: slice.queued,
        queue_age_seconds: slice.queue_age.as_secs_f64(),
        pinned: slice.pinned.clone(),
        blocked: slice.blocked.clone(),
        blocked_seconds: slice.blocked_for.map(|time| time.as_secs_f64()),
        cool_down_seconds: slice.cools.map(|time| time.as_secs_f64()),
    }
}

fn handover(handover: &HandoverStatus) -> SliceHandover {
    SliceHandover {
        id: handover.id.0,
        giver: handover.source.clone(),
        taker: handover.target.clone(),
        slices: handover.slices,
        state: handover.state.to_string(),
        waits_for: handover.waits_for.clone(),
        seconds: handover.since.as_secs_f64(),
    }
}

fn unread(unread: &Unread) -> UnreadPublisher {
    UnreadPublisher { writer: format!("{:?}", unread.writer), problem: unread.why.to_string() }
}

fn hot(hot: &[Hot]) -> Vec<HotSlice> {
    hot.iter().map(|it| HotSlice { slice: it.slice.0, share: it.share }).collect()
}

/// Converts the plan of a balancing round.
pub fn plan(stream: &str, planned: &Planned) -> SlicePlan {
    let step = |step: &PlannedMove| PlannedSliceMove {
        slices: step.slices.iter().map(|slice| slice.0).collect(),
        giver: step.source.clone(),
        taker: step.target.clone(),
        load: step.load,
        pinned: step.pinned,
    };
    SlicePlan {
        stream: stream.to_string(),
        moves: planned.moves.iter().map(step).collect(),
        reason: plan_reason(&planned.why),
        explanation: planned.why.to_string(),
        workers: planned.workers.iter().map(planned_worker).collect(),
        hot: hot(&planned.hot),
        imbalance: planned.imbalance,
    }
}

fn plan_reason(why: &PlanReason) -> SlicePlanReason {
    match why {
        PlanReason::NobodyTakes => SlicePlanReason::NobodyTakes,
        PlanReason::OneTakes(_) => SlicePlanReason::OneWorker,
        PlanReason::NothingMeasured => SlicePlanReason::NothingMeasured,
        PlanReason::Even(_) => SlicePlanReason::Balanced,
        PlanReason::Off => SlicePlanReason::Off,
        PlanReason::Moves => SlicePlanReason::Moves,
        PlanReason::Held { by: HoldReason::Pinned(_), .. } => SlicePlanReason::Pinned,
        PlanReason::Held { by: HoldReason::Handover(_) | HoldReason::Transfer(_), .. } => {
            SlicePlanReason::InHandover
        }
        PlanReason::Held { by: HoldReason::CoolDown(_), .. } => SlicePlanReason::CoolDown,
        PlanReason::Held { by: HoldReason::TooLarge, .. } => SlicePlanReason::TooLarge,
        PlanReason::NoSliceHelps { .. } => SlicePlanReason::NoSliceHelps,
    }
}

fn planned_worker(worker: &PlannedWorker) -> PlannedSliceWorker {
    PlannedSliceWorker {
        name: worker.name.clone(),
        load: worker.load,
        queue_load: worker.queue_load,
        queued: worker.queued,
        over_mean: worker.over_mean,
        room: worker.room,
        slices: worker.slices,
        pinned: worker.pinned,
        in_handover: worker.in_handover,
        cooling: worker.cooling,
        reason: match worker.reason {
            WorkerReason::Gives(_) => PlannedWorkerReason::Gives,
            WorkerReason::Takes(_) => PlannedWorkerReason::Takes,
            WorkerReason::Even => PlannedWorkerReason::Balanced,
            WorkerReason::Over => PlannedWorkerReason::Over,
            WorkerReason::Under => PlannedWorkerReason::Under,
            WorkerReason::Leaves(_) => PlannedWorkerReason::Leaves,
            WorkerReason::Standby => PlannedWorkerReason::Standby,
            WorkerReason::Idle => PlannedWorkerReason::NothingMeasured,
            WorkerReason::NoReport => PlannedWorkerReason::NoReport,
            WorkerReason::Stuck(_) => PlannedWorkerReason::Stuck,
            WorkerReason::Awaited => PlannedWorkerReason::Awaited,
            WorkerReason::Lost => PlannedWorkerReason::Lost,
        },
        explanation: worker.reason.to_string(),
    }
}

/// Converts a stream for metrics, with zero counts for drops that never happened, so that a rate
/// includes the first one.
pub fn reading(config: &SliceStream, status: &Status) -> StreamReading {
    let mut stream = stream(config, status, None, None);
    let reasons = Reason::ALL.map(Reason::name).into_iter();
    let reasons = reasons.chain(DropReason::ALL.map(DropReason::name));
    let none: BTreeMap<String, u64> = reasons.map(|reason| (reason.to_string(), 0)).collect();
    for worker in &mut stream.workers {
        let mut drops = none.clone();
        drops.append(&mut worker.drops);
        worker.drops = drops;
    }
    StreamReading { status: stream, handover_time: time(&status.totals) }
}

fn time(totals: &HandoverTotals) -> TimeReading {
    let bounds = HandoverTotals::BUCKETS.iter().map(Duration::as_secs_f64);
    let buckets = bounds.chain([f64::INFINITY]).zip(totals.times).collect();
    TimeReading { buckets, sum_seconds: totals.time_sum.as_secs_f64() }
}

/// A stream in one line, for `equipoise status`.
pub fn summary(running: &RunningStream) -> StreamSummary {
    let (status, problem) = match &running.handle {
        Ok(handle) => (handle.status(), None),
        Err(why) => (Default::default(), Some(why.clone())),
    };
    let stream = stream(&running.config, &status, None, problem);
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
