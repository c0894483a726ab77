//! Messages between workers and the controller. Every message may arrive late, twice or never: each
//! names its handover, and a sender that needs an answer repeats its message.

mod checkpoints;
mod claims;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::by_slice::BySlice;
use crate::ids::{HandoverId, Incarnation, Process, SliceId, Term, Writer};
use crate::numbering::Numbering;
use crate::positions::Positions;

pub use checkpoints::{Covered, SnapshotId, SnapshotPart};
pub(crate) use claims::least;
pub use claims::{Claims, Given, Past, Taken};

/// One data item, with the fields that the protocol needs. `T` is the application's payload; the
/// protocol clones it, so it should be a reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item<T> {
    /// Determines its slice, for any number of slices: see [`Numbering::slice_of`].
    pub key: u64,
    /// Its slice.
    pub slice: SliceId,
    /// The writer.
    pub writer: Writer,
    /// Increases with each item of the writer, from 1. An item that is published again keeps its
    /// position.
    pub position: u64,
    /// It was published before, and again because there was no reply. It does not show how far its
    /// writer is, so it is marked, even if it is the first that arrives.
    pub again: bool,
    /// The application's payload.
    pub payload: T,
}

/// The items of one writer that a client keeps, as its answer to a worker that recovers their
/// slices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeps {
    /// The writer.
    pub writer: Writer,
    /// The answer is complete for items up to this position.
    pub through: u64,
    /// By slice, the positions of kept items: those without a reply and, where checkpoints are
    /// taken, those that are in none. All others have a reply.
    pub slices: BTreeMap<SliceId, Vec<u64>>,
    /// The numbering of the slices, by its resize: that of the question.
    pub numbering: HandoverId,
}

impl Keeps {
    /// No items of `writer`, up to `through`. The question used `numbering`.
    pub fn new(writer: Writer, through: u64, numbering: &Numbering) -> Self {
        Self { writer, through, slices: BTreeMap::new(), numbering: numbering.epoch }
    }
}

/// Items of one writer that a client keeps ([`Keeps`]) and that a worker still lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacks {
    /// The writer.
    pub writer: Writer,
    /// The positions of the items.
    pub positions: Vec<u64>,
}

impl Lacks {
    /// The items.
    pub fn items(&self) -> impl Iterator<Item = (Writer, u64)> {
        self.positions.iter().map(|position| (self.writer, *position))
    }
}

/// Sender or receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Address {
    /// The current controller.
    Controller,
    /// One incarnation of a worker: a later one does not receive its messages.
    Worker(Incarnation),
}

/// A message in transit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// The sender.
    pub from: Address,
    /// The receiver.
    pub to: Address,
    /// The controller's term, as the sender knows it.
    pub term: Term,
    /// The sender's numbering, by its resize ([`Numbering::epoch`]). A receiver with another
    /// numbering ignores messages that name slices.
    pub numbering: HandoverId,
    /// The message.
    pub message: Message<T>,
}

