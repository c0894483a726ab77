//! What a balancing round would do, and why it would do no more; for people.

use std::fmt;
use std::time::Duration;

use equipoise_slice::balance::Hot;
use equipoise_slice::{HandoverId, SliceId};

/// What a balancing round would do now.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// What it would move.
    pub moves: Vec<PlannedMove>,
    /// Why it would move no more.
    pub why: PlanReason,
    /// Workers, by name.
    pub workers: Vec<PlannedWorker>,
    /// Slices that no move can even out.
    pub hot: Vec<Hot>,
    /// What the most loaded worker has over the mean, as a share of the mean.
    pub imbalance: f64,
}

/// Slices that would be moved together.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedMove {
    /// From whom.
    pub giver: String,
    /// To whom.
    pub taker: String,
    /// Which.
    pub slices: Vec<SliceId>,
    /// Their load, in cores, with that of the items that wait.
    pub load: f64,
    /// Because an operator pinned them there.
    pub pinned: bool,
}

/// Why a round moves no more than it does ([`equipoise_slice::balance::Why`], with names).
#[derive(Debug, Clone, PartialEq)]
pub enum PlanReason {
    /// No worker may be given slices.
    NobodyTakes,
    /// One worker alone may have slices.
    OneTakes(String),
    /// Nothing was measured.
    NothingMeasured,
    /// No worker has more over the mean than this, as a share of the mean.
    Even(f64),
    /// Rounds may move nothing by themselves.
    Off,
    /// It moves what is best now.
    Moves,
    /// The move that would help most has to wait.
    Held {
        /// The slice that would be moved.
        slice: SliceId,
        /// Who has it.
        giver: String,
        /// Who would get it.
        taker: String,
        /// What it waits for.
        by: HoldReason,
    },
    /// No slice that could be moved makes it more even.
    NoSliceHelps {
        /// The most loaded worker.
        giver: String,
        /// How many slices it has.
        slices: usize,
    },
}

/// Why a slice is not moved now.
#[derive(Debug, Clone, PartialEq)]
pub enum HoldReason {
    /// An operator keeps it on this worker.
    Pinned(String),
    /// It is in this handover.
    Handover(HandoverId),
    /// It was moved lately, and stays this much longer.
    CoolDown(Duration),
    /// It has more load than one round may move.
    TooLarge,
}

/// A worker, as a round sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedWorker {
    /// Its name.
    pub name: String,
    /// The load of the items that come, in cores.
    pub load: f64,
    /// The load of the items that wait, in cores.
    pub queue_load: f64,
    /// The items that wait at the worker, or are being done.
    pub queued: u64,
    /// What both loads, by its weight, are over the mean, as a share of the mean; below it:
    /// negative. `None`: it takes no part.
    pub over_mean: Option<f64>,
    /// The load that it has below its share, in cores. `None`: it takes no part.
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
    pub reason: WorkerReason,
}

/// What a round has to do with a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerReason {
    /// It would give so many slices.
    Gives(usize),
    /// It would take so many.
    Takes(usize),
    /// It has about its share.
    Even,
    /// It has more than its share, and keeps it for the plan's reason.
    Over,
    /// It has less than its share, and gets nothing for the plan's reason.
    Under,
    /// It is left without slices; why.
    Leaves(String),
    /// It has a weight of 0.
    Standby,
    /// No load was measured, of any worker.
    Idle,
    /// Nothing is known of its load: it has not reported.
    NoReport,
    /// Items wait, and it does none: why.
    Stuck(String),
    /// Nothing was heard of it since this controller leads.
    Awaited,
    /// It is given up.
    Lost,
}

fn per_cent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

impl fmt::Display for PlanReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NobodyTakes => f.write_str(
                "no worker may be given slices: none is here, or all are draining or have a weight of 0",
            ),
            Self::OneTakes(worker) => write!(f, "{worker} is the only worker that may have slices"),
            Self::NothingMeasured => {
                f.write_str("no load was measured: no items come, or none has been done yet")
            }
            Self::Even(within) => {
                write!(f, "balanced: no worker has more than {} over the mean", per_cent(*within))
            }
            Self::Off => f.write_str(
                "rounds move nothing by themselves (`share-max = 0` in [slice.balancing])",
            ),
            Self::Moves => {
                f.write_str("this is what helps most now; the next round looks again")
            }
            Self::Held { slice, giver, taker, by } => write!(
                f,
                "what would help most is slice {} from {giver} to {taker}, but {by}",
                slice.0
            ),
            Self::NoSliceHelps { giver, slices } => write!(
                f,
                "none of the {slices} slices of {giver} makes it more even if it is moved: there are too few slices, or some \
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
            Self::CoolDown(left) => write!(
                f,
                "it was moved lately and stays for another {:.1} s (`cool-down`)",
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
            Self::Leaves(why) => write!(f, "is left without slices: {why}"),
            Self::Standby => f.write_str("has a weight of 0, so gets slices of lost workers only"),
            Self::Idle => f.write_str("no load was measured"),
            Self::NoReport => f.write_str("has not reported its load yet"),
            Self::Stuck(why) => write!(f, "is stuck: {why}"),
            Self::Awaited => f.write_str("was not heard since this controller leads"),
            Self::Lost => f.write_str("is lost"),
        }
    }
}
