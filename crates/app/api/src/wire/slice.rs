//! Streams of the slice level, their workers and slices.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The streams of the slice level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Streams {
    /// Streams in configured order.
    pub streams: Vec<StreamStatus>,
}

/// A stream of items, which are balanced over workers by slices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// Number of slices.
    pub slices_total: u32,
    /// The resize that is under way.
    #[serde(default)]
    pub resizing: Option<SliceResizing>,
    /// The DDS domain.
    pub domain: u32,
    /// Whether this controller leads the stream. Otherwise it does not know workers and slices.
    pub leading: bool,
    /// The leading controller; `None` while there is none or it is not known.
    pub leader: Option<String>,
    /// The reason why this controller cannot lead the stream, if there is one.
    pub problem: Option<String>,
    /// Load of the most loaded worker over the mean, as a share of the mean.
    pub imbalance: f64,
    /// Workers by name.
    pub workers: Vec<SliceWorker>,
    /// Slices by number.
    pub slices: Vec<SliceState>,
    /// Handovers in progress.
    pub handovers: Vec<SliceHandover>,
    /// Slices that are too large to be balanced.
    pub hot: Vec<HotSlice>,
    /// Publishers on the stream's topic that no worker can read.
    pub unread: Vec<UnreadPublisher>,
    /// Connections to the port for workers' connections that this controller refused: they named no
    /// worker of the stream, or were more than the limits allow.
    pub connections_strange_total: u64,
    /// Handovers since this controller leads that moved their slices.
    pub handovers_moved_total: u64,
    /// Handovers since this controller leads that were called off, so that the slices stayed.
    pub handovers_called_off_total: u64,
    /// Median duration of recent handovers, from their start until the new owner was active; `None`
    /// before the first.
    pub handover_seconds_p50: Option<f64>,
    /// Duration of the longest of them.
    pub handover_seconds_max: Option<f64>,
}

/// Summary of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamSummary {
    /// Its name.
    pub name: String,
    /// Whether this controller leads the stream. Otherwise it does not know workers and slices, and
    /// the following fields are 0.
    pub leading: bool,
    /// The reason why this controller cannot lead the stream, if there is one.
    pub problem: Option<String>,
    /// Active workers.
    pub workers: u32,
    /// Number of slices.
    pub slices_total: u32,
    /// Slices that no worker owns.
    pub slices_unowned: u32,
    /// Slices that cannot be moved now, for any reason.
    pub slices_blocked: u32,
    /// Items that its workers process per second.
    pub items_per_second: f64,
    /// Items that wait at its workers.
    pub queued: u64,
    /// Load of the most loaded worker over the mean, as a share of the mean.
    pub imbalance: f64,
}

/// A worker of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceWorker {
    /// Its name; a number while it has not reported.
    pub name: String,
    /// Its state.
    pub state: WorkerState,
    /// Time for which it has had this state; for a lost worker, the time since its last report.
    pub state_seconds: f64,
    /// The reason of the state, if it is not obvious.
    pub reason: Option<String>,
    /// Whether an operator drained it.
    pub drained: bool,
    /// The reason why it gets no slices, or another problem.
    pub problem: Option<String>,
    /// The machine on which it runs; `None` before its first report.
    pub host: Option<String>,
    /// Its process id there.
    pub pid: Option<u32>,
    /// Time of its start, in seconds since 1970.
    pub started_unix_seconds: Option<f64>,
    /// Slices that it owns.
    pub slices: u32,
    /// Load: cores that its slices occupy, or would occupy.
    pub load: f64,
    /// Items that it processes per second.
    pub items_per_second: f64,
    /// Items that wait there or are in progress.
    pub queued: u64,
    /// Of those, the items that its program has.
    pub in_hand: u64,
    /// Wait of the oldest of the others.
    pub queue_age_seconds: f64,
    /// Time for which its program has had items and acknowledged none.
    pub stalled_seconds: f64,
    /// Items processed since it started.
    pub items_total: u64,
    /// Items dropped since it started, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Its checkpoints, if the stream has any.
    pub checkpoints: Option<SliceCheckpoints>,
}

