//! Streams of the slice level, their workers and slices.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Every stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Streams {
    /// In configured order.
    pub streams: Vec<StreamStatus>,
}

/// A stream of items, whose slices are balanced over workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// How many slices it has.
    pub slices_total: u32,
    /// The DDS domain.
    pub domain: u32,
    /// Whether the controller that was asked leads. If not, it knows nothing of workers and slices.
    pub leading: bool,
    /// The controller that leads; `None` while none does, or where that is not known.
    pub leader: Option<String>,
    /// Why this controller takes no part, if it does not.
    pub problem: Option<String>,
    /// What the most loaded worker has over the mean, as a share of the mean.
    pub imbalance: f64,
    /// By name.
    pub workers: Vec<SliceWorker>,
    /// By number.
    pub slices: Vec<SliceState>,
    /// Handovers that are not over.
    pub handovers: Vec<SliceHandover>,
    /// Slices that are too large to be balanced.
    pub hot: Vec<HotSlice>,
    /// Publishers on the stream's topic whose items reach no worker.
    pub unread: Vec<UnreadPublisher>,
    /// Handovers since this controller leads that moved their slices.
    pub handovers_moved_total: u64,
    /// Handovers since this controller leads that were called off: the slices stayed where they were.
    pub handovers_called_off_total: u64,
    /// How long the last handovers took at the median, from their begin until the new owner was active; `None` before the first.
    pub handover_seconds_p50: Option<f64>,
    /// How long the longest of them took.
    pub handover_seconds_max: Option<f64>,
}

/// A stream in a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamSummary {
    /// Its name.
    pub name: String,
    /// Whether this controller leads. If not, it knows nothing of workers and slices, and what follows is 0.
    pub leading: bool,
    /// Why this controller takes no part, if it does not.
    pub problem: Option<String>,
    /// Workers that take part.
    pub workers: u32,
    /// How many slices it has.
    pub slices_total: u32,
    /// Slices that no worker owns.
    pub slices_unowned: u32,
    /// Slices that are not moved now, whatever the reason.
    pub slices_blocked: u32,
    /// Items that its workers do in a second.
    pub items_per_second: f64,
    /// Items that wait at its workers.
    pub queued: u64,
    /// What the most loaded worker has over the mean, as a share of the mean.
    pub imbalance: f64,
}

/// A worker of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceWorker {
    /// Its name; a number while it has not reported.
    pub name: String,
    /// Whether it takes part.
    pub state: WorkerState,
    /// For how long it has been so; for one that is lost, how long ago it was heard last.
    pub state_seconds: f64,
    /// Why it is so, where that is not plain.
    pub reason: Option<String>,
    /// Whether an operator drained it.
    pub drained: bool,
    /// Why it is given no slices, or what else is wrong with it.
    pub problem: Option<String>,
    /// The machine that it runs on; `None` while it was not heard.
    pub host: Option<String>,
    /// Its process there.
    pub pid: Option<u32>,
    /// When it was started, seconds since 1970.
    pub started_unix_seconds: Option<f64>,
    /// Slices that it owns.
    pub slices: u32,
    /// Its load: cores that its slices keep busy, or would.
    pub load: f64,
    /// Items that it does in a second.
    pub items_per_second: f64,
    /// Items that wait there or are being done.
    pub queued: u64,
    /// Of those, the ones that its program has.
    pub in_hand: u64,
    /// How long the oldest of the others has waited.
    pub queue_age_seconds: f64,
    /// For how long its program has had items and acknowledged none.
    pub stalled_seconds: f64,
    /// Items done since it started.
    pub items_total: u64,
    /// Items that were let go since it started, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// Whether a worker takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// It owns slices, or may.
    Active,
    /// It has not reported yet, or its first slices are on their way.
    Joining,
    /// It has a weight of 0 and owns nothing: it gets only slices of workers that are lost, and those pinned to it.
    Standby,
    /// It is left without slices: by its own wish, or because it was drained.
    Draining,
    /// It was left without slices; it may be ended.
    Drained,
    /// Its program has items and acknowledges none: it is given no slices.
    Stuck,
    /// It was started as it should not be, and is given nothing.
    Refused,
    /// Known by the store; this controller has not heard it yet.
    Awaited,
    /// Nothing is heard of it, and its slices went to others.
    Lost,
}

impl WorkerState {
    /// All of them.
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

    /// As JSON has it.
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
    /// The worker that owns it; `None`: nobody does.
    pub owner: Option<String>,
    /// The handover that gave it to its owner.
    pub epoch: u64,
    /// Its load, in cores.
    pub load: f64,
    /// Items that wait.
    pub queued: u64,
    /// How long the oldest of them has waited.
    pub queue_age_seconds: f64,
    /// The worker that it is pinned to.
    pub pinned: Option<String>,
    /// Why it is not moved now, if it is not.
    pub blocked: Option<String>,
    /// For how long it has been in a handover, if that is why.
    pub blocked_seconds: Option<f64>,
    /// It was moved lately: for how long balancing still leaves it where it is.
    pub cool_down_seconds: Option<f64>,
}

