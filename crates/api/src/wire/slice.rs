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
    /// Handovers since this controller leads that moved their slices.
    pub handovers_moved_total: u64,
    /// Handovers since this controller leads that were called off: the slices stayed where they were.
    pub handovers_called_off_total: u64,
    /// How long the last handovers took at the median, from their begin until the new owner was active; `None` before the first.
    pub handover_seconds_p50: Option<f64>,
    /// How long the longest of them took.
    pub handover_seconds_max: Option<f64>,
}

/// A worker of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SliceWorker {
    /// Its name; a number while it has not reported.
    pub name: String,
    /// Whether it takes part.
    pub state: WorkerState,
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
    /// What its weight is divided by, since its queue grew while others had no more load: 1, or more.
    pub pressure: f64,
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
    Up,
    /// It is left without slices: by its own wish, or because it was drained.
    Leaving,
    /// Its program has items and acknowledges none: it is given no slices.
    Stuck,
    /// Nothing is heard of it, and its slices went to others.
    Lost,
}

impl WorkerState {
    /// All of them.
    pub const ALL: [WorkerState; 4] =
        [WorkerState::Up, WorkerState::Leaving, WorkerState::Stuck, WorkerState::Lost];

    /// As JSON has it.
    pub fn word(self) -> &'static str {
        match self {
            WorkerState::Up => "up",
            WorkerState::Leaving => "leaving",
            WorkerState::Stuck => "stuck",
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
    /// The worker that it is pinned to.
    pub pinned: Option<String>,
    /// Why it is not moved now, if it is not.
    pub blocked: Option<String>,
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
    /// For how long it has been there.
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
}

/// What a balancing round would do now. Nothing follows from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlicePlan {
    /// The stream.
    pub stream: String,
    /// What it would move.
    pub moves: Vec<PlannedSliceMove>,
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
    /// Their load, in cores.
    pub load: f64,
    /// Because an operator pinned them there.
    pub pinned: bool,
}
