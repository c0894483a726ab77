//! Status of the slice level, for operators.

use std::time::Duration;

use equipoise_slice::balance::Hot;
use equipoise_slice::{HandoverId, Process, SliceId};
use serde::Serialize;

use crate::controller::unread::Unread;

/// Status of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Status {
    /// Whether this controller leads. If not, the other fields are empty.
    pub leading: bool,
    /// Workers, sorted by name.
    pub workers: Vec<WorkerStatus>,
    /// Slices, in order.
    pub slices: Vec<SliceStatus>,
    /// The requested number of slices while the stream is being resized, and a text about the
    /// condition that it waits for.
    pub resizing: Option<(u32, String)>,
    /// Open handovers.
    pub handovers: Vec<HandoverStatus>,
    /// Slices that are too large to be balanced.
    pub hot: Vec<Hot>,
    /// Excess of the most loaded worker over the mean, as a share of the mean.
    pub imbalance: f64,
    /// Publishers that no worker can read.
    pub unread: Vec<Unread>,
    /// Messages that could not be decoded: of another version, or not from equipoise.
    pub mail_unreadable: u64,
    /// Connections to the workers' port that are not from workers, and connections beyond its
    /// limits.
    pub connections_strange: u64,
    /// Handovers that moved slices while this controller leads, begun by balancing or by an
    /// operator.
    pub handovers_done: u64,
    /// Results of the handovers that balancing or an operator began.
    pub totals: HandoverTotals,
    /// Durations of the last of them that moved slices, from their start until the target was
    /// active.
    pub handover_times: Vec<Duration>,
    /// The steps of the same handovers.
    pub handover_steps: Vec<HandoverSteps>,
}

/// Time from the start of a handover until the controller knew of each of its steps. Items of the
/// slices wait between the cut and the activation of the target, and not before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HandoverSteps {
    /// The target receives and keeps the slices' items (it shadows).
    pub ready: Duration,
    /// The source has cut. Equal to `active` if the target's message arrived first.
    pub cut: Duration,
    /// The target is active.
    pub active: Duration,
}

/// Results of handovers, and durations of those that moved slices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HandoverTotals {
    /// Handovers after which the target owned the slices.
    pub moved: u64,
    /// Handovers after which the source kept the slices.
    pub called_off: u64,
    /// Counts of durations by upper bound ([`HandoverTotals::BUCKETS`]). The last one counts those
    /// above all bounds.
    pub times: [u64; HandoverTotals::BUCKETS.len() + 1],
    /// Sum of all durations.
    pub time_sum: Duration,
}

impl HandoverTotals {
    /// Upper bounds of durations.
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

/// State of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum WorkerState {
    /// It owns slices, or may receive some.
    Active,
    /// It has not reported yet, or its first handover is in progress.
    Joining,
    /// It has a weight of 0 and owns nothing. It receives only slices of lost workers and slices
    /// that are pinned to it.
    Standby,
    /// Its slices move to others, or it still has items of them.
    Draining,
    /// It has no slices and no items.
    Drained,
    /// Its program has had items for a long time and has finished none. It receives no slices.
    Stuck,
    /// Its settings differ from those of the controller. It receives no slices, and gives up its
    /// own.
    Refused,
    /// The store lists it, and it has not reported to this controller yet.
    Awaited,
    /// Its process ended, or its lease expired. Its slices move to others.
    Lost,
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerStatus {
    /// Its name, or its id while it has not reported.
    pub name: String,
    /// Its state.
    pub state: WorkerState,
    /// Time in this state; for a lost worker, time since its last message.
    pub since: Duration,
    /// The reason for the state, if it is not obvious.
    pub reason: Option<String>,
    /// It is lost.
    pub lost: bool,
    /// It has to give up its slices.
    pub leaving: bool,
    /// An operator drained it.
    pub drained: bool,
    /// The reason why it receives no slices, or another problem.
    pub problem: Option<String>,
    /// Its host and process. `None` while this controller has received nothing from it.
    pub process: Option<Process>,
    /// Slices that it owns.
    pub slices: u32,
    /// Its load: the number of cores that its slices keep busy, or would.
    pub load: f64,
    /// Items per second that it processed in its last report's period.
    pub items_per_second: f64,
    /// Items that wait there or are in progress.
    pub queued: u64,
    /// Items of these that its program has.
    pub in_hand: u64,
    /// Waiting time of the oldest of the others.
    pub queue_age: Duration,
    /// Time for which its program has had items and has finished none.
    pub stalled: Duration,
    /// Items that were processed since its start.
    pub done: u64,
    /// Items that were dropped since its start, by reason.
    pub drops: Vec<(String, u64)>,
    /// Its checkpoints, if it takes any.
    pub checkpoints: Option<WorkerCheckpoints>,
}

/// The checkpoints of a worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerCheckpoints {
    /// The worker that keeps them; `None`: there is no other worker.
    pub keeper: Option<String>,
    /// Age of the oldest checkpoint that lacks items.
    pub age: Duration,
    /// Items processed since the last checkpoints of their slices.
    pub items: u64,
    /// Slices with a state that is in no checkpoint at the keeper.
    pub exposed: u32,
    /// Slices with a state that is in no checkpoint in the folder. `None`: there is no folder.
    pub unstored: Option<u32>,
    /// Bytes of states in the last checkpoints.
    pub bytes: u64,
}

/// A slice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SliceStatus {
    /// Its number.
    pub slice: SliceId,
    /// Its owner.
    pub owner: Option<String>,
    /// The last handover, which gave it to its owner.
    pub epoch: HandoverId,
    /// Its load, in cores.
    pub load: f64,
    /// Items that wait.
    pub queued: u64,
    /// Waiting time of the oldest of them.
    pub queue_age: Duration,
    /// The worker that it is pinned to.
    pub pinned: Option<String>,
    /// The reason why it cannot move now.
    pub blocked: Option<String>,
    /// Time in its handover, if that is the reason.
    pub blocked_for: Option<Duration>,
    /// Rest of the time for which balancing leaves it where it is, after a recent move.
    pub cools: Option<Duration>,
}

/// A handover.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HandoverStatus {
    /// Its number.
    pub id: HandoverId,
    /// The source. `None`: the slices have no owner, and are assigned.
    pub source: Option<String>,
    /// The target.
    pub target: String,
    /// Number of slices.
    pub slices: usize,
    /// Its state.
    pub state: &'static str,
    /// The worker that it waits for, and the step.
    pub waits_for: String,
    /// Time since its start.
    pub since: Duration,
}
