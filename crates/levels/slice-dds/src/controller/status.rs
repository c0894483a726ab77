//! How the slice level stands, for people.

use std::time::Duration;

use equipoise_slice::balance::Hot;
use equipoise_slice::{HandoverId, Process, SliceId};
use serde::Serialize;

use crate::controller::unread::Unread;

/// How a stream stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// Whether this controller leads. If not, the rest is empty.
    pub leading: bool,
    /// Workers, by name.
    pub workers: Vec<WorkerStatus>,
    /// Slices, in order.
    pub slices: Vec<SliceStatus>,
    /// How many slices there are to be, if the stream is being resized, and what that waits for.
    pub resizing: Option<(u32, String)>,
    /// Handovers that are not over.
    pub handovers: Vec<HandoverStatus>,
    /// Slices that are too large to be balanced.
    pub hot: Vec<Hot>,
    /// What the most loaded worker has over the mean, as a share of the mean.
    pub imbalance: f64,
    /// Publishers whose items reach no worker.
    pub unread: Vec<Unread>,
    /// Messages that could not be read: of another version, or nobody's of ours.
    pub mail_unreadable: u64,
    /// Connections of strangers to the port for workers, and those beyond its bounds.
    pub connections_strange: u64,
    /// Handovers that this leader has seen the end of.
    pub handovers_done: u64,
    /// How those ended that somebody asked for or balancing began.
    pub totals: HandoverTotals,
    /// How long the last ones took, from their begin until the taker was active.
    pub handover_times: Vec<Duration>,
    /// The same ones, step by step.
    pub handover_steps: Vec<HandoverSteps>,
}

/// How long a handover took until each of its steps was known to the controller, from its begin on. Items of the slices are
/// held up between the cut and the taker's activity, and not before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HandoverSteps {
    /// The taker shadows.
    pub ready: Duration,
    /// The giver has cut. As `active`, if the taker was heard first.
    pub cut: Duration,
    /// The taker is active.
    pub active: Duration,
}

/// How handovers ended, and how long those took that moved slices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HandoverTotals {
    /// The slices are the taker's.
    pub moved: u64,
    /// They stayed where they were.
    pub called_off: u64,
    /// By upper bound of [`HandoverTotals::BUCKETS`]; the last are longer than all.
    pub times: [u64; HandoverTotals::BUCKETS.len() + 1],
    /// Of all times.
    pub time_sum: Duration,
}

impl HandoverTotals {
    /// Upper bounds of times.
    pub const BUCKETS: [Duration; 9] = [
        Duration::from_micros(500),
        Duration::from_millis(1),
        Duration::from_millis(2),
        Duration::from_millis(5),
        Duration::from_millis(20),
        Duration::from_millis(50),
        Duration::from_millis(200),
        Duration::from_secs(1),
        Duration::from_secs(5),
    ];

    pub(super) fn moved(&mut self, time: Duration) {
        self.moved += 1;
        self.time_sum += time;
        self.times[Self::BUCKETS.partition_point(|bound| *bound < time)] += 1;
    }
}

/// Whether a worker takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum WorkerState {
    /// It owns slices, or may.
    Active,
    /// It has not reported yet, or its first slices are on their way.
    Joining,
    /// It has a weight of 0 and owns nothing: it gets only slices of workers that are lost, and those pinned to it.
    Standby,
    /// Its slices go to others, or it still has items of slices that went.
    Draining,
    /// It has no slices and no items any more.
    Drained,
    /// It has had items for long and has finished none: it gets no slices.
    Stuck,
    /// It was started as it should not be: it is left without slices.
    Refused,
    /// Known by the store; this controller has not heard it yet.
    Awaited,
    /// Given up: its slices go to others.
    Lost,
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerStatus {
    /// Its name; its number while it has not reported.
    pub name: String,
    /// Whether it takes part.
    pub state: WorkerState,
    /// For how long it has been so; for one that is lost, how long ago it was heard last.
    pub since: Duration,
    /// Why it is so, where that is not plain.
    pub reason: Option<String>,
    /// It is given up as lost.
    pub lost: bool,
    /// It is to be left without slices.
    pub leaving: bool,
    /// An operator drained it.
    pub drained: bool,
    /// Why it gets no slices, or what else is wrong with it.
    pub problem: Option<String>,
    /// Where it runs; `None` while it was not heard.
    pub process: Option<Process>,
    /// Slices that it owns.
    pub slices: u32,
    /// Its load: cores that its slices keep busy, or would.
    pub load: f64,
    /// Items that it did, of the last period, for each second.
    pub items_per_second: f64,
    /// Items that wait there or are being done.
    pub queued: u64,
    /// Of those, the ones that its program has.
    pub in_hand: u64,
    /// How long the oldest of the others has waited.
    pub queue_age: Duration,
    /// For how long its program has had items and finished none.
    pub stalled: Duration,
    /// Items that were done since it started.
    pub done: u64,
    /// Items that were let go since it started, by reason.
    pub drops: Vec<(String, u64)>,
}

/// A slice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SliceStatus {
    /// Which.
    pub slice: SliceId,
    /// Who owns it.
    pub owner: Option<String>,
    /// Since which handover.
    pub epoch: HandoverId,
    /// Its load, in cores.
    pub load: f64,
    /// Items that wait.
    pub queued: u64,
    /// How long the oldest of them has waited.
    pub queue_age: Duration,
    /// Where it is pinned.
    pub pinned: Option<String>,
    /// Why it is not moved now.
    pub blocked: Option<String>,
    /// For how long it has been in a handover, if that is why.
    pub blocked_for: Option<Duration>,
    /// It was moved lately: for how long balancing still leaves it where it is.
    pub cools: Option<Duration>,
}

/// A handover.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HandoverStatus {
    /// Its number.
    pub id: HandoverId,
    /// Who gives; `None`: nobody does, the slices are assigned.
    pub giver: Option<String>,
    /// Who takes.
    pub taker: String,
    /// How many slices.
    pub slices: usize,
    /// How far it is.
    pub state: &'static str,
    /// What it waits for, and of whom.
    pub waits_for: String,
    /// How long ago it was begun.
    pub since: Duration,
}