/// A message of the protocol. The comments are from the view of the sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message<T> {
    /// Controller to target: shadow these slices.
    Prepare {
        /// The handover.
        handover: HandoverId,
        /// The slices to move.
        slices: Arc<[SliceId]>,
        /// Their owner.
        source: Incarnation,
    },
    /// Target to controller: all items after these positions are in my shadow (P).
    Ready {
        /// The handover.
        handover: HandoverId,
        /// P.
        positions: Positions,
        /// Every writer has matched my readers long ago, so writers that are not in P have no gap.
        settled: bool,
    },
    /// Controller to source: cut when you have passed P.
    Release {
        /// The handover.
        handover: HandoverId,
        /// The slices to move.
        slices: Arc<[SliceId]>,
        /// The target.
        target: Incarnation,
        /// P.
        positions: Positions,
        /// As reported by the target.
        settled: bool,
    },
    /// Source to target and controller: I admitted all items at or below these positions (C), and
    /// none above.
    Cut {
        /// The handover.
        handover: HandoverId,
        /// C.
        positions: Positions,
        /// Items at or below C that the source has not started. They follow in the tail. Empty in
        /// messages from and to the controller.
        backlog: Vec<Backlog>,
    },
    /// Target to source and controller: I own the slices, and this is my progress.
    Active {
        /// The handover.
        handover: HandoverId,
        /// C.
        cut: Positions,
        /// The progress.
        progress: Progress,
    },
    /// Source to target: I have nothing of these slices left to do. Contains the state if the
    /// application has one.
    Drained {
        /// The handover.
        handover: HandoverId,
        /// Slices, with their state.
        slices: Vec<(SliceId, Option<Vec<u8>>)>,
    },
    /// Source to target: items that were not started, then items after C of writers that matched
    /// the target's readers late.
    Tail {
        /// The handover.
        handover: HandoverId,
        /// The number of the first entry, from 0.
        first: u64,
        /// In order.
        entries: Vec<TailEntry<T>>,
    },
    /// Source to controller: all is drained, and the target lacks nothing.
    Closed {
        /// The handover.
        handover: HandoverId,
        /// C.
        cut: Positions,
    },
    /// Controller to source or target: call it off, if there is no cut yet.
    Abort {
        /// The handover.
        handover: HandoverId,
    },
    /// Source or target to controller: I will never cut, or will ignore any cut.
    Aborted {
        /// The handover.
        handover: HandoverId,
    },
    /// Controller to a worker: you own these slices now; there is no source.
    Assign {
        /// Counts as a handover.
        handover: HandoverId,
        /// The slices.
        slices: Arc<[SliceId]>,
        /// The positions that the lost owner had committed. `None`: the slices never had an owner.
        after: Option<Positions>,
    },
    /// Controller to target: the source was lost before it had drained, with these positions
    /// committed.
    Recover {
        /// The handover.
        handover: HandoverId,
        /// The positions that it had committed, or that were finished before it owned the slice.
        after: BySlice,
    },
    /// Controller to target: the handover is over.
    End {
        /// The handover.
        handover: HandoverId,
    },
    /// Worker to controller, repeatedly: I live, and hold these slices.
    Claims(Box<Claims>),
    /// Controller to worker: claims with this number arrived. They renew the lease from when they
    /// were sent.
    Grant {
        /// The number of the claims.
        number: u64,
    },
    /// Controller to worker: you were given up as lost. Drop everything, and return as a new
    /// incarnation with a larger number than this.
    Expel {
        /// The last incarnation of the worker's name.
        last: u64,
    },
    /// Controller to worker: another process works under your name. Drop everything.
    Refuse {
        /// The last incarnation of the worker's name.
        last: u64,
        /// The other process.
        holder: Process,
        /// Time since its last claims.
        heard: Duration,
    },
    /// Controller to worker: your connection closed without notice; answer if you live.
    Probe {
        /// Number of the probe.
        number: u64,
    },
    /// Worker to controller: I live.
    Alive {
        /// Number of the probe that it answers.
        number: u64,
    },
    /// Controller to worker, repeatedly: the stream is resized. The worker answers in its claims.
    Resize {
        /// The new numbering.
        numbering: Numbering,
        /// Take it now, as all workers can. Before: report when you can (`Claims::ready_for`).
        now: bool,
    },
    /// Controller to worker, repeatedly: keep items of these slices, and of no others.
    Standby {
        /// All slices, with the positions that their owners have committed and that need not be
        /// kept.
        committed: BySlice,
    },
    /// Controller to a worker, repeatedly, if checkpoints are taken: the worker that keeps them.
    Keepers {
        /// Increases with each change of the list, within a term.
        number: u64,
        /// The keeper of this worker's checkpoints; `None`: there is no other worker.
        standby: Option<Incarnation>,
        /// All other living workers.
        others: Vec<Incarnation>,
    },
    /// Controller to a worker, in place of `Assign` and `Recover`: the state of these slices was
    /// lost with their owner. The worker itself, or one of `others`, has their last checkpoint.
    Restore {
        /// The handover.
        handover: HandoverId,
        /// The slices.
        slices: Arc<[SliceId]>,
        /// As in `Keepers`.
        number: u64,
        /// As in `Keepers`.
        others: Vec<Incarnation>,
    },
    /// Owner to its keeper, and keeper to a target that asked.
    Snapshots {
        /// Parts of snapshots.
        parts: Vec<SnapshotPart>,
        /// Complete snapshots. All items in them have replies: they are checkpoints now.
        commits: Vec<(SliceId, SnapshotId)>,
        /// Another worker has these checkpoints: earlier ones are not needed.
        superseded: Vec<(SliceId, SnapshotId)>,
    },
    /// Keeper to owner.
    Kept {
        /// Received bytes of each snapshot, plus one for its head.
        came: Vec<(SliceId, SnapshotId, u64)>,
        /// Snapshots that are checkpoints now.
        committed: Vec<(SliceId, SnapshotId)>,
    },
    /// Target to the other workers: which checkpoints of these slices do you have? From now on
    /// commit none of an owner before this epoch.
    Ask {
        /// The epoch of the target.
        epoch: HandoverId,
        /// The slices.
        slices: Arc<[SliceId]>,
    },
    /// The answer to `Ask`.
    Has {
        /// The slices in the question.
        slices: Arc<[SliceId]>,
        /// The checkpoints.
        versions: Vec<(SliceId, SnapshotId)>,
    },
    /// Target to keeper: send these checkpoints, each from this byte on.
    Want {
        /// The checkpoints.
        wants: Vec<(SliceId, SnapshotId, u64)>,
    },
}