/// The checkpoints of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceCheckpoints {
    /// The worker that keeps them; `None` if there is no other worker.
    pub keeper: Option<String>,
    /// Age of the oldest checkpoint that lacks items of its slice.
    pub age_seconds: f64,
    /// Items processed since the last checkpoints of their slices.
    pub items_since: u64,
    /// Slices with a state that is in no checkpoint at the keeper.
    pub slices_exposed: u32,
    /// Slices with a state that is in no checkpoint in the folder; `None` without a folder.
    pub slices_unstored: Option<u32>,
    /// Bytes of states in the last checkpoints.
    pub bytes: u64,
}

/// State of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// It owns slices, or may own some.
    Active,
    /// It has not reported yet, or its first slices are moving to it.
    Joining,
    /// It has a weight of 0 and owns nothing: it gets only slices of lost workers, and pinned ones.
    Standby,
    /// Its slices move to other workers: by its own request, or because an operator drained it.
    Draining,
    /// It has no slices any more; it may be ended.
    Drained,
    /// Its program has items and acknowledges none: it gets no slices.
    Stuck,
    /// It was started with wrong options, and gets nothing.
    Refused,
    /// The store has it; this controller has not received a report yet.
    Awaited,
    /// It does not report any more, and its slices moved to others.
    Lost,
}

impl WorkerState {
    /// All states.
    pub const ALL: [WorkerState; 9] = [
        WorkerState::Active,
        WorkerState::Joining,
        WorkerState::Standby,
        WorkerState::Draining,
        WorkerState::Drained,
        WorkerState::Stuck,
        WorkerState::Refused,
        WorkerState::Awaited,
        WorkerState::Lost,
    ];

    /// The state's word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            WorkerState::Active => "active",
            WorkerState::Joining => "joining",
            WorkerState::Standby => "standby",
            WorkerState::Draining => "draining",
            WorkerState::Drained => "drained",
            WorkerState::Stuck => "stuck",
            WorkerState::Refused => "refused",
            WorkerState::Awaited => "awaited",
            WorkerState::Lost => "lost",
        }
    }
}

/// A slice of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceState {
    /// Its number.
    pub slice: u32,
    /// The worker that owns it; `None` if no worker does.
    pub owner: Option<String>,
    /// Number of the handover that gave it to its owner.
    pub epoch: u64,
    /// Its load, in cores.
    pub load: f64,
    /// Waiting items.
    pub queued: u64,
    /// Wait of the oldest of them.
    pub queue_age_seconds: f64,
    /// The worker to which it is pinned.
    pub pinned: Option<String>,
    /// The reason why it cannot be moved now, if there is one.
    pub blocked: Option<String>,
    /// Time for which it has been in a handover, if this is the reason.
    pub blocked_seconds: Option<f64>,
    /// Time for which balancing still leaves it at its owner, after a recent move.
    pub cool_down_seconds: Option<f64>,
}

/// Slices that move from one worker to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceHandover {
    /// Its number.
    pub id: u64,
    /// The worker that gives the slices; `None` if they had no owner.
    pub giver: Option<String>,
    /// The worker that takes the slices.
    pub taker: String,
    /// Number of slices.
    pub slices: usize,
    /// Its progress in words.
    pub state: String,
    /// The event that it waits for, and the worker that causes it.
    pub waits_for: String,
    /// Time since its start.
    pub seconds: f64,
}

/// A slice that is too large for any move to even out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotSlice {
    /// Its number.
    pub slice: u32,
    /// Its load, as a share of what one worker should have.
    pub share: f64,
}

/// A publisher on the topic of items that no worker can read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadPublisher {
    /// GUID of its writer: 32 hexadecimal digits.
    pub writer: String,
    /// The problem and its remedy.
    pub problem: String,
}

/// A pin, which keeps a slice on a worker while the worker is present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlicePin {
    /// The worker's name.
    pub worker: String,
}

/// Slices to move now. After their cool-down, balancing may move them again; pins keep them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceMove {
    /// Numbers of the slices.
    pub slices: Vec<u32>,
    /// The worker that should own them.
    pub worker: String,
    /// Remove pins to other workers. Without it, one such pin makes the whole request a conflict,
    /// and nothing is moved.
    #[serde(default)]
    pub force: bool,
}

/// How many slices a stream is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceResize {
    /// Twice or half as many as now. As many as now calls a resize off that has not taken effect.
    pub slices: u32,
}