/// Slices on their way from a worker to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceHandover {
    /// Its number.
    pub id: u64,
    /// Who gives them; `None`: nobody, they are assigned.
    pub giver: Option<String>,
    /// Who takes them.
    pub taker: String,
    /// How many.
    pub slices: usize,
    /// How far it is, in words.
    pub state: String,
    /// What it waits for, and of whom.
    pub waits_for: String,
    /// How long ago it was begun.
    pub seconds: f64,
}

/// A slice that no move can even out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotSlice {
    /// Its number.
    pub slice: u32,
    /// Of what one worker should have.
    pub share: f64,
}

/// A publisher on the topic of items that no worker can read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnreadPublisher {
    /// Its writer, by its GUID: 32 hexadecimal digits.
    pub writer: String,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

/// Where a slice is kept while the worker is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlicePin {
    /// The worker's name.
    pub worker: String,
}

/// Slices to be moved now. Balancing may move them on after their cool-down; pins keep them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SliceMove {
    /// Their numbers.
    pub slices: Vec<u32>,
    /// The worker that is to have them.
    pub worker: String,
    /// Takes back the pins of those that are pinned to other workers. Without it, one of them makes the whole a conflict, and
    /// nothing is moved.
    #[serde(default)]
    pub force: bool,
}

/// What came of a request to move slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SliceMoves {
    /// The handovers that were begun: one for each owner.
    pub handovers: Vec<u64>,
    /// Slices on their way.
    pub moving: Vec<u32>,
    /// Slices that are there already.
    pub there: Vec<u32>,
    /// Why others stay where they are, one sentence for each owner.
    pub refused: Vec<String>,
    /// Pins that were taken back.
    pub unpinned: Vec<TakenPin>,
}

/// A slice's pin that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakenPin {
    /// The slice.
    pub slice: u32,
    /// The worker that it was pinned to.
    pub worker: String,
}

/// What a balancing round would do now. Nothing follows from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlicePlan {
    /// The stream.
    pub stream: String,
    /// What it would move.
    pub moves: Vec<PlannedSliceMove>,
    /// Why it would move no more.
    pub reason: SlicePlanReason,
    /// The same in words, with names and figures.
    pub explanation: String,
    /// Workers, by name.
    pub workers: Vec<PlannedSliceWorker>,
    /// Slices that no move can even out.
    pub hot: Vec<HotSlice>,
    /// What the most loaded worker has over the mean, as a share of the mean.
    pub imbalance: f64,
}

/// Slices that would be moved together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedSliceMove {
    /// Their numbers.
    pub slices: Vec<u32>,
    /// Who has them.
    pub giver: String,
    /// Who would get them.
    pub taker: String,
    /// Their load, in cores, with that of the items that wait.
    pub load: f64,
    /// Because an operator pinned them there.
    pub pinned: bool,
}

/// Why a round moves no more than it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlicePlanReason {
    /// No worker may be given slices.
    NobodyTakes,
    /// One worker alone may have slices.
    OneWorker,
    /// No load was measured.
    NothingMeasured,
    /// No worker has so much over the mean that balancing begins, or goes on.
    Balanced,
    /// Rounds move nothing by themselves.
    Off,
    /// It moves what helps most now.
    Moves,
    /// What would help most is pinned.
    Pinned,
    /// What would help most is in a handover.
    InHandover,
    /// What would help most was moved lately.
    CoolDown,
    /// What would help most is more than one round may move.
    TooLarge,
    /// There are too few slices, or some are too large.
    NoSliceHelps,
}

/// A worker, as a round sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedSliceWorker {
    /// Its name.
    pub name: String,
    /// The load of the items that come, in cores.
    pub load: f64,
    /// The load of the items that wait, in cores: as if they came within `balancing.queue-horizon`.
    pub queue_load: f64,
    /// The items that wait at the worker or are being done.
    pub queued: u64,
    /// What both loads, by its weight, are over the mean, as a share of the mean; negative below
    /// it. `None`: it takes no part, or there is no load.
    pub over_mean: Option<f64>,
    /// The load that it has below its share of the whole, in cores. `None`: it takes no part, or
    /// there is no load.
    pub room: Option<f64>,
    /// Slices that it owns.
    pub slices: u32,
    /// Of these, pinned to it.
    pub pinned: u32,
    /// Of these, in a handover.
    pub in_handover: u32,
    /// Of these, moved lately, so that they stay.
    pub cooling: u32,
    /// What the round has to do with it.
    pub reason: PlannedWorkerReason,
    /// The same in words.
    pub explanation: String,
}

/// What a round has to do with a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannedWorkerReason {
    /// It would give slices.
    Gives,
    /// It would take some.
    Takes,
    /// It has about its share.
    Balanced,
    /// It has more than its share, and keeps it for the plan's reason.
    Over,
    /// It has less than its share, and gets nothing for the plan's reason.
    Under,
    /// It is left without slices.
    Leaves,
    /// It has a weight of 0.
    Standby,
    /// No load was measured, of any worker.
    NothingMeasured,
    /// It has not reported its load yet.
    NoReport,
    /// Items wait, and it does none.
    Stuck,
    /// It was not heard since this controller leads.
    Awaited,
    /// It is lost.
    Lost,
}
