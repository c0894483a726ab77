//! The moves of a balancing round, and why there are no more, for operators.

use std::fmt;
use std::time::Duration;

use equipoise_slice::balance::Hot;
use equipoise_slice::{HandoverId, SliceId};

/// A preview of the next balancing round.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The moves that the round would begin.
    pub moves: Vec<PlannedMove>,
    /// Why the round would begin no more.
    pub why: PlanReason,
    /// Workers, sorted by name.
    pub workers: Vec<PlannedWorker>,
    /// Slices that no move can even out.
    pub hot: Vec<Hot>,
    /// Excess of the most loaded worker over the mean, as a share of the mean.
    pub imbalance: f64,
}

/// Slices that would move together.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedMove {
    /// The source.
    pub source: String,
    /// The target.
    pub target: String,
    /// The slices.
    pub slices: Vec<SliceId>,
    /// Their load in cores, with that of the waiting items.
    pub load: f64,
    /// They move because an operator pinned them to the target.
    pub pinned: bool,
}

/// Why a round moves no more than it does ([`equipoise_slice::balance::Why`], with names).
#[derive(Debug, Clone, PartialEq)]
pub enum PlanReason {
    /// No worker may receive slices.
    NobodyTakes,
    /// Only one worker may receive slices.
    OneTakes(String),
    /// No load was measured.
    NothingMeasured,
    /// The excess of each worker over the mean is at most this share of the mean.
    Even(f64),
    /// Balancing is off.
    Off,
    /// The round begins the best moves.
    Moves,
    /// The best move has to wait.
    Held {
        /// The slice that would move.
        slice: SliceId,
        /// Its owner.
        source: String,
        /// Its new owner.
        target: String,
        /// The reason to wait.
        by: HoldReason,
    },
    /// No move of a slice reduces the imbalance.
    NoSliceHelps {
        /// The most loaded worker.
        source: String,
        /// The number of its slices.
        slices: usize,
    },
}

/// Why a slice does not move now.
#[derive(Debug, Clone, PartialEq)]
pub enum HoldReason {
    /// An operator pinned it to this worker.
    Pinned(String),
    /// It is in this handover.
    Handover(HandoverId),
    /// It has a standing queue, and one of the two workers is still moving that of this slice.
    Transfer(SliceId),
    /// It moved recently, and stays for this much longer.
    CoolDown(Duration),
    /// It has more load than one round may move.
    TooLarge,
}

/// A worker, with the values that a round has of it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedWorker {
    /// Its name.
    pub name: String,
    /// Load of its arriving items, in cores.
    pub load: f64,
    /// Load of its waiting items, in cores.
    pub queue_load: f64,
    /// Items that wait at the worker or are in progress.
    pub queued: u64,
    /// Excess of both loads over the mean, by weight, as a share of the mean; negative below it.
    /// `None`: it takes no part.
    pub over_mean: Option<f64>,
    /// Load that it lacks to its share, in cores. `None`: it takes no part.
    pub room: Option<f64>,
    /// Slices that it owns.
    pub slices: u32,
    /// Slices of these that are pinned to it.
    pub pinned: u32,
    /// Slices of these that are in a handover.
    pub in_handover: u32,
    /// Slices of these that stay, because they moved recently.
    pub cooling: u32,
    /// Its part in the round.
    pub reason: WorkerReason,
}

/// A worker's part in a round.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerReason {
    /// It would give this number of slices.
    Gives(usize),
    /// It would receive this number of slices.
    Takes(usize),
    /// It has about its share.
    Even,
    /// It has more than its share, and keeps it, for the reason of the plan.
    Over,
    /// It has less than its share, and receives nothing, for the reason of the plan.
    Under,
    /// It has to give up its slices, for this reason.
    Leaves(String),
    /// It has a weight of 0.
    Standby,
    /// No load was measured, of any worker.
    Idle,
    /// Its load is unknown: it has not reported.
    NoReport,
    /// It has items and finishes none, for this reason.
    Stuck(String),
    /// It has sent nothing since this controller became leader.
    Awaited,
    /// It is lost.
    Lost,
}

fn per_cent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

impl fmt::Display for PlanReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NobodyTakes => f.write_str(
                "no worker may receive slices: none is present, or all are draining or have a weight of 0",
            ),
            Self::OneTakes(worker) => write!(f, "{worker} is the only worker that may receive slices"),
            Self::NothingMeasured => {
                f.write_str("no load was measured: no items arrive, or none is finished yet")
            }
            Self::Even(within) => {
                write!(f, "balanced: no worker has more than {} over the mean", per_cent(*within))
            }
            Self::Off => f.write_str(
                "balancing is off (`share-max = 0` in [slice.balancing])",
            ),
            Self::Moves => {
                f.write_str("these are the best moves now; the next round continues")
            }
            Self::Held { slice, source, target, by } => write!(
                f,
                "the best move is slice {} from {source} to {target}, but {by}",
                slice.0
            ),
            Self::NoSliceHelps { source, slices } => write!(
                f,
                "no move of one of the {slices} slices of {source} reduces the imbalance: there are too few slices, or some \
                 are too large"
            ),
        }
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pinned(worker) => write!(f, "it is pinned to {worker}"),
            Self::Handover(id) => write!(f, "it is in handover {}", id.0),
            Self::Transfer(other) => write!(
                f,
                "items wait for it, and one of these workers is still moving those of slice {}",
                other.0
            ),
            Self::CoolDown(left) => write!(
                f,
                "it moved recently and stays for another {:.1} s (`cool-down`)",
                left.as_secs_f64()
            ),
            Self::TooLarge => f.write_str("it has more load than one round may move (`share-max`)"),
        }
    }
}

impl fmt::Display for WorkerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gives(slices) => write!(f, "gives {slices}"),
            Self::Takes(slices) => write!(f, "takes {slices}"),
            Self::Even => f.write_str("has its share"),
            Self::Over => f.write_str("has more than its share"),
            Self::Under => f.write_str("has less than its share"),
            Self::Leaves(why) => write!(f, "gives up its slices: {why}"),
            Self::Standby => {
                f.write_str("has a weight of 0, so it receives only slices of lost workers")
            }
            Self::Idle => f.write_str("no load was measured"),
            Self::NoReport => f.write_str("has not reported its load yet"),
            Self::Stuck(why) => write!(f, "is stuck: {why}"),
            Self::Awaited => f.write_str("has sent nothing since this controller became leader"),
            Self::Lost => f.write_str("is lost"),
        }
    }
}