impl<T> Message<T> {
    /// Whether it names slices, or handovers of slices.
    pub(crate) fn names_slices(&self) -> bool {
        !matches!(
            self,
            Self::Claims(_)
                | Self::Grant { .. }
                | Self::Expel { .. }
                | Self::Refuse { .. }
                | Self::Probe { .. }
                | Self::Alive { .. }
                | Self::Resize { .. }
        )
    }

    /// The message's name, one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Prepare { .. } => "prepare",
            Self::Ready { .. } => "ready",
            Self::Release { .. } => "release",
            Self::Cut { .. } => "cut",
            Self::Active { .. } => "active",
            Self::Drained { .. } => "drained",
            Self::Tail { .. } => "tail",
            Self::Closed { .. } => "closed",
            Self::Abort { .. } => "abort",
            Self::Aborted { .. } => "aborted",
            Self::Assign { .. } => "assign",
            Self::Recover { .. } => "recover",
            Self::End { .. } => "end",
            Self::Claims(_) => "claims",
            Self::Grant { .. } => "grant",
            Self::Expel { .. } => "expel",
            Self::Refuse { .. } => "refuse",
            Self::Probe { .. } => "probe",
            Self::Alive { .. } => "alive",
            Self::Resize { .. } => "resize",
            Self::Standby { .. } => "standby",
            Self::Keepers { .. } => "keepers",
            Self::Restore { .. } => "restore",
            Self::Snapshots { .. } => "snapshots",
            Self::Kept { .. } => "kept",
            Self::Ask { .. } => "ask",
            Self::Has { .. } => "has",
            Self::Want { .. } => "want",
        }
    }
}

/// The progress of the target after the cut.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Slices that wait for `Drained`.
    pub held: Vec<SliceId>,
    /// Every writer matched long ago, so the tail needs no more entries than it has now.
    pub settled: bool,
    /// Number of the next tail entry that it expects.
    pub tail_next: u64,
    /// Writers whose items have arrived from this position on: the tail must reach it.
    pub until: Vec<(Writer, u64)>,
    /// The controller has received claims of the target that cover the backlog, or there is none.
    /// Until then the source still answers for these items.
    pub claimed: bool,
    /// The target is recovering the items of the lost source: the number of the first claims that
    /// say so. A successor of this worker uses those or later ones.
    pub recovered: Option<u64>,
}

/// An entry of the tail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TailEntry<T> {
    /// An item at or below C that the source has not started.
    Unstarted(Item<T>),
    /// All items that the source had not started are before this entry.
    UnstartedEnd,
    /// An item after C.
    Item(Item<T>),
    /// There are no more items of this writer.
    End(Writer),
    /// There are no more entries.
    EndAll,
}

/// Items of one writer in one slice that the source has not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backlog {
    /// The slice.
    pub slice: SliceId,
    /// The writer.
    pub writer: Writer,
    /// Position before the first of these items.
    pub after: u64,
}