/// A resize that has not taken effect yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceResizing {
    /// How many slices there will be.
    pub slices: u32,
    /// The condition that it waits for.
    pub waits_for: String,
}

/// The outcome of a request to move slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceMoves {
    /// Handovers that were started, one for each owner.
    pub handovers: Vec<u64>,
    /// Slices that are moving.
    pub moving: Vec<u32>,
    /// Slices that the worker already owns.
    pub there: Vec<u32>,
    /// Reasons why other slices stay, one sentence for each owner.
    pub refused: Vec<String>,
    /// Pins that were removed.
    pub unpinned: Vec<TakenPin>,
}

/// A pin that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakenPin {
    /// The slice.
    pub slice: u32,
    /// The worker to which it was pinned.
    pub worker: String,
}

/// The moves of a balancing round that would start now. They are not made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlicePlan {
    /// The stream.
    pub stream: String,
    /// The moves.
    pub moves: Vec<PlannedSliceMove>,
    /// The reason why there are no further moves.
    pub reason: SlicePlanReason,
    /// The reason in words, with names and figures.
    pub explanation: String,
    /// Workers, by name.
    pub workers: Vec<PlannedSliceWorker>,
    /// Slices that are too large for any move to even out.
    pub hot: Vec<HotSlice>,
    /// Load of the most loaded worker over the mean, as a share of the mean.
    pub imbalance: f64,
}

/// Slices that would move together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedSliceMove {
    /// Numbers of the slices.
    pub slices: Vec<u32>,
    /// The worker that owns them.
    pub giver: String,
    /// The worker that would get them.
    pub taker: String,
    /// Their load in cores, waiting items included.
    pub load: f64,
    /// Whether they move because of a pin.
    pub pinned: bool,
}

/// Reasons why a round moves no further slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlicePlanReason {
    /// No worker may take slices.
    NobodyTakes,
    /// Only one worker may have slices.
    OneWorker,
    /// No load was measured.
    NothingMeasured,
    /// No worker is far enough over the mean for balancing to begin or continue.
    Balanced,
    /// Balancing is off.
    Off,
    /// It moves the slices that help most now.
    Moves,
    /// The slices that would help most are pinned.
    Pinned,
    /// The slices that would help most are in a handover, or their queue is still moving.
    InHandover,
    /// The slices that would help most were moved recently.
    CoolDown,
    /// The slices that would help most are more than one round may move.
    TooLarge,
    /// There are too few slices, or some are too large.
    NoSliceHelps,
}

/// A worker in a balancing round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedSliceWorker {
    /// Its name.
    pub name: String,
    /// Load of arriving items, in cores.
    pub load: f64,
    /// Load of items that waited for all of `balancing.queue-horizon`, in cores, as if they
    /// arrived within that time.
    pub queue_load: f64,
    /// Items that wait at the worker or are in progress.
    pub queued: u64,
    /// Both loads over the mean, by the worker's weight, as a share of the mean; negative below it.
    /// `None` if it does not take part, or if there is no load.
    pub over_mean: Option<f64>,
    /// Load that it lacks to its share of the whole, in cores. `None` if it does not take part, or
    /// if there is no load.
    pub room: Option<f64>,
    /// Slices that it owns.
    pub slices: u32,
    /// Of these, slices that are pinned to it.
    pub pinned: u32,
    /// Of these, slices in a handover.
    pub in_handover: u32,
    /// Of these, slices that moved recently and therefore stay.
    pub cooling: u32,
    /// The worker's part in the round.
    pub reason: PlannedWorkerReason,
    /// The same in words.
    pub explanation: String,
}

/// A worker's part in a balancing round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannedWorkerReason {
    /// It would give slices.
    Gives,
    /// It would take slices.
    Takes,
    /// It has about its share.
    Balanced,
    /// It has more than its share, and keeps it for the plan's reason.
    Over,
    /// It has less than its share, and gets nothing for the plan's reason.
    Under,
    /// Its slices move to others.
    Leaves,
    /// It has a weight of 0.
    Standby,
    /// No load was measured at any worker.
    NothingMeasured,
    /// It has not reported its load yet.
    NoReport,
    /// Items wait, and it processes none.
    Stuck,
    /// It has not reported since this controller leads.
    Awaited,
    /// It is lost.
    Lost,
}
